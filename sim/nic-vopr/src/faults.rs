//! What goes wrong in a run, from its beginning to a moment after which the network is well.
//!
//! Faults are drawn so that a connection has no right to die: loss leaves most packets alive, and what takes a whole way
//! down spares one plane, or is over long before the retransmission timer gives up.

use nic_fabric::{Action, Fabric, FabricError, LinkId, LinkSelect, Outage, Rule, Verdict};

use crate::draw::Draw;
use crate::network::Network;

const US: u64 = 1_000_000;

/// One thing that goes wrong.
#[derive(Clone)]
pub enum Fault {
    /// On single frames.
    Rule(LinkSelect, Rule),
    /// Cables down, and everybody told.
    Outage(Outage),
}

/// Everything that goes wrong.
#[derive(Clone)]
pub struct Faults {
    /// In the order in which they are put in force.
    pub list: Vec<Fault>,
    /// When the last is over, picoseconds.
    pub end_ps: u64,
    /// Loss is so frequent that many timeouts in a row are no wonder.
    pub is_heavy: bool,
    /// Frames arrive with damage that no FCS found.
    pub has_damage: bool,
    /// A cable between switches is down for as long as it likes; a second one might leave no way.
    pub(crate) has_core_outage: bool,
    /// Frames may be late, or come twice.
    pub has_delay: bool,
    /// Some never end.
    pub is_lasting: bool,
    /// In words, one each.
    pub texts: Vec<String>,
}

impl Faults {
    /// Forgets the faults that are not kept; what was drawn with them in mind stays.
    pub(crate) fn keep(&mut self, is_kept: impl Fn(u64) -> bool) {
        let numbers: Vec<usize> = (0..self.list.len()).filter(|number| is_kept(*number as u64)).collect();
        self.list = numbers.iter().map(|number| self.list[*number].clone()).collect();
        self.texts = numbers.iter().map(|number| self.texts[*number].clone()).collect();
    }

    /// Puts them in force.
    ///
    /// # Errors
    /// [`FabricError`] if a selection names no link of the network.
    pub fn apply(&self, fabric: &mut Fabric) -> Result<(), FabricError> {
        for fault in &self.list {
            match fault {
                Fault::Rule(select, rule) => fabric.add_rule(select, rule.clone())?,
                Fault::Outage(outage) => fabric.schedule(outage)?,
            }
        }
        Ok(())
    }
}

/// Draws the faults of a network.
pub fn draw_faults(draw: &mut Draw, network: &Network) -> Faults {
    let end_ps = draw.magnitude(50 * US, 8_000 * US);
    let mut faults = Faults {
        list: Vec::new(),
        end_ps,
        is_heavy: false,
        has_damage: false,
        has_core_outage: false,
        has_delay: false,
        is_lasting: false,
        texts: Vec::new(),
    };
    for _ in 0..draw.below(4) {
        add_rule(draw, network, &mut faults);
    }
    if draw.percent(40) {
        for _ in 0..draw.between(1, 4) {
            add_outage(draw, network, &mut faults);
        }
    }
    faults
}

/// Where frames suffer, and how many hops of a way that is at most.
fn place(draw: &mut Draw, network: &Network) -> (LinkSelect, u64) {
    let has_core = !network.topology.select(&LinkSelect::Core).is_empty();
    match draw.weighted(&[2, 2, u64::from(has_core) * 2, 1, 1, 3]) {
        0 => (LinkSelect::HostUp, 1),
        1 => (LinkSelect::HostDown, 1),
        2 => (LinkSelect::Core, 4),
        3 => (LinkSelect::All, 6),
        4 => (LinkSelect::Plane(draw.below(u64::from(network.planes)) as u16), 6),
        _ => (LinkSelect::Link(LinkId(draw.below(u64::from(network.topology.link_count())) as u32)), 1),
    }
}

fn add_rule(draw: &mut Draw, network: &Network, faults: &mut Faults) {
    let (select, hops) = place(draw, network);
    let mut ppm = |high: u64| draw.magnitude(500, high) as u32;
    let (loss_ppm, odd_ppm) = (ppm(80_000 / hops), ppm(50_000));
    let delay_ps = draw.magnitude(1_000, 60 * US);
    let (action, text) = match draw.weighted(&[5, 3, 2, 2, 3, 2]) {
        0 => (Action::Loss { ppm: loss_ppm }, format!("loss of {loss_ppm} ppm")),
        1 => {
            let (length, to_bad_ppm) = (draw.between(1, 8) as u32, loss_ppm.min(5_000));
            let (to_good_ppm, bad_loss_ppm) = (1_000_000 / length, draw.between(300_000, 1_000_000) as u32);
            let action = Action::Burst { to_bad_ppm, to_good_ppm, good_loss_ppm: 0, bad_loss_ppm };
            (action, format!("bursts of {length}, {to_bad_ppm} ppm, losing {bad_loss_ppm} ppm"))
        }
        2 => {
            let is_found_by_fcs = draw.percent(20);
            (Action::Corrupt { ppm: loss_ppm, is_found_by_fcs }, format!("damage to {loss_ppm} ppm"))
        }
        3 => (Action::Duplicate { ppm: odd_ppm, delay_ps }, format!("copies of {odd_ppm} ppm, {delay_ps} ps later")),
        4 => {
            let action = Action::Delay { ppm: odd_ppm, min_ps: delay_ps / 4, max_ps: delay_ps };
            (action, format!("delay of {odd_ppm} ppm up to {delay_ps} ps"))
        }
        _ => {
            let (first, count) = (draw.magnitude(1, 500), draw.between(1, 12));
            let verdict = Verdict::Drop;
            (Action::Nth { first, count, verdict }, format!("loss of {count} frames from number {first} on"))
        }
    };
    faults.has_delay |= matches!(action, Action::Delay { .. } | Action::Duplicate { .. });
    faults.has_damage |= matches!(action, Action::Corrupt { is_found_by_fcs: false, .. });
    faults.is_heavy |= loss_ppm > 20_000 || matches!(action, Action::Burst { .. } | Action::Nth { .. });
    let (from_ps, until_ps) = span(draw, faults.end_ps, u64::MAX);
    let number = faults.list.len();
    faults.texts.push(format!("fault {number}: {select:?}: {text}, {} to {} us", from_ps / US, until_ps / US));
    faults.list.push(Fault::Rule(select, Rule::new(action).during(from_ps, until_ps)));
}

/// A part of the time until `end_ps`, at most `longest_ps` of it.
fn span(draw: &mut Draw, end_ps: u64, longest_ps: u64) -> (u64, u64) {
    if draw.percent(40) && end_ps <= longest_ps {
        return (1, end_ps);
    }
    let from_ps = draw.between(1, end_ps - 1);
    let longest_ps = longest_ps.min(end_ps - from_ps).max(1);
    (from_ps, from_ps + draw.magnitude(1, longest_ps))
}

fn add_outage(draw: &mut Draw, network: &Network, faults: &mut Faults) {
    // Plane 0 stays alive; what takes all of a connection's ways in it down ends before timers give up.
    let plane = draw.below(u64::from(network.planes)) as u16;
    let cores = network.topology.select(&LinkSelect::Core);
    let (select, is_of_plane_0, can_kill) = match draw.weighted(&[3, 3, u64::from(!cores.is_empty()) * 4]) {
        0 => (LinkSelect::Plane(plane), plane == 0, plane == 0),
        1 => {
            let host = *draw.pick(&network.topology.select(&LinkSelect::HostUp));
            let is_of_plane_0 = network.topology.cables[host.0 as usize / 2].plane == 0;
            (LinkSelect::Link(host), is_of_plane_0, is_of_plane_0)
        }
        _ => {
            let core = *draw.pick(&cores);
            let is_of_plane_0 = network.topology.cables[core.0 as usize / 2].plane == 0;
            // Where packets are sprayed, no path can leave a dead way, and each loses its share.
            faults.is_heavy |= network.is_spraying;
            let is_first = !std::mem::replace(&mut faults.has_core_outage, true);
            (LinkSelect::Link(core), is_of_plane_0, is_of_plane_0 && (network.is_single_way || !is_first))
        }
    };
    let (from_ps, mut until_ps) = span(draw, faults.end_ps, if can_kill { 1_000 * US } else { u64::MAX });
    // Where packets are sprayed, what takes a dead way never arrives.
    let is_for_good = !is_of_plane_0 && !network.is_spraying && draw.percent(25);
    if is_for_good {
        faults.is_lasting = true;
        until_ps = u64::MAX;
    }
    let is_silent = draw.percent(40);
    let how = if is_silent { "silently dead" } else { "down" };
    let until = if is_for_good { "on".to_string() } else { format!("to {} us", until_ps / US) };
    let number = faults.list.len();
    faults.texts.push(format!("fault {number}: {select:?}: {how} from {} us {until}", from_ps / US));
    faults.list.push(if is_silent {
        Fault::Rule(select, Rule::loss(1_000_000).during(from_ps, until_ps))
    } else {
        Fault::Outage(Outage::new(select, from_ps, until_ps))
    });
}
