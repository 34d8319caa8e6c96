//! Connections that begin and end by packets, and the states of a connection.

mod bench;

use bench::{address, conn_config, local, remote, Bench, Cable, Fate, US};
use nic_model::conn_config::{ConnConfig, StreamConfig};
use nic_model::time::Time;
use nic_model::wire::frame::Frame;
use nic_model::wire::packet::Body;
use nic_model::wire::parser::{parse, PortFilter};
use nic_model::work::{ConnId, Event, PostError, RecvWr, SendOp, SendWr};
use nic_model::ConnState;
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::{Pkey, Psn};
use nic_spec::wire::{CmStatus, Opcode};

const ANY: PortFilter = PortFilter { mac: None, udp_dport: 4791, frame_bytes_max: 9216, elide_icrc: false };
const SERVICE: u16 = 7;

fn template(planes: usize) -> ConnConfig {
    conn_config(1, 0, 0, planes)
}

/// A bench whose side 1 listens.
fn listening(cable: Cable, planes: usize) -> Bench {
    let mut b = Bench::new(11, cable, planes, 1 << 20);
    b.fill(0);
    b.nics[1].listen(SERVICE, template(planes), 8);
    b
}

fn request(planes: usize) -> ConnConfig {
    let mut cfg = conn_config(0, 5, 12, planes);
    cfg.tx_paths.iter_mut().for_each(|p| p.first = Psn::new(0xff_fffe));
    cfg.streams = vec![StreamConfig::new(3, 0), StreamConfig::new(900, 1)];
    cfg.pmtu_log2 = 13;
    cfg
}

fn events(b: &mut Bench, side: usize) -> Vec<Event> {
    std::iter::from_fn(|| b.nics[side].poll_event()).collect()
}

/// The connection that side 1 granted.
fn granted(b: &mut Bench) -> Option<ConnId> {
    events(b, 1).into_iter().find_map(|e| match e {
        Event::Connected { conn, service: SERVICE } => Some(conn),
        _ => None,
    })
}

/// E-012: one side has an address on fewer planes than the other, whichever it is.
#[test]
fn a_connection_uses_the_planes_that_both_sides_have() {
    for planes in [[2, 1], [1, 2], [2, 2]] {
        let mut b = listening(Cable::default(), 2);
        b.nics[1].listen(SERVICE, template(planes[1]), 8);
        let tx = b.nics[0].connect(b.now, SERVICE, request(planes[0])).expect("a free row");
        b.run(100 * US);
        let rx = granted(&mut b).expect("granted and confirmed");
        exchange(&mut b, [tx, rx]);
        let masks = [(0, tx), (1, rx)].map(|(side, conn)| b.nics[side].paths(conn).map(|p| p.plane_mask()));
        assert_eq!(masks, [Some(if planes == [2, 2] { 3 } else { 1 }); 2], "{planes:?}");
    }
}

fn exchange(b: &mut Bench, conns: [ConnId; 2]) {
    let write = SendOp::Write { remote: remote(0x8_0000), imm: None };
    b.nics[0].post_send(b.now, conns[0], 900, SendWr::new(1, write, local(0), 100_000)).expect("room");
    let send = SendOp::Send { imm: None, inv: None, tag: None };
    b.nics[1].post_send(b.now, conns[1], 3, SendWr::new(2, send, local(0x8_0000), 1000)).expect("room");
    b.run(300 * US);
    b.nics[0]
        .post_recv(b.now, conns[0], 3, RecvWr { wr_id: 3, local: local(0x4_0000), len: 1000, tag: None })
        .expect("room");
    b.run(20_000 * US);
    assert_eq!(b.completions(0, 1).len(), 1);
    assert_eq!(b.completions(0, 0).len(), 1);
    assert_eq!(b.completions(1, 0).len(), 1);
    assert!(b.mems[1].bytes[0x8_0000..][..100_000] == b.mems[0].bytes[..100_000]);
}

#[test]
fn a_connection_is_asked_for_granted_used_and_ended() {
    for cable in [Cable::default(), Cable { loss_ppm: 200_000, duplicate_ppm: 100_000, ..Cable::default() }] {
        for planes in [1, 4] {
            let mut b = listening(cable, planes);
            let tx = b.nics[0].connect(b.now, SERVICE, request(planes)).expect("a free row");
            assert_eq!(b.nics[0].conn_state(tx), Some(ConnState::Init));
            let send = SendOp::Send { imm: None, inv: None, tag: None };
            assert_eq!(b.nics[0].post_send(b.now, tx, 3, SendWr::new(0, send, local(0), 1)), Err(PostError::BadState));
            b.run(300_000 * US);
            assert_eq!(b.nics[0].conn_state(tx), Some(ConnState::Rts));
            assert!(events(&mut b, 0).contains(&Event::Connected { conn: tx, service: SERVICE }));
            let rx = granted(&mut b).expect("granted");
            assert_eq!(b.nics[1].conn_state(rx), Some(ConnState::Rts));
            assert_eq!(b.nics[0].paths(tx).map(|p| p.len()), Some(8), "the smaller number of paths");
            exchange(&mut b, [tx, rx]);
            b.nics[0].disconnect(b.now, tx);
            b.run(500_000 * US);
            assert_eq!(events(&mut b, 0).last(), Some(&Event::Disconnected { conn: tx }));
            assert_eq!(events(&mut b, 1).last(), Some(&Event::Disconnected { conn: rx }));
            assert_eq!((b.nics[0].conn_state(tx), b.nics[1].conn_state(rx)), (None, None), "rows are free");
        }
    }
}

#[test]
fn disconnecting_waits_for_what_was_asked_for() {
    let mut b = listening(Cable::default(), 1);
    let tx = b.nics[0].connect(b.now, SERVICE, request(1)).expect("a free row");
    b.run(100 * US);
    let write = SendOp::Write { remote: remote(0x8_0000), imm: None };
    b.nics[0].post_send(b.now, tx, 3, SendWr::new(1, write, local(0), 400_000)).expect("room");
    b.nics[0].disconnect(b.now, tx);
    assert_eq!(b.nics[0].post_send(b.now, tx, 3, SendWr::new(2, write, local(0), 1)), Err(PostError::BadState));
    b.run(5_000 * US);
    assert_eq!(b.completions(0, 0).iter().map(|c| c.status).collect::<Vec<_>>(), [Status::Ok]);
    assert!(b.mems[1].bytes[0x8_0000..][..400_000] == b.mems[0].bytes[..400_000]);
    assert!(events(&mut b, 1).iter().any(|e| matches!(e, Event::Disconnected { .. })));
}

#[test]
fn a_request_that_cannot_be_granted_is_refused_with_its_reason() {
    let outcome = |b: &mut Bench, service, cfg: ConnConfig| {
        let tx = b.nics[0].connect(b.now, service, cfg).expect("a free row");
        b.run(1_000 * US);
        match events(b, 0)[..] {
            [Event::ConnectFailed { conn, status }] if conn == tx => status,
            ref other => panic!("{other:?}"),
        }
    };
    let mut b = listening(Cable::default(), 1);
    assert_eq!(outcome(&mut b, 8, request(1)), CmStatus::NoService);
    let mut b = listening(Cable::default(), 1);
    let mut cfg = request(1);
    cfg.streams[0].id = 1;
    cfg.addresses.clear();
    assert!(b.nics[0].connect(b.now, SERVICE, cfg).is_err());
    // More streams than one request may ask for.
    let mut b = listening(Cable::default(), 2);
    let mut cfg = request(2);
    cfg.streams = (1..=1025).map(|id| StreamConfig::new(id, 0)).collect();
    assert_eq!(outcome(&mut b, SERVICE, cfg), CmStatus::BadParam);
}

#[test]
fn nobody_there_is_told_after_all_tries() {
    let mut b = listening(Cable::default(), 1);
    b.cut[0] = true;
    let tx = b.nics[0].connect(b.now, SERVICE, request(1)).expect("a free row");
    b.run(200_000 * US);
    assert_eq!(events(&mut b, 0), []);
    assert_eq!(b.sent, 8);
    b.run(100_000 * US);
    assert_eq!(events(&mut b, 0), [Event::ConnectFailed { conn: tx, status: CmStatus::NoService }]);
}

#[test]
fn other_partitions_and_versions_get_no_connection() {
    let mut b = listening(Cable::default(), 1);
    let mut cfg = request(1);
    cfg.pkey = Pkey::new(0x8001);
    b.nics[0].connect(b.now, SERVICE, cfg).expect("a free row");
    b.run(500 * US);
    assert_eq!((b.nics[1].counters().get(Counter::RxBadPkey), events(&mut b, 1)), (1, vec![]));
    // The same request as another version of the content: its first byte after BTH and PXTH.
    let mut b = listening(Cable::default(), 1);
    let tx = b.nics[0].connect(b.now, SERVICE, request(1)).expect("a free row");
    let frame = b.nics[0].poll_transmit(b.now, 0, &mut b.mems[0]).expect("the request");
    let mut bytes = frame.to_bytes();
    bytes[62] = 2;
    let end = bytes.len() - 4;
    let crc = nic_spec::wire::icrc::icrc(&bytes[14..end]).expect("a packet");
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    b.nics[1].on_frame(b.now, 0, &Frame::from_bytes(&bytes), &mut b.mems[1]);
    b.run(500 * US);
    assert_eq!(events(&mut b, 0), [Event::ConnectFailed { conn: tx, status: CmStatus::BadVersion }]);
}

#[test]
fn each_lost_handshake_packet_is_made_up_for() {
    for (lost, side) in
        [(Opcode::ConnReq, 0), (Opcode::ConnRep, 1), (Opcode::ConnRtu, 0), (Opcode::DiscReq, 0), (Opcode::DiscRep, 1)]
    {
        let mut b = listening(Cable::default(), 1);
        let mut left = 2;
        b.hook = Some(Box::new(move |_, from, _, frame| match parse(frame, &ANY).map(|p| p.body) {
            Ok(Body::Cm(opcode)) if opcode == lost && from == side && left > 0 => {
                left -= 1;
                Fate::Drop
            }
            _ => Fate::Pass,
        }));
        let tx = b.nics[0].connect(b.now, SERVICE, request(1)).expect("a free row");
        b.run(20_000 * US);
        let rx = granted(&mut b).unwrap_or_else(|| panic!("{lost:?}"));
        assert_eq!(b.nics[0].conn_state(tx), Some(ConnState::Rts), "{lost:?}");
        assert_eq!(b.nics[1].conn_state(rx), Some(ConnState::Rts), "{lost:?}");
        b.nics[0].disconnect(b.now, tx);
        b.run(100_000 * US);
        assert_eq!((b.nics[0].conn_state(tx), b.nics[1].conn_state(rx)), (None, None), "{lost:?}");
    }
}

#[test]
fn an_id_rests_before_it_is_used_again() {
    let mut b = Bench::new(1, Cable::default(), 1, 1 << 12);
    let [tx, _] = b.connect(0, 1, |_, _| ());
    b.nics[0].post_recv(b.now, tx, 1, RecvWr { wr_id: 1, local: Default::default(), len: 0, tag: None }).expect("room");
    b.nics[0].close_connection(b.now, tx);
    assert_eq!(b.completions(0, 0)[0].status, Status::WrFlush);
    assert!(b.nics[0].open_connection(b.now, conn_config(0, 0, 1, 1)).is_err());
    b.run(9_900 * US);
    assert!(b.nics[0].open_connection(b.now, conn_config(0, 0, 1, 1)).is_err());
    b.run(200 * US);
    assert!(b.nics[0].open_connection(b.now, conn_config(0, 0, 1, 1)).is_ok());
    assert!(b.now > Time(0) && address(0, 0) != address(1, 0));
}

#[test]
fn a_drained_send_queue_begins_nothing_and_goes_on_later() {
    let mut b = Bench::new(1, Cable::default(), 1, 1 << 20);
    let [tx, _] = b.connect(0, 4, |_, _| ());
    let write = |i| SendWr::new(i, SendOp::Write { remote: remote(0), imm: None }, local(0), 200_000);
    b.nics[0].post_send(b.now, tx, 1, write(0)).expect("room");
    b.run(3 * US);
    assert!(b.nics[0].modify(tx, ConnState::Sqd));
    b.nics[0].post_send(b.now, tx, 1, write(1)).expect("room");
    b.run(1_000 * US);
    assert_eq!(b.completions(0, 0).iter().map(|c| c.wr_id).collect::<Vec<_>>(), [0]);
    assert!(b.nics[0].modify(tx, ConnState::Rts));
    b.run(1_000 * US);
    assert_eq!(b.completions(0, 0).iter().map(|c| c.wr_id).collect::<Vec<_>>(), [1]);
    assert!(!b.nics[0].modify(tx, ConnState::Error));
}
