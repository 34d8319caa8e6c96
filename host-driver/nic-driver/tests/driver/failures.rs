//! Errors of work requests, of connections, and of the card itself.

use nic_driver::{Completion, Error, Mr, PciError, QpConfig, QpState, SendWr};
use nic_spec::desc::{CqeOpcode, Status, Wqe};
use nic_spec::num::Rkey;

use crate::transfer::{pair, Pair};

fn outcomes(done: &[Completion]) -> Vec<(u64, Status)> {
    done.iter().map(|completion| (completion.wr_id, completion.status)).collect()
}

fn check_wrong(wrong: impl FnOnce(&Pair) -> SendWr, status: Status) {
    let pair = pair(6, &QpConfig::default());
    pair.a.post_send_list(&[pair.write(1, 4).unsignaled(), wrong(&pair).unsignaled(), pair.write(3, 4)]).unwrap();
    let done = pair.cq_a.poll_until(2, 10).unwrap();
    assert_eq!(outcomes(&done), [(2, status), (3, Status::WrFlush)]);
    assert_eq!((pair.a.state(), pair.a.error_status().unwrap()), (QpState::Error, Some(Ok(status))));
    assert_eq!(pair.device.failed_connections().unwrap(), [pair.a.conn_index()]);
    assert_eq!(pair.a.send_room(), 64);
    pair.check();
}

#[test]
fn a_work_request_that_the_card_refuses_ends_the_connection_with_its_status() {
    check_wrong(|pair| SendWr { rkey: Rkey::new(0x4ff), ..pair.write(2, 4) }, Status::RemAccess);
    check_wrong(|pair| SendWr { remote_va: pair.target_mr.va() - 1, ..pair.write(2, 4) }, Status::RemAccess);
    check_wrong(|pair| SendWr { local: pair.source_mr.sge(0x4000 - 3, 4), ..pair.write(2, 4) }, Status::LocProt);
    check_wrong(|pair| SendWr { rkey: pair.source_mr.rkey(), ..pair.write(2, 4) }, Status::RemAccess);
}

#[test]
fn a_malformed_wqe_reaches_the_card_and_gives_an_error_completion() {
    let pair = pair(6, &QpConfig::default());
    let mut wqe = Wqe::zeroed();
    wqe.set_opcode(0x55).set_signaled(true);
    pair.a.post_raw(9, wqe).unwrap();
    assert_eq!(outcomes(&pair.cq_a.poll_until(1, 10).unwrap()), [(9, Status::LocQpOp)]);
    assert_eq!(pair.a.state(), QpState::Error);
}

#[test]
fn what_is_posted_after_the_error_is_flushed_too() {
    let pair = pair(6, &QpConfig::default());
    pair.a.post_recv(50).unwrap();
    pair.a.post_send(&SendWr { rkey: Rkey::new(0), ..pair.write(1, 4) }).unwrap();
    let done = pair.cq_a.poll_until(2, 10).unwrap();
    assert_eq!(outcomes(&done), [(1, Status::RemAccess), (50, Status::WrFlush)]);
    let receive = done[1];
    assert_eq!(
        (receive.opcode, receive.byte_len, receive.imm, receive.qpn),
        (CqeOpcode::RecvImm, 0, None, pair.a.qpn())
    );
    pair.a.post_recv(51).unwrap();
    pair.a.post_send(&pair.write(2, 4)).unwrap();
    pair.card.lock().run();
    assert_eq!(outcomes(&pair.cq_a.poll(8).unwrap()), [(2, Status::WrFlush), (51, Status::WrFlush)]);
    assert_eq!(pair.cq_a.poll(8).unwrap(), []);
}

#[test]
fn receives_are_flushed_in_order_behind_what_the_card_completed_and_in_portions() {
    let pair = pair(6, &QpConfig::default());
    for wr_id in 0..6 {
        pair.b.post_recv(wr_id).unwrap();
    }
    pair.a.post_send(&pair.write_imm(7, 0, 1)).unwrap();
    pair.card.lock().run();
    pair.card.lock().engine.fail(pair.b.conn_index(), Status::RemOp);
    assert_eq!((pair.b.state(), pair.b.query().unwrap()), (QpState::Rts, QpState::Error));
    assert_eq!(pair.b.error_status().unwrap(), Some(Ok(Status::RemOp)));
    let mut done = pair.cq_b.poll(3).unwrap();
    assert_eq!(done.len(), 3);
    done.extend(pair.cq_b.poll(1).unwrap());
    done.extend(pair.cq_b.poll(8).unwrap());
    let expected: Vec<_> = (0..6).map(|wr_id| (wr_id, if wr_id == 0 { Status::Ok } else { Status::WrFlush })).collect();
    assert_eq!(outcomes(&done), expected);
    assert_eq!((pair.b.posted_receives(), pair.cq_b.poll(8).unwrap()), (0, vec![]));
}

#[test]
fn a_status_that_the_driver_does_not_know_is_reported_as_a_number() {
    let pair = pair(6, &QpConfig::default());
    assert_eq!(pair.a.error_status().unwrap(), None);
    pair.card.lock().engine.fail_with_code(pair.a.conn_index(), 0xee);
    assert_eq!(pair.a.error_status().unwrap(), Some(Err(0xee)));
}

#[test]
fn room_of_flushed_work_comes_back() {
    let pair = pair(2, &QpConfig { sq_log2_size: 2, rq_log2_size: Some(2), ..QpConfig::default() });
    pair.a.post_recv(1).unwrap();
    pair.a.post_recv(2).unwrap();
    pair.a.post_send_list(&[SendWr { rkey: Rkey::new(0), ..pair.write(3, 4) }, pair.write(4, 1)]).unwrap();
    assert_eq!(pair.cq_a.poll_until(4, 10).unwrap().len(), 4);
    pair.a.post_send_list(&[5, 6, 7, 8].map(|wr_id| pair.write(wr_id, 1))).unwrap();
    pair.check();
}

#[test]
fn a_queue_pair_in_error_is_replaced_by_a_new_one_with_another_number() {
    let pair = pair(6, &QpConfig::default());
    pair.a.post_send(&SendWr { rkey: Rkey::new(0), ..pair.write(1, 4) }).unwrap();
    pair.cq_a.poll_until(1, 10).unwrap();
    let Pair { card, device, cq_a, cq_b, a, b, source_mr, target_mr, target, .. } = pair;
    let (old, pd) = (a.qpn(), nic_driver::Pd::new(&device).unwrap());
    a.destroy().unwrap();
    b.destroy().unwrap();
    let mut fresh: Vec<_> = Vec::new();
    for _ in 0..crate::fake_card::CONNS {
        fresh.push(nic_driver::Qp::create(&pd, &cq_a, &cq_b, &QpConfig::default()).unwrap());
    }
    let again = fresh.iter().find(|qp| qp.conn_index() == old.get() % crate::fake_card::CONNS).unwrap();
    let other = fresh.iter().find(|qp| qp.conn_index() != again.conn_index()).unwrap();
    assert_ne!(again.qpn(), old);
    again.connect(other.conn_info()).unwrap();
    other.connect(again.conn_info()).unwrap();
    assert_eq!(again.query().unwrap(), QpState::Rts, "writing the row ended the error");
    drop((card, source_mr, target_mr, target));
}

#[test]
fn a_card_that_is_gone_is_an_error_everywhere_and_everything_can_still_be_dropped() {
    let pair = pair(6, &QpConfig::default());
    pair.card.lock().is_gone = true;
    let is_gone = |err: Error| {
        let source = std::error::Error::source(&err).map(ToString::to_string);
        assert_eq!(source, Some(PciError::Gone { reason: "unplugged".into() }.to_string()), "{err}");
    };
    is_gone(pair.cq_a.poll(1).unwrap_err());
    is_gone(pair.cq_a.poll_until(1, u32::MAX).unwrap_err());
    is_gone(pair.cq_a.arm().unwrap_err());
    is_gone(pair.cq_a.wait(1, u32::MAX).unwrap_err());
    is_gone(pair.a.post_send(&pair.write(1, 1)).unwrap_err());
    is_gone(pair.a.post_recv(1).unwrap_err());
    is_gone(pair.a.query().unwrap_err());
    is_gone(pair.device.stats().unwrap_err());
    is_gone(pair.device.idle().unwrap_err());
    let Pair { a, target_mr, .. } = pair;
    is_gone(a.destroy().unwrap_err());
    is_gone(Mr::deregister(target_mr).unwrap_err());
}
