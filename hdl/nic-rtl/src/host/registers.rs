//! Everything behind the AXI4-Lite port: decoder, register blocks, counters, doorbells, context window, interrupts.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `axil` | AXI4-Lite | | BAR 0 |
//! | `now`, `mac`, `udp_dport`, `rx_enable`, `promiscuous`, `link_up`, `cfg`, `conn_error`, `status_read` | | | see [`Settings`](super::settings) |
//! | `ctx` × `takers` | [`CtxWrite`] | valid/ready | context rows, see [`CtxWindow`](super::ctx) |
//! | `sq`, `rq`, `cq` | [`Doorbell`] | valid/ready | see [`DoorbellPages`](super::doorbell) |
//! | `irq`, `msix` | [`IrqRequest`], [`Msix`] | valid/ready | see [`MsixQueue`](super::msix) |
//! | `count` × n | [`Count`] | valid only | events of the rest of the card, in the order of `lists` |
//!
//! Latency, throughput, reset and drops: see the parts.

use super::{
    bus::AxiLite,
    csr_decode::{self, CsrDecode},
    ctx::{self, CtxWindow},
    doorbell::{self, DoorbellPages},
    msix::{self, IrqRequest, Msix, MsixQueue},
    settings::Settings,
    stats::{CountLists, Stats},
};
use crate::{
    params::NicParams,
    stream::{Count, CtxWrite, Doorbell, StatusRead, TransportConfig, TIME_BITS},
};
use nic_spec::csr;
use rtl_graph::*;

module! {
    /// The register space.
    pub struct Registers = "nic_host_registers" (params: &NicParams, takers: usize, lists: &CountLists) {
        axil: in AxiLite,
        now: out Uint(TIME_BITS),
        mac: out Uint(48),
        udp_dport: out Uint(16),
        rx_enable: out Uint(1),
        promiscuous: out Uint(1),
        link_up: in Uint(1),
        cfg: out TransportConfig,
        conn_error: in Uint(params.conns),
        status_read: out StatusRead,
        ctx: out Stream<CtxWrite> [takers],
        sq: out Stream<Doorbell>,
        rq: out Stream<Doorbell>,
        cq: out Stream<Doorbell>,
        irq: in Stream<IrqRequest>,
        msix: out Msix,
        count: in Count [lists.0.len()],
    } |b| {
        let decode = CsrDecode::at(b, "decode");
        b.connect(&axil, &decode.axil);
        let block = |name: &str| {
            let k = csr::BLOCKS.iter().position(|t| t.name == name);
            decode.block[k.unwrap_or_else(|| panic!("no register block `{name}`"))]
        };

        let settings = Settings::at(b, "settings", params);
        b.connect(&block(csr::id::BLOCK.name), &settings.id_bus);
        b.connect(&block(csr::port::BLOCK.name), &settings.port_bus);
        b.connect(&block(csr::transport::BLOCK.name), &settings.transport_bus);
        b.connect(&block(csr::conn::BLOCK.name), &settings.conn_bus);
        now.set(settings.now);
        mac.set(settings.mac);
        udp_dport.set(settings.udp_dport);
        rx_enable.set(settings.rx_enable);
        promiscuous.set(settings.promiscuous);
        settings.link_up.set(link_up);
        b.connect(&settings.cfg, &cfg);
        settings.conn_error.set(conn_error);
        b.connect(&settings.status_read, &status_read);

        let window = CtxWindow::at(b, "window", params, takers);
        b.connect(&block(csr::ctx::BLOCK.name), &window.bus);
        for (from, to) in window.write.iter().zip(&ctx) {
            b.connect(from, to);
        }
        let pages = DoorbellPages::at(b, "pages", params);
        b.connect(&decode.doorbell, &pages.bus);
        b.connect(&pages.sq, &sq);
        b.connect(&pages.rq, &rq);
        b.connect(&pages.cq, &cq);
        let vectors = MsixQueue::at(b, "vectors");
        b.connect(&block(csr::irq::BLOCK.name), &vectors.bus);
        b.connect(&irq, &vectors.request);
        b.connect(&vectors.msix, &msix);

        let own = [
            (decode.count, csr_decode::COUNTS),
            (window.count, ctx::COUNTS),
            (pages.count, doorbell::COUNTS),
            (vectors.count, msix::COUNTS),
        ];
        let all = lists.0.iter().cloned().chain(own.iter().map(|o| o.1.to_vec())).collect();
        let stats = Stats::at(b, "stats", &CountLists(all));
        b.connect(&block(csr::stats::BLOCK.name), &stats.bus);
        for (from, to) in count.iter().chain(own.iter().map(|o| &o.0)).zip(&stats.count) {
            b.connect(from, to);
        }
    }
}
