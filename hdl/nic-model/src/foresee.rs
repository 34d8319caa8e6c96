//! What memory the card will touch, told before it does.
//!
//! A simulation of many cards lives in more memory than the caches near the core hold. It knows what it will ask of a
//! card some events before it asks, and can have the lines fetched for many cards at a time. Nothing here changes a
//! card, and a guess that turns out wrong costs only time.
//!
use crate::connection::{Connection, TrafficClass};
use crate::nic::Nic;
use crate::transport::path_set::Choice;
use crate::wire::parser::{glance, Glance};
use nic_spec::csr::stats::Counter;

/// Has memory fetched.
pub trait Fetch: Copy {
    /// Asks for the cache line where `place` begins.
    fn line<T: ?Sized>(self, place: &T);

    /// Asks for every cache line of `place`.
    fn all<T>(self, place: &T);
}

impl Nic {
    /// Something will be asked of the card: has fetched what every call touches.
    #[inline]
    pub fn foresee(&self, fetch: impl Fetch) {
        let core = &self.core;
        fetch.line(&core.timers);
        for counter in [Counter::RxFrames, Counter::RxData, Counter::TxFrames, Counter::TxData] {
            fetch.line(core.counters.of(counter));
        }
        if let Some(place) = self.conns.first() {
            fetch.line(place);
        }
        if let Some(queue) = core.planes.first() {
            fetch.all(queue);
        }
        core.mrs.foresee(fetch);
    }

    /// [`on_frame`](Self::on_frame) will come with a frame that begins like this.
    #[inline]
    pub fn foresee_frame(&self, header: &[u8], fetch: impl Fetch) {
        self.core.timers.foresee(fetch);
        let Some(Glance { dest, path, is_ack }) = glance(header) else { return };
        let Some(c) = self.row(dest & self.core.row_mask) else { return };
        if is_ack {
            c.foresee_tx(fetch);
            c.foresee_acked(fetch);
            c.paths.foresee(path.into(), fetch);
            c.paths.foresee_acked(path.into(), fetch);
        } else {
            c.foresee_rx(fetch);
            c.foresee_rx_path(path, fetch);
        }
    }

    /// [`poll_transmit`](Self::poll_transmit) will come for `plane`.
    #[inline]
    pub fn foresee_transmit(&self, plane: u8, fetch: impl Fetch) {
        let Some(queue) = self.core.planes.get(usize::from(plane)) else { return };
        if let Some((conn, path)) = queue.next_ack() {
            self.foresee_ack(conn, path, plane, fetch);
        }
        // An acknowledgement is so short that there is no time to look again before what follows it.
        let Some(c) = queue.next_new().and_then(|conn| self.row(conn)) else { return };
        c.foresee_tx(fetch);
        c.foresee_template(plane, TrafficClass::Data, fetch);
        if let Choice::Path(index) = c.paths.choose(plane) {
            c.paths.foresee(index, fetch);
        }
    }

    /// [`on_timer`](Self::on_timer) will come.
    #[inline]
    pub fn foresee_timer(&self, fetch: impl Fetch) {
        if let Some((conn, path)) = self.core.timers.next_ack() {
            self.foresee_ack(conn, path, 0, fetch);
        }
    }

    /// An acknowledgement of `path` will leave.
    #[inline]
    fn foresee_ack(&self, conn: u32, path: u8, plane: u8, fetch: impl Fetch) {
        let Some(c) = self.row(conn) else { return };
        fetch.line(c);
        fetch.line(&c.pacer);
        fetch.line(&c.cfg.transport);
        c.foresee_rx_path(path, fetch);
        c.foresee_template(plane, TrafficClass::Control, fetch);
    }

    #[inline]
    fn row(&self, row: u32) -> Option<&Connection> {
        self.conns.get(row as usize)?.as_deref()
    }
}

impl Connection {
    /// Lines of a connection that a request touches.
    #[inline]
    fn foresee_rx(&self, fetch: impl Fetch) {
        fetch.line(self);
        self.responder.foresee_stream(fetch);
        fetch.line(&self.cfg.transport);
    }

    /// Lines of a connection that an acknowledgement or a new packet touches.
    #[inline]
    fn foresee_tx(&self, fetch: impl Fetch) {
        fetch.line(self);
        fetch.line(&self.rtt);
        fetch.line(&self.pacer);
        self.requester.foresee(fetch);
        self.paths.foresee_self(fetch);
        fetch.line(&self.cfg.transport);
    }

    /// Lines that only an acknowledgement touches besides.
    #[inline]
    fn foresee_acked(&self, fetch: impl Fetch) {
        fetch.line(&self.reorder);
        fetch.line(&self.cfg.transport.rto_init_ps);
        fetch.line(&self.cfg.cc);
        fetch.line(&self.good_ports);
        self.good_ports.first().into_iter().for_each(|ports| fetch.line(ports));
    }

    #[inline]
    fn foresee_rx_path(&self, path: u8, fetch: impl Fetch) {
        if let Some(row) = self.rx_paths.get(usize::from(path)) {
            fetch.line(row);
        }
    }
}
