//! A host of a run: posts what the plan says, polls, and judges every completion when it sees it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use nic_fabric::{Context, Frame, Node};
use nic_model::conn_config::ConnConfig;
use nic_model::transport::path_set::PathSet;
use nic_model::work::{ConnId, CqeOp, PostError};
use nic_node::{Card, CARD_TOKENS};
use nic_spec::num::Qpn;

use crate::conduct::{Conduct, Limits};
use crate::memory::GuardedMemory;
use crate::plan::{Act, Begin, ConnPlan, Expected, Fate, HostPlan, Lane, Queue, Request};
use crate::tags::Tagger;

mod conduct;
mod judge;
mod manage;

const TOKEN_HOST: u32 = CARD_TOKENS;
/// Violations that are kept; what follows the first is seldom news.
const VIOLATIONS_MAX: usize = 16;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is not asked for yet, or not granted.
    Waiting,
    /// It is asked for.
    Asked,
    /// It is there.
    Up,
    /// This side ends it.
    Closing,
    /// It is over.
    Over,
}

impl Stage {
    const fn is_there(self) -> bool {
        matches!(self, Stage::Up | Stage::Closing)
    }

    fn is_final(self, plan: &ConnPlan) -> bool {
        let may_be_unheard_of = matches!(plan.begin, Begin::Grants { is_given_up: true, .. });
        self == if plan.ends { Stage::Over } else { Stage::Up } || may_be_unheard_of && self == Stage::Waiting
    }
}

/// What a host has seen of its plan.
pub struct Host {
    card: Card<GuardedMemory>,
    number: u32,
    /// Rows of the connections that are there, or were.
    conns: Vec<Option<ConnId>>,
    conn_plans: Vec<ConnPlan>,
    stages: Vec<Stage>,
    /// Per connection: certain completions that are still to come, without and with those of the farewell.
    conn_left: Vec<[usize; 2]>,
    fates: Vec<Fate>,
    /// Per connection: it failed.
    has_failed: Vec<bool>,
    /// Per connection: when the host gives it up.
    give_up_at_ps: Vec<Option<u64>>,
    /// Completions of each connection with the reason of its failure.
    reasons: Vec<u32>,
    lanes: Vec<Lane>,
    expected: Vec<Expected>,
    /// Completions of each that came.
    seen: Vec<bool>,
    /// Those that came and were good.
    is_good: Vec<bool>,
    queues: Vec<Queue>,
    /// Per queue: completions before this place came, or must not come.
    places: Vec<usize>,
    /// Per queue: a completion in error came, after which none is good.
    failed: Vec<bool>,
    /// Completions that are still to come.
    left: usize,
    acts: VecDeque<(u64, Act)>,
    tagger: Tagger,
    stalls: Vec<Range<u64>>,
    poll_every_ps: u64,
    next_poll_ps: u64,
    cq_count: u32,
    /// When the host's timers are due, the earliest last.
    wakes_ps: Vec<u64>,
    /// Per connection.
    conduct: Vec<Conduct>,
    limits: Vec<Limits>,
    /// Bit p: port p has a link.
    linked: u16,
    /// Per connection: planes that it does without.
    down: Vec<u16>,
    /// Per connection, bit i: path i is switched off.
    denied: Vec<u16>,
    /// Per connection, bit i: path i is to be closed, and its end was not told yet.
    closing: Vec<u16>,
    /// Per connection: not before this it is asked for again, nor before this connection has left its row.
    ask_again: Vec<Option<(u64, ConnId)>>,
    /// Receives posted so far that have an ordinal, by connection and stream.
    posted: BTreeMap<(usize, u16), u32>,
    /// Per connection: the newest report of the peer about its ports, by number.
    reports: Vec<Option<(u16, u16)>>,
    /// Its table of connections was full.
    was_full: bool,
    /// Per connection: its queues are paused.
    is_paused: Vec<bool>,
    /// Posted while paused, and not to be begun before that ends.
    is_held: Vec<bool>,
    /// Per connection: when the host ended it.
    ended_at_ps: Vec<u64>,
    /// When all faults are over, if they ever are.
    calm_ps: Option<u64>,
    violations: Vec<String>,
    /// Everything seen, in its order.
    digest: u64,
    completions: u64,
}

impl Host {
    /// The host of this number with its card, connections open; faults are over at `calm_ps`, if they ever are.
    ///
    /// # Errors
    /// The reason for which the card did not open a connection.
    pub fn new(number: u32, plan: HostPlan, calm_ps: Option<u64>) -> Result<Host, String> {
        let mut card = Card::new(plan.nic, plan.memory).with_clock(plan.clock_ps);
        for (row, mr) in (0..).zip(plan.mrs) {
            card.nic_mut().mrs().set(row, Some(mr));
        }
        use_up(&mut card, &plan.used_rows)?;
        let mut conn_left = vec![[0; 2]; plan.conns.len()];
        for e in plan.expected.iter().filter(|e| is_certain(e, plan.fates[e.conn], false)) {
            conn_left[e.conn][0] += usize::from(!e.is_farewell);
            conn_left[e.conn][1] += 1;
        }
        let mut host = Host {
            number,
            reasons: vec![0; plan.conns.len()],
            conns: vec![None; plan.conns.len()],
            stages: vec![Stage::Waiting; plan.conns.len()],
            give_up_at_ps: vec![None; plan.conns.len()],
            conduct: vec![Conduct::default(); plan.conns.len()],
            limits: plan.conns.iter().map(limits).collect(),
            linked: u16::MAX,
            down: vec![0; plan.conns.len()],
            ended_at_ps: vec![0; plan.conns.len()],
            denied: vec![0; plan.conns.len()],
            closing: vec![0; plan.conns.len()],
            ask_again: vec![None; plan.conns.len()],
            posted: BTreeMap::new(),
            reports: vec![None; plan.conns.len()],
            was_full: !plan.used_rows.is_empty(),
            is_paused: vec![false; plan.conns.len()],
            is_held: vec![false; plan.expected.len()],
            calm_ps,
            left: conn_left.iter().map(|left| left[1]).sum(),
            conn_left,
            has_failed: vec![false; plan.conns.len()],
            conn_plans: plan.conns,
            fates: plan.fates,
            lanes: plan.lanes,
            seen: vec![false; plan.expected.len()],
            is_good: vec![false; plan.expected.len()],
            expected: plan.expected,
            places: vec![0; plan.queues.len()],
            failed: vec![false; plan.queues.len()],
            queues: plan.queues,
            acts: plan.acts.into(),
            tagger: Tagger::new(plan.tag_percent, number),
            stalls: plan.stalls,
            poll_every_ps: plan.poll_every_ps,
            next_poll_ps: 0,
            cq_count: plan.cq_count,
            wakes_ps: Vec::new(),
            violations: Vec::new(),
            digest: 0xcbf2_9ce4_8422_2325,
            completions: 0,
            card,
        };
        for index in 0..host.conns.len() {
            host.begin(index)?;
        }
        Ok(host)
    }

    /// Opens a connection that is agreed on, listens for one that is granted.
    fn begin(&mut self, index: usize) -> Result<(), String> {
        let now = self.card.time(0);
        let (nic, plan) = (self.card.nic_mut(), &self.conn_plans[index]);
        match plan.begin {
            Begin::Agreed => {
                let conn = nic.open_connection(now, plan.config.clone()).map_err(|error| error.to_string())?;
                self.is_up(index, conn);
            }
            Begin::Grants { service, paths_max, is_deaf: false, .. } => {
                nic.listen(service, plan.config.clone(), paths_max);
            }
            Begin::Grants { .. } | Begin::Asks { .. } => {}
        }
        Ok(())
    }

    fn is_up(&mut self, index: usize, conn: ConnId) {
        (self.conns[index], self.stages[index]) = (Some(conn), Stage::Up);
        self.conduct[index] = Conduct::of(self.card.nic().paths(conn));
    }

    /// Its card.
    pub fn card(&self) -> &Card<GuardedMemory> {
        &self.card
    }

    /// True when everything is posted and every completion came, but for receives whose messages a peer that failed owes.
    pub fn is_done(&self) -> bool {
        self.left == 0
            && self.lanes.iter().all(|lane| !self.is_waiting(lane))
            && self.stages.iter().zip(&self.conn_plans).all(|(stage, plan)| stage.is_final(plan))
            && self.still_closing().next().is_none()
    }

    /// Connections that live and have a path of whose end the peer is still to be told.
    fn still_closing(&self) -> impl Iterator<Item = usize> + '_ {
        // A plane that is dead and not known to be may swallow it each time.
        let is_bound = self.calm_ps.is_some();
        let lives = |index: &usize| self.stages[*index] == Stage::Up && !self.has_failed[*index];
        (0..self.conns.len()).filter(lives).filter(move |index| is_bound && self.closing[*index] != 0)
    }

    fn is_waiting(&self, lane: &Lane) -> bool {
        match lane.requests.front() {
            Some((_, Request::Recv(_))) => self.fates[lane.conn] != Fate::MayFail || self.has_failed[lane.conn],
            front => front.is_some(),
        }
    }

    /// True when no packet waits for its acknowledgement.
    pub fn is_quiet(&self) -> bool {
        let mut paths = (0..self.conns.len()).filter_map(|index| self.paths(index));
        paths.all(|paths| paths.in_flight_pkts() == 0)
    }

    /// What should not have happened.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// A number that depends on every completion and its time.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Bytes of VLAN tags that the frames for it got on their way.
    pub fn tag_bytes(&self) -> u64 {
        self.tagger.bytes()
    }

    /// What the messages that completed well filled, by host.
    pub fn filled(&self) -> impl Iterator<Item = &(usize, Range<usize>)> {
        self.expected.iter().zip(&self.is_good).filter(|(_, is_good)| **is_good).filter_map(|(e, _)| e.target.as_ref())
    }

    /// Completions that came.
    pub fn completions(&self) -> u64 {
        self.completions
    }

    fn is_certain(&self, e: &Expected) -> bool {
        is_certain(e, self.fates[e.conn], self.has_failed[e.conn])
    }

    /// A connection failed: from now on its receives have to come back.
    fn fails(&mut self, index: usize) {
        let is_news = |(number, e): &(usize, &Expected)| e.conn == index && !self.seen[*number] && !self.is_certain(e);
        let before = self.expected.iter().enumerate().filter(is_news).filter(|(_, e)| e.is_signaled).count();
        self.has_failed[index] = true;
        self.left += before;
        self.conn_left[index].iter_mut().for_each(|left| *left += before);
    }

    /// What is still to come, in words.
    pub fn missing(&self) -> Vec<String> {
        let posts = self.lanes.iter().filter(|lane| self.is_waiting(lane));
        let posts = posts.map(|lane| {
            format!("{} requests of connection {} stream {} not posted", lane.requests.len(), lane.conn, lane.stream)
        });
        let is_late = |(index, e): &(usize, &Expected)| self.is_certain(e) && !self.seen[*index];
        let late = self.expected.iter().enumerate().filter(is_late);
        let stages = self.stages.iter().zip(&self.conn_plans).enumerate().filter(|(_, (s, plan))| !s.is_final(plan));
        let stages = stages.map(|(index, (stage, plan))| format!("connection {index} {:?} is {stage:?}", plan.begin));
        let late = late.map(|(index, e)| format!("no completion {index} ({})", describe(e)));
        let closing =
            self.still_closing().map(|index| format!("connection {index} does not say that paths are closed"));
        posts.chain(stages).chain(late).chain(closing).collect()
    }

    /// States of all connections and their paths, in words.
    pub fn states(&self) -> Vec<String> {
        let state = |index: usize| {
            let paths = self.paths(index).into_iter().flat_map(|paths| paths.iter()).enumerate();
            let busy = paths.filter(|(_, path)| path.window.in_flight_pkts() > 0).map(|(number, path)| {
                format!(
                    " path {number}: {:?}, plane {}, epoch {}, {} from {}",
                    path.state,
                    path.plane,
                    path.epoch,
                    path.window.in_flight_pkts(),
                    path.window.una(),
                )
            });
            let busy: String = busy.collect();
            let state = self.conns[index].and_then(|conn| self.card.nic().conn_state(conn));
            format!("connection {index}: {:?} {state:?}{busy}", self.stages[index])
        };
        (0..self.conns.len()).map(state).collect()
    }

    /// Paths of a connection that is there.
    fn paths(&self, index: usize) -> Option<&PathSet> {
        let conn = self.conns[index].filter(|_| self.stages[index].is_there())?;
        self.card.nic().paths(conn)
    }

    /// The connection that has this row now.
    fn index_of(&self, conn: ConnId) -> Option<usize> {
        (0..self.conns.len()).find(|index| self.conns[*index] == Some(conn) && self.stages[*index] != Stage::Over)
    }

    fn violate(&mut self, now_ps: u64, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(format!("host {} at {now_ps} ps: {what}", self.number));
        }
    }

    /// The host's turn, after everything that happened to the card.
    fn run(&mut self, ctx: &mut Context<'_>) {
        let now_ps = ctx.now_ps();
        self.check_conduct(now_ps);
        let stalled_to = self.stalls.iter().filter(|stall| stall.contains(&now_ps)).map(|stall| stall.end).max();
        if let Some(end_ps) = stalled_to {
            self.wake_at(ctx, end_ps);
        } else if now_ps >= self.next_poll_ps {
            self.next_poll_ps = now_ps + self.poll_every_ps;
            self.poll(now_ps);
            self.check_reports(now_ps);
            let has_acted = self.act(now_ps) | self.manage(now_ps);
            if self.post(now_ps) | has_acted {
                self.card.pump(ctx);
                self.check_conduct(now_ps);
                // What is posted to a failed connection comes back at once.
                self.poll(now_ps);
            }
            self.wake_for_work(ctx, now_ps);
        } else {
            self.wake_at(ctx, self.next_poll_ps);
        }
        if let Some(what) = self.card.memory_mut().take_violation() {
            self.violate(now_ps, what);
        }
    }

    fn wake_for_work(&mut self, ctx: &mut Context<'_>, now_ps: u64) {
        let requests = self.lanes.iter().filter_map(|lane| lane.requests.front()).map(|(at_ps, _)| *at_ps);
        let acts = self.acts.front().map(|(at_ps, _)| *at_ps);
        let asked = self.conn_plans.iter().zip(&self.stages).filter(|(_, stage)| **stage == Stage::Waiting);
        let asked = asked.filter_map(|(plan, _)| match plan.begin {
            Begin::Asks { at_ps, .. } => Some(at_ps),
            _ => None,
        });
        let given_up = self.give_up_at_ps.iter().flatten().copied();
        // What is due and had to wait is tried again when something happens to the card.
        let again = self.ask_again.iter().flatten().map(|(at_ps, _)| *at_ps);
        if let Some(at_ps) =
            requests.chain(acts).chain(asked).chain(given_up).chain(again).filter(|at_ps| *at_ps > now_ps).min()
        {
            self.wake_at(ctx, at_ps.max(self.next_poll_ps));
        }
    }

    fn may_be_full(&self, index: usize) -> bool {
        matches!(self.conn_plans[index].begin, Begin::Asks { may_be_full: true, .. })
    }

    fn wake_at(&mut self, ctx: &mut Context<'_>, at_ps: u64) {
        if self.wakes_ps.last().is_none_or(|set_ps| at_ps < *set_ps) {
            self.wakes_ps.push(at_ps);
            ctx.set_timer(at_ps, TOKEN_HOST);
        }
    }

    /// Posts what may be posted; true if anything was.
    fn post(&mut self, now_ps: u64) -> bool {
        let mut has_posted = false;
        for index in 0..self.lanes.len() {
            while let Some((_, request)) = self.lanes[index].requests.front().filter(|(at_ps, _)| *at_ps <= now_ps) {
                let lane = &self.lanes[index];
                let (conn, stream, request) = (lane.conn, lane.stream, *request);
                let lane_conn = conn;
                let may_be_posted = match request {
                    // Receives may be there before the peer answers, but come back if it has no room.
                    Request::Recv(_) if self.may_be_full(conn) => self.stages[conn].is_there(),
                    Request::Recv(_) => matches!(self.stages[conn], Stage::Asked | Stage::Up | Stage::Closing),
                    Request::Send(_) => self.stages[conn] == Stage::Up,
                    Request::Farewell(_) => self.stages[conn] == Stage::Up && self.conn_left[conn][0] == 0,
                };
                let Some(conn) = self.conns[conn].filter(|_| may_be_posted) else { break };
                let now = self.card.time(now_ps);
                let nic = self.card.nic_mut();
                let result = match request {
                    Request::Send(wr) | Request::Farewell(wr) => nic.post_send(now, conn, stream, wr),
                    Request::Recv(wr) => nic.post_recv(now, conn, stream, wr),
                };
                match result {
                    Ok(()) => {
                        has_posted = true;
                        if let Request::Send(wr) | Request::Farewell(wr) = request {
                            self.is_held[wr.wr_id as usize] = self.is_paused[lane_conn];
                        }
                        if matches!(request, Request::Recv(wr) if wr.tag.is_none()) {
                            *self.posted.entry((lane_conn, stream)).or_default() += 1;
                        }
                    }
                    Err(PostError::QueueFull { .. }) => break,
                    Err(error) => self.violate(now_ps, format!("{request:?} was not taken: {error}")),
                }
                self.lanes[index].requests.pop_front();
            }
        }
        has_posted
    }

    fn poll(&mut self, now_ps: u64) {
        for cq in 0..self.cq_count {
            while let Some(cqe) = self.card.nic_mut().poll_completion(cq) {
                self.judge(now_ps, &cqe);
            }
        }
        while let Some(event) = self.card.nic_mut().poll_event() {
            self.judge_event(now_ps, event);
        }
    }

    /// Planes that connections were told to be down and not up again since, in words.
    pub fn planes_down(&self) -> Vec<String> {
        let is_there = |index: &usize| self.stages[*index].is_there() && self.fates[*index] == Fate::Lives;
        let down = (0..self.conns.len()).filter(|index| is_there(index) && self.down[*index] != 0);
        down.map(|index| format!("connection {index} does without planes {:#b}", self.down[index])).collect()
    }
}

/// Lets connections begin and end in these rows, which are of no use for a while then.
fn use_up(card: &mut Card<GuardedMemory>, rows: &[u32]) -> Result<(), String> {
    let now = card.time(0);
    let nic = card.nic_mut();
    for row in rows {
        let id = Qpn::new(0x80_0000 | row);
        let conn = nic.open_connection(now, ConnConfig::new(id, id)).map_err(|error| error.to_string())?;
        nic.close_connection(now, conn);
    }
    while nic.poll_event().is_some() {}
    Ok(())
}

/// What a connection has to keep to.
fn limits(plan: &ConnPlan) -> Limits {
    let transport = &plan.config.transport;
    let begin_pkts = transport.conn_init_pkts.max(if plan.is_asked { transport.conn_ramp_pkts } else { 0 });
    let planes = plan.config.addresses.len().min(16) as u32;
    Limits {
        cap_pkts: transport.path_cap_pkts,
        begin_pkts,
        pmtu_bytes: 1 << plan.pmtu_log2,
        ack_delay_ps: transport.ack_delay_ps,
        linked: ((1u32 << planes) - 1) as u16,
        min_rtt_ps: 0,
        denied: 0,
    }
}

/// True when this has to come.
fn is_certain(e: &Expected, fate: Fate, has_failed: bool) -> bool {
    let is_receive = matches!(e.op, CqeOp::Recv | CqeOp::RecvImm);
    e.is_signaled && (fate != Fate::MayFail || !is_receive || has_failed)
}

fn describe(e: &Expected) -> String {
    let side = if matches!(e.op, CqeOp::Recv | CqeOp::RecvImm) { "receive" } else { "send" };
    format!("{side} queue of connection {} stream {}, {:?} of {} bytes", e.conn, e.stream, e.op, e.byte_len)
}

impl Node for Host {
    fn on_start(&mut self, ctx: &mut Context<'_>) {
        self.card.pump(ctx);
        self.run(ctx);
    }

    fn on_frame(&mut self, ctx: &mut Context<'_>, port: u16, frame: Frame) {
        self.overhear(ctx.now_ps(), &frame);
        let frame = self.tagger.pass(frame);
        self.card.on_frame(ctx, port, frame);
        self.run(ctx);
    }

    fn on_timer(&mut self, ctx: &mut Context<'_>, token: u32) {
        if token == TOKEN_HOST {
            self.wakes_ps.pop();
        } else {
            self.card.on_timer(ctx, token);
        }
        self.run(ctx);
    }

    fn on_port_state(&mut self, ctx: &mut Context<'_>, port: u16, is_up: bool) {
        self.linked = self.linked & !(1 << port) | u16::from(is_up) << port;
        self.card.on_port_state(ctx, port, is_up);
        self.run(ctx);
    }

    fn on_port_idle(&mut self, ctx: &mut Context<'_>, port: u16) {
        self.card.on_port_idle(ctx, port);
        self.run(ctx);
    }
}
