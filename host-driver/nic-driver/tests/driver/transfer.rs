//! Writes between two connections of the card, from posting to completion.

use nic_driver::{Completion, Cq, CqConfig, Device, DmaMem, Mr, MrAccess, Pd, Qp, QpConfig, SendWr};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::{CqeOpcode, Status};

use crate::fake_card::FakeCard;

/// Two connected queue pairs with a buffer each; `b`'s addresses are not the device's.
pub struct Pair {
    pub card: FakeCard,
    pub device: Device,
    pub cq_a: Cq,
    pub cq_b: Cq,
    pub a: Qp,
    pub b: Qp,
    pub source: DmaMem,
    pub target: DmaMem,
    pub source_mr: Mr,
    pub target_mr: Mr,
}

pub fn pair(cq_log2_size: u8, config: &QpConfig) -> Pair {
    let card = FakeCard::new();
    let device = card.open();
    let pd = Pd::new(&device).unwrap();
    let [cq_a, cq_b] = [1, 2].map(|vector| Cq::new(&device, CqConfig { log2_size: cq_log2_size, vector }).unwrap());
    let a = Qp::create(&pd, &cq_a, &cq_a, config).unwrap();
    let b = Qp::create(&pd, &cq_b, &cq_b, config).unwrap();
    a.connect(b.conn_info()).unwrap();
    b.connect(a.conn_info()).unwrap();
    let (source, target) = (DmaMem::zeroed(0x4000), DmaMem::zeroed(0x4000));
    let source_mr = Mr::register(&pd, &source, 0, 0x4000, MrAccess::LOCAL_READ).unwrap();
    let target_mr = Mr::register_at(&pd, &target, 3, 0x3000, MrAccess::REMOTE_WRITE, 0x7fff_0000_0001).unwrap();
    Pair { card, device, cq_a, cq_b, a, b, source, target, source_mr, target_mr }
}

impl Pair {
    pub fn write(&self, wr_id: u64, len: u32) -> SendWr {
        SendWr::write(wr_id, self.source_mr.sge(0, len), self.target_mr.va(), self.target_mr.rkey())
    }

    pub fn write_imm(&self, wr_id: u64, len: u32, imm: u32) -> SendWr {
        let remote = self.target_mr.remote();
        SendWr::write_imm(wr_id, self.source_mr.sge(0, len), remote.va, self.target_mr.rkey(), imm)
    }

    /// Neither queue was ever overrun, no doorbell was rung in vain.
    pub fn check(&self) {
        let inner = self.card.lock();
        assert_eq!([Counter::CqOverflow, Counter::DoorbellBad].map(|c| inner.registers.counter(c)), [0, 0]);
    }
}

#[test]
fn a_write_moves_the_bytes_and_completes_at_the_sender_only() {
    let pair = pair(6, &QpConfig::default());
    let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7) as u8).collect();
    pair.source.write(11, &bytes);
    let wr = SendWr::write(42, pair.source_mr.sge(11, 5000), pair.target_mr.va() + 100, pair.target_mr.rkey());
    pair.a.post_send(&wr).unwrap();
    assert_eq!(pair.cq_a.poll(8).unwrap(), [], "nothing has happened yet");
    let expected = Completion {
        wr_id: 42,
        status: Status::Ok,
        qpn: pair.a.qpn(),
        opcode: CqeOpcode::Write,
        byte_len: 5000,
        imm: None,
        is_solicited: false,
    };
    assert_eq!(pair.cq_a.poll(8).unwrap(), [expected]);
    assert_eq!(pair.target.to_vec(103, 5000), bytes);
    assert_eq!(pair.cq_b.poll(8).unwrap(), []);
    pair.check();
}

#[test]
fn a_write_with_immediate_completes_a_receive_with_number_length_and_solicitation() {
    let pair = pair(6, &QpConfig { init_rsn: 0xff_ffff, ..QpConfig::default() });
    for wr_id in [70, 71] {
        pair.b.post_recv(wr_id).unwrap();
    }
    pair.a.post_send(&pair.write_imm(1, 9, 0xdead_beef)).unwrap();
    pair.a.post_send(&SendWr { is_solicited: true, is_fenced: true, ..pair.write_imm(2, 0, 5) }).unwrap();
    let sent = pair.cq_a.poll_until(2, 10).unwrap();
    assert_eq!(
        sent.iter().map(|c| (c.wr_id, c.opcode)).collect::<Vec<_>>(),
        [1, 2].map(|id| (id, CqeOpcode::WriteImm))
    );
    let received = pair.cq_b.poll_until(2, 1).unwrap();
    let expected = Completion {
        wr_id: 70,
        status: Status::Ok,
        qpn: pair.b.qpn(),
        opcode: CqeOpcode::RecvImm,
        byte_len: 9,
        imm: Some(0xdead_beef),
        is_solicited: false,
    };
    assert_eq!(
        received,
        [expected, Completion { wr_id: 71, byte_len: 0, imm: Some(5), is_solicited: true, ..expected }]
    );
    pair.check();
}

#[test]
fn receives_posted_before_the_connection_stands_are_announced_with_it() {
    let card = FakeCard::new();
    let device = card.open();
    let pd = Pd::new(&device).unwrap();
    let cq = Cq::new(&device, CqConfig { log2_size: 4, vector: 0 }).unwrap();
    let [a, b] = [(); 2].map(|()| Qp::create(&pd, &cq, &cq, &QpConfig::default()).unwrap());
    for wr_id in 0..3 {
        b.post_recv(wr_id).unwrap();
    }
    b.to_rtr(a.conn_info()).unwrap();
    assert_eq!((card.lock().engine.posted(b.conn_index()), b.posted_receives()), (3, 3));
    b.post_recv(3).unwrap();
    assert_eq!(card.lock().engine.posted(b.conn_index()), 4);
}

#[test]
fn a_send_waits_until_the_queue_pair_may_send() {
    let pair = pair(6, &QpConfig::default());
    let idle = Qp::create(&Pd::new(&pair.device).unwrap(), &pair.cq_a, &pair.cq_a, &QpConfig::default()).unwrap();
    let err = idle.post_send(&pair.write(1, 1)).unwrap_err().to_string();
    assert_eq!(err, "cannot post a send to a queue pair in state INIT");
    idle.to_rtr(pair.b.conn_info()).unwrap();
    let err = idle.post_send(&pair.write(1, 1)).unwrap_err().to_string();
    assert_eq!(err, "cannot post a send to a queue pair in state RTR");
}

#[test]
fn unsignaled_writes_complete_silently_and_a_list_needs_one_doorbell() {
    let pair = pair(6, &QpConfig { sq_log2_size: 2, ..QpConfig::default() });
    let list = [1, 2, 3, 4].map(|wr_id| {
        let wr = pair.write(wr_id, 1);
        if wr_id < 4 {
            wr.unsignaled()
        } else {
            wr
        }
    });
    pair.a.post_send_list(&list).unwrap();
    assert_eq!(pair.a.send_room(), 0);
    pair.card.lock().run();
    let done = pair.cq_a.poll(8).unwrap();
    assert_eq!(done.iter().map(|c| c.wr_id).collect::<Vec<_>>(), [4]);
    assert_eq!(pair.a.send_room(), 4, "the unsignaled ones are free with it");
    pair.a.post_send_list(&[]).unwrap();
    pair.check();
}

#[test]
fn an_interrupt_announces_a_completion() {
    let pair = pair(6, &QpConfig::default());
    pair.a.post_send(&pair.write(1, 1)).unwrap();
    let done = pair.cq_a.wait(8, 10).unwrap();
    assert_eq!((done.len(), done[0].wr_id), (1, 1));
    assert_eq!((pair.cq_a.event().take(), pair.cq_b.event().take()), (0, 0));

    // What is there already needs no interrupt.
    pair.a.post_send(&pair.write(2, 1)).unwrap();
    pair.card.lock().run();
    let done = pair.cq_a.wait(8, 0).unwrap();
    assert_eq!((done.len(), pair.cq_a.event().take()), (1, 0));

    // Polls between arming and the completion do not disarm.
    pair.cq_a.arm().unwrap();
    assert_eq!(pair.cq_a.poll(8).unwrap(), []);
    pair.a.post_send_list(&[pair.write(3, 1), pair.write(4, 1)]).unwrap();
    pair.card.lock().run();
    assert_eq!((pair.cq_a.event().take(), pair.cq_a.poll(8).unwrap().len()), (1, 2), "one, not two");

    // An interrupt without completion does not end the wait.
    pair.cq_a.event().signal();
    let err = pair.cq_a.wait(8, 3).unwrap_err().to_string();
    assert_eq!(err, "no interrupt with a completion after 3 polls");
    pair.cq_a.event().signal();
    pair.a.post_send(&pair.write(5, 1)).unwrap();
    assert_eq!(pair.cq_a.wait(8, 3).unwrap()[0].wr_id, 5);
}

#[test]
fn the_work_request_is_in_memory_before_its_doorbell_rings() {
    // The fake card copies a WQE the moment the doorbell rings and works on the copy; so the length it reports is the
    // one that was there then.
    let pair = pair(6, &QpConfig { sq_log2_size: 0, ..QpConfig::default() });
    for len in [1, 100, 0, 4096] {
        pair.a.post_send(&pair.write(u64::from(len), len)).unwrap();
        let done = pair.cq_a.poll_until(1, 10).unwrap();
        assert_eq!((done[0].wr_id, done[0].byte_len), (u64::from(len), len));
    }
}

#[test]
fn several_threads_may_post_and_poll() {
    let pair = pair(8, &QpConfig::default());
    let mut wr_ids: Vec<u64> = std::thread::scope(|scope| {
        let poster = |first: u64| {
            let pair = &pair;
            move || {
                for wr_id in first..first + 200 {
                    let is_posted = |_| {
                        let is_full = pair.a.post_send(&pair.write(wr_id, 8)).is_err();
                        pair.device.idle().unwrap();
                        !is_full
                    };
                    assert!((0..1_000_000).any(is_posted));
                }
            }
        };
        scope.spawn(poster(0));
        scope.spawn(poster(1000));
        let pollers = [(); 2].map(|()| scope.spawn(|| pair.cq_a.poll_until(200, 1_000_000).unwrap()));
        pollers.into_iter().flat_map(|poller| poller.join().unwrap()).map(|completion| completion.wr_id).collect()
    });
    wr_ids.sort_unstable();
    assert_eq!(wr_ids, (0..200).chain(1000..1200).collect::<Vec<_>>());
    pair.check();
}
