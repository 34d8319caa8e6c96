//! Runs async tasks on one thread in an order that depends on nothing but the simulation.
//!
//! A task is woken at most once between two polls, however many things wake it, and woken tasks run first in, first
//! out. Triggers of the simulation register tasks by number, without reference counts or locks; any other future may
//! use the ordinary waker, which goes through a small locked list.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc, Mutex, PoisonError,
    },
    task::{Context, Poll, Wake, Waker},
};

/// The future that [`Scheduler::run_ready`]'s caller polls itself.
pub(crate) const MAIN: u32 = 0;

type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

struct Slot {
    future: Option<BoxedTask>,
    waker: Waker,
    is_queued: bool,
    /// Set when a task is stopped while it runs itself.
    is_aborted: bool,
}

/// Tasks woken through an ordinary waker.
#[derive(Default)]
struct Woken {
    any: AtomicBool,
    tasks: Mutex<Vec<u32>>,
}

struct TaskWaker {
    task: u32,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(self.task);
        self.woken.any.store(true, Ordering::Release);
    }
}

/// Who waits for a trigger.
pub(crate) enum Waiter {
    /// A task of this scheduler, by number.
    Task(u32),
    /// Anything else.
    Other(Waker),
}

pub(crate) struct Scheduler {
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<u32>>,
    woken: Arc<Woken>,
    running: Cell<u32>,
    /// Identity of the waker of the running task.
    running_waker: Cell<*const ()>,
}

impl Scheduler {
    pub(crate) fn new() -> Self {
        let scheduler = Scheduler {
            slots: RefCell::default(),
            free: RefCell::default(),
            ready: RefCell::default(),
            woken: Arc::default(),
            running: Cell::new(MAIN),
            running_waker: Cell::new(std::ptr::null()),
        };
        scheduler.new_slot(); // MAIN
        scheduler
    }

    fn new_slot(&self) -> u32 {
        let mut slots = self.slots.borrow_mut();
        let task = u32::try_from(slots.len()).expect("fewer than 2^32 tasks");
        let waker = Waker::from(Arc::new(TaskWaker { task, woken: self.woken.clone() }));
        slots.push(Slot { future: None, waker, is_queued: false, is_aborted: false });
        task
    }

    /// Starts a task; it first runs when the tasks woken before it have run.
    pub(crate) fn spawn(&self, future: BoxedTask) -> u32 {
        let reused = self.free.borrow_mut().pop();
        let task = reused.unwrap_or_else(|| self.new_slot());
        self.slots.borrow_mut()[task as usize].future = Some(future);
        self.wake_task(task);
        task
    }

    /// Drops a task's future. The handle that asks must belong to that task, not to a later one in its slot.
    pub(crate) fn abort(&self, task: u32) {
        let dropped = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[task as usize];
            let future = slot.future.take();
            slot.is_aborted = future.is_none();
            future
        };
        if dropped.is_some() {
            self.free.borrow_mut().push(task);
        }
    }

    /// Drops all tasks.
    pub(crate) fn clear(&self) {
        // Dropping a future may drop handles that look at the slots, so it must not happen under a borrow.
        let futures: Vec<_> = self.slots.borrow_mut().iter_mut().filter_map(|slot| slot.future.take()).collect();
        drop(futures);
    }

    pub(crate) fn wake_task(&self, task: u32) {
        if !std::mem::replace(&mut self.slots.borrow_mut()[task as usize].is_queued, true) {
            self.ready.borrow_mut().push_back(task);
        }
    }

    pub(crate) fn wake(&self, waiter: Waiter) {
        match waiter {
            Waiter::Task(task) => self.wake_task(task),
            Waiter::Other(waker) => waker.wake(),
        }
    }

    /// Who is to be woken for this context: the running task by number, if the context is its own.
    pub(crate) fn waiter(&self, context: &Context<'_>) -> Waiter {
        if context.waker().data() == self.running_waker.get() {
            Waiter::Task(self.running.get())
        } else {
            Waiter::Other(context.waker().clone())
        }
    }

    fn collect_woken(&self) {
        if self.woken.any.swap(false, Ordering::Acquire) {
            let tasks = std::mem::take(&mut *self.woken.tasks.lock().unwrap_or_else(PoisonError::into_inner));
            tasks.into_iter().for_each(|task| self.wake_task(task));
        }
    }

    /// Polls tasks until none is ready (false), or until it is [`MAIN`]'s turn (true).
    pub(crate) fn run_ready(&self) -> bool {
        loop {
            self.collect_woken();
            let Some(task) = self.ready.borrow_mut().pop_front() else { return false };
            let (future, waker) = {
                let mut slots = self.slots.borrow_mut();
                let slot = &mut slots[task as usize];
                slot.is_queued = false;
                if task == MAIN {
                    return true;
                }
                let Some(future) = slot.future.take() else { continue };
                slot.is_aborted = false;
                (future, std::mem::replace(&mut slot.waker, Waker::noop().clone()))
            };
            self.poll(task, future, waker);
        }
    }

    fn poll(&self, task: u32, mut future: BoxedTask, waker: Waker) {
        self.running.set(task);
        self.running_waker.set(waker.data());
        let result = future.as_mut().poll(&mut Context::from_waker(&waker));
        self.running_waker.set(std::ptr::null());
        let is_over = {
            let slot = &mut self.slots.borrow_mut()[task as usize];
            slot.waker = waker;
            result.is_ready() || std::mem::take(&mut slot.is_aborted)
        };
        if is_over {
            drop(future);
            self.free.borrow_mut().push(task);
        } else {
            self.slots.borrow_mut()[task as usize].future = Some(future);
        }
    }

    /// Polls the caller's own future as task [`MAIN`].
    pub(crate) fn poll_main<F: Future>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        let waker = self.slots.borrow()[MAIN as usize].waker.clone();
        self.running.set(MAIN);
        self.running_waker.set(waker.data());
        let result = future.poll(&mut Context::from_waker(&waker));
        self.running_waker.set(std::ptr::null());
        result
    }
}

struct JoinState<T> {
    result: Option<T>,
    is_finished: bool,
    waiting: Option<Waker>,
}

/// Handle of a task: awaits its result, or stops it. Dropping the handle lets the task run on.
pub struct Join<T> {
    state: Rc<RefCell<JoinState<T>>>,
    scheduler: Rc<Scheduler>,
    task: u32,
}

impl<T: 'static> Join<T> {
    pub(crate) fn spawn(scheduler: &Rc<Scheduler>, future: impl Future<Output = T> + 'static) -> Self {
        let state = Rc::new(RefCell::new(JoinState { result: None, is_finished: false, waiting: None }));
        let shared = state.clone();
        let task = scheduler.spawn(Box::pin(async move {
            let result = future.await;
            let waiting = {
                let mut state = shared.borrow_mut();
                state.result = Some(result);
                state.is_finished = true;
                state.waiting.take()
            };
            if let Some(waker) = waiting {
                waker.wake();
            }
        }));
        Join { state, scheduler: scheduler.clone(), task }
    }

    /// Whether the task has run to its end.
    pub fn is_finished(&self) -> bool {
        self.state.borrow().is_finished
    }

    /// The result, once, if the task has ended.
    pub fn try_take(&self) -> Option<T> {
        self.state.borrow_mut().result.take()
    }

    /// Stops the task where it waits. Awaiting its handle afterwards waits for ever; nothing happens if it has ended.
    pub fn abort(self) {
        if !self.is_finished() {
            self.scheduler.abort(self.task);
        }
    }
}

impl<T> Future for Join<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.state.borrow_mut();
        match state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                state.waiting = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    /// A future that is ready at its second poll and wakes itself several times before.
    fn yield_noisily() -> impl Future<Output = ()> {
        let mut polled = false;
        poll_fn(move |context| {
            if std::mem::replace(&mut polled, true) {
                return Poll::Ready(());
            }
            (0..5).for_each(|_| context.waker().wake_by_ref());
            Poll::Pending
        })
    }

    #[test]
    fn tasks_run_in_the_order_woken_and_once_per_wake() {
        let scheduler = Rc::new(Scheduler::new());
        let log = Rc::new(RefCell::new(Vec::new()));
        for name in ["a", "b", "c"] {
            let log = log.clone();
            let _detached = Join::spawn(&scheduler, async move {
                for round in 0..2 {
                    log.borrow_mut().push((name, round));
                    yield_noisily().await;
                }
            });
        }
        assert!(!scheduler.run_ready());
        assert_eq!(*log.borrow(), [("a", 0), ("b", 0), ("c", 0), ("a", 1), ("b", 1), ("c", 1)]);
    }

    #[test]
    fn an_aborted_task_drops_its_future_and_its_slot_is_used_again() {
        let scheduler = Rc::new(Scheduler::new());
        let token = Rc::new(());
        let held = token.clone();
        let join = Join::spawn(&scheduler, async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        scheduler.run_ready();
        assert_eq!(Rc::strong_count(&token), 2);
        join.abort();
        assert_eq!(Rc::strong_count(&token), 1);
        let next = Join::spawn(&scheduler, async { 7 });
        scheduler.run_ready();
        assert_eq!((next.try_take(), scheduler.slots.borrow().len()), (Some(7), 2));
    }
}
