//! Doorbells: tell the card how far a queue has got.

use std::sync::atomic::{fence, Ordering};

use nic_spec::csr;
use nic_spec::desc;

use crate::bar::Bar;
use crate::error::{Error, Result};

/// The send queue of connection `conn` has entries up to, not including, `producer`.
pub fn ring_sq(bar: &Bar, conn: u32, producer: u16) -> Result<()> {
    ring(bar, csr::sq_doorbell(conn), "send queue", producer, false)
}

/// `posted` receives have been posted to connection `conn` since it was set up.
pub fn ring_rq(bar: &Bar, conn: u32, posted: u16) -> Result<()> {
    ring(bar, csr::rq_doorbell(conn), "receive queue", posted, false)
}

/// The entries of completion queue `cqn` up to, not including, `consumer` have been read. With `arm`, the card sends an
/// interrupt at the next completion.
pub fn ring_cq(bar: &Bar, cqn: u32, consumer: u16, arm: bool) -> Result<()> {
    ring(bar, csr::cq_doorbell(cqn), "completion queue", consumer, arm)
}

fn ring(bar: &Bar, address: u32, queue: &'static str, index: u16, arm: bool) -> Result<()> {
    let mut word = desc::Doorbell::zeroed();
    word.set_index(index).set_arm(arm);
    // The entries must be in memory before the card hears of them; between processor and device the backend's register
    // write keeps that order.
    fence(Ordering::SeqCst);
    bar.write_word(address, word.0).map_err(|source| Error::Doorbell { queue, source })
}
