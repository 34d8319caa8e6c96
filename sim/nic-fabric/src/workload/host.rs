//! A host of the fabric that plays its part of a workload on a NIC.

use std::sync::Arc;

use crate::frame::Frame;
use crate::node::{Ahead, Context, Node};
use crate::workload::endpoint::{Endpoint, Event, Request};
use crate::workload::graph::{MessageId, Workload};
use crate::workload::player::Player;

/// The timer token of the player; every other one is the endpoint's.
pub const PLAYER_TOKEN: u32 = u32::MAX;

/// A player and its NIC.
pub struct WorkloadHost<E> {
    endpoint: E,
    player: Player,
    /// When the player's next timer is due.
    wake_ps: Option<u64>,
    failed: Vec<MessageId>,
    events: Vec<Event>,
    requests: Vec<Request>,
}

impl<E: Endpoint> WorkloadHost<E> {
    /// The host of this number, with its NIC.
    ///
    /// # Panics
    /// If the workload has no such host.
    pub fn new(workload: Arc<Workload>, host: u32, endpoint: E) -> WorkloadHost<E> {
        let player = Player::new(workload, host);
        WorkloadHost { endpoint, player, wake_ps: None, failed: Vec::new(), events: Vec::new(), requests: Vec::new() }
    }

    /// The NIC.
    pub fn endpoint(&self) -> &E {
        &self.endpoint
    }

    /// The steps and when they were done.
    pub fn player(&self) -> &Player {
        &self.player
    }

    /// Messages that the NIC gave up.
    pub fn failed(&self) -> &[MessageId] {
        &self.failed
    }

    /// Tells the player what the NIC reports and the NIC what the player asks for, until both are silent.
    fn pump(&mut self, ctx: &mut Context<'_>) {
        loop {
            for request in self.requests.drain(..) {
                self.endpoint.post(ctx, &request);
            }
            self.endpoint.take_events(&mut self.events);
            if self.events.is_empty() {
                break;
            }
            for event in self.events.drain(..) {
                match event {
                    Event::Completed(message) => {
                        self.player.on_completion(message, ctx.now_ps(), &mut self.requests);
                    }
                    Event::Arrived(message) => self.player.on_arrival(message, ctx.now_ps(), &mut self.requests),
                    Event::Failed(message) => self.failed.push(message),
                }
            }
        }
        let wake_ps = self.player.next_wake_ps();
        if let Some(at_ps) = wake_ps.filter(|_| wake_ps != self.wake_ps) {
            ctx.set_timer(at_ps, PLAYER_TOKEN);
        }
        self.wake_ps = wake_ps;
    }
}

impl<E: Endpoint> Node for WorkloadHost<E> {
    fn on_start(&mut self, ctx: &mut Context<'_>) {
        self.endpoint.on_start(ctx);
        self.player.start(ctx.now_ps(), &mut self.requests);
        self.pump(ctx);
    }

    fn on_frame(&mut self, ctx: &mut Context<'_>, port: u16, frame: Frame) {
        self.endpoint.on_frame(ctx, port, frame);
        self.pump(ctx);
    }

    fn on_timer(&mut self, ctx: &mut Context<'_>, token: u32) {
        if token == PLAYER_TOKEN {
            self.player.on_wake(ctx.now_ps(), &mut self.requests);
        } else {
            self.endpoint.on_timer(ctx, token);
        }
        self.pump(ctx);
    }

    fn foresee(&self) {
        self.endpoint.foresee();
    }

    fn foresee_event(&self, ahead: Ahead<'_>) {
        self.endpoint.foresee_event(ahead);
    }

    fn on_port_state(&mut self, ctx: &mut Context<'_>, port: u16, is_up: bool) {
        self.endpoint.on_port_state(ctx, port, is_up);
        self.pump(ctx);
    }

    fn on_port_idle(&mut self, ctx: &mut Context<'_>, port: u16) {
        self.endpoint.on_port_idle(ctx, port);
        self.pump(ctx);
    }
}
