//! A queue whose first entry stands in place: most queues of a card hold one entry at a time, and to look at it must not
//! touch the heap.

use crate::footprint::of_queue;
use alloc::collections::VecDeque;

/// First in, first out.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Queue<T> {
    first: Option<T>,
    /// What follows the first; empty when there is none.
    rest: VecDeque<T>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Queue<T> {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { first: None, rest: VecDeque::new() }
    }

    /// Entries.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// True when there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The oldest one.
    #[inline]
    pub const fn front(&self) -> Option<&T> {
        self.first.as_ref()
    }

    /// The only one.
    #[inline]
    pub fn only(&self) -> Option<&T> {
        self.first.as_ref().filter(|_| self.rest.is_empty())
    }

    /// Adds one.
    #[inline]
    pub fn push_back(&mut self, item: T) {
        if self.first.is_none() {
            self.first = Some(item);
        } else {
            self.rest.push_back(item);
        }
    }

    /// Takes the oldest one.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        let next = if self.rest.is_empty() { None } else { self.rest.pop_front() };
        core::mem::replace(&mut self.first, next)
    }

    /// Forgets the oldest one.
    #[inline]
    pub fn drop_front(&mut self) {
        self.first = if self.rest.is_empty() { None } else { self.rest.pop_front() };
    }

    /// All of them, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }

    /// Takes all of them, the oldest first.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.first.take().into_iter().chain(core::mem::take(&mut self.rest))
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.first = None;
        self.rest.clear();
    }

    /// Memory on the heap, bytes.
    pub fn heap_bytes(&self) -> usize {
        of_queue(&self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn entries_leave_in_the_order_in_which_they_came() {
        let (mut queue, mut model) = (Queue::new(), VecDeque::new());
        for i in 0..200u32 {
            // Between none and a few at a time.
            if i * 7 % 10 < 5 {
                queue.push_back(i);
                model.push_back(i);
            } else if i % 3 == 0 {
                queue.drop_front();
                model.pop_front();
            } else {
                assert_eq!(queue.pop_front(), model.pop_front());
            }
            assert_eq!((queue.len(), queue.is_empty(), queue.front()), (model.len(), model.is_empty(), model.front()));
            assert_eq!(queue.only(), model.front().filter(|_| model.len() == 1));
            assert_eq!(queue.iter().collect::<Vec<_>>(), model.iter().collect::<Vec<_>>());
        }
        queue.push_back(9);
        model.push_back(9);
        assert_eq!(queue.drain().collect::<Vec<_>>(), Vec::from(model));
        assert!(queue.is_empty() && queue.pop_front().is_none());
        queue.push_back(1);
        queue.push_back(2);
        queue.clear();
        assert_eq!(queue.len(), 0);
    }
}
