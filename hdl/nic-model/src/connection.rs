//! One connection: what both directions share.

use crate::bootstrap::Opening;
use crate::cm::Handshake;
use crate::config::TransportConfig;
use crate::conn_config::ConnConfig;
use crate::conn_plane::ConnPlanes;
use crate::core::Core;
use crate::footprint::of_vec;
use crate::foresee::Fetch;
use crate::reaim::GoodPorts;
use crate::requester::Requester;
use crate::responder::Responder;
use crate::retire::Retired;
use crate::time::Time;
use crate::timer::TimerKey;
use crate::transport::pacer::Pacer;
use crate::transport::path::{PathState, TxPath};
use crate::transport::path_set::PathSet;
use crate::transport::reorder::ReorderTolerance;
use crate::transport::rtt::Rtt;
use crate::transport::rx_path::RxPath;
use crate::transport::window::Desc;
use crate::watch::Watch;
use crate::wire::emit::Template;
use crate::wire::frame::Payload;
use crate::wire::packet::{Body, Network, Packet};
use crate::work::{ConnId, Cqe, CqeOp, Event};
use alloc::vec::Vec;
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::{Pd, Pkey, Psn, Qpn, Rkey};
use nic_spec::wire::{Opcode, ECN_ECT0};

/// State of a connection, as verbs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnState {
    /// The peer has not answered yet.
    Init,
    /// Receives only.
    Rtr,
    /// Sends and receives.
    Rts,
    /// Begins no new message; what is begun goes on.
    Sqd,
    /// Carries nothing any more.
    Error,
}

/// Numbers of a connection that every packet is compared with, beside what else every packet touches.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Own {
    /// Its id on this side.
    pub id: Qpn,
    pub pd: Pd,
    pub pkey: Pkey,
    pmtu_log2: u8,
}

impl Own {
    fn of(cfg: &ConnConfig) -> Self {
        Self { id: cfg.local_id, pd: cfg.pd, pkey: cfg.pkey, pmtu_log2: cfg.pmtu_log2 }
    }
}

/// A connection. In memory, what every packet touches comes first, since the working set of many connections is what
/// limits the model's speed.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Connection {
    pub state: ConnState,
    /// Data left since markers were last sent.
    pub is_marker_owed: bool,
    /// Planes whose ready queue holds this connection.
    pub in_ready: u16,
    /// Planes whose idle queue holds this connection.
    pub in_idle: u16,
    /// The path of the peer heard last.
    pub last_rx_path: Option<u8>,
    pub index: u32,
    /// Its number in the hint engine.
    pub hint_index: u32,
    /// Of `cfg`, what every packet needs.
    own: Own,
    /// When a packet of the peer last came.
    pub heard_at: Time,
    pub rx_paths: Vec<RxPath>,
    /// Round trip over all paths.
    pub rtt: Rtt,
    /// Two for each plane: of data packets, of control packets.
    templates: Vec<[Template; 2]>,
    pub pacer: Pacer,
    /// Cap of the window: twice the bandwidth-delay product.
    pub window_max_pkts: u32,
    /// Packets that may be in flight while the connection begins; grows with every acknowledgement.
    pub ramp_pkts: u32,
    pub responder: Responder,
    pub requester: Requester,
    pub paths: PathSet,
    pub reorder: ReorderTolerance,
    pub cfg: ConnConfig,
    /// When a mark was last reported; none since an acknowledgement without one, a round trip or more later.
    pub last_ce: Option<Time>,
    /// Round trip for which the window's cap was computed, ps.
    pub window_for_ps: u64,
    /// Room for a read that the card granted.
    pub read_grant: Option<u64>,
    /// It stands in the card's queue for such room.
    pub waits_for_room: bool,
    /// Retransmissions wait for the token bucket.
    pub is_rtx_held: bool,
    /// Descriptors just acknowledged, and of how many packets each; kept for its memory.
    pub acked: Vec<(Desc, u32)>,
    /// Source ports that worked lately, by plane.
    pub good_ports: Vec<GoodPorts>,
    pub pace_armed: Time,
    pub retry_armed: Time,
    pub conn_armed: Time,
    /// When a refusal may be sent again.
    pub nak_free_at: Time,
    /// Packets that the receiver refused for now.
    pub parked: Vec<(u8, Psn)>,
    /// Paths that the peer has still to open.
    pub opening: Opening,
    /// Paths that are closed for good.
    pub retired: Retired,
    /// Planes as this connection sees them.
    pub planes: ConnPlanes,
    /// Plane on which each path belongs.
    pub home: Vec<u8>,
    /// State of the choice of UDP source ports.
    pub port_draw: u32,
    /// Bandwidth-delay product, packets.
    pub bdp_pkts: u32,
    /// Its beginning and end.
    pub handshake: Handshake,
    /// Whether the peer is still there while it is waited for.
    pub watch: Watch,
}

const _: () = {
    assert!(core::mem::offset_of!(Connection, rtt) == 64, "whose packet it is and where its path stands");
    assert!(core::mem::offset_of!(Connection, pacer) == 128, "how it is paced and whether there are answers");
};

impl Connection {
    pub fn new(index: u32, cfg: ConnConfig, core: &mut Core, now: Time) -> Self {
        let mut paths = PathSet::new(core.cfg.planes.iter().map(|p| p.rate_mbps));
        for p in &cfg.tx_paths {
            paths.push(TxPath::open(p.plane, p.sport, p.epoch, p.first), now, &cfg.transport);
        }
        let rx_paths = cfg.rx_paths.iter().map(|p| RxPath::new(p.first, p.sport)).collect();
        let hint_index = core.hints.add(cfg.hint_weight, index);
        Self {
            own: Own::of(&cfg),
            index,
            state: ConnState::Rts,
            paths,
            rx_paths,
            requester: Requester::new(&cfg),
            responder: Responder::new(&cfg),
            pacer: Pacer::default(),
            rtt: Rtt::default(),
            reorder: ReorderTolerance::default(),
            window_max_pkts: cfg.transport.conn_window_min_pkts,
            window_for_ps: 0,
            hint_index: hint_index as u32,
            heard_at: now,
            in_ready: 0,
            in_idle: 0,
            nak_free_at: Time::ZERO,
            is_marker_owed: false,
            last_ce: None,
            parked: Vec::new(),
            pace_armed: Time::NEVER,
            is_rtx_held: false,
            ramp_pkts: 0,
            read_grant: None,
            waits_for_room: false,
            retry_armed: Time::NEVER,
            last_rx_path: None,
            acked: Vec::new(),
            port_draw: (core.cfg.seed as u32) ^ cfg.local_id.get().wrapping_mul(0x85eb_ca6b) | 1,
            good_ports: alloc::vec![GoodPorts::default(); core.cfg.planes.len()],
            planes: ConnPlanes::new(core.cfg.planes.len().min(cfg.addresses.len().max(1))),
            home: cfg.tx_paths.iter().map(|p| p.plane).collect(),
            opening: Opening::default(),
            retired: Retired::default(),
            conn_armed: Time::NEVER,
            bdp_pkts: 0,
            handshake: Handshake::none(),
            watch: Watch::new(),
            templates: alloc::vec![[Template::EMPTY; 2]; core.cfg.planes.len()],
            cfg,
        }
    }

    /// Numbers that every packet is compared with.
    #[inline(always)]
    pub const fn own(&self) -> &Own {
        &self.own
    }

    /// Largest payload of a packet, bytes.
    #[inline(always)]
    pub fn pmtu_bytes(&self) -> u32 {
        1 << self.own.pmtu_log2
    }

    /// The tunables.
    pub fn transport(&self) -> &TransportConfig {
        &self.cfg.transport
    }

    /// Lets the ports ask this connection for new packets.
    pub fn activate(&mut self, core: &mut Core) {
        let mut missing = self.paths.plane_mask() & !self.in_ready;
        while missing != 0 {
            let plane = missing.trailing_zeros() as usize;
            missing &= missing - 1;
            if let Some(queue) = core.planes.get_mut(plane) {
                queue.push_ready(self.index);
                self.in_ready |= 1 << plane;
            }
        }
    }

    /// So many packets for each plane of the connection: each has its own port and buffer at the receiver.
    pub fn begin_pkts(&self, per_plane: u32) -> u32 {
        per_plane.saturating_mul(self.paths.plane_count())
    }

    /// Packets that may be in flight on all paths together.
    #[inline]
    pub fn window_pkts(&self, now: Time) -> u32 {
        let cfg = &self.cfg.transport;
        let ramp_pkts = self.begin_pkts(cfg.conn_ramp_pkts);
        let Some(min_ps) = self.rtt.min_ps() else { return self.first_window_pkts(ramp_pkts) };
        let most = self.window_max_pkts.min(self.ramp_pkts.max(ramp_pkts)).max(1);
        let planes = self.paths.plane_count();
        let hint = self.pacer.window_pkts(now, min_ps, cfg.ack_delay_ps, self.pmtu_bytes(), planes);
        hint.map_or(most, |w| w.min(most))
    }

    /// As [`window_pkts`](Self::window_pkts) before the first round trip.
    #[inline(never)]
    fn first_window_pkts(&self, ramp_pkts: u32) -> u32 {
        let init_pkts = self.begin_pkts(self.cfg.transport.conn_init_pkts).max(1);
        if self.responder.has_answers() {
            init_pkts.max(ramp_pkts)
        } else {
            init_pkts
        }
    }

    /// Sets the timer of path `index` to its deadline.
    #[inline(never)]
    pub fn arm_path(&mut self, core: &mut Core, index: usize) {
        self.arm_sent(core, index);
    }

    /// As [`arm_path`](Self::arm_path), where a packet leaves.
    #[inline(always)]
    pub fn arm_sent(&mut self, core: &mut Core, index: usize) {
        let Some(path) = self.paths.get(index) else { return };
        let deadline = path.deadline(self.rtt.srtt_ps(), &self.cfg.transport);
        core.timers.arm(self.paths.armed_mut(index), deadline, TimerKey::Path(self.index, index as u8));
    }

    /// Takes over a change of path `index` and puts it into its plane's retransmit queue if it has something there.
    pub fn settle_path(&mut self, core: &mut Core, now: Time, index: usize) {
        let (queue, timer_at) = self.paths.settle(index, now, self.rtt.srtt_ps(), &self.cfg.transport);
        if queue.is_some() && self.is_rtx_held {
            // It is told again when the token bucket has credit.
            self.paths.set_rtx_queued(index, false);
        } else if let Some(queue) = queue.and_then(|plane| core.planes.get_mut(usize::from(plane))) {
            queue.push_rtx((self.index, index as u8));
        }
        if let Some(at) = timer_at {
            core.timers.set(at, TimerKey::Path(self.index, index as u8));
        }
    }

    /// A new UDP source port for a path, from the connection's own sequence.
    pub fn draw_port(&mut self) -> u16 {
        draw_port(&mut self.port_draw)
    }

    /// A data packet of this connection without body and payload.
    pub fn packet(&self, core: &Core, now: Time, plane: u8, sport: u16) -> Packet {
        let (src, dst) =
            self.cfg.addresses.get(usize::from(plane)).or(self.cfg.addresses.last()).copied().unwrap_or_default();
        Packet {
            net: Network {
                src,
                dst,
                is_ipv6: self.cfg.is_ipv6,
                dscp: self.cfg.dscp,
                ecn: ECN_ECT0,
                hop_limit: core.cfg.hop_limit,
                sport,
            },
            pkey: self.cfg.pkey,
            dest: self.cfg.remote_id,
            ack_req: false,
            rtx: false,
            eob: false,
            pseq: Psn::new(0),
            path: 0,
            plane,
            epoch: 0,
            stream: 0,
            tx_ts: now.ticks(self.cfg.transport.tick_ps),
            body: Body::Cm(Opcode::ConnReq),
            payload: Payload::EMPTY,
        }
    }

    /// Template of the packets that leave by `plane`.
    #[inline]
    pub fn template(&mut self, core: &Core, plane: u8, class: TrafficClass) -> Option<&Template> {
        let at = usize::from(plane);
        if !self.templates.get(at)?[class as usize].is_made() {
            self.make_templates(core, plane);
        }
        self.templates.get(at).map(|t| &t[class as usize])
    }

    /// Has a template fetched.
    #[inline]
    pub fn foresee_template(&self, plane: u8, class: TrafficClass, fetch: impl Fetch) {
        if let Some(templates) = self.templates.get(usize::from(plane)) {
            fetch.all(&templates[class as usize]);
        }
    }

    /// Memory of the templates, bytes.
    pub fn template_bytes(&self) -> usize {
        of_vec(&self.templates)
    }

    #[cold]
    fn make_templates(&mut self, core: &Core, plane: u8) {
        let data = Template::new(&self.packet(core, Time::ZERO, plane, 0), core.cfg.udp_dport);
        let control = Template::new(&self.control_packet(core, Time::ZERO, plane, 0), core.cfg.udp_dport);
        self.templates[usize::from(plane)] = [data, control];
    }

    /// A control packet of this connection without body and payload.
    pub fn control_packet(&self, core: &Core, now: Time, plane: u8, sport: u16) -> Packet {
        let mut packet = self.packet(core, now, plane, sport);
        packet.net.dscp = self.cfg.dscp_control;
        packet
    }

    /// A completion of this connection.
    pub fn cqe(&self, stream: u16, wr_id: u64, op: CqeOp, status: Status) -> Cqe {
        Cqe {
            conn: ConnId(self.index),
            qpn: self.cfg.local_id,
            stream,
            wr_id,
            op,
            status,
            byte_len: 0,
            imm: None,
            invalidated: None::<Rkey>,
            tag: None,
            solicited: false,
        }
    }

    /// The connection goes into error: everything asked for and not done is flushed. The oldest incomplete message of
    /// `stream` (an index; else of the first stream that has one) carries `status`.
    pub fn fail(&mut self, core: &mut Core, status: Status, stream: Option<usize>) {
        if self.state != ConnState::Error {
            self.enter_error(core, status);
            self.clear(core, status, stream);
        }
    }

    /// The same over a receive: the oldest one of `stream` (an index) carries `status`.
    pub fn fail_receiving(&mut self, core: &mut Core, status: Status, stream: usize) {
        if self.state != ConnState::Error {
            self.enter_error(core, status);
            self.flush_responder(core, status, Some(stream));
            self.clear(core, Status::WrFlush, None);
        }
    }

    fn enter_error(&mut self, core: &mut Core, status: Status) {
        self.state = ConnState::Error;
        core.counters.count(Counter::ConnErrors);
        core.event(Event::ConnError { conn: ConnId(self.index), status });
    }

    /// Flushes both queues and forgets what is outstanding.
    pub fn clear(&mut self, core: &mut Core, status: Status, stream: Option<usize>) {
        self.flush_requester(core, status, stream);
        self.flush_responder(core, Status::WrFlush, None);
        self.parked.clear();
        for i in 0..self.paths.len() {
            if let Some(path) = self.paths.get_mut(i) {
                *path = TxPath::open(path.plane, path.sport, path.epoch, path.window.nxt());
                path.state = PathState::Unused;
            }
            self.paths.refresh(i, Time::ZERO, &self.cfg.transport);
        }
    }

    /// Takes what the peer granted: other paths, another id, another PMTU. Nothing was sent yet.
    pub fn restart(&mut self, core: &Core, now: Time, cfg: ConnConfig) {
        let mut paths = PathSet::new(core.cfg.planes.iter().map(|p| p.rate_mbps));
        for p in &cfg.tx_paths {
            paths.push(TxPath::open(p.plane, p.sport, p.epoch, p.first), now, &cfg.transport);
        }
        self.paths = paths;
        self.templates.fill([Template::EMPTY; 2]);
        self.rx_paths = cfg.rx_paths.iter().map(|p| RxPath::new(p.first, p.sport)).collect();
        self.home = cfg.tx_paths.iter().map(|p| p.plane).collect();
        self.planes = ConnPlanes::new(core.cfg.planes.len().min(cfg.addresses.len().max(1)));
        self.requester = Requester::new(&cfg);
        self.own = Own::of(&cfg);
        self.cfg = cfg;
    }
}

/// The next UDP source port of the sequence that `state` stands in.
pub(crate) fn draw_port(state: &mut u32) -> u16 {
    // xorshift32: full period over the non-zero states.
    let mut x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    *state = x;
    nic_spec::consts::UDP_SPORT_MIN | (x >> 8) as u16 & 0x3fff
}

/// Which code point a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrafficClass {
    Data,
    Control,
}
