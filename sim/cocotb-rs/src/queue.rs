//! Communication between tasks: queues, events and one-time results.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::{poll_fn, Future},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// Registers whoever polls, once: a future polled many times while it waits must not leave a waker each time.
fn add_waker(waiting: &mut Vec<Waker>, context: &Context<'_>) {
    if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
        waiting.push(context.waker().clone());
    }
}

struct QueueState<T> {
    items: VecDeque<T>,
    waiting: Vec<Waker>,
}

/// An unbounded queue between tasks, bus functional models and synchronous code. Clones are the same queue.
pub struct Queue<T>(Rc<RefCell<QueueState<T>>>);

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Queue(self.0.clone())
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue(Rc::new(RefCell::new(QueueState { items: VecDeque::new(), waiting: Vec::new() })))
    }
}

impl<T> Queue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Queue::default()
    }

    /// Appends an item and wakes whoever waits.
    pub fn push(&self, item: T) {
        let waiting = {
            let mut state = self.0.borrow_mut();
            state.items.push_back(item);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// The oldest item, if there is one.
    pub fn try_pop(&self) -> Option<T> {
        self.0.borrow_mut().items.pop_front()
    }

    /// Waits for an item.
    pub async fn pop(&self) -> T {
        poll_fn(|context| match self.try_pop() {
            Some(item) => Poll::Ready(item),
            None => {
                add_waker(&mut self.0.borrow_mut().waiting, context);
                Poll::Pending
            }
        })
        .await
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.0.borrow().items.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes all items.
    pub fn drain(&self) -> Vec<T> {
        self.0.borrow_mut().items.drain(..).collect()
    }
}

#[derive(Default)]
struct EventState {
    is_set: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

/// A flag that tasks can wait for. Clones are the same event.
#[derive(Clone, Default)]
pub struct Event(Rc<EventState>);

impl Event {
    /// An event that is not set.
    pub fn new() -> Self {
        Event::default()
    }

    /// Sets it and wakes all who wait.
    pub fn set(&self) {
        self.0.is_set.set(true);
        let waiting = self.0.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Takes it back; later waits block again.
    pub fn clear(&self) {
        self.0.is_set.set(false);
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.is_set.get()
    }

    /// Waits until it is set; at once if it is.
    pub async fn wait(&self) {
        poll_fn(|context| {
            if self.is_set() {
                return Poll::Ready(());
            }
            add_waker(&mut self.0.waiting.borrow_mut(), context);
            Poll::Pending
        })
        .await;
    }
}

struct ReplyState<T> {
    value: Option<T>,
    waiting: Option<Waker>,
}

/// A result that will come once: await it, or look for it between steps of a simulation.
#[must_use = "the result is lost if the reply is dropped"]
pub struct Reply<T>(Rc<RefCell<ReplyState<T>>>);

/// The other end of a [`Reply`].
pub(crate) struct Replier<T>(Rc<RefCell<ReplyState<T>>>);

pub(crate) fn reply<T>() -> (Replier<T>, Reply<T>) {
    let state = Rc::new(RefCell::new(ReplyState { value: None, waiting: None }));
    (Replier(state.clone()), Reply(state))
}

impl<T> Replier<T> {
    pub(crate) fn send(self, value: T) {
        let waiting = {
            let mut state = self.0.borrow_mut();
            state.value = Some(value);
            state.waiting.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

impl<T> Reply<T> {
    /// The result, once, if it has come.
    pub fn try_take(&self) -> Option<T> {
        self.0.borrow_mut().value.take()
    }

    /// Whether the result has come and was not taken.
    pub fn is_ready(&self) -> bool {
        self.0.borrow().value.is_some()
    }
}

impl<T> Future for Reply<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match self.try_take() {
            Some(value) => Poll::Ready(value),
            None => {
                self.0.borrow_mut().waiting = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    #[test]
    fn a_wait_polled_or_begun_many_times_leaves_one_waker() {
        let queue = Queue::<u8>::new();
        let waker = Waker::noop();
        for _ in 0..100 {
            let mut wait = pin!(queue.pop());
            for _ in 0..3 {
                assert!(wait.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
            }
        }
        assert_eq!(queue.0.borrow().waiting.len(), 1);
    }

    #[test]
    fn an_event_blocks_again_after_it_is_cleared() {
        let event = Event::new();
        let is_ready = |event: &Event| pin!(event.wait()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!is_ready(&event));
        event.set();
        assert!(is_ready(&event) && event.is_set());
        event.clear();
        assert!(!is_ready(&event));
    }
}
