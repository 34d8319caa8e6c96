//! The card: all blocks, wired; and the typed block and the Verilog of it.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `clk`, `rst` | 1, 1 | | core clock; synchronous reset, active high |
//! | `m_axi` | [`Axi4`] | AXI4 manager | host memory |
//! | `s_axil` | [`AxiLite`] | AXI4-Lite subordinate | BAR 0 |
//! | `s_axis_rx`, `m_axis_tx` | [`Axis`] | AXI-Stream | frames from and to the MAC, without FCS |
//! | `m_msix` | [`Msix`] | valid/ready | requests for MSI-X messages |
//! | `link_up` | 1 | | the MAC has a link |
//!
//! Reset may come at any time; what the surroundings still answer to bursts from before it must not come after it.

// The typed block around it.
mod card;

pub use card::Card;

use crate::{
    dma::{self, axi4::Axi4, BusManager, MrTable, BURST_BEATS},
    host::{cqe_write, msix::Msix, wqe_fetch, AxiLite, CountLists, CqeWriter, Registers, WqeFetch},
    params::NicParams,
    prim::Axis,
    rx::Parser,
    stream::{Count, BEAT_BYTES},
    transport::{
        conn::{self, Conn},
        credit::Credit,
        fence::Fence,
        msg_rx::{self, MsgRx},
        msg_tx::{self, MsgTx},
        path_rx::{self, PathRx},
        path_tx::{self, PathTx},
        requester::Requester,
        responder::{self, Responder},
    },
    tx::Transmitter,
};
use nic_spec::csr::stats::Counter;
use rtl_graph::*;
use rust_hdl::prelude::Block;

/// Name of the top module in the Verilog that [`verilog`] gives.
pub const TOP: &str = "top";

module! {
    /// All of the card.
    pub struct NicTop = "nic" (params: &NicParams) {
        m_axi: out Axi4,
        s_axil: in AxiLite,
        s_axis_rx: in Axis(BEAT_BYTES),
        m_axis_tx: out Axis(BEAT_BYTES),
        m_msix: out Msix,
        link_up: in Uint(1),
    } |b| {
        // The way out.
        let wqe_fetch = WqeFetch::at(b, "wqe_fetch", params);
        let requester = Requester::at(b, "requester", params);
        let path_tx = PathTx::at(b, "path_tx", params);
        let transmitter = Transmitter::at(b, "transmitter");
        b.connect(&wqe_fetch.message, &requester.message);
        b.connect(&requester.credit, &wqe_fetch.credit);
        b.connect(&requester.alloc, &path_tx.alloc);
        requester.path_open.set(path_tx.path_open);
        b.connect(&path_tx.tx, &transmitter.packet);
        b.connect(&transmitter.m_axis, &m_axis_tx);

        // What became of messages.
        let msg_tx = MsgTx::at(b, "msg_tx", params);
        let cqe_write = CqeWriter::at(b, "cqe_write", params);
        b.connect(&requester.open, &msg_tx.open);
        requester.can_open.set(msg_tx.can_open);
        b.connect(&path_tx.acked, &msg_tx.acked);
        b.connect(&msg_tx.completion, &cqe_write.completion[0]);

        // The way in.
        let parser = Parser::at(b, "parser");
        let responder = Responder::at(b, "responder", params);
        let path_rx = PathRx::at(b, "path_rx", params);
        let msg_rx = MsgRx::at(b, "msg_rx", params);
        b.connect(&s_axis_rx, &parser.s_axis);
        b.connect(&parser.meta, &responder.meta);
        b.connect(&parser.payload, &responder.payload);
        b.connect(&responder.event, &path_rx.event);
        b.connect(&path_rx.verdict, &responder.verdict);
        b.connect(&responder.ack, &path_tx.ack);
        b.connect(&path_rx.ack, &transmitter.ack);
        b.connect(&msg_rx.completion, &cqe_write.completion[1]);
        b.connect(&responder.msg_base, &msg_rx.msg_base);
        responder.placed.set(msg_rx.placed.fire());
        responder.msgs_idle.set(msg_rx.idle);

        // Memory.
        let bus = BusManager::at(b, "bus", BURST_BEATS);
        let mr = MrTable::at(b, "mr", params.mrs, 2);
        b.connect(&wqe_fetch.fetch, &bus.wqe);
        b.connect(&bus.wqe_data, &wqe_fetch.wqe);
        b.connect(&transmitter.read, &bus.payload);
        b.connect(&bus.payload_data, &transmitter.data);
        b.connect(&responder.place, &bus.place);
        b.connect(&responder.place_data, &bus.place_data);
        b.connect(&responder.place_info, &bus.place_info);
        b.connect(&bus.placed, &msg_rx.placed);
        b.connect(&cqe_write.cqe, &bus.cqe);
        b.connect(&bus.cqe_done, &cqe_write.cqe_done);
        b.connect(&bus.axi, &m_axi);
        for (k, (lookup, result)) in
            [(wqe_fetch.lookup, wqe_fetch.verdict), (responder.mr_lookup, responder.mr_result)].iter().enumerate()
        {
            b.connect(lookup, &mr.lookup[k]);
            b.connect(&mr.result[k], result);
        }

        // Events to be counted, with what each port can name.
        let mut counts: Vec<(Count, Vec<Counter>)> = vec![
            (cqe_write.count, cqe_write::COUNTS.to_vec()),
            (msg_tx.count, msg_tx::COUNTS.to_vec()),
            (path_rx.count, path_rx::COUNTS.to_vec()),
            (msg_rx.count, msg_rx::COUNTS.to_vec()),
            (parser.count_frames, vec![Counter::RxFrames]),
            (parser.count_bytes, vec![Counter::RxBytes]),
            (transmitter.count_frames, vec![Counter::TxFrames]),
            (transmitter.count_bytes, vec![Counter::TxBytes]),
        ];
        let lists = |of: &[&[Counter]]| of.iter().map(|list| list.to_vec()).collect::<Vec<_>>();
        counts.extend(wqe_fetch.count.iter().copied().zip(lists(&wqe_fetch::COUNTS)));
        counts.extend(path_tx.count.iter().copied().zip(lists(&path_tx::COUNTS)));
        counts.extend(bus.count.iter().copied().zip(lists(&dma::manager::COUNTS)));
        counts.extend(responder.count.iter().copied().zip(responder::counts()));

        // Connections.
        let readers = [
            wqe_fetch.conn_read,
            requester.conn_read,
            cqe_write.conn_read,
            responder.conn_read,
            path_rx.conn_read,
            transmitter.conn,
        ];
        let errors = [path_tx.error, msg_tx.error, msg_rx.error, transmitter.error];
        let conn = Conn::at(b, "conn", params, readers.len(), 1, 2, errors.len());
        for (from, to) in readers.iter().zip(&conn.conn_read) {
            b.connect(from, to);
        }
        b.connect(&transmitter.ah, &conn.ah_read[0]);
        b.connect(&msg_tx.status_read, &conn.status_read[0]);
        for (from, to) in errors.iter().zip(&conn.error) {
            b.connect(from, to);
        }
        counts.push((conn.count, conn::COUNTS.to_vec()));
        for user in [
            wqe_fetch.conn_error,
            requester.conn_error,
            msg_tx.conn_error,
            path_tx.conn_error,
            responder.conn_error,
        ] {
            user.set(conn.conn_error);
        }
        requester.conn_valid.set(conn.conn_valid);
        let credit = Credit::at(b, "credit", params, 2);
        b.connect(&responder.credit_read, &credit.credit_read[0]);
        b.connect(&path_rx.credit_read, &credit.credit_read[1]);

        let fence = Fence::at(b, "fence");
        fence.judging.set(responder.judging);
        fence.handed.set(responder.handed);
        fence.placed.set(msg_rx.placed.fire());

        // Registers. Who sends messages forgets a connection before who receives what they send; the connection table,
        // whose row ends the connection's error, comes when nothing of the old connection is left.
        let takers = [
            wqe_fetch.ctx,
            requester.ctx,
            msg_tx.ctx,
            path_tx.ctx,
            responder.ctx,
            path_rx.ctx,
            msg_rx.ctx,
            credit.ctx,
            conn.ctx,
            mr.ctx,
            fence.ctx,
            cqe_write.ctx,
        ];
        let lists = CountLists(counts.iter().map(|c| c.1.clone()).collect());
        let registers = Registers::at(b, "registers", params, takers.len(), &lists);
        b.connect(&s_axil, &registers.axil);
        for (from, to) in registers.ctx.iter().zip(&takers) {
            b.connect(from, to);
        }
        for ((from, _), to) in counts.iter().zip(&registers.count) {
            b.connect(from, to);
        }
        b.connect(&registers.sq, &wqe_fetch.doorbell);
        b.connect(&registers.rq, &credit.doorbell);
        b.connect(&registers.cq, &cqe_write.doorbell);
        b.connect(&cqe_write.irq, &registers.irq);
        b.connect(&registers.msix, &m_msix);
        b.connect(&registers.status_read, &conn.status_read[1]);
        registers.conn_error.set(conn.conn_error);
        registers.link_up.set(link_up);
        b.connect(&registers.cfg, &path_tx.cfg);
        b.connect(&registers.cfg, &path_rx.cfg);
        path_tx.now.set(registers.now);
        path_rx.now.set(registers.now);
        parser.enable.set(registers.rx_enable);
        parser.promiscuous.set(registers.promiscuous);
        parser.mac.set(registers.mac);
        parser.dport.set(registers.udp_dport);
        transmitter.dport.set(registers.udp_dport);
    }
}

/// A pin of the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Name in the Verilog.
    pub name: String,
    /// Bits.
    pub bits: u32,
    /// The card drives it.
    pub is_output: bool,
}

/// The pins of the card that [`verilog`] gives, clock and reset first.
pub fn pins(params: &NicParams) -> Vec<Pin> {
    let pin = |p: &PortDef| Pin { name: p.name.clone(), bits: p.width, is_output: p.is_output };
    NicTop::def(&Lib::new(), params).ports.iter().map(pin).collect()
}

/// Verilog of the card: the module [`TOP`] and all below it, each once.
///
/// # Panics
/// When `params` do not pass [`NicParams::check`].
#[track_caller]
pub fn verilog(params: &NicParams) -> String {
    if let Err(e) = params.check() {
        panic!("{e}");
    }
    let params = *params;
    on_big_stack(move || {
        let lib = Lib::new();
        let mut card = Card::new(&lib, &params);
        card.connect_all();
        rtl_graph::verilog(&card, &lib)
    })
}
