//! Memory regions, domains, queues, context rows: what is created on the card and taken back.

use std::sync::Arc;

use nic_driver::ctx::CTX_POLLS_MAX;
use nic_driver::pci::DmaAccess;
use nic_driver::{Cq, CqConfig, Device, DmaMem, Error, Mr, MrAccess, Pd, Qp, QpConfig};
use nic_spec::csr::id;
use nic_spec::desc::{CqRow, MrRow, SqRow, Table};

use crate::fake_card::{port, FakeCard, CONNS, CQS, MRS, VECTORS};

fn open() -> (FakeCard, Device) {
    let card = FakeCard::new();
    let device = card.open();
    (card, device)
}

fn mr_row(card: &FakeCard, index: u32) -> MrRow<[u8; 64]> {
    MrRow(card.row(Table::Mr, index))
}

#[test]
fn a_region_s_row_holds_what_was_registered() {
    let (card, device) = open();
    let pd = Pd::new(&device).unwrap();
    let mem = DmaMem::zeroed(0x4000);
    let mr = Mr::register_at(&pd, &mem, 0x1010, 0x2000, MrAccess::REMOTE_WRITE, 0x7000_0000_0123).unwrap();
    let row = mr_row(&card, 0);
    assert!(row.valid());
    assert_eq!((row.pd(), row.access(), row.key()), (pd.number(), 0b11, 1));
    assert_eq!((row.va(), row.len()), (0x7000_0000_0123, 0x2000));
    assert_eq!((mr.va(), mr.len_bytes(), mr.lkey().get(), mr.rkey().get()), (row.va(), row.len(), 1, 1));
    let inner = card.lock();
    let (&iova, mapping) = inner.memory.mappings.iter().next().unwrap();
    assert_eq!((row.iova(), mapping.offset, mapping.len), (iova + 0x10, 0x1000, 0x3000), "whole pages are mapped");
    assert!(mapping.mem.is_same_as(&mem) && mapping.access == DmaAccess::ReadWrite);
}

#[test]
fn a_source_region_is_mapped_for_reading_only_and_has_the_device_s_addresses() {
    let (card, device) = open();
    let mr = Mr::register(&Pd::new(&device).unwrap(), &DmaMem::zeroed(1), 8, 100, MrAccess::LOCAL_READ).unwrap();
    let row = mr_row(&card, 0);
    assert_eq!((row.va(), row.access(), mr.va()), (row.iova(), 0, row.iova()));
    assert_eq!(card.lock().memory.mappings[&(row.iova() - 8)].access, DmaAccess::Read);
    assert_eq!((mr.sge(5, 6).va, mr.sge(5, 6).len_bytes, mr.sge(5, 6).lkey), (row.va() + 5, 6, mr.lkey()));
    assert_eq!((mr.remote().va, mr.remote().rkey, mr.remote().len_bytes), (row.va(), mr.rkey().get(), 100));
}

#[test]
fn a_key_changes_each_time_its_row_is_used_again_and_is_never_0() {
    let (card, device) = open();
    let pd = Pd::new(&device).unwrap();
    let mem = DmaMem::zeroed(1);
    let mut last = vec![None; MRS as usize];
    for _ in 0..260 * MRS {
        let mr = Mr::register(&pd, &mem, 0, 1, MrAccess::LOCAL_READ).unwrap();
        let (row, key) = (mr.rkey().get() >> 8, mr.rkey().get() & 0xff);
        assert_ne!(key, 0);
        assert_ne!(last[row as usize].replace(key), Some(key));
        mr.deregister().unwrap();
        assert!(!mr_row(&card, row).valid());
    }
    assert!(last.iter().all(Option::is_some), "rows are used in turn");
    assert!(card.lock().memory.mappings.is_empty());
}

#[test]
fn a_region_that_cannot_be_is_refused_and_leaves_nothing_behind() {
    let (card, device) = open();
    let pd = Pd::new(&device).unwrap();
    let mem = DmaMem::zeroed(4096);
    let refused = |result: Result<Mr, Error>, expected: &str| {
        let err = result.unwrap_err().to_string();
        assert!(err.starts_with(expected), "{err}");
    };
    let read = MrAccess::LOCAL_READ;
    refused(Mr::register(&pd, &mem, 0, 0, read), "0x0 bytes at 0x0 are no range of 0x1000 bytes");
    refused(Mr::register(&pd, &mem, 1, 4096, read), "0x1000 bytes at 0x1 are no range");
    refused(Mr::register(&pd, &mem, u64::MAX, 2, read), "0x2 bytes at 0xffffffffffffffff are no range");
    refused(Mr::register_at(&pd, &mem, 0, 4096, read, u64::MAX - 4094), "va cannot be");
    for access in [MrAccess { remote_write: true, ..read }, MrAccess { remote_atomic: true, ..read }] {
        refused(Mr::register(&pd, &mem, 0, 1, access), "access cannot be");
    }
    let all: Vec<_> = (0..MRS).map(|_| Mr::register(&pd, &mem, 0, 1, read).unwrap()).collect();
    refused(Mr::register(&pd, &mem, 0, 1, read), "all 8 memory regions are in use");
    assert_eq!(card.lock().memory.mappings.len(), MRS as usize);
    drop(all);
    assert!(card.lock().memory.mappings.is_empty());
}

#[test]
fn a_completion_queue_s_row_names_its_ring_and_vector() {
    let (card, device) = open();
    let cq = Cq::new(&device, CqConfig { log2_size: 9, vector: 5 }).unwrap();
    let row = CqRow(card.row(Table::Cq, cq.number()));
    assert!(row.enabled());
    assert_eq!((row.log2_size(), row.vector(), cq.entries()), (9, 5, 512));
    let inner = card.lock();
    let mapping = &inner.memory.mappings[&row.base_iova()];
    assert_eq!((mapping.len, mapping.access), (512 * 32, DmaAccess::Write));
}

#[test]
fn queues_that_cannot_be_are_refused() {
    let (_card, device) = open();
    let new = |log2_size, vector| Cq::new(&device, CqConfig { log2_size, vector }).map_err(|err| err.to_string());
    assert!(new(16, 0).unwrap_err().starts_with("log2 size of the completion queue cannot be 16"));
    assert_eq!(new(0, VECTORS as u8).unwrap_err(), "cannot set up interrupt vector 8");
    let all: Vec<_> = (0..CQS).map(|_| new(0, 0).unwrap()).collect();
    assert!(new(0, 0).unwrap_err().starts_with("all 4 completion queues are in use"));

    let pd = Pd::new(&device).unwrap();
    let create = |config: QpConfig| Qp::create(&pd, &all[0], &all[1], &config).map_err(|err| err.to_string());
    let config = QpConfig::default();
    let cases: [(QpConfig, &str); 7] = [
        (QpConfig { sq_log2_size: 16, ..config.clone() }, "log2 size of the send queue cannot be 16"),
        (QpConfig { rq_log2_size: Some(16), ..config.clone() }, "log2 size of the receive queue cannot be 16"),
        (QpConfig { dscp: 64, ..config.clone() }, "traffic class cannot be 64"),
        (QpConfig { hop_limit: 1, ..config.clone() }, "hop limit cannot be 1"),
        (QpConfig { pmtu_log2: 9, ..config.clone() }, "PMTU logarithm cannot be 9"),
        (QpConfig { paths: vec![], ..config.clone() }, "path count cannot be 0"),
        (QpConfig { paths: vec![Default::default(); 5], ..config.clone() }, "path count cannot be 5"),
    ];
    for (wrong, expected) in cases {
        let err = create(wrong).unwrap_err();
        assert!(err.starts_with(expected), "{err}");
    }
    let qps: Vec<_> = (0..CONNS).map(|_| create(config.clone()).unwrap()).collect();
    assert!(create(config).unwrap_err().starts_with("all 4 connections are in use"));
    drop(qps);
}

#[test]
fn objects_of_another_card_are_refused() {
    let ((_, here), (_, there)) = (open(), open());
    let cq = |device| Cq::new(device, CqConfig { log2_size: 4, vector: 0 }).unwrap();
    let pd = Pd::new(&here).unwrap();
    let err = Qp::create(&pd, &cq(&here), &cq(&there), &QpConfig::default()).unwrap_err();
    assert_eq!(err.to_string(), "the completion queue belongs to another card");
}

#[test]
fn a_connection_s_number_changes_each_time_its_row_is_used_again() {
    let (_card, device) = open();
    let cq = Cq::new(&device, CqConfig { log2_size: 4, vector: 0 }).unwrap();
    let pd = Pd::new(&device).unwrap();
    let mut seen = Vec::new();
    for i in 0..3 * CONNS {
        let qp = Qp::create(&pd, &cq, &cq, &QpConfig::default()).unwrap();
        assert_eq!((qp.conn_index(), qp.qpn().get() % CONNS), (i % CONNS, i % CONNS));
        assert!(qp.qpn().get() >= CONNS && !seen.contains(&qp.qpn()));
        seen.push(qp.qpn());
        qp.destroy().unwrap();
    }
}

#[test]
fn domains_are_numbered_from_1_and_live_as_long_as_what_is_in_them() {
    let (_card, device) = open();
    let first = Pd::new(&device).unwrap();
    let second = Pd::new(&device).unwrap();
    assert_eq!([first.number().get(), second.number().get()], [1, 2]);
    let mr = Mr::register(&first, &DmaMem::zeroed(1), 0, 1, MrAccess::LOCAL_READ).unwrap();
    drop(first);
    assert_eq!(Pd::new(&device).unwrap().number().get(), 3);
    drop(mr);
}

#[test]
fn nothing_stays_mapped_or_valid_when_everything_is_dropped() {
    let (card, device) = open();
    let pd = Pd::new(&device).unwrap();
    let mr = Mr::register(&pd, &DmaMem::zeroed(1), 0, 1, MrAccess::REMOTE_WRITE).unwrap();
    let cq = Cq::new(&device, CqConfig { log2_size: 4, vector: 0 }).unwrap();
    let [a, b] = [(); 2].map(|()| Qp::create(&pd, &cq, &cq, &QpConfig::default()).unwrap());
    a.connect(b.conn_info()).unwrap();
    b.connect(a.conn_info()).unwrap();
    drop((pd, cq, device));
    assert_eq!(card.lock().memory.mappings.len(), 4, "a region, a completion queue, two send queues");
    drop((a, mr, b));
    let inner = card.lock();
    assert!(inner.memory.mappings.is_empty());
    // Every table has its valid or enabled bit first; the address table has none.
    let in_use = |&(&(table, _), row): &(&(Table, u32), &[u8; 64])| table != Table::Ah && row[0] & 1 != 0;
    assert_eq!(inner.rows.iter().filter(in_use).collect::<Vec<_>>(), []);
    assert!(!SqRow(inner.row(Table::Sq, 0)).rq_enabled());
    for table in Table::ALL.iter().filter(|&&table| table != Table::Ah) {
        let first = table.layout().fields[0];
        assert!(matches!((first.name, first.bits), ("valid" | "enabled", 1)), "{table}");
    }
}

#[test]
fn a_row_that_the_card_refuses_is_an_error_with_table_and_row() {
    let card = FakeCard::new();
    card.lock().registers.set(id::MRS, 0, MRS + 1);
    let device = card.open();
    let pd = Pd::new(&device).unwrap();
    let mem = DmaMem::zeroed(1);
    let good: Vec<_> = (0..MRS).map(|_| Mr::register(&pd, &mem, 0, 1, MrAccess::LOCAL_READ).unwrap()).collect();
    let err = Mr::register(&pd, &mem, 0, 1, MrAccess::LOCAL_READ).unwrap_err();
    assert_eq!(err.to_string(), "the card refused row 8 of context table mr: bad table or index");
    assert_eq!(card.lock().memory.mappings.len(), good.len());
}

#[test]
fn the_driver_waits_for_a_slow_context_command_and_not_for_ever() {
    let (card, device) = open();
    let pd = Pd::new(&device).unwrap();
    let register = || Mr::register(&pd, &DmaMem::zeroed(1), 0, 1, MrAccess::LOCAL_READ);
    card.lock().ctx_busy_polls = 100;
    let idles = card.lock().idles;
    let mr = register().unwrap();
    assert_eq!(card.lock().idles - idles, 100, "every vain look gives the card time");
    card.lock().ctx_busy_polls = u32::MAX;
    let err = register().unwrap_err().to_string();
    assert_eq!(err, format!("no end of a context command after {CTX_POLLS_MAX} polls"));
    drop(mr);
}

#[test]
fn interrupts_are_attached_once_masked_and_let_go() {
    let (card, device) = open();
    let event = device.irq_event(3).unwrap();
    device.mask_irq(3, true).unwrap();
    device.mask_irq(2, true).unwrap();
    assert_eq!(card.lock().registers.get(nic_spec::csr::irq::MASK, 0), 0b1100);
    {
        let mut inner = card.lock();
        inner.registers.set(nic_spec::csr::irq::PENDING, 0, 1 << 3);
        inner.send_pending();
    }
    assert_eq!((event.take(), device.is_irq_pending(3).unwrap(), device.is_irq_pending(2).unwrap()), (0, true, false));
    device.mask_irq(3, false).unwrap();
    assert_eq!((event.take(), device.is_irq_pending(3).unwrap()), (1, false));
    assert_eq!(card.lock().registers.get(nic_spec::csr::irq::MASK, 0), 0b0100);
    assert!(Device::open(Arc::new(card.clone()), port()).is_ok(), "a card in use can be opened anew: it is reset");
}
