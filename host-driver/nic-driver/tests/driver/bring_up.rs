//! From an unknown function to an open card, or a message that says why not.

use std::sync::Arc;

use nic_driver::{Device, Error, PciDevice, PciError, TransportConfig};
use nic_spec::csr::stats::{Counter, COUNTERS};
use nic_spec::csr::{self, id, port, stats, transport};

use crate::fake_card::{port, FakeCard, CONNS, CQS, MRS, PATHS};
use crate::registers::Link;

fn open(card: &FakeCard) -> Result<Device, Error> {
    Device::open(Arc::new(card.clone()), port())
}

/// The whole message, causes included.
fn message(err: &dyn std::error::Error) -> String {
    match err.source() {
        Some(source) => format!("{err}: {}", message(source)),
        None => err.to_string(),
    }
}

#[test]
fn a_card_is_reset_measured_and_opened() {
    let card = FakeCard::new();
    let device = open(&card).unwrap();
    let info = device.info();
    assert_eq!([info.conns, info.paths, info.mrs, info.cqs], [CONNS, PATHS, MRS, CQS]);
    assert_eq!([info.window_pkts, info.msgs, info.data_bits, info.clock_khz], [64, 64, 512, 250_000]);
    let inner = card.lock();
    let value = |register| inner.registers.get(register, 0);
    assert_eq!([value(port::MAC_LO), value(port::MAC_HI)], [0x0000_000a, 0x0200]);
    assert_eq!([value(port::UDP_DPORT), value(port::CONTROL)], [4791, port::CONTROL_RX_ENABLE.mask()]);
    assert_eq!(inner.resets, 1);
}

#[test]
fn a_promiscuous_port_on_another_udp_port_is_set_up_as_asked() {
    let card = FakeCard::new();
    let config = nic_driver::PortConfig { udp_dport: 0xffff, is_promiscuous: true, ..port() };
    let device = Device::open(Arc::new(card.clone()), config).unwrap();
    assert_eq!(device.port(), &config);
    let inner = card.lock();
    assert_eq!(port::UDP_DPORT_VALUE.get(inner.registers.get(port::UDP_DPORT, 0)), 0xffff);
    assert_eq!(port::CONTROL_PROMISCUOUS.get(inner.registers.get(port::CONTROL, 0)), 1);
}

#[test]
fn blocks_are_found_where_the_chain_puts_them_and_unknown_ones_are_passed_over() {
    let card = FakeCard::new();
    {
        let chain = &mut card.lock().registers.chain;
        chain.insert(3, Link { base: 0, block: None, type_id: 0x77, version: 9 });
        for (link, base) in chain.iter_mut().skip(1).zip((0x10_0000..).step_by(0x2000)) {
            link.base = base;
        }
    }
    let device = open(&card).unwrap();
    card.lock().registers.set_counter(Counter::RxBadIcrc, 5);
    assert_eq!(device.counter(Counter::RxBadIcrc).unwrap(), 5);
}

#[test]
fn a_device_that_is_not_the_card_is_refused_with_what_was_found() {
    type Damage = fn(&FakeCard);
    let cases: [(&str, Damage); 9] = [
        ("magic number 0x12345678 instead of 0x3163696e", |card| card.lock().registers.set(id::MAGIC, 0, 0x1234_5678)),
        ("BAR 0 has 0x1000000 bytes and needs 0x2000000", |card| card.lock().bar_bytes /= 2),
        ("the card has no register block \"ctx\" (type 0x3)", |card| {
            card.lock().registers.chain.remove(2);
        }),
        ("register block \"irq\" has version 2, this driver knows version 1", |card| {
            card.lock().registers.chain[5].version = 2;
        }),
        ("the chain of register blocks goes to 0x1000: there is a second block of the same type", |card| {
            card.lock().registers.chain[1].type_id = id::BLOCK.type_id;
        }),
        ("the chain of register blocks goes to 0x1800: no block can begin there", |card| {
            card.lock().registers.chain[1].base = 0x1800;
        }),
        ("the chain of register blocks goes to 0x1000000: no block can begin there", |card| {
            card.lock().registers.chain[6].base = csr::DOORBELL_BASE;
        }),
        ("cannot reset the card: the device is gone: unplugged", |card| card.lock().is_gone = true),
        ("cannot read register id.MAGIC: the device answered a read of 4 bytes at offset 0xc of region 0", |card| {
            card.lock().registers.chain[0].block = None;
        }),
    ];
    for (expected, damage) in cases {
        let card = FakeCard::new();
        damage(&card);
        let found = message(&open(&card).unwrap_err());
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn a_chain_that_runs_in_a_circle_ends() {
    let card = FakeCard::new();
    card.lock().registers.next.insert(stats::BLOCK.base, port::BLOCK.base);
    let found = message(&open(&card).unwrap_err());
    assert!(found.starts_with("the chain of register blocks goes to 0x1000: there is a second block"), "{found}");
}

#[test]
fn sizes_that_no_card_has_are_refused() {
    for (register, value) in [
        (id::CONNS, 0),
        (id::CONNS, 12),
        (id::CONNS, 8192),
        (id::PATHS, 0),
        (id::PATHS, 257),
        (id::WINDOW_PKTS, 257),
        (id::MSGS, 0),
        (id::MRS, 0x1_0001),
        (id::CQS, 0),
        (id::DATA_BITS, 0),
        (id::CLOCK_KHZ, 0),
    ] {
        let card = FakeCard::new();
        card.lock().registers.set(register, 0, value);
        let err = open(&card).unwrap_err().to_string();
        assert!(err.starts_with(&format!("the card reports {} = {value}: ", register.name)), "{err}");
    }
}

#[test]
fn a_group_address_is_no_port_address() {
    let mut config = port();
    config.mac.0[0] |= 1;
    let err = Device::open(Arc::new(FakeCard::new()), config).unwrap_err();
    let expected = "MAC address of the port cannot be 3298534883338 (a port has no group address)";
    assert_eq!(err.to_string(), expected);
}

#[test]
fn every_counter_is_read_by_name_with_both_halves() {
    let card = FakeCard::new();
    let device = open(&card).unwrap();
    let value = |i: usize| ((i as u64) << 32) | (0xffff_0000 + i as u64);
    for (i, info) in COUNTERS.iter().enumerate() {
        card.lock().registers.set_counter(info.counter, value(i));
    }
    let all = device.stats().unwrap();
    for (i, info) in COUNTERS.iter().enumerate() {
        assert_eq!(all.by_name(info.name), Some(value(i)), "{}", info.name);
        assert_eq!(all.get(info.counter), device.counter(info.counter).unwrap());
    }
    assert_eq!((all.iter().count(), all.by_name("no_such_count")), (COUNTERS.len(), None));
    card.lock().registers.set_counter(Counter::TxBytes, 1);
    let since = device.stats().unwrap().since(&all);
    assert_eq!(since.get(Counter::TxBytes), 1u64.wrapping_sub(all.get(Counter::TxBytes)));
    assert_eq!(since.iter().filter(|&(_, value)| value != 0).count(), 1);
}

#[test]
fn transport_settings_come_back_and_one_that_does_not_fit_changes_nothing() {
    let card = FakeCard::new();
    let device = open(&card).unwrap();
    let reset = device.transport().unwrap();
    assert_eq!((reset.rto_ticks, reset.ack_bytes), (transport::RTO_TICKS.reset, transport::ACK_BYTES.reset));
    let config = TransportConfig {
        rto_ticks: u32::MAX,
        retry_limit: 15,
        ack_packets: 255,
        ack_bytes: 0xff_ffff,
        ack_delay_ticks: 1,
        nak_interval_ticks: 2,
        rnr_ticks: 3,
    };
    device.set_transport(&config).unwrap();
    assert_eq!(device.transport().unwrap(), config);
    for wrong in [
        TransportConfig { retry_limit: 16, ..reset },
        TransportConfig { ack_packets: 256, ..reset },
        TransportConfig { ack_bytes: 1 << 24, ..reset },
    ] {
        let err = device.set_transport(&wrong).unwrap_err().to_string();
        assert!(err.ends_with("(it does not fit its register)"), "{err}");
        assert_eq!(device.transport().unwrap(), config);
    }
}

#[test]
fn time_link_and_a_missing_register_are_reported() {
    let card = FakeCard::new();
    let device = open(&card).unwrap();
    assert!(!device.is_link_up().unwrap());
    card.lock().registers.set(port::STATUS, 0, port::STATUS_LINK_UP.mask());
    assert!(device.is_link_up().unwrap());
    let before = device.time_ticks().unwrap();
    device.idle().unwrap();
    assert_eq!(device.time_ticks().unwrap(), before + 1);
    let hole = u64::from(csr::BLOCK_BYTES) - 4;
    assert!(matches!(card.read(0, hole, &mut [0; 4]), Err(PciError::Bus { .. })), "the fake card has holes");
}
