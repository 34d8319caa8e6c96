//! Send queue rows: how far software has got, how far the card has, and whose WQE is fetched next.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `doorbell` | [`Doorbell`] | valid/ready | new producer index of a queue |
//! | `ctx` | [`CtxWrite`] | valid/ready | tables `sq` and `conn`; others are taken and ignored |
//! | `stop` | `conns` | | connections whose WQEs are flushed |
//! | `delivered`, `forgotten`, `reopened`, `returned` | [`ConnPulse`] | valid only | what became of messages; see below |
//! | `fetch` | [`DmaRead`] | valid/ready | reads of 64 bytes |
//! | `entry` | [`Fetch`] | valid/ready | one a WQE in order; one that is flushed has no read |
//! | `life` | `conns` | | flips when a queue starts or stops: an entry of another life is to be forgotten |
//! | `count` | | | `doorbell_bad_count` |
//!
//! A connection may have [`CREDITS`] WQEs under way: issued here and not yet `delivered` (or `forgotten`), or delivered to
//! the requester and not yet `returned`. `reopened` says that the requester forgets what it holds.
//!
//! One event in 3 cycles, a fetch in 4: row writes before doorbells before fetches; fetches round robin over the
//! connections that have WQEs and credit. Reset disables all queues. State: 100 bits a connection in RAM, 8 in registers. Drops: as counted.

use crate::{
    params::NicParams,
    prim::{fifo, skid},
    stream::{field_of, Count, CtxWrite, DmaRead, Doorbell, ADDR_BITS, CONN_BITS, LEN_BITS},
};
use nic_spec::{
    csr::stats::Counter,
    desc::{SqRow, Table, Wqe},
};
use rtl_graph::*;

/// WQEs of a connection that may be under way.
pub const CREDITS: u64 = 2;
/// WQEs on the way from memory, at most.
const FETCHES: u32 = 16;

bundle! {
    /// Something has happened on a connection, now.
    pub struct ConnPulse { fwd valid: 1, conn: CONN_BITS }
}

record! {
    /// A WQE on the way from memory.
    pub struct Fetch {
        conn: CONN_BITS,
        /// Its index, modulo 2^16.
        index: 16,
        /// Not fetched, to be flushed.
        flush: 1,
        /// The queue's life that it belongs to.
        life: 1,
    }
}

record! {
    /// What is kept of a queue beside its enable bit.
    pub(super) struct Queue {
        base: ADDR_BITS,
        log2_size: 4,
        /// WQEs up to here are ready.
        producer: 16,
        /// WQEs up to here are fetched.
        fetched: 16,
    }
}

/// Bit `index` of a vector with a bit a connection.
pub(super) fn bit_of<'a>(vector: S<'a>, index: S<'a>) -> S<'a> {
    index.builder().pick(index, &vector.chunks(1))
}

/// A vector with a bit a connection: that of `index` when `on`.
pub(super) fn at<'a>(on: S<'a>, index: S<'a>, conns: u32) -> S<'a> {
    on.rep(conns) & index.one_hot(conns)
}

module! {
    /// The rows and the choice among them.
    pub struct SendQueues = "nic_host_send_queue" (params: &NicParams) {
        doorbell: in Stream<Doorbell>,
        ctx: in Stream<CtxWrite>,
        stop: in Uint(params.conns),
        delivered: in ConnPulse,
        forgotten: in ConnPulse,
        reopened: in ConnPulse,
        returned: in ConnPulse,
        fetch: out Stream<DmaRead>,
        entry: out Stream<Fetch>,
        life: out Uint(params.conns),
        count: out Count,
    } |b| {
        let (conns, bits) = (params.conns, params.conn_bits());
        let vector = |name: &str| b.reg_reset(name, conns, 0);
        let (enabled, has_work, life_q) = (vector("enabled"), vector("has_work"), vector("life_q"));
        let issued = b.wire("issued", conns);
        let has_credit = credits(b, issued, conns, [delivered, forgotten, reopened, returned]);

        // Round robin: the connection behind the last one that fetched. The choice is old when it is acted upon, so it is
        // checked again.
        let behind = vector("behind");
        let able = (has_work & enabled & has_credit).named("able");
        let (is_later, later) = (able & behind).first_one();
        let (is_any, any) = able.first_one();
        let chosen = is_later.mux(later, any).delay("chosen", 1);
        let is_chosen = is_any.delay_reset("is_chosen", 1);

        // An event chooses a row, then the row is weighed, then the event acts on it.
        let room = b.wire("room", 1);
        let went = b.wire("went", 1);
        let (weighing, acting) = (b.reg_reset("weighing", 1, 0), b.reg_reset("acting", 1, 0));
        let idle = (!weighing & !acting).named("idle");
        let is_sq = ctx.data.table.eq(Table::Sq as u8);
        let is_ours = is_sq | ctx.data.table.eq(Table::Conn as u8);
        let do_ctx = idle & ctx.valid & is_ours;
        let do_doorbell = idle & !do_ctx & doorbell.valid;
        // A choice made before the last fetch counted is not worth a try.
        let is_fresh = !went.delay_reset("went_before", 1);
        let do_fetch = idle & !do_ctx & !do_doorbell & is_chosen & is_fresh & room;
        weighing.set(do_ctx | do_doorbell | do_fetch);
        acting.set(weighing);
        let act_ctx = do_ctx.delay_reset("act_ctx", 2);
        let act_doorbell = do_doorbell.delay_reset("act_doorbell", 2);
        let act_fetch = do_fetch.delay_reset("act_fetch", 2);
        let index = do_doorbell.mux(doorbell.data.number.trunc(bits), do_ctx.mux(ctx.data.index.trunc(bits), chosen));
        let rows = b.mem("rows", conns.into(), Queue::width()).zeroed();

        // Weighed: what the row says of a doorbell and of a fetch. A doorbell with fewer WQEs to fetch than before is an
        // old one that was overtaken.
        let weighed = index.delay("weighed", 1);
        let row = Queue::unpack(rows.read(index)).named("row");
        let kept = |name, value| S::delay(value, name, 1);
        let size = b.lit(1, 16).shl_by(row.log2_size).named("size");
        let old_count = (row.producer - row.fetched).named("old_count");
        let new_count = (doorbell.data.index - row.fetched).named("new_count");
        let is_enabled = kept("is_enabled", bit_of(enabled, weighed));
        let fits = kept("fits", new_count.le(size));
        let is_more = kept("is_more", new_count.gt(old_count));
        let has_any = kept("has_any", old_count.any() & bit_of(has_credit, weighed));
        let is_last = kept("is_last", old_count.eq(1));
        let flush = kept("flush", bit_of(stop, weighed));
        let life_now = kept("life_now", bit_of(life_q, weighed));
        let slot = row.fetched & size.dec();
        let slot = kept("slot", slot);
        let queue = row.delayed("kept");
        let conn = kept("conn", weighed);
        let here = |on| at(on, conn, conns);

        // A row is written.
        ctx.ready.set(act_ctx | (ctx.valid & !is_ours));
        let sq = |name| field_of(ctx.data.data, SqRow::LAYOUT.field(name));
        let zero = b.zero(16);
        let opened = Queue { base: sq("base_iova"), log2_size: sq("log2_size"), producer: zero, fetched: zero };
        let opens = (act_ctx & is_sq & sq("enabled")).named("opens");

        // A doorbell.
        let is_good = (is_enabled & fits).named("is_good");
        let advances = (act_doorbell & is_good & is_more).named("advances");
        doorbell.ready.set(act_doorbell);
        count.drive(b, &[(act_doorbell & !is_good, Counter::DoorbellBad)]);

        // A fetch.
        let go = (act_fetch & is_enabled & has_any).named("go");
        went.set(go);
        let addr = queue.base + slot.zext(ADDR_BITS).shl(Wqe::LEN.ilog2());
        let read = DmaRead { addr, len: b.lit(Wqe::LEN as u64, LEN_BITS) };
        let read_in = Stream { data: read, valid: go & !flush, ready: b.wire("read_ready", 1) };
        b.connect(&skid(b, "read", &read_in), &fetch);
        let data = Fetch { conn: conn.zext(CONN_BITS), index: queue.fetched, flush, life: life_now };
        let entry_in = Stream { data, valid: go, ready: b.wire("entry_ready", 1) };
        b.connect(&fifo(b, "entries", &entry_in, FETCHES), &entry);
        room.set(read_in.ready & entry_in.ready);
        issued.set(here(go));
        let above: Vec<S> = (0..conns).rev().map(|c| if c == 0 { b.low() } else { conn.lt(c) }).collect();
        behind.set_en(go, b.cat(&above));

        let fetched = Queue { fetched: queue.fetched.inc(), ..queue };
        let rung = Queue { producer: doorbell.data.index, ..queue };
        let next = Queue::select(&[(act_ctx, opened), (act_doorbell, rung)], &fetched);
        rows.write((act_ctx & is_sq) | advances | go, conn, next.pack());
        enabled.set((enabled & !here(act_ctx)) | here(opens));
        has_work.set((has_work & !here(act_ctx | (go & is_last))) | here(advances));
        life_q.set(life_q ^ here(act_ctx));
        life.set(life_q);
        b.assert("what_was_granted_can_go", !go | (read_in.ready & entry_in.ready));
    }
}

/// A vector with a bit a connection: it may have one more WQE under way.
fn credits<'a>(b: &'a B, issued: S<'a>, conns: u32, pulses: [ConnPulse<'a>; 4]) -> S<'a> {
    let [delivered, forgotten, reopened, returned] =
        pulses.map(|p| at(p.valid, p.conn.resize(index_bits(conns.into())), conns));
    let mut free = vec![];
    for c in 0..conns {
        // WQEs issued and not yet delivered, and those that the requester holds.
        let (here, there) = (b.reg_reset(&format!("here_{c}"), 2, 0), b.reg_reset(&format!("there_{c}"), 2, 0));
        let (enters, leaves) = (issued.bit(c), delivered.bit(c) | forgotten.bit(c));
        here.set_en(enters ^ leaves, enters.mux(here.inc(), here.dec()));
        // After a reopening the requester may still give back what it held before.
        let (enters, leaves) = (delivered.bit(c), returned.bit(c) & (there.any() | delivered.bit(c)));
        there.when(enters ^ leaves, enters.mux(there.inc(), there.dec()));
        there.when(reopened.bit(c), 0);
        free.push((here.zext(3) + there.zext(3)).lt(CREDITS));
        b.assert(&format!("credits_of_{c}"), (here.zext(3) + there.zext(3)).le(CREDITS));
        b.assert(&format!("leaves_only_what_entered_{c}"), !(delivered.bit(c) | forgotten.bit(c)) | here.any());
    }
    free.reverse();
    b.cat(&free).named("has_credit")
}
