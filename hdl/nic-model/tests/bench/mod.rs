//! Two cards joined by one cable a plane, with loss, reordering, duplication and damage from a seed.
#![allow(dead_code)]

use nic_model::config::{NicConfig, PlaneConfig};
use nic_model::conn_config::ConnConfig;
use nic_model::memory::{ByteMemory, HostMemory};
use nic_model::mr::Mr;
use nic_model::time::Time;
use nic_model::wire::frame::Frame;
use nic_model::wire::packet::Address;
use nic_model::work::{ConnId, Cqe, Local, RemoteMemory};
use nic_model::Nic;
use nic_spec::num::{Lkey, Pd, Qpn, Rkey};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Where the memory of both cards begins on their buses.
pub const IOVA: u64 = 0x10_0000;
/// Where the region that both register begins.
pub const VA: u64 = 0x7f00_0000_0000;
/// Protection domain of everything.
pub const PD: u32 = 3;
/// One microsecond.
pub const US: u64 = 1_000_000;

/// xorshift64*, so that a test is its seed.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn ppm(&mut self, ppm: u64) -> bool {
        self.below(1_000_000) < ppm
    }
}

/// What the cables do.
#[derive(Clone, Copy, Debug)]
pub struct Cable {
    pub rate_mbps: u64,
    pub delay_ps: u64,
    pub loss_ppm: u64,
    pub duplicate_ppm: u64,
    pub reorder_ppm: u64,
    pub reorder_ps: u64,
    pub damage_ppm: u64,
}

impl Default for Cable {
    fn default() -> Self {
        Self {
            rate_mbps: 400_000,
            delay_ps: 2 * US,
            loss_ppm: 0,
            duplicate_ppm: 0,
            reorder_ppm: 0,
            reorder_ps: 5 * US,
            damage_ppm: 0,
        }
    }
}

/// What a hook says about a frame that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Pass,
    Drop,
}

type Hook = Box<dyn FnMut(Time, usize, u8, &Frame) -> Fate>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Arrival(usize, u8, u64),
    PortFree(usize, u8),
}

/// The bench.
pub struct Bench<M = ByteMemory> {
    pub nics: [Nic; 2],
    pub mems: [M; 2],
    pub cable: Cable,
    pub rng: Rng,
    pub now: Time,
    /// Decides over every frame that leaves, before chance does.
    pub hook: Option<Hook>,
    /// Planes whose cable is cut.
    pub cut: Vec<bool>,
    busy: [Vec<Time>; 2],
    events: BinaryHeap<Reverse<(Time, u64, What)>>,
    frames: BTreeMap<u64, Frame>,
    count: u64,
    /// Frames put on the cables.
    pub sent: u64,
}

pub fn address(side: usize, plane: usize) -> Address {
    Address {
        mac: 0x0200_0000_0000 | (plane as u64) << 8 | (side as u64 + 1),
        ip: 0x0a00_0000 | (plane as u128) << 16 | (side as u128 + 1),
    }
}

pub fn nic_config(side: usize, planes: usize, cable: &Cable) -> NicConfig {
    let plane = |p| PlaneConfig { mac: address(side, p).mac, rate_mbps: cable.rate_mbps };
    NicConfig::new((0..planes).map(plane).collect())
}

/// Connection number `n` as `side` sees it.
pub fn conn_config(side: usize, n: u32, paths: usize, planes: usize) -> ConnConfig {
    let id = |side: usize| Qpn::new(0x10 + n + 0x10_0000 * side as u32);
    let mut cfg = ConnConfig::new(id(side), id(1 - side)).with_paths(paths, planes);
    cfg.pd = Pd::new(PD);
    cfg.addresses = (0..planes).map(|p| (address(side, p), address(1 - side, p))).collect();
    cfg
}

pub fn region(bytes: u64) -> Mr {
    Mr { key: 0x42, pd: Pd::new(PD), access: 0xf, va: VA, len: bytes, iova: IOVA }
}

/// Key of the region that the bench registers on both sides.
pub const KEY: u32 = 0x42;

pub fn local(offset: u64) -> Local {
    Local { va: VA + offset, lkey: Lkey::new(KEY) }
}

pub fn remote(offset: u64) -> RemoteMemory {
    RemoteMemory { va: VA + offset, rkey: Rkey::new(KEY) }
}

impl Bench<ByteMemory> {
    /// Two cards of `planes` ports with `bytes` of memory each.
    pub fn new(seed: u64, cable: Cable, planes: usize, bytes: usize) -> Self {
        Self::with_memory(seed, cable, planes, bytes as u64, [0, 1].map(|_| ByteMemory::new(IOVA, bytes)))
    }

    /// Fills the memory of `side` with bytes of the seed.
    pub fn fill(&mut self, side: usize) {
        let rng = &mut self.rng;
        self.mems[side].bytes.chunks_mut(8).for_each(|c| {
            let word = rng.next().to_le_bytes();
            c.copy_from_slice(&word[..c.len()]);
        });
    }
}

impl<M: HostMemory> Bench<M> {
    pub fn with_memory(seed: u64, cable: Cable, planes: usize, bytes: u64, mems: [M; 2]) -> Self {
        Self::with_configs(seed, cable, bytes, mems, [0, 1].map(|side| nic_config(side, planes, &cable)))
    }

    pub fn with_configs(seed: u64, cable: Cable, bytes: u64, mems: [M; 2], configs: [NicConfig; 2]) -> Self {
        let planes = configs[0].planes.len();
        let nics = configs.map(|cfg| {
            let mut nic = Nic::new(cfg);
            nic.mrs().register(region(bytes));
            nic
        });
        Self {
            nics,
            mems,
            cable,
            rng: Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            now: Time(US),
            hook: None,
            cut: vec![false; planes],
            busy: [vec![Time::ZERO; planes], vec![Time::ZERO; planes]],
            events: BinaryHeap::new(),
            frames: BTreeMap::new(),
            count: 0,
            sent: 0,
        }
    }

    /// Opens connection `n` on both sides after `change`.
    pub fn connect(&mut self, n: u32, paths: usize, change: impl Fn(usize, &mut ConnConfig)) -> [ConnId; 2] {
        let planes = self.cut.len();
        [0, 1].map(|side| {
            let mut cfg = conn_config(side, n, paths, planes);
            change(side, &mut cfg);
            self.nics[side].open_connection(self.now, cfg).expect("a free row")
        })
    }

    fn push(&mut self, at: Time, what: What) {
        self.count += 1;
        self.events.push(Reverse((at, self.count, what)));
    }

    fn deliver(&mut self, at: Time, to: usize, plane: u8, frame: Frame) {
        self.count += 1;
        let id = self.count;
        self.frames.insert(id, frame);
        self.push(at, What::Arrival(to, plane, id));
    }

    fn transmit(&mut self, from: usize, plane: u8, mut frame: Frame) {
        self.sent += 1;
        let wire_bits = 8 * (u64::from(frame.len_bytes()).max(60) + 24);
        let end = self.now.after_ps(wire_bits * 1_000_000 / self.cable.rate_mbps);
        self.busy[from][usize::from(plane)] = end;
        self.push(end, What::PortFree(from, plane));
        let fate = self.hook.as_mut().map_or(Fate::Pass, |hook| hook(self.now, from, plane, &frame));
        if fate == Fate::Drop || self.cut[usize::from(plane)] || self.rng.ppm(self.cable.loss_ppm) {
            return;
        }
        let mut at = end.after_ps(self.cable.delay_ps);
        if self.rng.ppm(self.cable.reorder_ppm) {
            at = at.after_ps(self.rng.below(self.cable.reorder_ps));
        }
        if self.rng.ppm(self.cable.duplicate_ppm) {
            let later = at.after_ps(self.rng.below(20 * US));
            self.deliver(later, 1 - from, plane, frame.clone());
        }
        if self.rng.ppm(self.cable.damage_ppm) {
            let mut bytes = frame.to_bytes();
            let bit = self.rng.below(8 * bytes.len() as u64) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            frame = Frame::from_bytes(&bytes);
        }
        self.deliver(at, 1 - from, plane, frame);
    }

    /// Asks every free port until none gives a frame.
    pub fn pump(&mut self) {
        loop {
            let mut any = false;
            for side in 0..2 {
                for plane in 0..self.busy[side].len() {
                    if self.busy[side][plane] > self.now {
                        continue;
                    }
                    let frame = self.nics[side].poll_transmit(self.now, plane as u8, &mut self.mems[side]);
                    if let Some(frame) = frame {
                        any = true;
                        self.transmit(side, plane as u8, frame);
                    }
                }
            }
            if !any {
                return;
            }
        }
    }

    /// When something happens next.
    pub fn next(&self) -> Option<Time> {
        let timers = self.nics.iter().filter_map(|n| n.next_timer());
        self.events.peek().map(|e| e.0 .0).into_iter().chain(timers).min()
    }

    /// Lets the next thing happen, if it does until `end`.
    pub fn step(&mut self, end: Time) -> bool {
        self.pump();
        let Some(at) = self.next().filter(|at| *at <= end) else {
            self.now = self.now.max(end);
            return false;
        };
        self.now = self.now.max(at);
        while let Some(Reverse((at, _, what))) = self.events.peek().copied() {
            if at > self.now {
                break;
            }
            self.events.pop();
            if let What::Arrival(to, plane, id) = what {
                let frame = self.frames.remove(&id).expect("a frame on its way");
                self.nics[to].on_frame(self.now, plane, &frame, &mut self.mems[to]);
            }
        }
        for side in 0..2 {
            if self.nics[side].next_timer().is_some_and(|t| t <= self.now) {
                self.nics[side].on_timer(self.now);
            }
        }
        true
    }

    /// Runs for `span_ps`.
    pub fn run(&mut self, span_ps: u64) {
        let end = self.now.after_ps(span_ps);
        while self.step(end) {}
    }

    /// Runs until `done` or for `limit_ps`; true when done.
    pub fn run_until(&mut self, limit_ps: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now.after_ps(limit_ps);
        loop {
            if done(self) {
                return true;
            }
            if !self.step(end) {
                return done(self);
            }
        }
    }

    /// All completions of queue `cq` of `side` that are there.
    pub fn completions(&mut self, side: usize, cq: u32) -> Vec<Cqe> {
        std::iter::from_fn(|| self.nics[side].poll_completion(cq)).collect()
    }
}
