//! A workload: messages, and the steps of each host that send, fetch and receive them.
//!
//! Made with a [`Builder`], which numbers steps as they are added; [`Builder::build`] checks that every message is sent and
//! received once, that steps wait for steps of their own host only and, messages included, never for themselves, and then
//! lays the steps out host by host.

use std::collections::BTreeMap;

/// Largest message, bytes: what a work request of an RDMA NIC can carry.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 31;
/// Most steps, and most messages, of a workload.
pub const STEP_COUNT_MAX: usize = 1 << 28;
/// Most hosts of a workload: those of a fabric.
pub const HOST_COUNT_MAX: u32 = crate::fabric::HOST_COUNT_MAX as u32;

/// A message of a workload, by its place in [`Workload::messages`]. Fits an RDMA immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u32);

/// A step of a workload. Before [`Builder::build`] the order of addition, after it the place in [`Workload::steps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId(pub u32);

/// Who moves a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Its source writes it into the destination's memory, which learns of it when all of it is there.
    Write,
    /// Its destination reads it from the source's memory, whose software learns nothing.
    Read,
}

/// Bytes from one host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where the bytes are.
    pub src: u32,
    /// Where they go.
    pub dst: u32,
    /// How many; at most [`MESSAGE_BYTES_MAX`].
    pub bytes: u64,
    /// Who moves them.
    pub verb: Verb,
    /// Messages of one pair of hosts and one stream share a connection (a queue pair, a channel).
    pub stream: u16,
}

impl Message {
    /// The host that asks its NIC to move the message.
    pub fn initiator(&self) -> u32 {
        match self.verb {
            Verb::Write => self.src,
            Verb::Read => self.dst,
        }
    }
}

/// What a step does, and when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Gives the NIC a message to write; done when the NIC reports its completion.
    Send(MessageId),
    /// Gives the NIC a message to read; done when all of it is here.
    Fetch(MessageId),
    /// Done when all of a written message is here, even if it came before the step could start.
    Receive(MessageId),
    /// Lets time pass: computation, or a start that was set by the clock.
    Wait {
        /// How long, picoseconds; with 0 the step only joins others.
        duration_ps: u64,
    },
}

/// One step of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whose.
    pub host: u32,
    /// What it does.
    pub action: Action,
    /// How many of the steps it comes after must be done before it starts. All of them, but for a trigger that lets one
    /// step go each time.
    pub need: u32,
}

/// A pair of hosts that exchange messages on a stream, as one of them sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The other host.
    pub peer: u32,
    /// The stream.
    pub stream: u16,
    /// The connection's place in the peer's own list.
    pub peer_index: u32,
}

/// Why steps make no workload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The step waits, through steps of its host or messages of others, for itself.
    Cycle(StepId),
    /// A step waits for one of another host.
    OtherHost {
        /// The waiting step.
        step: StepId,
        /// The one it waits for.
        after: StepId,
    },
    /// A message without exactly one step that moves it and, if it is written, exactly one that receives it.
    Unmatched {
        /// The message.
        message: MessageId,
        /// Steps that send or fetch it.
        movers: u32,
        /// Steps that receive it.
        receivers: u32,
    },
    /// A step that moves or receives a message stands at the wrong host.
    Misplaced(StepId),
    /// A message from a host to itself, to a host that does not exist, or of too many bytes.
    BadMessage(MessageId),
    /// A step of a host that does not exist.
    NoSuchHost(StepId),
    /// More hosts or steps than a workload may have.
    TooLarge,
}

impl std::fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WorkloadError::Cycle(step) => write!(f, "step {} waits, directly or not, for itself", step.0),
            WorkloadError::OtherHost { step, after } => {
                write!(f, "step {} waits for step {} of another host (send a message instead)", step.0, after.0)
            }
            WorkloadError::Unmatched { message, movers, receivers } => {
                write!(f, "message {} is sent {movers} times and received {receivers} times", message.0)
            }
            WorkloadError::Misplaced(step) => write!(f, "step {} handles a message of other hosts", step.0),
            WorkloadError::BadMessage(message) => {
                write!(f, "message {} goes to its own source, to no host, or is too large", message.0)
            }
            WorkloadError::NoSuchHost(step) => write!(f, "step {} is of a host that does not exist", step.0),
            WorkloadError::TooLarge => write!(f, "more than {STEP_COUNT_MAX} steps or {HOST_COUNT_MAX} hosts"),
        }
    }
}

impl std::error::Error for WorkloadError {}

/// Messages and steps, checked and laid out host by host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    messages: Vec<Message>,
    steps: Vec<Step>,
    /// Per host: where its steps begin; one more entry at the end.
    step_start: Vec<u32>,
    /// Per step: where its followers begin; one more entry at the end.
    follower_start: Vec<u32>,
    followers: Vec<u32>,
    /// Per step: how many steps it comes after.
    after_count: Vec<u32>,
    /// Per message: the step that receives a written one; the fetching step of a read one.
    receive_step: Vec<u32>,
    /// Per message: the step that moves it.
    move_step: Vec<u32>,
    connections: Vec<Vec<Connection>>,
    /// Per message: the index of its connection at the source and at the destination.
    ends: Vec<(u32, u32)>,
}

impl Workload {
    /// Number of hosts; their numbers are 0 to this.
    pub fn host_count(&self) -> u32 {
        self.step_start.len() as u32 - 1
    }

    /// Every message.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Every step, those of a host together.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// One message.
    ///
    /// # Panics
    /// If there is no such message.
    pub fn message(&self, id: MessageId) -> &Message {
        &self.messages[id.0 as usize]
    }

    /// The steps of a host, as places in [`Workload::steps`].
    ///
    /// # Panics
    /// If there is no such host.
    pub fn steps_of(&self, host: u32) -> std::ops::Range<u32> {
        self.step_start[host as usize]..self.step_start[host as usize + 1]
    }

    /// The steps that come after a step.
    pub(crate) fn followers(&self, step: u32) -> &[u32] {
        let range = self.follower_start[step as usize] as usize..self.follower_start[step as usize + 1] as usize;
        &self.followers[range]
    }

    /// The step that is done when a message is where it goes.
    pub fn arrival_step(&self, message: MessageId) -> StepId {
        StepId(self.receive_step[message.0 as usize])
    }

    /// The step that gives a message to a NIC.
    pub fn moving_step(&self, message: MessageId) -> StepId {
        StepId(self.move_step[message.0 as usize])
    }

    /// The connections of a host, by peer, then stream.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn connections_of(&self, host: u32) -> &[Connection] {
        &self.connections[host as usize]
    }

    /// The connection a message belongs to, as an index of [`Workload::connections_of`] its initiator.
    ///
    /// # Panics
    /// If there is no such message.
    pub fn connection_at_initiator(&self, message: MessageId) -> u32 {
        let (at_src, at_dst) = self.ends[message.0 as usize];
        match self.messages[message.0 as usize].verb {
            Verb::Write => at_src,
            Verb::Read => at_dst,
        }
    }

    /// Bytes of all messages.
    pub fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| message.bytes).sum()
    }

    /// The steps that wait for a step: those that come after it, and the one that receives what it sends.
    fn waiters(&self, step: u32) -> impl Iterator<Item = u32> + '_ {
        let receiver = match self.steps[step as usize].action {
            Action::Send(message) => Some(self.receive_step[message.0 as usize]),
            _ => None,
        };
        self.followers(step).iter().copied().chain(receiver)
    }

    /// Steps in an order in which each stands after all it waits for, on its own host and on others (Kahn's algorithm).
    /// What waits for itself is left out.
    pub(crate) fn sorted_steps(&self) -> Vec<u32> {
        let is_receive = |step: &Step| u32::from(matches!(step.action, Action::Receive(_)));
        let mut missing: Vec<u32> =
            self.after_count.iter().zip(&self.steps).map(|(count, step)| count + is_receive(step)).collect();
        let mut sorted: Vec<u32> = (0..missing.len() as u32).filter(|step| missing[*step as usize] == 0).collect();
        let mut next = 0;
        while let Some(&step) = sorted.get(next) {
            next += 1;
            for waiter in self.waiters(step) {
                missing[waiter as usize] -= 1;
                if missing[waiter as usize] == 0 {
                    sorted.push(waiter);
                }
            }
        }
        sorted
    }
}

/// Makes a [`Workload`].
#[derive(Clone, Debug, Default)]
pub struct Builder {
    host_count: u32,
    messages: Vec<Message>,
    steps: Vec<(u32, Action, Option<u32>)>,
    /// (step that waits, step it waits for).
    edges: Vec<(u32, u32)>,
}

impl Builder {
    /// A workload of so many hosts in which nothing happens yet.
    pub fn new(host_count: u32) -> Builder {
        Builder { host_count, ..Builder::default() }
    }

    /// Number of hosts.
    pub fn host_count(&self) -> u32 {
        self.host_count
    }

    /// Number of steps so far.
    pub fn step_count(&self) -> usize {
        self.steps.len()
    }

    /// Adds a message. Someone still has to move and to receive it.
    pub fn message(&mut self, message: Message) -> MessageId {
        self.messages.push(message);
        MessageId(self.messages.len() as u32 - 1)
    }

    /// Adds a step that starts when those it comes after are done.
    pub fn step(&mut self, host: u32, action: Action, after: &[StepId]) -> StepId {
        let step = StepId(self.steps.len() as u32);
        self.steps.push((host, action, None));
        after.iter().for_each(|before| self.order(*before, step));
        step
    }

    /// Lets a step come after another one, too.
    pub fn order(&mut self, before: StepId, step: StepId) {
        self.edges.push((step.0, before.0));
    }

    /// Lets a step start when so many of the steps it comes after are done, whichever they are.
    pub fn need(&mut self, step: StepId, count: u32) {
        self.steps[step.0 as usize].2 = Some(count);
    }

    /// Adds a step that lets time pass.
    pub fn wait(&mut self, host: u32, duration_ps: u64, after: &[StepId]) -> StepId {
        self.step(host, Action::Wait { duration_ps }, after)
    }

    /// Adds a message that its source writes after some steps, and its reception. Returns the step that sends and the one
    /// that receives.
    pub fn write(&mut self, src: u32, dst: u32, bytes: u64, stream: u16, after: &[StepId]) -> (StepId, StepId) {
        let message = self.message(Message { src, dst, bytes, verb: Verb::Write, stream });
        (self.step(src, Action::Send(message), after), self.step(dst, Action::Receive(message), &[]))
    }

    /// Adds a message that its destination reads after some steps.
    pub fn read(&mut self, src: u32, dst: u32, bytes: u64, stream: u16, after: &[StepId]) -> StepId {
        let message = self.message(Message { src, dst, bytes, verb: Verb::Read, stream });
        self.step(dst, Action::Fetch(message), after)
    }

    /// The host of a step.
    pub fn host_of(&self, step: StepId) -> u32 {
        self.steps[step.0 as usize].0
    }

    /// Checks everything and lays it out.
    ///
    /// # Errors
    /// [`WorkloadError`]; the steps and messages in it are those of the builder.
    pub fn build(self) -> Result<Workload, WorkloadError> {
        let count = self.steps.len();
        if count > STEP_COUNT_MAX || self.edges.len() > u32::MAX as usize || self.host_count > HOST_COUNT_MAX {
            return Err(WorkloadError::TooLarge);
        }
        self.check_steps()?;
        let (receive_step, move_step) = self.match_messages()?;

        // Host by host, in the order of addition within a host.
        let mut order: Vec<u32> = (0..count as u32).collect();
        order.sort_by_key(|step| self.steps[*step as usize].0);
        let mut place = vec![0u32; count];
        order.iter().enumerate().for_each(|(at, step)| place[*step as usize] = at as u32);
        let mut step_start = vec![0u32; self.host_count as usize + 1];
        self.steps.iter().for_each(|step| step_start[step.0 as usize + 1] += 1);
        accumulate(&mut step_start);

        let mut edges: Vec<(u32, u32)> =
            self.edges.iter().map(|(step, before)| (place[*before as usize], place[*step as usize])).collect();
        edges.sort_unstable();
        edges.dedup();
        let mut follower_start = vec![0u32; count + 1];
        let mut after_count = vec![0u32; count];
        for (before, step) in &edges {
            follower_start[*before as usize + 1] += 1;
            after_count[*step as usize] += 1;
        }
        accumulate(&mut follower_start);
        let steps: Vec<Step> = order
            .iter()
            .map(|step| {
                let (host, action, need) = self.steps[*step as usize];
                let all = after_count[place[*step as usize] as usize];
                Step { host, action, need: need.unwrap_or(all).min(all) }
            })
            .collect();
        let (connections, ends) = connect(&self.messages, self.host_count);
        let workload = Workload {
            steps,
            step_start,
            follower_start,
            followers: edges.into_iter().map(|edge| edge.1).collect(),
            after_count,
            receive_step: receive_step.into_iter().map(|step| place[step as usize]).collect(),
            move_step: move_step.into_iter().map(|step| place[step as usize]).collect(),
            connections,
            ends,
            messages: self.messages,
        };
        workload.check_cycles(&order)?;
        Ok(workload)
    }

    fn check_steps(&self) -> Result<(), WorkloadError> {
        for (index, message) in (0..).zip(&self.messages) {
            let is_inside = message.src < self.host_count && message.dst < self.host_count;
            if !is_inside || message.src == message.dst || message.bytes > MESSAGE_BYTES_MAX {
                return Err(WorkloadError::BadMessage(MessageId(index)));
            }
        }
        for (index, (host, action, _)) in (0..).zip(&self.steps) {
            if *host >= self.host_count {
                return Err(WorkloadError::NoSuchHost(StepId(index)));
            }
            let message = |id: &MessageId| &self.messages[id.0 as usize];
            let is_right = match action {
                Action::Send(id) => message(id).verb == Verb::Write && message(id).src == *host,
                Action::Fetch(id) => message(id).verb == Verb::Read && message(id).dst == *host,
                Action::Receive(id) => message(id).verb == Verb::Write && message(id).dst == *host,
                Action::Wait { .. } => true,
            };
            if !is_right {
                return Err(WorkloadError::Misplaced(StepId(index)));
            }
        }
        let host = |step: u32| self.steps[step as usize].0;
        match self.edges.iter().find(|(step, before)| host(*step) != host(*before)) {
            Some((step, before)) => Err(WorkloadError::OtherHost { step: StepId(*step), after: StepId(*before) }),
            None => Ok(()),
        }
    }

    /// For each message the step that has it when it arrived, and the step that moves it.
    fn match_messages(&self) -> Result<(Vec<u32>, Vec<u32>), WorkloadError> {
        let mut arrival = vec![(0u32, 0u32); self.messages.len()];
        let mut moving = arrival.clone();
        let note = |entry: &mut (u32, u32), step: u32| *entry = (step, entry.1 + 1);
        for (step, (_, action, _)) in (0..).zip(&self.steps) {
            match action {
                Action::Send(id) => note(&mut moving[id.0 as usize], step),
                Action::Receive(id) => note(&mut arrival[id.0 as usize], step),
                Action::Fetch(id) => {
                    note(&mut moving[id.0 as usize], step);
                    note(&mut arrival[id.0 as usize], step);
                }
                Action::Wait { .. } => {}
            }
        }
        for (index, (moved, arrived)) in (0..).zip(moving.iter().zip(&arrival)) {
            if (moved.1, arrived.1) != (1, 1) {
                let (message, movers, receivers) = (MessageId(index), moved.1, arrived.1);
                return Err(WorkloadError::Unmatched { message, movers, receivers });
            }
        }
        let steps = |entries: Vec<(u32, u32)>| entries.into_iter().map(|entry| entry.0).collect();
        Ok((steps(arrival), steps(moving)))
    }
}

impl Workload {
    /// Finds a step that waits for itself; `names` are the builder's names of the steps.
    fn check_cycles(&self, names: &[u32]) -> Result<(), WorkloadError> {
        let sorted = self.sorted_steps();
        if sorted.len() == self.steps.len() {
            return Ok(());
        }
        let mut is_sorted = vec![false; self.steps.len()];
        sorted.iter().for_each(|step| is_sorted[*step as usize] = true);
        // Every step left waits for another one left: walking backwards that many times ends inside a cycle.
        let mut before = vec![u32::MAX; self.steps.len()];
        for step in (0..self.steps.len() as u32).filter(|step| !is_sorted[*step as usize]) {
            self.waiters(step).for_each(|waiter| before[waiter as usize] = step);
        }
        let mut step = (0..is_sorted.len()).find(|step| !is_sorted[*step]).unwrap_or(0) as u32;
        for _ in 0..self.steps.len() {
            step = before[step as usize];
        }
        Err(WorkloadError::Cycle(StepId(names[step as usize])))
    }
}

fn accumulate(counts: &mut [u32]) {
    for index in 1..counts.len() {
        counts[index] += counts[index - 1];
    }
}

type Ends = Vec<(u32, u32)>;

/// Numbers the connections of every host, and says for each message which it uses at its source and destination.
fn connect(messages: &[Message], host_count: u32) -> (Vec<Vec<Connection>>, Ends) {
    let mut indices: Vec<BTreeMap<(u32, u16), u32>> = vec![BTreeMap::new(); host_count as usize];
    for message in messages {
        indices[message.src as usize].insert((message.dst, message.stream), 0);
        indices[message.dst as usize].insert((message.src, message.stream), 0);
    }
    indices.iter_mut().for_each(|map| map.values_mut().zip(0..).for_each(|(entry, index)| *entry = index));
    let index = |host: u32, peer: u32, stream: u16| indices[host as usize][&(peer, stream)];
    let connections = (0..host_count).map(|host| {
        let keys = indices[host as usize].keys();
        keys.map(|(peer, stream)| Connection { peer: *peer, stream: *stream, peer_index: index(*peer, host, *stream) })
            .collect()
    });
    let ends = messages.iter().map(|m| (index(m.src, m.dst, m.stream), index(m.dst, m.src, m.stream)));
    (connections.collect(), ends.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_a_host_lie_together_and_keep_their_order() {
        let mut builder = Builder::new(2);
        let (send, _) = builder.write(0, 1, 10, 0, &[]);
        let last = builder.wait(0, 5, &[send]);
        let workload = builder.build().unwrap();
        assert_eq!(workload.steps_of(0), 0..2);
        assert_eq!(workload.steps()[1], Step { host: 0, action: Action::Wait { duration_ps: 5 }, need: 1 });
        assert_eq!(workload.followers(0), [1]);
        assert_eq!(workload.arrival_step(MessageId(0)), StepId(2));
        assert_eq!(last, StepId(2));
    }

    #[test]
    fn connections_are_shared_by_both_directions_and_know_their_other_end() {
        let mut builder = Builder::new(3);
        builder.write(2, 0, 1, 0, &[]);
        builder.write(0, 2, 1, 0, &[]);
        builder.write(2, 0, 1, 7, &[]);
        builder.read(1, 0, 1, 0, &[]);
        let workload = builder.build().unwrap();
        let connection = |peer, stream, peer_index| Connection { peer, stream, peer_index };
        assert_eq!(workload.connections_of(0), [connection(1, 0, 0), connection(2, 0, 0), connection(2, 7, 1)]);
        assert_eq!(workload.connections_of(2), [connection(0, 0, 1), connection(0, 7, 2)]);
        assert_eq!(workload.connection_at_initiator(MessageId(2)), 1);
        assert_eq!(workload.connection_at_initiator(MessageId(3)), 0);
    }

    #[test]
    fn cycle_is_refused_by_the_name_of_a_step_in_it() {
        let mut builder = Builder::new(2);
        let first = builder.wait(1, 0, &[]);
        let a = builder.wait(0, 0, &[]);
        let b = builder.wait(0, 0, &[a]);
        builder.wait(0, 0, &[b]);
        builder.order(b, a);
        let error = builder.build().unwrap_err();
        assert!(error == WorkloadError::Cycle(a) || error == WorkloadError::Cycle(b), "{error}");
        assert_ne!(error, WorkloadError::Cycle(first));
    }

    #[test]
    fn hosts_that_wait_for_each_others_messages_are_a_cycle() {
        let mut builder = Builder::new(2);
        let (ping, at_b) = builder.write(0, 1, 1, 0, &[]);
        let (_, at_a) = builder.write(1, 0, 1, 0, &[at_b]);
        assert!(builder.clone().build().is_ok());
        builder.order(at_a, ping);
        assert!(matches!(builder.build(), Err(WorkloadError::Cycle(_))));
    }

    #[test]
    fn what_no_host_can_do_is_refused() {
        let refuse = |make: &dyn Fn(&mut Builder)| {
            let mut builder = Builder::new(2);
            make(&mut builder);
            builder.build().unwrap_err()
        };
        let message = |src, dst, bytes| Message { src, dst, bytes, verb: Verb::Write, stream: 0 };
        let write = |builder: &mut Builder, src, dst, bytes| {
            builder.write(src, dst, bytes, 0, &[]);
        };
        let bad = WorkloadError::BadMessage(MessageId(0));
        assert_eq!(refuse(&|b| write(b, 0, 0, 1)), bad);
        assert_eq!(refuse(&|b| write(b, 0, 2, 1)), bad);
        assert_eq!(refuse(&|b| write(b, 0, 1, MESSAGE_BYTES_MAX + 1)), bad);
        let wait = |builder: &mut Builder| {
            builder.wait(2, 0, &[]);
        };
        assert_eq!(refuse(&wait), WorkloadError::NoSuchHost(StepId(0)));
        let lonely = WorkloadError::Unmatched { message: MessageId(0), movers: 1, receivers: 0 };
        assert_eq!(
            refuse(&|b| {
                let id = b.message(message(0, 1, 1));
                b.step(0, Action::Send(id), &[]);
            }),
            lonely
        );
        assert_eq!(
            refuse(&|b| {
                let id = b.message(message(0, 1, 1));
                b.step(1, Action::Send(id), &[]);
            }),
            WorkloadError::Misplaced(StepId(0))
        );
        assert_eq!(
            refuse(&|b| {
                let (send, receive) = b.write(0, 1, 1, 0, &[]);
                b.order(send, receive);
            }),
            WorkloadError::OtherHost { step: StepId(1), after: StepId(0) }
        );
    }
}
