//! A pool of numbered slots that are used again; no allocation once it has grown to its working size.

use crate::footprint::of_vec;
use alloc::vec::Vec;

/// Slots of `T`.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts `value` into a free slot and returns its number.
    pub fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = Some(value);
                at
            }
            None => {
                self.slots.push(Some(value));
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Where the first slot stands.
    #[inline]
    pub fn first(&self) -> Option<&Option<T>> {
        self.slots.first()
    }

    /// The value of slot `at`.
    #[inline]
    pub fn get(&self, at: u32) -> Option<&T> {
        self.slots.get(at as usize)?.as_ref()
    }

    /// The value of slot `at`.
    #[inline]
    pub fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    /// Frees slot `at`.
    pub fn remove(&mut self, at: u32) -> Option<T> {
        let value = self.slots.get_mut(at as usize)?.take();
        if value.is_some() {
            self.free.push(at);
        }
        value
    }

    /// Memory on the heap, bytes.
    pub const fn heap_bytes(&self) -> usize {
        of_vec(&self.slots) + of_vec(&self.free)
    }

    /// Slots in use.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Frees every slot.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_an_unused_one_holds_nothing() {
        let mut slab = Slab::default();
        assert_eq!((slab.insert('a'), slab.insert('b')), (0, 1));
        assert_eq!((slab.remove(0), slab.remove(0), slab.get(0)), (Some('a'), None, None));
        assert_eq!((slab.insert('c'), slab.get(0), slab.len()), (0, Some(&'c'), 2));
        slab.clear();
        assert_eq!((slab.len(), slab.get(1)), (0, None));
    }
}
