//! Plays the steps of one host: says what to give to the NIC, and is told what happened.
//!
//! Sans-IO: time comes in as an argument and requests go out as a list, so the same player drives a NIC inside the fabric
//! and one outside.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;

use crate::workload::endpoint::Request;
use crate::workload::graph::{Action, MessageId, Workload};

/// A time that has not come.
pub const NEVER_PS: u64 = u64::MAX;

/// When a step started and when it was done, picoseconds; [`NEVER_PS`] if it was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepTimes {
    /// All it comes after was done; a message was given to the NIC.
    pub started_ps: u64,
    /// It was done.
    pub done_ps: u64,
}

/// The state of one host's steps.
pub struct Player {
    workload: Arc<Workload>,
    /// The host's first step.
    first: u32,
    /// Per step: how many steps must still be done before it starts.
    missing: Vec<u32>,
    times: Vec<StepTimes>,
    /// Per step: for a reception, when its message came.
    arrived_ps: Vec<u64>,
    /// Steps that may start, the first added first.
    ready: BinaryHeap<Reverse<u32>>,
    /// Steps that wait for a time.
    waits: BTreeSet<(u64, u32)>,
    open_count: usize,
}

impl Player {
    /// The player of a host.
    ///
    /// # Panics
    /// If the workload has no such host.
    pub fn new(workload: Arc<Workload>, host: u32) -> Player {
        let range = workload.steps_of(host);
        let count = range.len();
        let missing: Vec<u32> = range.clone().map(|step| workload.steps()[step as usize].need).collect();
        let ready = range.clone().zip(&missing).filter(|entry| *entry.1 == 0).map(|entry| Reverse(entry.0)).collect();
        Player {
            workload,
            first: range.start,
            missing,
            times: vec![StepTimes { started_ps: NEVER_PS, done_ps: NEVER_PS }; count],
            arrived_ps: vec![NEVER_PS; count],
            ready,
            waits: BTreeSet::new(),
            open_count: count,
        }
    }

    /// Starts what waits for nothing. Adds what to give to the NIC, in order.
    pub fn start(&mut self, now_ps: u64, requests: &mut Vec<Request>) {
        self.run(now_ps, requests);
    }

    /// The NIC completed a message that this host gave it.
    pub fn on_completion(&mut self, message: MessageId, now_ps: u64, requests: &mut Vec<Request>) {
        self.finish(self.workload.moving_step(message).0, now_ps);
        self.run(now_ps, requests);
    }

    /// All of a message that another host wrote is here.
    pub fn on_arrival(&mut self, message: MessageId, now_ps: u64, requests: &mut Vec<Request>) {
        let step = self.workload.arrival_step(message).0;
        let Some(index) = self.local(step) else { return };
        self.arrived_ps[index] = self.arrived_ps[index].min(now_ps);
        if self.times[index].started_ps != NEVER_PS {
            self.finish(step, now_ps);
        }
        self.run(now_ps, requests);
    }

    /// The time of [`Player::next_wake_ps`] has come.
    pub fn on_wake(&mut self, now_ps: u64, requests: &mut Vec<Request>) {
        while let Some(&(at_ps, step)) = self.waits.first().filter(|wait| wait.0 <= now_ps) {
            self.waits.remove(&(at_ps, step));
            self.finish(step, at_ps);
        }
        self.run(now_ps, requests);
    }

    /// When the player wants to be woken.
    pub fn next_wake_ps(&self) -> Option<u64> {
        self.waits.first().map(|wait| wait.0)
    }

    /// Whether every step is done.
    pub fn is_done(&self) -> bool {
        self.open_count == 0
    }

    /// Steps that are not done.
    pub fn open_count(&self) -> usize {
        self.open_count
    }

    /// The times of the host's steps, in the order of [`Workload::steps_of`].
    pub fn times(&self) -> &[StepTimes] {
        &self.times
    }

    /// Place of a step in this host's lists; `None` if it is another host's.
    fn local(&self, step: u32) -> Option<usize> {
        let index = step.checked_sub(self.first)? as usize;
        (index < self.times.len()).then_some(index)
    }

    /// Notes that a step is done, once, and frees those that come after it.
    fn finish(&mut self, step: u32, now_ps: u64) {
        let Some(index) = self.local(step) else { return };
        if self.times[index].done_ps != NEVER_PS || self.times[index].started_ps == NEVER_PS {
            return;
        }
        self.times[index].done_ps = now_ps;
        self.open_count -= 1;
        for &follower in self.workload.followers(step) {
            let missing = &mut self.missing[(follower - self.first) as usize];
            if *missing == 0 {
                continue;
            }
            *missing -= 1;
            if *missing == 0 {
                self.ready.push(Reverse(follower));
            }
        }
    }

    /// Starts every step that may.
    fn run(&mut self, now_ps: u64, requests: &mut Vec<Request>) {
        while let Some(Reverse(step)) = self.ready.pop() {
            let index = (step - self.first) as usize;
            self.times[index].started_ps = now_ps;
            match self.workload.steps()[step as usize].action {
                Action::Send(message) | Action::Fetch(message) => requests.push(Request::of(&self.workload, message)),
                Action::Receive(_) if self.arrived_ps[index] != NEVER_PS => self.finish(step, now_ps),
                Action::Receive(_) => {}
                Action::Wait { duration_ps: 0 } => self.finish(step, now_ps),
                Action::Wait { duration_ps } => {
                    self.waits.insert((now_ps.saturating_add(duration_ps), step));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::graph::{Builder, StepId};

    fn messages(requests: &mut Vec<Request>) -> Vec<u32> {
        requests.drain(..).map(|request| request.message.0).collect()
    }

    #[test]
    fn send_starts_when_all_it_comes_after_is_done() {
        let mut builder = Builder::new(2);
        let (_, receive) = builder.write(1, 0, 8, 0, &[]);
        let wait = builder.wait(0, 1_000, &[]);
        builder.write(0, 1, 8, 0, &[receive, wait]);
        let mut player = Player::new(Arc::new(builder.build().unwrap()), 0);
        let mut requests = Vec::new();
        player.start(0, &mut requests);
        player.on_arrival(MessageId(0), 500, &mut requests);
        assert_eq!((messages(&mut requests), player.next_wake_ps()), (vec![], Some(1_000)));
        player.on_wake(1_000, &mut requests);
        assert_eq!((messages(&mut requests), player.open_count()), (vec![1], 1));
        player.on_completion(MessageId(1), 3_000, &mut requests);
        assert!(player.is_done());
        assert_eq!(player.times()[2], StepTimes { started_ps: 1_000, done_ps: 3_000 });
    }

    #[test]
    fn message_that_comes_before_its_reception_may_start_is_not_forgotten() {
        let mut builder = Builder::new(2);
        let wait = builder.wait(0, 1_000, &[]);
        let (_, receive) = builder.write(1, 0, 8, 0, &[]);
        builder.order(wait, receive);
        let mut player = Player::new(Arc::new(builder.build().unwrap()), 0);
        player.start(0, &mut Vec::new());
        player.on_arrival(MessageId(0), 100, &mut Vec::new());
        assert_eq!(player.open_count(), 2);
        player.on_wake(1_000, &mut Vec::new());
        assert_eq!(player.times()[1], StepTimes { started_ps: 1_000, done_ps: 1_000 });
    }

    #[test]
    fn step_that_needs_two_of_three_starts_after_the_second() {
        let mut builder = Builder::new(1);
        let before: Vec<StepId> = (1..=3).map(|us| builder.wait(0, us * 1_000, &[])).collect();
        let step = builder.wait(0, 0, &before);
        builder.need(step, 2);
        let mut player = Player::new(Arc::new(builder.build().unwrap()), 0);
        player.start(0, &mut Vec::new());
        while let Some(wake_ps) = player.next_wake_ps() {
            player.on_wake(wake_ps, &mut Vec::new());
        }
        assert_eq!(player.times()[3].started_ps, 2_000);
        assert!(player.is_done());
    }

    #[test]
    fn second_report_of_the_same_thing_changes_nothing() {
        let mut builder = Builder::new(2);
        let (send, _) = builder.write(0, 1, 8, 0, &[]);
        builder.wait(0, 7, &[send]);
        let mut player = Player::new(Arc::new(builder.build().unwrap()), 0);
        player.start(0, &mut Vec::new());
        player.on_completion(MessageId(0), 10, &mut Vec::new());
        player.on_completion(MessageId(0), 20, &mut Vec::new());
        assert_eq!((player.times()[0].done_ps, player.next_wake_ps()), (10, Some(17)));
    }
}
