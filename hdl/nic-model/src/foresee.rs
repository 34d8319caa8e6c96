//! What memory the card will touch, told before it does.
//!
//! A simulation of many cards lives in more memory than the caches near the core hold. It knows what it will ask of a
//! card some events before it asks, and can have the lines fetched for many cards at a time. Nothing here changes a
//! card, and a guess that turns out wrong costs only time.

use crate::connection::Connection;
use crate::nic::Nic;
use crate::plane::Soon;
use crate::transport::path_set::Choice;
use crate::wire::parser::{glance, Glance};

/// Has memory fetched.
pub trait Fetch: Copy {
    /// Asks for the cache line where `place` begins.
    fn line<T: ?Sized>(self, place: &T);
}

/// How far a look ahead follows what stands in memory: what a later step reads was fetched by the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The rows of paths.
    Path,
    /// What the rows point to.
    Ring,
}

impl Nic {
    /// [`on_frame`](Self::on_frame) will come with a frame of this header.
    #[inline]
    pub fn foresee_frame(&self, header: &[u8], step: Step, fetch: impl Fetch) {
        let Some(Glance { dest, path, is_ack }) = glance(header) else { return };
        let Some(c) = self.row(dest & self.row_mask()) else { return };
        if is_ack {
            c.paths.foresee_ack(path.into(), step, fetch);
        } else if step == Step::Path {
            c.foresee_rx_path(path, fetch);
        }
    }

    /// [`poll_transmit`](Self::poll_transmit) will come for `plane`.
    #[inline]
    pub fn foresee_transmit(&self, plane: u8, step: Step, fetch: impl Fetch) {
        match self.soon(plane) {
            Some(Soon::Ack { conn, path }) if step == Step::Path => {
                if let Some(c) = self.row(conn) {
                    c.foresee_rx_path(path, fetch);
                }
            }
            Some(Soon::New { conn }) => {
                let Some(c) = self.row(conn) else { return };
                if let Choice::Path(index) = c.paths.choose(plane) {
                    c.paths.foresee_new(index, step, fetch);
                }
            }
            _ => {}
        }
    }

    /// [`on_timer`](Self::on_timer) will come.
    #[inline]
    pub fn foresee_timer(&self, step: Step, fetch: impl Fetch) {
        if step != Step::Path {
            return;
        }
        let Some((conn, path)) = self.next_ack_timer() else { return };
        if let Some(c) = self.row(conn) {
            c.foresee_rx_path(path, fetch);
        }
    }
}

impl Connection {
    #[inline]
    fn foresee_rx_path(&self, path: u8, fetch: impl Fetch) {
        if let Some(row) = self.rx_paths.get(usize::from(path)) {
            fetch.line(row);
        }
    }
}
