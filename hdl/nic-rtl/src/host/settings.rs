//! Register blocks `id`, `port`, `transport` and `conn`: what the card is, and how it is to behave.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `id_bus`, `port_bus`, `transport_bus`, `conn_bus` | [`CsrBus`] | valid/ready | accesses to the four blocks |
//! | `now` | 32 | | free-running core clock ticks, register TIME |
//! | `mac`, `udp_dport`, `rx_enable`, `promiscuous` | 48, 16, 1, 1 | | settings of the Ethernet port |
//! | `link_up` | 1 | | shown in STATUS |
//! | `cfg` | [`TransportConfig`] | | settings of the transport |
//! | `conn_error` | `conns` | | shown in ERROR |
//! | `status_read` | [`StatusRead`] | | status of the connection in ERROR_SELECT |
//!
//! An access takes two cycles. Reset: as the tables say. State: registers. Drops: none.

use super::{
    bus::CsrBus,
    regs::{serve, Served},
};
use crate::{
    params::NicParams,
    stream::{StatusRead, TransportConfig, BEAT_BYTES, CONN_BITS, TIME_BITS},
};
use nic_spec::{
    csr::{conn, id, port, transport},
    register::{Block, Register},
};
use rtl_graph::*;

module! {
    /// The four blocks.
    pub struct Settings = "nic_host_settings" (params: &NicParams) {
        id_bus: in CsrBus,
        port_bus: in CsrBus,
        transport_bus: in CsrBus,
        conn_bus: in CsrBus,
        now: out Uint(TIME_BITS),
        mac: out Uint(48),
        udp_dport: out Uint(16),
        rx_enable: out Uint(1),
        promiscuous: out Uint(1),
        link_up: in Uint(1),
        cfg: out TransportConfig,
        conn_error: in Uint(params.conns),
        status_read: out StatusRead,
    } |b| {
        let ticks = b.reg_reset("ticks", TIME_BITS, 0);
        ticks.set(ticks.inc());
        now.set(ticks);
        let sizes = [
            (id::CONNS, params.conns),
            (id::PATHS, params.paths),
            (id::WINDOW_PKTS, params.window_pkts),
            (id::MSGS, params.msgs),
            (id::MRS, params.mrs),
            (id::CQS, params.cqs),
            (id::DATA_BITS, 8 * BEAT_BYTES),
            (id::CLOCK_KHZ, params.clock_khz),
        ];
        block(b, "id", &id_bus, &id::BLOCK, &|r, _| {
            if r.name == id::TIME.name {
                return Some(ticks);
            }
            sizes.iter().find(|(size, _)| size.name == r.name).map(|(_, value)| b.lit((*value).into(), 32))
        });

        let served = block(b, "port", &port_bus, &port::BLOCK, &|r, _| (r.name == port::STATUS.name).then_some(link_up));
        let control = served.value(&port::CONTROL);
        let flag = |field: nic_spec::register::BitField| control.bits(field.shift, field.bits);
        mac.set(served.value(&port::MAC_HI).cat(served.value(&port::MAC_LO)));
        udp_dport.set(served.value(&port::UDP_DPORT));
        rx_enable.set(flag(port::CONTROL_RX_ENABLE));
        promiscuous.set(flag(port::CONTROL_PROMISCUOUS));

        let served = block(b, "transport", &transport_bus, &transport::BLOCK, &|_, _| None);
        for (field, target) in TransportConfig::layout().fields.iter().zip(cfg.signals()) {
            let register = transport::BLOCK.registers.iter().find(|r| r.name.to_lowercase() == field.name);
            let Some(register) = register else { panic!("no transport register for the setting {}", field.name) };
            target.set(served.value(register));
        }

        let words = conn_error.zext(params.conns.next_multiple_of(32)).chunks(32);
        let status = status_read.status;
        let served = block(b, "conn", &conn_bus, &conn::BLOCK, &|r, k| {
            if r.name == conn::ERROR_STATUS.name {
                return Some(status);
            }
            words.get(k as usize).copied().filter(|_| r.name == conn::ERROR.name)
        });
        status_read.conn.set(served.value(&conn::ERROR_SELECT).resize(CONN_BITS));
    }
}

fn block<'a>(
    b: &'a B,
    name: &str,
    bus: &CsrBus<'a>,
    table: &Block,
    read: &dyn Fn(&Register, u32) -> Option<S<'a>>,
) -> Served<'a> {
    b.scope(name, || serve(b, bus, table, read))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::bench::*;
    use nic_spec::register::Access;

    fn bench(params: &NicParams) -> (Sim, Rng) {
        let mut rng = Rng::new("host::settings", 1);
        let sim = sim(&Settings::def(&Lib::new(), params), &mut rng);
        (sim, rng)
    }

    fn held(r: &Register) -> u32 {
        if r.fields.is_empty() {
            u32::MAX
        } else {
            r.fields.iter().map(|f| f.mask()).sum()
        }
    }

    #[test]
    fn every_register_of_the_tables_behaves_as_its_access_says() {
        let (mut sim, mut rng) = bench(&NicParams::default());
        let blocks = [&id::BLOCK, &port::BLOCK, &transport::BLOCK, &conn::BLOCK];
        for table in blocks {
            for r in table.registers {
                for k in 0..r.count {
                    let value = rng.next() as u32;
                    let before = csr_read(&mut sim, &format!("{}_bus", table.name), r.at(k));
                    csr_write(&mut sim, &format!("{}_bus", table.name), r.at(k), value);
                    let after = csr_read(&mut sim, &format!("{}_bus", table.name), r.at(k));
                    match r.access {
                        Access::Rw => {
                            assert_eq!(before, r.reset & held(r), "{} after reset", r.name);
                            assert_eq!(after, value & held(r), "{}", r.name);
                        }
                        _ if r.name == id::TIME.name => assert!(after > before),
                        _ => assert_eq!(after, before, "{} was written", r.name),
                    }
                }
            }
        }
    }

    #[test]
    fn an_address_between_registers_is_an_error() {
        let (mut sim, _) = bench(&NicParams::default());
        for table in [&id::BLOCK, &port::BLOCK, &transport::BLOCK, &conn::BLOCK] {
            for offset in (0..0x1000).step_by(4) {
                let addr = table.base + offset;
                let is_there = table.registers.iter().any(|r| (r.address..r.address + 4 * r.count).contains(&addr));
                assert_eq!(csr_access(&mut sim, &format!("{}_bus", table.name), None, addr).1, !is_there, "{addr:#x}");
            }
        }
    }

    #[test]
    fn the_card_tells_what_it_was_built_for() {
        let params = NicParams { conns: 64, paths: 8, cqs: 32, clock_khz: 322_265, ..NicParams::default() };
        let (mut sim, _) = bench(&params);
        let mut read = |r: Register| csr_read(&mut sim, "id_bus", r.address);
        assert_eq!(read(id::MAGIC), u32::from_le_bytes(*b"nic1"));
        assert_eq!([id::CONNS, id::PATHS, id::WINDOW_PKTS, id::MSGS].map(&mut read), [64, 8, 64, 64]);
        assert_eq!([id::MRS, id::CQS, id::DATA_BITS, id::CLOCK_KHZ].map(&mut read), [64, 32, 512, 322_265]);
    }

    #[test]
    fn settings_reach_their_wires() {
        let (mut sim, _) = bench(&NicParams::default());
        assert_eq!((sim.peek("udp_dport"), sim.peek("rx_enable"), sim.peek("promiscuous")), (4791, 0, 0));
        assert_eq!((sim.peek("cfg_rto_ticks"), sim.peek("cfg_retry_limit")), (25_000, 7));
        csr_write(&mut sim, "port_bus", port::MAC_LO.address, 0x0304_0506);
        csr_write(&mut sim, "port_bus", port::MAC_HI.address, 0xffff_0002);
        csr_write(&mut sim, "port_bus", port::CONTROL.address, 2);
        csr_write(&mut sim, "transport_bus", transport::ACK_BYTES.address, 0xff12_3456);
        assert_eq!((sim.peek("mac"), sim.peek("cfg_ack_bytes")), (0x0002_0304_0506, 0x12_3456));
        assert_eq!((sim.peek("rx_enable"), sim.peek("promiscuous")), (0, 1));
        sim.poke("link_up", 1);
        assert_eq!(csr_read(&mut sim, "port_bus", port::STATUS.address), 1);
    }

    #[test]
    fn failed_connections_are_shown_by_bit_and_by_status() {
        let (mut sim, _) = bench(&NicParams { conns: 64, ..NicParams::default() });
        sim.poke("conn_error", 1 << 33 | 1 << 2);
        assert_eq!([0, 1, 2, 127].map(|k| csr_read(&mut sim, "conn_bus", conn::ERROR.at(k))), [4, 2, 0, 0]);
        csr_write(&mut sim, "conn_bus", conn::ERROR_SELECT.address, 33);
        assert_eq!(sim.peek("status_read_conn"), 33);
        sim.poke("status_read_status", 8);
        assert_eq!(csr_read(&mut sim, "conn_bus", conn::ERROR_STATUS.address), 8);
    }
}
