//! An AXI4 manager, for designs that are subordinates and for testing memories through a design.

use super::{ports::Axi4Ports, Response};
use crate::{
    agent::{Agent, Io},
    error::SimError,
    pace::Pace,
    port::Direction,
    queue::{reply, Replier, Reply},
    seed::Seed,
    sim::{Clock, Handle},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

/// The result of a read burst: its bytes, and the worst response of its beats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadResult {
    /// The bytes asked for.
    pub bytes: Vec<u8>,
    /// The worst response.
    pub response: Response,
}

struct WriteBurst {
    id: u64,
    addr: u64,
    bytes: Vec<u8>,
    replier: Replier<Response>,
}

struct ReadBurst {
    id: u64,
    addr: u64,
    len_bytes: usize,
    replier: Replier<ReadResult>,
}

#[derive(Default)]
struct Shared {
    writes: VecDeque<WriteBurst>,
    reads: VecDeque<ReadBurst>,
}

/// Issues full-width incrementing bursts. Clones are the same manager.
///
/// Bursts are issued in the order asked for; any number may be outstanding. A [`Reply`] comes when the burst is done.
#[derive(Clone)]
pub struct Axi4Manager {
    shared: Rc<RefCell<Shared>>,
    width_bytes: usize,
}

impl Axi4Manager {
    /// Drives the interface at every edge of `clock`; each channel moves in `percent` of all cycles.
    ///
    /// # Errors
    /// The design is not the subordinate of these ports.
    pub fn attach(handle: &Handle, clock: Clock, ports: Axi4Ports, percent: u32, seed: Seed) -> Result<Self, SimError> {
        ports.check_direction(Direction::Input)?;
        let width_bytes = ports.width_bytes();
        let shared = Rc::<RefCell<Shared>>::default();
        let pace = |channel: &str| Pace::random(percent, seed.named(channel));
        handle.attach(
            clock,
            Driver {
                ports,
                shared: shared.clone(),
                paces: [pace("aw"), pace("w"), pace("b"), pace("ar"), pace("r")],
                state: State::default(),
            },
        );
        Ok(Axi4Manager { shared, width_bytes })
    }

    /// Writes bytes from any address on, in one burst.
    ///
    /// # Panics
    /// If there are no bytes, or more than a burst of 256 beats has, or they cross a 4 KiB boundary.
    pub fn write(&self, id: u64, addr: u64, bytes: impl Into<Vec<u8>>) -> Reply<Response> {
        let bytes = bytes.into();
        self.beats(addr, bytes.len());
        let (replier, result) = reply();
        self.shared.borrow_mut().writes.push_back(WriteBurst { id, addr, bytes, replier });
        result
    }

    /// Reads bytes from any address on, in one burst.
    ///
    /// # Panics
    /// As [`Axi4Manager::write`].
    pub fn read(&self, id: u64, addr: u64, len_bytes: usize) -> Reply<ReadResult> {
        self.beats(addr, len_bytes);
        let (replier, result) = reply();
        self.shared.borrow_mut().reads.push_back(ReadBurst { id, addr, len_bytes, replier });
        result
    }

    fn beats(&self, addr: u64, len_bytes: usize) -> usize {
        assert!(len_bytes > 0, "a burst has at least one byte");
        let last = addr + len_bytes as u64 - 1;
        assert!(addr / 4096 == last / 4096, "{addr:#x} to {last:#x} crosses a 4 KiB boundary");
        let beats = beats(addr, len_bytes, self.width_bytes);
        assert!(beats <= 256, "{beats} beats are more than a burst has");
        beats
    }
}

fn beats(addr: u64, len_bytes: usize, width_bytes: usize) -> usize {
    (addr as usize % width_bytes + len_bytes).div_ceil(width_bytes)
}

/// A read whose address was taken.
struct Filling {
    burst: ReadBurst,
    lanes: Vec<u8>,
    response: Response,
}

#[derive(Default)]
struct State {
    is_aw_valid: bool,
    is_w_valid: bool,
    is_ar_valid: bool,
    is_b_ready: bool,
    is_r_ready: bool,
    /// Bursts whose address was taken and whose data was not, and the beats of the first already taken. Data does
    /// not come before its address.
    data: VecDeque<WriteBurst>,
    beat: usize,
    unanswered: BTreeMap<u64, VecDeque<Replier<Response>>>,
    filling: BTreeMap<u64, VecDeque<Filling>>,
}

struct Driver {
    ports: Axi4Ports,
    shared: Rc<RefCell<Shared>>,
    /// AW, W, B, AR, R.
    paces: [Pace; 5],
    state: State,
}

impl Agent for Driver {
    fn on_edge(&mut self, io: &mut Io<'_>) {
        if io.is_in_reset() {
            self.state = State::default();
            let ports = &self.ports;
            for port in [ports.aw.valid, ports.w.valid, ports.ar.valid, ports.b.ready, ports.r.ready] {
                io.set(port, 0);
            }
            return;
        }
        let shared = self.shared.clone();
        let mut shared = shared.borrow_mut();
        self.observe(io, &mut shared);
        self.drive(io, &shared);
    }
}

impl Driver {
    fn observe(&mut self, io: &mut Io<'_>, shared: &mut Shared) {
        let (ports, state) = (&self.ports, &mut self.state);
        if state.is_aw_valid && io.is_set(ports.aw.ready) {
            state.is_aw_valid = false;
            state.data.extend(shared.writes.pop_front());
        }
        if state.is_w_valid && io.is_set(ports.w.ready) {
            state.is_w_valid = false;
            state.beat += 1;
            let total = state.data.front().map_or(0, |write| beats(write.addr, write.bytes.len(), ports.width_bytes()));
            if state.beat == total {
                state.beat = 0;
                let write = state.data.pop_front();
                write.into_iter().for_each(|w| state.unanswered.entry(w.id).or_default().push_back(w.replier));
            }
        }
        if state.is_ar_valid && io.is_set(ports.ar.ready) {
            state.is_ar_valid = false;
            if let Some(burst) = shared.reads.pop_front() {
                let filling = Filling { burst, lanes: Vec::new(), response: Response::Okay };
                state.filling.entry(filling.burst.id).or_default().push_back(filling);
            }
        }
        let response =
            |io: &Io<'_>, port: Option<_>| port.map_or(Response::Okay, |port| Response::of_code(io.get(port)));
        if state.is_b_ready && io.is_set(ports.b.valid) {
            let id = ports.b.id.map_or(0, |id| io.get(id));
            match state.unanswered.get_mut(&id).and_then(VecDeque::pop_front) {
                Some(replier) => replier.send(response(io, ports.b.resp)),
                None => io.fail(format!("{} B: a response to id {id}, which has no write to answer", ports.name)),
            }
        }
        if state.is_r_ready && io.is_set(ports.r.valid) {
            let id = ports.r.id.map_or(0, |id| io.get(id));
            let is_last = ports.r.last.is_none_or(|last| io.is_set(last));
            let beat_response = response(io, ports.r.resp);
            self.take_read_beat(io, id, is_last, beat_response);
        }
    }

    fn take_read_beat(&mut self, io: &mut Io<'_>, id: u64, is_last: bool, response: Response) {
        let width_bytes = self.ports.width_bytes();
        let queue = self.state.filling.entry(id).or_default();
        let Some(filling) = queue.front_mut() else {
            io.fail(format!("{} R: data for id {id}, which has no read to answer", self.ports.name));
            return;
        };
        io.append_bytes(self.ports.r.data, width_bytes, &mut filling.lanes);
        filling.response = filling.response.max(response);
        let burst = &filling.burst;
        let total = beats(burst.addr, burst.len_bytes, width_bytes);
        if is_last != (filling.lanes.len() == total * width_bytes) {
            io.fail(format!("{} R: last is wrong in a burst of {total} beats", self.ports.name));
        }
        if filling.lanes.len() == total * width_bytes {
            let Some(filling) = queue.pop_front() else { return };
            let skipped = filling.burst.addr as usize % width_bytes;
            let bytes = filling.lanes[skipped..skipped + filling.burst.len_bytes].to_vec();
            filling.burst.replier.send(ReadResult { bytes, response: filling.response });
        }
    }

    fn drive(&mut self, io: &mut Io<'_>, shared: &Shared) {
        let (ports, state) = (&self.ports, &mut self.state);
        let width_bytes = ports.width_bytes();
        let [aw_pace, w_pace, b_pace, ar_pace, r_pace] = &mut self.paces;
        if !state.is_aw_valid {
            let next = shared.writes.front().filter(|_| aw_pace.goes());
            state.is_aw_valid = next.is_some();
            io.set(ports.aw.valid, u64::from(next.is_some()));
            if let Some(write) = next {
                offer_address(io, &ports.aw, write.id, write.addr, write.bytes.len(), width_bytes);
            }
        }
        if !state.is_ar_valid {
            let next = shared.reads.front().filter(|_| ar_pace.goes());
            state.is_ar_valid = next.is_some();
            io.set(ports.ar.valid, u64::from(next.is_some()));
            if let Some(read) = next {
                offer_address(io, &ports.ar, read.id, read.addr, read.len_bytes, width_bytes);
            }
        }
        if !state.is_w_valid {
            let next = state.data.front().filter(|_| w_pace.goes());
            state.is_w_valid = next.is_some();
            io.set(ports.w.valid, u64::from(next.is_some()));
            if let Some(write) = next {
                offer_data(io, ports, write, state.beat);
            }
        }
        state.is_b_ready = b_pace.goes();
        io.set(ports.b.ready, u64::from(state.is_b_ready));
        state.is_r_ready = r_pace.goes();
        io.set(ports.r.ready, u64::from(state.is_r_ready));
    }
}

fn offer_address(
    io: &mut Io<'_>,
    ports: &super::AddressPorts,
    id: u64,
    addr: u64,
    len_bytes: usize,
    width_bytes: usize,
) {
    io.set(ports.addr, addr);
    let fields = [
        (ports.id, id),
        (ports.len, beats(addr, len_bytes, width_bytes) as u64 - 1),
        (ports.size, u64::from(width_bytes.trailing_zeros())),
        (ports.burst, 1),
    ];
    for (port, value) in fields {
        if let Some(port) = port {
            io.set(port, value);
        }
    }
}

fn offer_data(io: &mut Io<'_>, ports: &Axi4Ports, write: &WriteBurst, beat: usize) {
    let width_bytes = ports.width_bytes();
    let skipped = write.addr as usize % width_bytes;
    // The bytes of the burst, counted from the first lane of the first beat, that lie in this beat.
    let (begin, end) = ((beat * width_bytes).max(skipped), ((beat + 1) * width_bytes).min(skipped + write.bytes.len()));
    let first_lane = begin - beat * width_bytes;
    let mut lanes = [0; super::AXI_BYTES_MAX];
    lanes[first_lane..first_lane + end - begin].copy_from_slice(&write.bytes[begin - skipped..end - skipped]);
    io.set_bytes(ports.w.data, &lanes[..width_bytes]);
    if let Some(strb) = ports.w.strb {
        let mask = (u128::MAX >> (128 - (end - begin))) << first_lane;
        io.set_words(strb, &[mask as u64, (mask >> 64) as u64][..strb.width_words()]);
    }
    if let Some(last) = ports.w.last {
        io.set(last, u64::from(end == skipped + write.bytes.len()));
    }
}
