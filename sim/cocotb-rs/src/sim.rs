//! The state of a simulation, and the handle through which tasks see it.

use crate::{
    agent::{add_failure, Agent, Io},
    clock::{ClockState, Period},
    error::SimError,
    executor::{Join, Scheduler, Waiter},
    ffi::Instance,
    model::Model,
    port::{Direction, Port, PortImage},
    shim::status,
    trigger::{Cycles, Timer},
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    future::Future,
    rc::Rc,
    task::Context,
};

/// Lines of design output kept for [`Handle::take_output`].
const OUTPUT_LINES_MAX: usize = 1000;

/// A clock of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock(pub(crate) usize);

pub(crate) struct TraceState {
    pub(crate) cycles: std::ops::Range<u64>,
    /// Time of the last entry; the format needs rising times.
    pub(crate) last_ps: Option<u64>,
}

pub(crate) struct Inner {
    pub(crate) model: Model,
    pub(crate) instance: RefCell<Instance>,
    pub(crate) image: RefCell<PortImage>,
    pub(crate) clocks: RefCell<Vec<ClockState>>,
    pub(crate) agents: RefCell<Vec<(Clock, Box<dyn Agent>)>>,
    /// Agents attached while agents or tasks run; they take part from the next edge on.
    pub(crate) new_agents: RefCell<Vec<(Clock, Box<dyn Agent>)>>,
    pub(crate) timers: RefCell<BTreeMap<(u64, u64), Waiter>>,
    pub(crate) scheduler: Rc<Scheduler>,
    pub(crate) now_fs: Cell<u64>,
    /// Registrations so far; breaks ties between waiters of one time.
    pub(crate) registrations: Cell<u64>,
    pub(crate) reset: Cell<Option<(Port, bool)>>,
    pub(crate) failure: RefCell<Option<String>>,
    /// Set for good when the design has stopped.
    pub(crate) ended: RefCell<Option<SimError>>,
    pub(crate) output: RefCell<VecDeque<String>>,
    pub(crate) trace: RefCell<Option<TraceState>>,
}

/// Access to a simulation for tasks. Clones are the same simulation.
///
/// A handle reads sampled ports and writes live ones, as explained at [`PortImage`], and makes triggers. It cannot
/// step the simulation; that is for [`Sim`](crate::Sim), which owns it.
#[derive(Clone)]
pub struct Handle(pub(crate) Rc<Inner>);

impl Handle {
    /// The port of that name.
    ///
    /// # Errors
    /// [`SimError::UnknownPort`], with the list of those there are.
    pub fn port(&self, name: &str) -> Result<Port, SimError> {
        self.find_port(name).ok_or_else(|| SimError::UnknownPort {
            model: self.0.model.top().to_owned(),
            name: name.to_owned(),
            known: self.0.model.ports().iter().map(|(decl, _)| decl.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// The port of that name, if there is one.
    pub fn find_port(&self, name: &str) -> Option<Port> {
        self.0.model.ports().find(name)
    }

    /// The model simulated.
    pub fn model(&self) -> &Model {
        &self.0.model
    }

    /// Reads a port of at most 64 bits, as it stood before the last edge. Panics as [`PortImage::get`] does.
    #[inline]
    pub fn get(&self, port: Port) -> u64 {
        self.0.image.borrow().get(port)
    }

    /// Whether any bit of a port of at most 64 bits was set before the last edge.
    #[inline]
    pub fn is_set(&self, port: Port) -> bool {
        self.0.image.borrow().is_set(port)
    }

    /// Reads a port of any width.
    pub fn get_words(&self, port: Port) -> Vec<u64> {
        self.0.image.borrow().words(port).to_vec()
    }

    /// Reads the ports without copying.
    pub fn read<R>(&self, f: impl FnOnce(&PortImage) -> R) -> R {
        f(&self.0.image.borrow())
    }

    /// Writes an input of at most 64 bits. Panics as [`PortImage::set`] does.
    #[inline]
    pub fn set(&self, port: Port, value: u64) {
        self.0.image.borrow_mut().set(port, value);
    }

    /// Writes an input of any width. Panics as [`PortImage::set_words`] does.
    pub fn set_words(&self, port: Port, words: &[u64]) {
        self.0.image.borrow_mut().set_words(port, words);
    }

    /// Writes an input of any width from little-endian bytes. Panics as [`PortImage::set_bytes`] does.
    pub fn set_bytes(&self, port: Port, bytes: &[u8]) {
        self.0.image.borrow_mut().set_bytes(port, bytes);
    }

    /// Simulated time in picoseconds, rounded down.
    pub fn now_ps(&self) -> u64 {
        self.0.now_fs.get() / 1000
    }

    /// Simulated time in femtoseconds.
    pub fn now_fs(&self) -> u64 {
        self.0.now_fs.get()
    }

    /// Rising edges of a clock so far.
    pub fn cycle(&self, clock: Clock) -> u64 {
        self.0.clocks.borrow()[clock.0].cycle
    }

    /// Makes a one-bit input a clock: low for half a period from now on, then rising once a period.
    ///
    /// # Errors
    /// The port is unknown, wider than one bit, an output, or a clock already.
    pub fn clock(&self, name: &str, period: Period) -> Result<Clock, SimError> {
        let port = self.port(name)?;
        let wrong = |reason: &str| Err(SimError::PortShape { name: name.into(), reason: reason.into() });
        let mut clocks = self.0.clocks.borrow_mut();
        if port.direction() != Direction::Input || port.width_bits() != 1 {
            return wrong("a clock is an input of one bit");
        }
        if clocks.iter().any(|clock| clock.port == port) {
            return wrong("it is a clock already");
        }
        if clocks.len() == 64 {
            return wrong("a simulation has at most 64 clocks");
        }
        if !self.0.instance.borrow_mut().add_clock(port.first_word()) {
            return wrong("the model does not offer it as a clock");
        }
        clocks.push(ClockState::new(port, period, self.0.now_fs.get()));
        Ok(Clock(clocks.len() - 1))
    }

    /// Starts a task.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Join<T> {
        Join::spawn(&self.0.scheduler, future)
    }

    /// Calls `agent` at every rising edge of `clock` from the next one on, after the agents attached before it.
    pub fn attach(&self, clock: Clock, agent: impl Agent + 'static) {
        self.0.new_agents.borrow_mut().push((clock, Box::new(agent)));
    }

    /// Waits for the next rising edge.
    pub fn rising(&self, clock: Clock) -> Cycles {
        self.cycles(clock, 1)
    }

    /// Waits for the `count`-th rising edge from now; for none if it is 0.
    pub fn cycles(&self, clock: Clock, count: u64) -> Cycles {
        Cycles::new(self.clone(), clock, count)
    }

    /// Waits for a time in picoseconds, counted from when the timer is first polled.
    pub fn timer_ps(&self, delay_ps: u64) -> Timer {
        Timer::new(self.clone(), delay_ps * 1000)
    }

    /// Waits for an edge before which a port was (not) zero; at least for one edge.
    pub async fn until(&self, clock: Clock, port: Port, is_set: bool) {
        loop {
            self.rising(clock).await;
            if self.is_set(port) == is_set {
                return;
            }
        }
    }

    /// Reports a violation: the step under way returns [`SimError::Violation`].
    pub fn fail(&self, message: impl AsRef<str>) {
        add_failure(&mut self.0.failure.borrow_mut(), message.as_ref());
    }

    /// Takes the lines the design printed, the last thousand at most.
    pub fn take_output(&self) -> Vec<String> {
        self.0.output.take().into()
    }

    pub(crate) fn wait_for_cycle(&self, clock: Clock, target: u64, context: &Context<'_>) -> u64 {
        let number = self.next_registration();
        let waiter = self.0.scheduler.waiter(context);
        self.0.clocks.borrow_mut()[clock.0].wait(target, number, waiter);
        number
    }

    pub(crate) fn forget_cycle(&self, clock: Clock, target: u64, number: u64) {
        self.0.clocks.borrow_mut()[clock.0].forget(target, number);
    }

    pub(crate) fn wait_for_time(&self, at_fs: u64, context: &Context<'_>) -> u64 {
        let number = self.next_registration();
        let waiter = self.0.scheduler.waiter(context);
        self.0.timers.borrow_mut().insert((at_fs, number), waiter);
        number
    }

    pub(crate) fn forget_time(&self, at_fs: u64, number: u64) {
        self.0.timers.borrow_mut().remove(&(at_fs, number));
    }

    fn next_registration(&self) -> u64 {
        let number = self.0.registrations.get();
        self.0.registrations.set(number + 1);
        number
    }
}

impl Inner {
    /// One instant at which clocks rise: settle, sample, raise, evaluate, call agents, wake those who wait.
    pub(crate) fn rising_edge(&self) -> Result<(), SimError> {
        let now_fs = self.now_fs.get();
        let time_ps = now_fs / 1000;
        let (rising_mask, last_fall_ps) = self.take_clock_edges(now_fs);
        let (dump, settle_ps, edge_ps) = self.trace_times(time_ps, last_fall_ps);
        let status = {
            let mut image = self.image.borrow_mut();
            let (inputs, outputs) = image.exchange();
            let status = self.instance.borrow_mut().edge(inputs, outputs, rising_mask, settle_ps, edge_ps, dump);
            image.sample_inputs();
            for clock in self.clocks.borrow().iter().filter(|clock| clock.is_high) {
                image.set(clock.port, 1);
            }
            status
        };
        self.check_status(status)?;
        self.call_agents(rising_mask, time_ps);
        for (index, clock) in self.clocks.borrow_mut().iter_mut().enumerate() {
            if rising_mask >> index & 1 == 1 {
                clock.wake_due(|waiter| self.scheduler.wake(waiter));
            }
        }
        Ok(())
    }

    /// Lets clocks fall that are due and takes the rises of this instant: their mask, and the time of the last fall.
    ///
    /// A fall is evaluated together with the inputs that were written since the last edge, when the next clock rises.
    fn take_clock_edges(&self, now_fs: u64) -> (u64, Option<u64>) {
        let mut image = self.image.borrow_mut();
        let (mut rising_mask, mut last_fall_ps) = (0, None);
        for (index, clock) in self.clocks.borrow_mut().iter_mut().enumerate() {
            if clock.is_high && clock.fall_fs <= now_fs {
                clock.is_high = false;
                image.set(clock.port, 0);
                last_fall_ps = last_fall_ps.max(Some(clock.fall_fs / 1000));
            }
            if clock.next_rise_fs == now_fs {
                clock.rise();
                rising_mask |= 1 << index;
            }
        }
        (rising_mask, last_fall_ps)
    }

    /// Whether this edge is traced, and at which times its two evaluations are shown.
    fn trace_times(&self, time_ps: u64, last_fall_ps: Option<u64>) -> (bool, u64, u64) {
        let mut state = self.trace.borrow_mut();
        let Some(trace) = state.as_mut() else { return (false, 0, time_ps) };
        let cycle = self.clocks.borrow().first().map_or(0, |clock| clock.cycle);
        if cycle >= trace.cycles.end {
            self.instance.borrow_mut().close_trace();
            *state = None;
            return (false, 0, time_ps);
        }
        if cycle < trace.cycles.start {
            return (false, 0, time_ps);
        }
        let earliest_ps = trace.last_ps.map_or(0, |last| last + 1);
        let settle_ps = last_fall_ps.unwrap_or(time_ps.saturating_sub(1)).max(earliest_ps);
        let edge_ps = time_ps.max(settle_ps + 1);
        trace.last_ps = Some(edge_ps);
        (true, settle_ps, edge_ps)
    }

    fn call_agents(&self, rising_mask: u64, time_ps: u64) {
        let mut agents = self.agents.borrow_mut();
        agents.append(&mut self.new_agents.borrow_mut());
        if agents.is_empty() {
            return;
        }
        let mut image = self.image.borrow_mut();
        let is_in_reset = self.reset.get().is_some_and(|(port, active)| image.is_set(port) == active);
        let mut failure = None;
        for (clock, agent) in agents.iter_mut() {
            if rising_mask >> clock.0 & 1 == 1 {
                let cycle = self.clocks.borrow()[clock.0].cycle;
                agent.on_edge(&mut Io { image: &mut image, cycle, time_ps, is_in_reset, failure: &mut failure });
            }
        }
        if let Some(message) = failure {
            add_failure(&mut self.failure.borrow_mut(), &message);
        }
    }

    /// Turns what the instance reported into output lines and, if the design ended, into an error that stays.
    pub(crate) fn check_status(&self, reported: u32) -> Result<(), SimError> {
        if reported == 0 {
            return Ok(());
        }
        if reported & status::TEXT != 0 {
            let text = self.instance.borrow_mut().take_output();
            let mut output = self.output.borrow_mut();
            output.extend(text.lines().map(str::to_owned));
            let surplus = output.len().saturating_sub(OUTPUT_LINES_MAX);
            output.drain(..surplus);
        }
        if reported & !status::TEXT == 0 {
            return Ok(());
        }
        let time_ps = self.now_fs.get() / 1000;
        let mut message = self.instance.borrow_mut().take_reason();
        if let Some(last) = self.output.borrow().back() {
            message = format!("{message} (last output: {last})");
        }
        let error = if reported & status::FATAL != 0 {
            SimError::ModelFailed { time_ps, message }
        } else if reported & status::STOPPED != 0 {
            SimError::Stopped { time_ps, message }
        } else {
            SimError::Finished { time_ps, message }
        };
        *self.ended.borrow_mut() = Some(error.clone());
        Err(error)
    }

    /// The next instant at which something happens: its time, and whether a clock rises.
    pub(crate) fn next_event(&self) -> Option<(u64, bool)> {
        let clock_fs = self.clocks.borrow().iter().map(|clock| clock.next_rise_fs).min();
        let timer_fs = self.timers.borrow().first_key_value().map(|((at_fs, _), _)| *at_fs);
        match (clock_fs, timer_fs) {
            (Some(clock_fs), timer_fs) => {
                Some(if timer_fs.is_some_and(|at_fs| at_fs < clock_fs) { (timer_fs?, false) } else { (clock_fs, true) })
            }
            (None, timer_fs) => timer_fs.map(|at_fs| (at_fs, false)),
        }
    }

    pub(crate) fn wake_timers(&self) {
        let mut timers = self.timers.borrow_mut();
        while let Some(entry) = timers.first_entry() {
            if entry.key().0 > self.now_fs.get() {
                break;
            }
            self.scheduler.wake(entry.remove());
        }
    }
}
