//! How a connection is set up on the card, and in which order.

use nic_driver::{Cq, CqConfig, Device, PathConfig, Pd, PortConfig, Qp, QpConfig, QpState};
use nic_spec::desc::{AhRow, ConnRow, PathRxRow, PathTxRow, SqRow, Table};

use crate::fake_card::{port, FakeCard, PATHS};

struct Bench {
    card: FakeCard,
    cqs: [Cq; 2],
    pd: Pd,
}

fn bench(port: PortConfig) -> Bench {
    let card = FakeCard::new();
    let device = Device::open(std::sync::Arc::new(card.clone()), port).unwrap();
    let cqs = [3, 4].map(|log2_size| Cq::new(&device, CqConfig { log2_size, vector: 0 }).unwrap());
    Bench { card, cqs, pd: Pd::new(&device).unwrap() }
}

impl Bench {
    fn qp(&self, config: QpConfig) -> Qp {
        Qp::create(&self.pd, &self.cqs[0], &self.cqs[1], &config).unwrap()
    }
}

fn path(sport: u16, plane: u8, epoch: u8, init_pseq: u32) -> PathConfig {
    PathConfig { sport: Some(sport), plane, epoch, init_pseq }
}

#[test]
fn rows_hold_what_both_sides_agreed_on() {
    let bench = bench(port());
    let common =
        QpConfig { stream_id: 9, pkey: 0x8001, init_msn: 0xff_fffe, init_rsn: 0xff_ffff, ..QpConfig::default() };
    let a = bench.qp(QpConfig {
        sq_log2_size: 3,
        rq_log2_size: Some(2),
        pmtu_log2: 11,
        dscp: 46,
        hop_limit: 7,
        paths: vec![path(0xc111, 1, 2, 0xff_fff0), path(0xc112, 3, 4, 5), path(0xc113, 0, 0, 0)],
        ..common.clone()
    });
    let b = bench.qp(QpConfig { paths: vec![path(0xd111, 5, 6, 7), path(0xd112, 8, 9, 10)], ..common });
    let mut remote = b.conn_info().clone();
    remote.mac = "02:00:00:00:00:0b".parse().unwrap();
    remote.ip = "10.0.0.2".parse().unwrap();
    a.connect(&remote.to_string().parse().unwrap()).unwrap();

    let index = a.conn_index();
    let conn = ConnRow(bench.card.row(Table::Conn, index));
    assert!(conn.valid() && !conn.ip_version());
    assert_eq!((conn.local_id(), conn.remote_id(), conn.pd()), (a.qpn(), b.qpn(), bench.pd.number()));
    assert_eq!((conn.path_count(), conn.pmtu_log2(), conn.pkey().get(), conn.stream_id().get()), (2, 11, 0x8001, 9));
    assert_eq!((conn.init_msn().get(), conn.init_rsn().get(), conn.dscp().get()), (0xff_fffe, 0xff_ffff, 46));
    let ah = AhRow(bench.card.row(Table::Ah, index));
    assert_eq!((ah.dst_mac(), ah.src_mac(), ah.hop_limit()), (0x0200_0000_000b, 0x0200_0000_000a, 7));
    assert_eq!((ah.dst_ip(), ah.src_ip()), (0x0a00_0002, 0x0a00_0001));
    let sq = SqRow(bench.card.row(Table::Sq, index));
    assert!(sq.enabled() && sq.rq_enabled());
    assert_eq!((sq.log2_size(), sq.rq_log2_size()), (3, 2));
    assert_eq!((u32::from(sq.cq()), u32::from(sq.rq_cq())), (bench.cqs[0].number(), bench.cqs[1].number()));
    assert!(bench.card.lock().memory.mappings.contains_key(&sq.base_iova()));
    let tx = PathTxRow(bench.card.row(Table::PathTx, index * PATHS));
    assert!(tx.valid());
    assert_eq!((tx.sport(), tx.plane().get(), tx.epoch().get(), tx.init_pseq().get()), (0xc111, 1, 2, 0xff_fff0));
    let rx = PathRxRow(bench.card.row(Table::PathRx, index * PATHS + 1));
    assert!(rx.valid());
    assert_eq!((rx.sport(), rx.plane().get(), rx.epoch().get(), rx.init_pseq().get()), (0xc112, 3, 9, 10));
    let unused = [Table::PathTx, Table::PathRx].map(|table| bench.card.row(table, index * PATHS + 2));
    assert_eq!(unused, [[0; 64]; 2], "the peer has two paths only");
}

#[test]
fn ipv6_addresses_fill_their_fields() {
    let bench = bench(PortConfig { ip: "fe80::1".parse().unwrap(), ..port() });
    let (a, b) = (bench.qp(QpConfig::default()), bench.qp(QpConfig { rq_log2_size: None, ..QpConfig::default() }));
    let mut remote = a.conn_info().clone();
    remote.ip = "2001:db8::2".parse().unwrap();
    b.to_rtr(&remote).unwrap();
    assert!(ConnRow(bench.card.row(Table::Conn, b.conn_index())).ip_version());
    let ah = AhRow(bench.card.row(Table::Ah, b.conn_index()));
    assert_eq!((ah.dst_ip(), ah.src_ip()), (0x2001_0db8 << 96 | 2, 0xfe80 << 112 | 1));
    assert!(!SqRow(bench.card.row(Table::Sq, b.conn_index())).rq_enabled());
}

#[test]
fn queues_start_after_their_connection_and_stop_before_it() {
    let bench = bench(port());
    let [a, b] = [(); 2].map(|()| bench.qp(QpConfig { paths: vec![PathConfig::default(); 2], ..QpConfig::default() }));
    let log =
        |bench: &Bench| std::mem::take(&mut bench.card.lock().row_log).into_iter().map(|(table, _)| table).collect();
    let _: Vec<Table> = log(&bench);
    a.to_rtr(b.conn_info()).unwrap();
    let rtr: Vec<Table> = log(&bench);
    assert_eq!(rtr, [Table::Ah, Table::PathRx, Table::PathRx, Table::Conn, Table::Sq]);
    a.to_rts().unwrap();
    let rts: Vec<Table> = log(&bench);
    assert_eq!(rts, [Table::PathTx; 2]);
    a.destroy().unwrap();
    let end: Vec<Table> = log(&bench);
    assert_eq!(end[..2], [Table::Sq, Table::Conn]);
    assert_eq!(end[2..], [Table::PathTx, Table::PathRx, Table::PathTx, Table::PathRx]);
    b.destroy().unwrap();
    let never_connected: Vec<Table> = log(&bench);
    assert!(never_connected.is_empty());
}

#[test]
fn paths_without_a_source_port_get_ports_of_their_own() {
    let bench = bench(port());
    let qps = [(); 3].map(|()| bench.qp(QpConfig::default()));
    let mut ports: Vec<u16> = qps.iter().flat_map(|qp| &qp.conn_info().paths).map(|path| path.sport).collect();
    assert!(ports.iter().all(|&sport| sport >= nic_spec::consts::UDP_SPORT_MIN));
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 12);
}

#[test]
fn states_are_passed_in_order_and_only_once() {
    let bench = bench(port());
    let [a, b] = [(); 2].map(|()| bench.qp(QpConfig::default()));
    assert_eq!(a.state(), QpState::Init);
    assert_eq!(a.to_rts().unwrap_err().to_string(), "cannot make ready to send a queue pair in state INIT");
    a.to_rtr(b.conn_info()).unwrap();
    let again = a.to_rtr(b.conn_info()).unwrap_err().to_string();
    assert_eq!(again, "cannot make ready to receive a queue pair in state RTR");
    a.to_rts().unwrap();
    assert_eq!((a.state(), a.query().unwrap(), a.error_status().unwrap()), (QpState::Rts, QpState::Rts, None));
    assert!(a.connect(b.conn_info()).is_err());
    assert_eq!(format!("{a:?}"), format!("Qp({}, RTS)", a.qpn()));
}

#[test]
fn a_peer_that_does_not_fit_leaves_the_card_untouched() {
    let bench = bench(port());
    let [a, b] = [(); 2].map(|()| bench.qp(QpConfig::default()));
    let mut remote = b.conn_info().clone();
    remote.pkey = 1;
    bench.card.lock().row_log.clear();
    let err = a.connect(&remote).unwrap_err().to_string();
    assert!(err.starts_with("cannot connect: the partition key is 65535 here and 1 at the peer"), "{err}");
    assert!(bench.card.lock().row_log.is_empty());
    assert_eq!(a.state(), QpState::Init);
    a.connect(b.conn_info()).unwrap();
}
