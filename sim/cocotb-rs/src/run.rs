//! The owner of a simulation: construction, stepping, waiting for a future, tracing.

use crate::{
    error::SimError,
    executor::Scheduler,
    ffi::{Instance, Served},
    model::Model,
    port::{Port, PortImage},
    sim::{Clock, Handle, Inner, TraceState},
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    future::Future,
    ops::{Deref, Range},
    path::Path,
    pin::pin,
    rc::Rc,
    task::Poll,
};

/// Default of [`Sim::set_limit_cycles`].
const LIMIT_CYCLES_DEFAULT: u64 = 10_000_000;

/// What registers and memories hold before anything is assigned to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerOn {
    /// All bits 0.
    Zeros,
    /// All bits 1.
    Ones,
    /// Random bits: the same for the same seed, so that a missing reset shows and can be replayed.
    Random {
        /// Any number.
        seed: u64,
    },
}

impl PowerOn {
    /// Verilator's kind of reset and its 31-bit seed, of which 0 would mean "no seed".
    fn codes(self) -> (i32, i32) {
        match self {
            PowerOn::Zeros => (0, 1),
            PowerOn::Ones => (1, 1),
            PowerOn::Random { seed } => {
                // Mixes all bits of the seed (the finalizer of splitmix64), so that neighbours differ widely.
                let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                let bits = u32::try_from((mixed ^ (mixed >> 31)) >> 33).expect("31 bits");
                (2, i32::try_from(bits.max(1)).expect("31 bits"))
            }
        }
    }
}

/// One simulation of a model. Owns it and steps it; see [`Handle`], to which it dereferences, for everything else.
///
/// It stays on the thread it was made on. Several simulations are advanced side by side by running each to the same
/// time with [`Sim::run_until_ps`]; the result does not depend on how the time is cut into windows.
pub struct Sim {
    handle: Handle,
    limit_cycles: u64,
}

impl Deref for Sim {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Sim {
    /// A simulation at time 0, all inputs 0, initial blocks done. It has no clock yet.
    ///
    /// # Errors
    /// The design ends in an initial block, or its constructor fails.
    pub fn new(model: &Model, power_on: PowerOn) -> Result<Self, SimError> {
        let (reset_kind, seed) = power_on.codes();
        let mut image = PortImage::new(model.ports());
        let (inputs, outputs) = image.exchange();
        let (instance, status) = Instance::new(model.object(), reset_kind, seed, inputs, outputs).ok_or_else(|| {
            SimError::ModelFailed { time_ps: 0, message: format!("the constructor of {} failed", model.top()) }
        })?;
        let inner = Inner {
            model: model.clone(),
            instance: RefCell::new(instance),
            image: RefCell::new(image),
            clocks: RefCell::default(),
            agents: RefCell::default(),
            new_agents: RefCell::default(),
            timers: RefCell::new(BTreeMap::new()),
            scheduler: Rc::new(Scheduler::new()),
            now_fs: Cell::new(0),
            registrations: Cell::new(0),
            reset: Cell::new(None),
            failure: RefCell::default(),
            ended: RefCell::default(),
            output: RefCell::new(VecDeque::new()),
            trace: RefCell::default(),
        };
        inner.check_status(status)?;
        Ok(Sim { handle: Handle(Rc::new(inner)), limit_cycles: LIMIT_CYCLES_DEFAULT })
    }

    /// A handle for tasks.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Sets after how many rising edges (of all clocks together) [`Sim::block_on`] gives up. Default: ten million.
    pub fn set_limit_cycles(&mut self, limit_cycles: u64) {
        self.limit_cycles = limit_cycles;
    }

    /// Advances to and through the next instant at which a clock rises.
    ///
    /// # Errors
    /// The design ended, a violation was reported, or there is no clock ([`SimError::Deadlock`]).
    pub fn step(&mut self) -> Result<(), SimError> {
        loop {
            match self.advance(u64::MAX)? {
                Some(true) => return Ok(()),
                Some(false) => {}
                None => return Err(SimError::Deadlock),
            }
        }
    }

    /// Advances by `count` rising edges of `clock`.
    ///
    /// # Errors
    /// As [`Sim::step`].
    pub fn run_cycles(&mut self, clock: Clock, count: u64) -> Result<(), SimError> {
        let target = self.cycle(clock) + count;
        self.run_until_cycle(clock, target)
    }

    /// Advances until `clock` has risen `cycle` times since the start; not at all if it has.
    ///
    /// # Errors
    /// As [`Sim::step`].
    pub fn run_until_cycle(&mut self, clock: Clock, cycle: u64) -> Result<(), SimError> {
        while self.cycle(clock) < cycle {
            self.step()?;
        }
        Ok(())
    }

    /// Advances through everything that happens before `end_ps`, and sets the time to it: a window of a
    /// co-simulation. What happens at `end_ps` belongs to the next window.
    ///
    /// # Errors
    /// The design ended or a violation was reported; the time is then that of the event.
    pub fn run_until_ps(&mut self, end_ps: u64) -> Result<(), SimError> {
        let end_fs = end_ps * 1000;
        while self.advance(end_fs)?.is_some() {}
        self.handle.0.now_fs.set(end_fs.max(self.now_fs()));
        Ok(())
    }

    /// Steps until the future completes. It runs on the caller's stack, as one more task.
    ///
    /// # Errors
    /// As [`Sim::step`]; also [`SimError::LimitReached`].
    pub fn block_on<F: Future>(&mut self, future: F) -> Result<F::Output, SimError> {
        let inner = self.handle.0.clone();
        let mut future = pin!(future);
        let mut edges = 0;
        inner.scheduler.wake_task(crate::executor::MAIN);
        loop {
            while inner.scheduler.run_ready() {
                if let Poll::Ready(result) = inner.scheduler.poll_main(future.as_mut()) {
                    self.check_failure()?;
                    return Ok(result);
                }
            }
            self.check_failure()?;
            match self.advance_without_tasks(u64::MAX)? {
                Some(is_edge) => edges += u64::from(is_edge),
                None => return Err(SimError::Deadlock),
            }
            if edges > self.limit_cycles {
                return Err(SimError::LimitReached { limit_cycles: self.limit_cycles });
            }
        }
    }

    /// Evaluates the design with the inputs as they are now, without a clock edge, and samples all ports.
    ///
    /// # Errors
    /// The design ended.
    pub fn settle(&mut self) -> Result<(), SimError> {
        let inner = &self.handle.0;
        self.check_ended()?;
        let status = {
            let mut image = inner.image.borrow_mut();
            let (inputs, outputs) = image.exchange();
            let status = inner.instance.borrow_mut().settle(inputs, outputs);
            image.sample_inputs();
            status
        };
        inner.check_status(status)
    }

    /// Holds an active-high reset for `cycles` edges of the first clock. Agents learn to ignore the design while this
    /// port is set, also when it is set again later.
    ///
    /// # Errors
    /// As [`Sim::step`].
    pub fn reset(&mut self, port: Port, cycles: u64) -> Result<(), SimError> {
        self.reset_by(port, true, cycles)
    }

    /// The same for an active-low reset.
    ///
    /// # Errors
    /// As [`Sim::step`].
    pub fn reset_active_low(&mut self, port: Port, cycles: u64) -> Result<(), SimError> {
        self.reset_by(port, false, cycles)
    }

    fn reset_by(&mut self, port: Port, active: bool, cycles: u64) -> Result<(), SimError> {
        if self.handle.0.clocks.borrow().is_empty() {
            return Err(SimError::Deadlock);
        }
        self.handle.0.reset.set(Some((port, active)));
        self.set(port, u64::from(active));
        self.run_cycles(Clock(0), cycles)?;
        self.set(port, u64::from(!active));
        Ok(())
    }

    /// Writes an FST trace of these cycles of the first clock. A trace under way is completed first.
    ///
    /// # Errors
    /// The model was built without [`trace`](crate::ModelBuilder::trace), or the file cannot be written.
    pub fn trace(&mut self, path: impl AsRef<Path>, cycles: Range<u64>) -> Result<(), SimError> {
        let path = path.as_ref();
        self.end_trace();
        let served = self.handle.0.instance.borrow_mut().open_trace(path);
        self.served(served, "trace", path)?;
        *self.handle.0.trace.borrow_mut() = Some(TraceState { cycles, last_ps: None });
        Ok(())
    }

    /// Completes the trace under way, if any. Dropping the simulation does so too.
    pub fn end_trace(&mut self) {
        if self.handle.0.trace.take().is_some() {
            self.handle.0.instance.borrow_mut().close_trace();
        }
    }

    /// Writes the coverage counted so far, in the format of `verilator_coverage`.
    ///
    /// # Errors
    /// The model was built without [`coverage`](crate::ModelBuilder::coverage), or the file cannot be written.
    pub fn write_coverage(&mut self, path: impl AsRef<Path>) -> Result<(), SimError> {
        let path = path.as_ref();
        let served = self.handle.0.instance.borrow_mut().write_coverage(path);
        self.served(served, "coverage", path)?;
        if path.is_file() {
            Ok(())
        } else {
            Err(SimError::Write { path: path.into() })
        }
    }

    fn served(&self, served: Served, feature: &'static str, path: &Path) -> Result<(), SimError> {
        match served {
            Served::Done => Ok(()),
            Served::NotInThisVariant => Err(SimError::NotBuiltFor { model: self.model().top().into(), feature }),
            Served::CannotWrite => Err(SimError::Write { path: path.into() }),
        }
    }

    /// Runs tasks that are ready, then the next instant before `end_fs`, and the tasks it wakes. Says whether there
    /// was one, and whether a clock rose.
    fn advance(&mut self, end_fs: u64) -> Result<Option<bool>, SimError> {
        // A future of an earlier `block_on` that ended in an error may still be woken; nobody polls it.
        while self.handle.0.scheduler.run_ready() {}
        self.check_failure()?;
        let advanced = self.advance_without_tasks(end_fs)?;
        while self.handle.0.scheduler.run_ready() {}
        self.check_failure()?;
        Ok(advanced)
    }

    fn advance_without_tasks(&mut self, end_fs: u64) -> Result<Option<bool>, SimError> {
        self.check_ended()?;
        let inner = &self.handle.0;
        let Some((at_fs, is_edge)) = inner.next_event().filter(|(at_fs, _)| *at_fs < end_fs) else { return Ok(None) };
        inner.now_fs.set(at_fs);
        if is_edge {
            inner.rising_edge()?;
        }
        inner.wake_timers();
        Ok(Some(is_edge))
    }

    fn check_ended(&self) -> Result<(), SimError> {
        self.handle.0.ended.borrow().clone().map_or(Ok(()), Err)
    }

    fn check_failure(&self) -> Result<(), SimError> {
        match self.handle.0.failure.take() {
            Some(message) => Err(SimError::Violation { time_ps: self.now_ps(), message }),
            None => Ok(()),
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // Tasks and agents hold handles, which hold what holds the tasks: cut the circle, or the model would stay.
        self.handle.0.scheduler.clear();
        drop(self.handle.0.agents.take());
        drop(self.handle.0.new_agents.take());
        self.end_trace();
    }
}
