//! One card at a host: the model is asked for a frame whenever a port is free, and woken when its timers are due.
//!
//! A port is asked again when the frame before has left, so what the model chooses to send next is decided as late as in
//! hardware. The network's timers cannot be taken back; the card remembers which are set, and one that finds nothing due
//! does nothing.

use nic_fabric::{prefetch, prefetch_all, Ahead, Context, Frame, Node};
use nic_model::config::NicConfig;
use nic_model::foresee::Fetch;
use nic_model::memory::HostMemory;
use nic_model::time::Time;
use nic_model::wire::frame::{self, FrameRef};
use nic_model::Nic;

use crate::convert::{to_fabric, to_model};

/// Timer tokens below this are the card's; a node that holds a card uses others.
pub const CARD_TOKENS: u32 = 17;

/// The model's own timers; tokens after it say that a port is free.
const TOKEN_MODEL: u32 = 0;
const TOKEN_PORT: u32 = 1;

/// Ports that a card can have.
const PORTS_MAX: usize = CARD_TOKENS as usize - 1;

/// A modelled card with its host's memory. Port `p` is plane `p`.
pub struct Card<M> {
    joint: Joint,
    memory: M,
}

impl<M: HostMemory + Send + 'static> Card<M> {
    /// A card. Its ports are the first ports of the host it is put at.
    ///
    /// # Panics
    /// As [`Nic::new`].
    pub fn new(config: NicConfig, memory: M) -> Card<M> {
        let joint = Joint {
            port_count: config.planes.len(),
            nic: Nic::new(config),
            clock_ps: 0,
            next_wake_ps: u64::MAX,
            ports: [Port::default(); PORTS_MAX],
            wakes_ps: Vec::new(),
        };
        Card { joint, memory }
    }

    /// Sets what the card's own clock shows when the network begins at 0, picoseconds.
    #[must_use]
    pub fn with_clock(mut self, clock_ps: u64) -> Card<M> {
        self.joint.clock_ps = clock_ps;
        self
    }

    /// The card's time when it is `now_ps` in the network.
    pub fn time(&self, now_ps: u64) -> Time {
        self.joint.time(now_ps)
    }

    /// The model.
    pub fn nic(&self) -> &Nic {
        &self.joint.nic
    }

    /// The model, to be asked for something. Call [`Card::pump`] after it.
    pub fn nic_mut(&mut self) -> &mut Nic {
        &mut self.joint.nic
    }

    /// Memory of the host.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Memory of the host, to be changed.
    pub fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Lets the card send what it may, and sets its timers. Due after everything that is asked of the model.
    pub fn pump(&mut self, ctx: &mut Context<'_>) {
        self.joint.pump(ctx, &mut self.memory);
    }

    /// Has fetched what every call touches; see [`Node::foresee`].
    pub fn foresee(&self) {
        self.joint.foresee();
    }

    /// Has fetched what this will touch; see [`Node::foresee_event`]. Tokens that are not the card's do nothing.
    pub fn foresee_event(&self, ahead: Ahead<'_>) {
        self.joint.foresee_event(ahead);
    }

    /// Takes a timer, if its token is the card's; else false, and it is for the node that holds the card.
    pub fn on_timer(&mut self, ctx: &mut Context<'_>, token: u32) -> bool {
        self.joint.on_timer(ctx, token, &mut self.memory)
    }

    /// Takes a frame.
    pub fn on_frame(&mut self, ctx: &mut Context<'_>, port: u16, frame: Frame) {
        self.joint.on_frame(ctx, port, frame, &mut self.memory);
    }

    /// The cable at a port went down or came back. Nothing is sent on a port whose cable is down.
    pub fn on_port_state(&mut self, ctx: &mut Context<'_>, port: u16, is_up: bool) {
        let now = self.time(ctx.now_ps());
        self.nic_mut().set_link(now, port as u8, is_up);
        self.pump(ctx);
    }

    /// The queue of a port with classes ran empty.
    pub fn on_port_idle(&mut self, ctx: &mut Context<'_>, _port: u16) {
        self.pump(ctx);
    }
}

/// Has lines fetched for the model.
#[derive(Clone, Copy)]
struct Prefetch;

impl Fetch for Prefetch {
    #[inline(always)]
    fn line<T: ?Sized>(self, place: &T) {
        prefetch(place);
    }

    #[inline(always)]
    fn all<T>(self, place: &T) {
        prefetch_all(place);
    }
}

/// A port of the card.
#[derive(Clone, Copy, Default)]
struct Port {
    /// When the frames given to it have left.
    free_at_ps: u64,
    /// It calls when it is free.
    is_called: bool,
}

/// The card without its memory. Its type depends on nothing, so that it is compiled here, once, and well. In memory the
/// model comes first, which tells where everything else is; of the rest one cache line is enough if there are few ports.
#[repr(C, align(64))]
struct Joint {
    nic: Nic,
    /// The card's clock less that of the network.
    clock_ps: u64,
    /// The earliest of `wakes_ps`; `u64::MAX` if there is none.
    next_wake_ps: u64,
    port_count: usize,
    ports: [Port; PORTS_MAX],
    /// When the timers of the model that are set in the network are due, the earliest last.
    wakes_ps: Vec<u64>,
}

impl Joint {
    #[inline]
    fn time(&self, now_ps: u64) -> Time {
        Time(now_ps + self.clock_ps)
    }

    #[inline]
    fn pump(&mut self, ctx: &mut Context<'_>, memory: &mut dyn HostMemory) {
        // Most frames that arrive find the port busy or leave nothing to send.
        if self.port_count > 1 {
            self.send_all(ctx, memory);
        } else if self.is_open(0) {
            self.send_one(ctx, 0, memory);
        }
        self.set_wake(ctx);
    }

    /// A port should be asked.
    #[inline]
    fn is_open(&self, port: usize) -> bool {
        !self.ports[port].is_called && self.nic.wants_transmit(port as u8)
    }

    #[inline(never)]
    fn send_all(&mut self, ctx: &mut Context<'_>, memory: &mut dyn HostMemory) {
        loop {
            let mut has_sent = false;
            for port in 0..self.port_count {
                if self.is_open(port) {
                    has_sent |= self.send_one(ctx, port, memory);
                }
            }
            // Planes take turns: what one port sent may allow another to send.
            if !has_sent {
                return;
            }
        }
    }

    /// Sends at most one frame, and has the port call when it is free if there may be another.
    #[inline(never)]
    fn send_one(&mut self, ctx: &mut Context<'_>, index: usize, memory: &mut dyn HostMemory) -> bool {
        let now_ps = ctx.now_ps();
        let (now, port) = (self.time(now_ps), &mut self.ports[index]);
        let mut has_sent = false;
        if port.free_at_ps <= now_ps {
            let mut out = ctx.out_port(index as u16);
            port.free_at_ps = out.free_at_ps();
            if port.free_at_ps <= now_ps && out.is_up() {
                // Made here, where the processor's cache has the place, and not in memory of the card.
                let mut frame = frame::Frame::empty();
                if !self.nic.poll_transmit_into(now, index as u8, memory, &mut frame) {
                    return false;
                }
                out.send(to_fabric(&frame));
                port.free_at_ps = out.free_at_ps();
                has_sent = true;
            }
        }
        if port.free_at_ps > now_ps && self.nic.wants_transmit(index as u8) {
            port.is_called = true;
            ctx.set_timer(port.free_at_ps, TOKEN_PORT + index as u32);
        }
        has_sent
    }

    #[inline]
    fn set_wake(&mut self, ctx: &mut Context<'_>) {
        let Some(Time(at_ps)) = self.nic.next_timer() else { return };
        let at_ps = at_ps.saturating_sub(self.clock_ps).max(ctx.now_ps());
        if at_ps < self.next_wake_ps {
            self.next_wake_ps = at_ps;
            self.wakes_ps.push(at_ps);
            ctx.set_timer(at_ps, TOKEN_MODEL);
        }
    }

    fn on_timer(&mut self, ctx: &mut Context<'_>, token: u32, memory: &mut dyn HostMemory) -> bool {
        match token {
            TOKEN_MODEL => {
                self.wakes_ps.pop();
                self.next_wake_ps = self.wakes_ps.last().copied().unwrap_or(u64::MAX);
                let now = self.time(ctx.now_ps());
                if self.nic.next_timer().is_some_and(|at| at <= now) {
                    self.nic.on_timer(now);
                }
            }
            TOKEN_PORT..CARD_TOKENS => self.ports[(token - TOKEN_PORT) as usize].is_called = false,
            _ => return false,
        }
        self.pump(ctx, memory);
        true
    }

    #[inline]
    fn foresee(&self) {
        prefetch(&self.clock_ps);
        prefetch(&self.ports[0]);
        prefetch(&self.wakes_ps);
        self.nic.foresee(Prefetch);
    }

    fn foresee_event(&self, ahead: Ahead<'_>) {
        match ahead {
            Ahead::Frame(frame) => self.nic.foresee_frame(frame.header(), Prefetch),
            Ahead::Timer(TOKEN_MODEL) => self.nic.foresee_timer(Prefetch),
            Ahead::Timer(token @ TOKEN_PORT..CARD_TOKENS) => {
                self.nic.foresee_transmit((token - TOKEN_PORT) as u8, Prefetch);
            }
            Ahead::Timer(_) => {}
        }
    }

    fn on_frame(&mut self, ctx: &mut Context<'_>, port: u16, frame: Frame, memory: &mut dyn HostMemory) {
        let now = self.time(ctx.now_ps());
        let payload = to_model(frame.payload());
        let parts = FrameRef { header: frame.header(), payload: &payload, trailer: frame.trailer() };
        self.nic.on_frame_parts(now, port as u8, parts, memory);
        // Its record serves the answer.
        drop(frame);
        self.pump(ctx, memory);
    }
}

impl<M: HostMemory + Send + 'static> Node for Card<M> {
    fn on_start(&mut self, ctx: &mut Context<'_>) {
        self.pump(ctx);
    }

    fn on_frame(&mut self, ctx: &mut Context<'_>, port: u16, frame: Frame) {
        Card::on_frame(self, ctx, port, frame);
    }

    fn on_timer(&mut self, ctx: &mut Context<'_>, token: u32) {
        Card::on_timer(self, ctx, token);
    }

    fn foresee(&self) {
        Card::foresee(self);
    }

    fn foresee_event(&self, ahead: Ahead<'_>) {
        Card::foresee_event(self, ahead);
    }

    fn on_port_state(&mut self, ctx: &mut Context<'_>, port: u16, is_up: bool) {
        Card::on_port_state(self, ctx, port, is_up);
    }

    fn on_port_idle(&mut self, ctx: &mut Context<'_>, port: u16) {
        Card::on_port_idle(self, ctx, port);
    }
}
