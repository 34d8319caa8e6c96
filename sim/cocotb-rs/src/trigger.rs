//! What a task can wait for: clock edges, times, and combinations of futures.

use crate::sim::{Clock, Handle};
use std::{
    future::{poll_fn, Future},
    pin::{pin, Pin},
    task::{Context, Poll},
};

/// Completes at the n-th rising edge after it is first polled. See [`Handle::cycles`].
#[must_use = "a trigger does nothing unless awaited"]
pub struct Cycles {
    handle: Handle,
    clock: Clock,
    count: u64,
    /// The clock's edge count to wait for, and the number of the registration.
    waiting: Option<(u64, u64)>,
}

impl Cycles {
    pub(crate) fn new(handle: Handle, clock: Clock, count: u64) -> Self {
        Cycles { handle, clock, count, waiting: None }
    }
}

impl Future for Cycles {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let cycle = self.handle.cycle(self.clock);
        match self.waiting {
            None if self.count == 0 => Poll::Ready(()),
            None => {
                let target = cycle + self.count;
                self.waiting = Some((target, self.handle.wait_for_cycle(self.clock, target, context)));
                Poll::Pending
            }
            Some((target, _)) if cycle >= target => {
                self.waiting = None;
                Poll::Ready(())
            }
            Some(_) => Poll::Pending,
        }
    }
}

impl Drop for Cycles {
    fn drop(&mut self) {
        if let Some((target, number)) = self.waiting {
            self.handle.forget_cycle(self.clock, target, number);
        }
    }
}

/// Completes at a time. See [`Handle::timer_ps`].
#[must_use = "a trigger does nothing unless awaited"]
pub struct Timer {
    handle: Handle,
    delay_fs: u64,
    waiting: Option<(u64, u64)>,
}

impl Timer {
    pub(crate) fn new(handle: Handle, delay_fs: u64) -> Self {
        Timer { handle, delay_fs, waiting: None }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let now_fs = self.handle.now_fs();
        match self.waiting {
            None if self.delay_fs == 0 => Poll::Ready(()),
            None => {
                let at_fs = now_fs + self.delay_fs;
                self.waiting = Some((at_fs, self.handle.wait_for_time(at_fs, context)));
                Poll::Pending
            }
            Some((at_fs, _)) if now_fs >= at_fs => {
                self.waiting = None;
                Poll::Ready(())
            }
            Some(_) => Poll::Pending,
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some((at_fs, number)) = self.waiting {
            self.handle.forget_time(at_fs, number);
        }
    }
}

/// Waits for all futures; their results in the order given.
pub async fn combine<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (Some(Box::pin(future)), None)).collect();
    poll_fn(|context| {
        let mut are_done = true;
        for (future, result) in &mut waiting {
            if let Some(running) = future {
                match running.as_mut().poll(context) {
                    Poll::Ready(value) => (*future, *result) = (None, Some(value)),
                    Poll::Pending => are_done = false,
                }
            }
        }
        if are_done {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    waiting.into_iter().filter_map(|(_, result)| result).collect()
}

/// Waits for the first future to complete: its index and result. Of several at once the first in the list wins; the
/// others are dropped.
///
/// # Panics
/// If the list is empty, since nothing could ever complete.
pub async fn first<F: Future>(futures: impl IntoIterator<Item = F>) -> (usize, F::Output) {
    let mut waiting: Vec<_> = futures.into_iter().map(Box::pin).collect();
    assert!(!waiting.is_empty(), "the first of no futures never comes");
    poll_fn(|context| {
        for (index, future) in waiting.iter_mut().enumerate() {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready((index, value));
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits for two futures of different types.
pub async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut left, mut right) = (None, None);
    poll_fn(move |context| {
        if left.is_none() {
            if let Poll::Ready(value) = a.as_mut().poll(context) {
                left = Some(value);
            }
        }
        if right.is_none() {
            if let Poll::Ready(value) = b.as_mut().poll(context) {
                right = Some(value);
            }
        }
        match (left.take(), right.take()) {
            (Some(left), Some(right)) => Poll::Ready((left, right)),
            (l, r) => {
                (left, right) = (l, r);
                Poll::Pending
            }
        }
    })
    .await
}

/// The result of [`either`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first future completed.
    Left(A),
    /// The second future completed, and not the first.
    Right(B),
}

/// Waits for the first of two futures of different types; the other is dropped. At once, the left one wins.
pub async fn either<A: Future, B: Future>(a: A, b: B) -> Either<A::Output, B::Output> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(move |context| {
        if let Poll::Ready(value) = a.as_mut().poll(context) {
            return Poll::Ready(Either::Left(value));
        }
        b.as_mut().poll(context).map(Either::Right)
    })
    .await
}
