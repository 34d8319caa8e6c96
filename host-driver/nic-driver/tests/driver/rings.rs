//! Rings at every size: they fill exactly, wrap, and never overrun.

use std::collections::VecDeque;

use nic_driver::{Error, QpConfig};
use nic_spec::desc::Status;
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::transfer::{pair, Pair};

fn config(sq_log2_size: u8, rq_log2_size: u8) -> QpConfig {
    QpConfig { sq_log2_size, rq_log2_size: Some(rq_log2_size), ..QpConfig::default() }
}

/// Posts `count` writes in batches of `batch` and checks that every one completes, in order.
fn run_writes(pair: &Pair, count: u64, batch: u64) {
    let (mut posted, mut done) = (0, 0);
    while done < count {
        let list: Vec<_> = (posted..count.min(posted + batch)).map(|wr_id| pair.write(wr_id, 0)).collect();
        pair.a.post_send_list(&list).unwrap();
        posted += list.len() as u64;
        pair.card.lock().run();
        for completion in pair.cq_a.poll(usize::MAX).unwrap() {
            assert_eq!((completion.wr_id, completion.status), (done, Status::Ok));
            done += 1;
        }
        assert_eq!(posted, done);
    }
    pair.check();
}

#[test]
fn a_queue_of_every_size_is_filled_and_wraps() {
    for log2 in 0..=15 {
        let pair = pair(log2, &config(log2, 0));
        let size = 1u64 << log2;
        // Whole rounds, then one entry off the border.
        run_writes(&pair, (2 * size + 1).min(size + 5000), size);
    }
}

#[test]
fn indices_wrap_at_16_bits_in_small_and_large_rings() {
    for log2 in [3, 15] {
        let pair = pair(log2, &config(log2, 0));
        run_writes(&pair, 0x1_0000 + 20, 1 << log2.min(10));
    }
}

#[test]
fn a_completion_queue_of_another_size_than_the_send_queue_wraps_on_its_own() {
    for (sq, cq) in [(0, 5), (2, 3), (4, 9), (7, 0), (15, 1)] {
        let pair = pair(cq, &config(sq, 0));
        run_writes(&pair, 700, 1 << sq.min(cq));
    }
}

#[test]
fn a_full_send_queue_refuses_and_keeps_what_is_in_it() {
    let pair = pair(6, &config(2, 0));
    pair.a.post_send_list(&[0, 1, 2].map(|wr_id| pair.write(wr_id, 1))).unwrap();
    let err = pair.a.post_send_list(&[3, 4].map(|wr_id| pair.write(wr_id, 2))).unwrap_err();
    let expected = "2 more entries would overflow the send queue of 4 entries (poll completions first)";
    assert_eq!(err.to_string(), expected);
    assert_eq!(pair.a.send_room(), 1, "all of a list or nothing");
    pair.a.post_send(&pair.write(3, 1)).unwrap();
    assert!(matches!(pair.a.post_send(&pair.write(4, 2)), Err(Error::WouldOverflow { .. })));
    pair.card.lock().run();
    let done = pair.cq_a.poll(8).unwrap();
    assert_eq!(done.iter().map(|c| (c.wr_id, c.byte_len)).collect::<Vec<_>>(), [0, 1, 2, 3].map(|wr_id| (wr_id, 1)));
    pair.a.post_send(&pair.write(4, 2)).unwrap();
}

#[test]
fn a_full_receive_queue_refuses() {
    let pair = pair(6, &config(0, 1));
    pair.b.post_recv(0).unwrap();
    pair.b.post_recv(1).unwrap();
    let err = pair.b.post_recv(2).unwrap_err().to_string();
    assert_eq!(err, "1 more entries would overflow the receive queue of 2 entries (poll completions first)");
    pair.a.post_send(&pair.write_imm(9, 0, 0)).unwrap();
    assert_eq!(pair.cq_a.poll_until(1, 4).unwrap().len(), 1);
    assert_eq!(pair.cq_b.poll_until(1, 1).unwrap()[0].wr_id, 0);
    pair.b.post_recv(2).unwrap();
}

#[test]
fn a_queue_pair_without_receive_queue_takes_no_receives() {
    let pair = pair(6, &QpConfig { rq_log2_size: None, ..QpConfig::default() });
    let err = pair.b.post_recv(5).unwrap_err().to_string();
    assert_eq!(err, "receive cannot be 5 (the queue pair was created without a receive queue)");
}

#[test]
fn receives_wrap_at_every_size() {
    for log2 in [0, 1, 5, 15] {
        let pair = pair(log2, &QpConfig { init_rsn: 0xff_fff0, ..config(0, log2) });
        let count = if log2 == 0 { 0x1_0000 + 10 } else { 3 << log2.min(6) };
        for wr_id in 0..count {
            pair.b.post_recv(wr_id).unwrap();
            pair.a.post_send(&pair.write_imm(wr_id, 0, wr_id as u32)).unwrap();
            pair.card.lock().run();
            assert_eq!(pair.cq_a.poll(1).unwrap().len(), 1);
            let received = pair.cq_b.poll(2).unwrap();
            assert_eq!((received.len(), received[0].wr_id, received[0].imm), (1, wr_id, Some(wr_id as u32)));
        }
        pair.check();
    }
}

#[test]
fn a_completion_queue_is_never_overrun() {
    let pair = pair(2, &config(3, 3));
    for wr_id in 0..2 {
        pair.a.post_recv(wr_id).unwrap();
    }
    pair.a.post_send(&pair.write(2, 0).unsignaled()).unwrap();
    pair.a.post_send(&pair.write(3, 0)).unwrap();
    // Two receives and two sends, of which each may need one of the four entries.
    let expected = "1 more entries would overflow the completion queue of 4 entries (poll completions first)";
    assert_eq!(pair.a.post_send(&pair.write(4, 0)).unwrap_err().to_string(), expected);
    assert_eq!(pair.a.post_recv(4).unwrap_err().to_string(), expected);
    assert_eq!((pair.a.send_room(), pair.a.posted_receives()), (6, 2), "nothing was posted");
    pair.card.lock().run();
    assert_eq!(pair.cq_a.poll(8).unwrap().len(), 1);
    pair.a.post_send_list(&[pair.write(5, 0), pair.write(6, 0)]).unwrap();
    pair.card.lock().run();
    assert_eq!(pair.cq_a.poll(1).unwrap().len(), 1, "one of two is taken");
    pair.a.post_send(&pair.write(7, 0)).unwrap();
    assert!(pair.a.post_send(&pair.write(8, 0)).is_err(), "an entry that was not polled is not free");
    pair.card.lock().run();
    assert_eq!(pair.cq_a.poll(8).unwrap().iter().map(|c| c.wr_id).collect::<Vec<_>>(), [6, 7]);
    pair.check();
}

proptest! {
    #![proptest_config(Config { cases: 60, ..crate::random::config() })]
    #[test]
    fn any_mix_of_posting_and_polling_completes_everything_in_order(
        sq in 0u8..5, cq in 0u8..6, steps in prop::collection::vec((0u8..5, 0usize..4), 1..200),
    ) {
        let pair = pair(cq, &config(sq, 0));
        let mut signaled = VecDeque::new();
        for (wr_id, (step, amount)) in (0u64..).zip(steps) {
            match step {
                0..=2 => {
                    let wr = if step == 0 { pair.write(wr_id, 0).unsignaled() } else { pair.write(wr_id, 0) };
                    match pair.a.post_send(&wr) {
                        Ok(()) if wr.is_signaled => signaled.push_back(wr_id),
                        Ok(()) | Err(Error::WouldOverflow { .. }) => {}
                        Err(err) => prop_assert!(false, "{}", err),
                    }
                }
                3 => pair.card.lock().step(),
                _ => {
                    for completion in pair.cq_a.poll(amount).unwrap() {
                        prop_assert_eq!(Some(completion.wr_id), signaled.pop_front());
                    }
                }
            }
        }
        pair.card.lock().run();
        for completion in pair.cq_a.poll(usize::MAX).unwrap() {
            prop_assert_eq!((Some(completion.wr_id), completion.status), (signaled.pop_front(), Status::Ok));
        }
        prop_assert!(signaled.is_empty());
        pair.check();
    }
}
