//! Completion entries that make no sense, and those of things that are over.

use nic_driver::{Error, Pd, Qp, QpConfig, QpState};
use nic_spec::desc::{Cqe, CqeOpcode, Status};
use nic_spec::num::Qpn;

use crate::engine::CqeBytes;
use crate::transfer::{pair, Pair};

fn entry(qp: &Qp, opcode: CqeOpcode, wqe_index: u16) -> CqeBytes {
    let mut cqe = Cqe::zeroed();
    cqe.set_qpn(qp.qpn()).set_opcode(opcode.code()).set_wqe_index(wqe_index);
    cqe
}

/// The card writes `cqe` behind whatever it has written; the driver must refuse it with `expected` and go on.
fn check_bad(pair: &Pair, cqe: CqeBytes, expected: &str) {
    pair.a.post_send(&pair.write(1, 0)).unwrap();
    pair.card.lock().run();
    pair.card.lock().write_cqe(pair.cq_a.number(), cqe);
    pair.a.post_send(&pair.write(2, 0)).unwrap();
    pair.card.lock().run();
    assert_eq!(pair.cq_a.poll(8).unwrap()[0].wr_id, 1, "what came before is handed over first");
    let err = pair.cq_a.poll(8).unwrap_err();
    assert!(matches!(err, Error::BadCqe { cqn: 0, .. }), "{err:?}");
    assert!(err.to_string().ends_with(expected), "{err}");
    assert_eq!(pair.cq_a.poll(8).unwrap()[0].wr_id, 2, "polling goes on behind it");
    assert_eq!(pair.a.state(), QpState::Rts);
}

#[test]
fn an_entry_that_makes_no_sense_is_an_error_once() {
    let pair = pair(6, &QpConfig::default());
    let good = entry(&pair.a, CqeOpcode::Write, 0);
    let with = |change: fn(&mut CqeBytes) -> &mut CqeBytes| {
        let mut cqe = good;
        *change(&mut cqe)
    };
    check_bad(&pair, with(|cqe| cqe.set_opcode(0x7f)), "makes no sense: 0x7f is no CqeOpcode");
    check_bad(&pair, with(|cqe| cqe.set_status(0x63)), "makes no sense: 0x63 is no Status");
    let unknown = with(|cqe| cqe.set_qpn(Qpn::new(0xabc)));
    check_bad(&pair, unknown, "no queue pair of this completion queue has number 0xabc");
    check_bad(&pair, with(|cqe| cqe.set_wqe_index(999)), "WQE 999 is not in flight (7..8 are)");
    let foreign = entry(&pair.b, CqeOpcode::Write, 0);
    check_bad(&pair, foreign, "no queue pair of this completion queue has number 0x5");
    let receive = entry(&pair.a, CqeOpcode::RecvImm, 0);
    check_bad(&pair, receive, "receive 0 is not posted (0..0 are)");
}

#[test]
fn an_entry_in_the_wrong_queue_is_an_error() {
    let pair = pair(6, &QpConfig::default());
    let qp = Qp::create(&Pd::new(&pair.device).unwrap(), &pair.cq_a, &pair.cq_b, &QpConfig::default()).unwrap();
    pair.card.lock().write_cqe(pair.cq_b.number(), entry(&qp, CqeOpcode::Write, 0));
    let err = pair.cq_b.poll(1).unwrap_err().to_string();
    assert!(
        err.ends_with(&format!("WRITE of queue pair {} belongs into queue {}", qp.qpn(), pair.cq_a.number())),
        "{err}"
    );
}

#[test]
fn a_signaled_send_that_is_passed_over_is_an_error() {
    let pair = pair(6, &QpConfig::default());
    pair.a.post_send_list(&[pair.write(1, 0), pair.write(2, 0)]).unwrap();
    pair.card.lock().write_cqe(pair.cq_a.number(), entry(&pair.a, CqeOpcode::Write, 1));
    let err = pair.cq_a.poll(8).unwrap_err().to_string();
    assert!(err.ends_with("WQE 1 completes before WQE 0, which is signaled"), "{err}");
}

#[test]
fn entries_of_a_destroyed_queue_pair_are_passed_over_and_their_room_comes_back() {
    let pair = pair(2, &QpConfig { sq_log2_size: 2, ..QpConfig::default() });
    let pd = Pd::new(&pair.device).unwrap();
    let qp = Qp::create(&pd, &pair.cq_a, &pair.cq_a, &QpConfig { sq_log2_size: 1, ..QpConfig::default() }).unwrap();
    qp.connect(pair.b.conn_info()).unwrap();
    qp.post_send_list(&[pair.write(1, 0), pair.write(2, 0)]).unwrap();
    pair.card.lock().step();
    qp.destroy().unwrap();
    // One of the four entries holds a completion of what is over; the other reservation is free at once.
    pair.a.post_send_list(&[3, 4, 5].map(|wr_id| pair.write(wr_id, 0))).unwrap();
    assert!(matches!(pair.a.post_send(&pair.write(6, 0)), Err(Error::WouldOverflow { .. })));
    pair.card.lock().run();
    let done = pair.cq_a.poll(8).unwrap();
    assert_eq!(done.iter().map(|c| c.wr_id).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(pair.cq_a.stale_count(), 1);
    pair.a.post_send_list(&[6, 7, 8, 9].map(|wr_id| pair.write(wr_id, 0))).unwrap();
    pair.check();
}

#[test]
fn an_entry_that_comes_after_its_queue_pair_is_gone_is_passed_over() {
    let pair = pair(1, &QpConfig { sq_log2_size: 1, rq_log2_size: Some(1), ..QpConfig::default() });
    let late = entry(&pair.b, CqeOpcode::Write, 0);
    let never = {
        let mut cqe = late;
        cqe.set_qpn(Qpn::new(pair.b.qpn().get() + 4));
        cqe
    };
    let Pair { card, cq_b, b, .. } = pair;
    drop(b);
    card.lock().write_cqe(cq_b.number(), late);
    assert_eq!((cq_b.poll(1).unwrap(), cq_b.stale_count()), (vec![], 1));
    card.lock().write_cqe(cq_b.number(), never);
    assert!(cq_b.poll(1).is_err(), "the row's next user does not exist yet");
}

#[test]
fn a_receive_flushed_by_the_driver_and_used_by_the_card_is_reported_once() {
    let pair = pair(6, &QpConfig::default());
    pair.b.post_recv(1).unwrap();
    pair.card.lock().engine.fail(pair.b.conn_index(), Status::RemAccess);
    assert_eq!(pair.b.query().unwrap(), QpState::Error);
    let flushed = pair.cq_b.poll(8).unwrap();
    assert_eq!((flushed.len(), flushed[0].wr_id, flushed[0].status), (1, 1, Status::WrFlush));
    pair.card.lock().write_cqe(pair.cq_b.number(), entry(&pair.b, CqeOpcode::RecvImm, 0));
    assert_eq!((pair.cq_b.poll(8).unwrap(), pair.cq_b.stale_count()), (vec![], 1));
}
