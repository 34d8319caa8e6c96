//! Rate hints: how a receiver shares out its inbound rate, and how a sender keeps to its share.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::{Caps, Nanos};
use crate::failure::{check, equal, Outcome};
use crate::kit::{Ack, Kit, Sent, BURST_BYTES, MS, RTT, US};
use crate::packet::Packet;
use crate::setup::{ConnConfig, SendOp, SendWr, NS_PS};
use nic_spec::consts::RATE_HINT_UNLIMITED;
use nic_spec::desc::Status;
use nic_spec::wire::Opcode;

cases! { "hint":
    "C-011" + "S-023" [Caps::HINT] a_single_sender_is_not_limited;
    "C-012" [Caps::HINT] two_senders_share_what_the_receiver_gives_away;
    "C-012" [Caps::HINT] eight_senders_share_alike;
    "C-012" [Caps::HINT] shares_follow_the_weights;
    "C-013" + "S-010" [Caps::HINT] a_new_sender_is_told_its_share_at_once;
    "C-013" [Caps::HINT] the_others_are_told_with_their_next_acknowledgement;
    "C-018" [Caps::HINT] a_sender_whose_share_halves_is_told_at_once;
    "C-014" [Caps::HINT] a_sender_that_stops_gives_its_share_back;
    "C-014" [Caps::HINT] a_sender_that_says_it_has_no_more_gives_its_share_back_at_once;
    "C-014" [Caps::HINT] what_left_before_the_end_of_a_burst_begins_none;
    "C-011" [Caps::HINT] a_slow_sender_is_not_an_idle_one;
    "C-015" [Caps::HINT] what_a_slow_sender_leaves_the_others_get;
    "C-016" [Caps::HINT] a_changed_hint_has_the_next_number;
    "C-016" [Caps::HINT] an_unchanged_hint_keeps_its_number;
    "C-014" + "E-021" [Caps::HINT.and(Caps::CONNECT)] a_connection_that_ended_gives_its_share_back => |k| {
        let conns = senders(k, 2, |_, _| ())?;
        hint(k, &conns[0], 0)?;
        hint(k, &conns[1], 0)?;
        k.dut.disconnect(conns[1].id)?;
        k.advance(600 * MS)?;
        k.collect(0)?;
        equal(hint(k, &conns[0], 1)?.1, RATE_HINT_UNLIMITED, "rate_hint after the other connection ended")
    };
    "C-012" + "M-046" [Caps::HINT.and(Caps::READ)] answers_to_reads_are_inbound_too;
    "C-020" + "M-040" [Caps::HINT.and(Caps::READ)] answers_to_reads_keep_to_the_hint;
    "C-020" [Caps::HINT] a_sender_keeps_to_the_hint;
    "C-020" [Caps::HINT] bursts_under_a_hint_are_short;
    "C-021" [Caps::HINT] a_hint_bounds_the_window;
    "C-021" [Caps::HINT] one_packet_may_always_be_on_the_way;
    "C-022" [Caps::HINT] the_newest_hint_wins;
    "C-022" [Caps::HINT] the_newest_hint_wins_across_the_wrap;
    "C-023" [Caps::HINT] an_unlimited_hint_ends_the_limit;
    "C-023" + "S-023" [Caps::HINT] a_hint_without_its_flag_is_ignored;
    "C-023" [Caps::HINT] a_hint_of_zero_is_ignored;
    "C-024" [Caps::HINT] a_hint_expires;
    "C-020" [Caps::HINT.and(Caps::CONGESTION)] retransmissions_are_not_held_back_but_counted;
}

/// Packet `n` of a message of 1 GiB, which asks for its acknowledgement.
fn data(c: &Conn, n: u32) -> Packet {
    c.write(n, 0, &[7; 4096]).mseq(0).middle().dma_len(1 << 30).ack_req()
}

/// What the card allots for packet `n` of a sender. Others may be told of a change at the same time.
fn hint(k: &mut Kit<'_>, c: &Conn, n: u32) -> Outcome<(u8, u32)> {
    k.inject(&data(c, n))?;
    let ack = ack_of(k, c, n)?;
    ack.hint.ok_or_else(|| crate::failure::Failure::new("S-023: an acknowledgement without a hint"))
}

/// The acknowledgement of packet `n` of a sender.
fn ack_of(k: &mut Kit<'_>, c: &Conn, n: u32) -> Outcome<Ack> {
    loop {
        let sent = k.expect(Opcode::Ack, k.at_once())?;
        let ack = Ack::of(&sent)?;
        if sent.bth.dest_qpn() == c.cfg.remote_id && ack.trig == n {
            return Ok(ack);
        }
    }
}

/// What the receiver gives away: at least nine tenths of its rate, and not all of it.
fn given(k: &Kit<'_>) -> std::ops::Range<u32> {
    let rate = k.dut.rate_mbps() as u32;
    rate * 9 / 10..rate
}

fn shares_sum_up(k: &Kit<'_>, shares: &[u32]) -> Outcome {
    let sum: u32 = shares.iter().sum();
    check(given(k).contains(&sum), format!("C-012: shares {shares:?} Mb/s of {} Mb/s", k.dut.rate_mbps()))
}

fn a_single_sender_is_not_limited(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    for n in 0..20 {
        equal(hint(k, &c, n)?.1, RATE_HINT_UNLIMITED, "rate_hint of the only sender")?;
    }
    Ok(())
}

fn senders(k: &mut Kit<'_>, count: usize, change: impl Fn(usize, &mut ConnConfig)) -> Outcome<Vec<Conn>> {
    (0..count).map(|i| k.open(|cfg| change(i, cfg))).collect()
}

/// What each sender is allotted once all of them send.
fn all_shares(k: &mut Kit<'_>, senders: &[Conn]) -> Outcome<Vec<u32>> {
    for c in senders {
        hint(k, c, 0)?;
    }
    senders.iter().map(|c| Ok(hint(k, c, 1)?.1)).collect()
}

fn two_senders_share_what_the_receiver_gives_away(k: &mut Kit<'_>) -> Outcome {
    let conns = senders(k, 2, |_, _| ())?;
    let shares = all_shares(k, &conns)?;
    check(shares[0].abs_diff(shares[1]) <= 1, format!("C-012: shares of two senders: {shares:?} Mb/s"))?;
    shares_sum_up(k, &shares)
}

fn eight_senders_share_alike(k: &mut Kit<'_>) -> Outcome {
    let conns = senders(k, 8, |_, _| ())?;
    let shares = all_shares(k, &conns)?;
    let (low, high) = (shares.iter().min(), shares.iter().max());
    check(low.zip(high).is_some_and(|(l, h)| h - l <= 1), format!("C-012: shares of eight senders: {shares:?} Mb/s"))?;
    shares_sum_up(k, &shares)
}

fn shares_follow_the_weights(k: &mut Kit<'_>) -> Outcome {
    let conns = senders(k, 3, |i, cfg| cfg.hint_weight = [1, 2, 5][i])?;
    let shares = all_shares(k, &conns)?;
    let per_weight: Vec<u32> = shares.iter().zip([1, 2, 5]).map(|(s, w)| s / w).collect();
    let is_fair = per_weight.iter().all(|s| s.abs_diff(per_weight[0]) <= 1);
    check(is_fair, format!("C-012: shares of weights 1, 2 and 5: {shares:?} Mb/s"))?;
    shares_sum_up(k, &shares)
}

fn a_new_sender_is_told_its_share_at_once(k: &mut Kit<'_>) -> Outcome {
    let conns = senders(k, 2, |_, cfg| cfg.transport.ack_delay_ps = 500 * US * NS_PS)?;
    hint(k, &conns[0], 0)?;
    // The first packet of the second sender asks for nothing.
    k.inject(&c_middle(&conns[1], 0))?;
    let ack = ack_of(k, &conns[1], 0)?;
    let share = ack.hint.map_or(0, |h| h.1);
    check(given(k).contains(&(2 * share)), format!("C-013: the new sender is told {share} Mb/s"))
}

fn c_middle(c: &Conn, n: u32) -> Packet {
    let mut p = data(c, n);
    p.bth.set_ack_req(false);
    p
}

fn the_others_are_told_with_their_next_acknowledgement(k: &mut Kit<'_>) -> Outcome {
    let conns = senders(k, 2, |_, _| ())?;
    equal(hint(k, &conns[0], 0)?.1, RATE_HINT_UNLIMITED, "rate_hint of the only sender")?;
    hint(k, &conns[1], 0)?;
    let share = hint(k, &conns[0], 1)?.1;
    check(given(k).contains(&(2 * share)), format!("C-013: the first sender is told {share} Mb/s next"))
}

fn a_sender_whose_share_halves_is_told_at_once(k: &mut Kit<'_>) -> Outcome {
    let conns = senders(k, 2, |_, _| ())?;
    hint(k, &conns[0], 0)?;
    k.inject(&data(&conns[1], 0))?;
    // The first sends nothing, and yet it is told.
    let share = ack_of(k, &conns[0], 0)?.hint.map_or(0, |h| h.1);
    check(given(k).contains(&(2 * share)), format!("C-018: the first sender is told {share} Mb/s"))
}

fn a_sender_that_says_it_has_no_more_gives_its_share_back_at_once(k: &mut Kit<'_>) -> Outcome {
    let conns = senders(k, 2, |_, _| ())?;
    all_shares(k, &conns)?;
    k.inject(&data(&conns[1], 2).ts(1_000).eob())?;
    equal(hint(k, &conns[0], 2)?.1, RATE_HINT_UNLIMITED, "rate_hint after the other sender's last packet")
}

fn what_left_before_the_end_of_a_burst_begins_none(k: &mut Kit<'_>) -> Outcome {
    let conns = senders(k, 2, |_, _| ())?;
    all_shares(k, &conns)?;
    // The last packet overtook two that left before it.
    k.inject(&data(&conns[1], 4).ts(1_000).eob())?;
    k.inject(&data(&conns[1], 2).ts(998))?;
    k.inject(&data(&conns[1], 3).ts(999))?;
    equal(hint(k, &conns[0], 2)?.1, RATE_HINT_UNLIMITED, "rate_hint after packets that were overtaken")?;
    k.inject(&data(&conns[1], 5).ts(1_001))?;
    let share = ack_of(k, &conns[1], 5)?.hint.map_or(0, |h| h.1);
    check(given(k).contains(&(2 * share)), format!("C-013: the sender that begins again is told {share} Mb/s"))
}

fn a_slow_sender_is_not_an_idle_one(k: &mut Kit<'_>) -> Outcome {
    // At a share of 1/2048 a packet of 4 KiB takes longer than the receiver measures. The other goes on every 5 us, which
    // is less than its share; that shows after two windows (C-015).
    let conns = senders(k, 2, |i, cfg| cfg.hint_weight = [1, 2047][i])?;
    let slow = all_shares(k, &conns)?[0];
    let packet = 8 * 4_210 * 1_000 / u64::from(slow);
    check(packet > 45 * US, format!("a packet of 4 KiB takes {packet} ns"))?;
    for n in 2..11 {
        k.advance(5 * US)?;
        let share = hint(k, &conns[1], n)?.1;
        check(share != RATE_HINT_UNLIMITED, format!("C-011: the slow sender was forgotten after {} us", 5 * (n - 1)))?;
    }
    Ok(())
}

fn a_sender_that_stops_gives_its_share_back(k: &mut Kit<'_>) -> Outcome {
    let conns = senders(k, 2, |_, _| ())?;
    hint(k, &conns[0], 0)?;
    hint(k, &conns[1], 0)?;
    // The first goes on every 5 us, the second is silent.
    let mut last = 0;
    for n in 1..30 {
        k.advance(5 * US)?;
        last = hint(k, &conns[0], n)?.1;
    }
    equal(last, RATE_HINT_UNLIMITED, "rate_hint 145 us after the other sender stopped")
}

fn what_a_slow_sender_leaves_the_others_get(k: &mut Kit<'_>) -> Outcome {
    // One sender fills its share, the other sends a packet now and then.
    let conns = senders(k, 2, |_, _| ())?;
    let fair = all_shares(k, &conns)?[0];
    let (mut fast, mut last) = (2, 0);
    for slow in 2..122 {
        for _ in 0..10 {
            k.inject(&data(&conns[0], fast))?;
            fast += 1;
        }
        k.inject(&c_middle(&conns[1], slow))?;
        while let Some(sent) = k.next(0)? {
            if sent.bth.dest_qpn() == conns[0].cfg.remote_id {
                last = Ack::of(&sent)?.hint.map_or(0, |h| h.1);
            }
        }
    }
    check(
        last != RATE_HINT_UNLIMITED && last > fair + fair / 10,
        format!("C-015: {last} Mb/s, the fair share is {fair}"),
    )
}

fn a_changed_hint_has_the_next_number(k: &mut Kit<'_>) -> Outcome {
    let conns = senders(k, 3, |_, _| ())?;
    let (alone, _) = hint(k, &conns[0], 0)?;
    hint(k, &conns[1], 0)?;
    let (with_one, rate_1) = hint(k, &conns[0], 1)?;
    hint(k, &conns[2], 0)?;
    let (with_two, rate_2) = hint(k, &conns[0], 2)?;
    check(rate_2 < rate_1, format!("C-012: {rate_1} Mb/s of two, {rate_2} Mb/s of three"))?;
    equal((with_one, with_two), (alone.wrapping_add(1), alone.wrapping_add(2)), "hint_seq")
}

fn an_unchanged_hint_keeps_its_number(k: &mut Kit<'_>) -> Outcome {
    let conns = senders(k, 2, |_, _| ())?;
    all_shares(k, &conns)?;
    let first = hint(k, &conns[0], 2)?;
    equal(hint(k, &conns[0], 3)?, first, "number and rate of an unchanged hint")
}

/// A warm connection under this hint, given in an acknowledgement after a round trip of [`RTT`].
fn hinted(k: &mut Kit<'_>, change: impl Fn(Packet) -> Packet) -> Outcome<Conn> {
    hinted_after(k, 50 * US, change)
}

/// The same with acknowledgements held back for `ack_delay`.
fn hinted_after(k: &mut Kit<'_>, ack_delay: Nanos, change: impl Fn(Packet) -> Packet) -> Outcome<Conn> {
    let c = k.open(|cfg| {
        cfg.transport.ack_delay_ps = ack_delay * NS_PS;
        (cfg.transport.rto_init_ps, cfg.transport.rto_min_ps) = (100 * MS * NS_PS, 100 * MS * NS_PS);
        cfg.transport.path_init_pkts = 200;
        cfg.transport.conn_window_min_pkts = 2000;
        cfg.pmtu_log2 = 10;
    })?;
    k.post_write(&c, 1000, 0, BURST_BYTES)?;
    let sent = k.collect(RTT)?;
    k.inject(&change(c.ack(&sent[0])))?;
    k.completes(&[(1000, Status::Ok)])?;
    Ok(c)
}

/// Sends a long message, every packet acknowledged after a round trip under the same hint, and returns when each packet
/// left and its bytes on the wire.
fn paced(k: &mut Kit<'_>, c: &Conn, seq: u8, mbps: u32, span: Nanos) -> Outcome<Vec<(Nanos, u64)>> {
    k.post_write(c, 1, 0, 262_144)?;
    let end = k.dut.now() + span;
    let (mut due, mut left) = (std::collections::VecDeque::<(Nanos, Sent)>::new(), Vec::new());
    while k.dut.now() < end {
        let now = k.dut.now();
        if due.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, sent)) = due.pop_front() {
                k.inject(&c.ack(&sent).hint(seq, mbps))?;
            }
            continue;
        }
        let until = due.front().map_or(end, |(at, _)| *at).min(end);
        if let Some(sent) = k.next(until.saturating_sub(now))? {
            left.push((sent.at, sent.to_bytes().len() as u64 + 24));
            due.push_back((sent.at + RTT, sent));
        }
    }
    Ok(left)
}

fn rate_mbps(sent: &[(Nanos, u64)]) -> u64 {
    let span = sent.last().map_or(1, |l| l.0) - sent.first().map_or(0, |f| f.0);
    let bytes: u64 = sent.iter().skip(1).map(|s| s.1).sum();
    8 * bytes * 1000 / span.max(1)
}

fn a_sender_keeps_to_the_hint(k: &mut Kit<'_>) -> Outcome {
    for mbps in [2_000, 10_000] {
        let c = hinted(k, |ack| ack.hint(1, mbps))?;
        let sent = paced(k, &c, 1, mbps, 100 * US)?;
        let rate = rate_mbps(&sent);
        let want = u64::from(mbps);
        check((want * 8 / 10..=want * 11 / 10).contains(&rate), format!("C-020: {rate} Mb/s under a hint of {mbps}"))?;
        k.reset(&Default::default())?;
    }
    Ok(())
}

fn bursts_under_a_hint_are_short(k: &mut Kit<'_>) -> Outcome {
    let c = hinted(k, |ack| ack.hint(1, 4_000))?;
    k.advance(10 * US)?;
    let sent = paced(k, &c, 1, 4_000, 60 * US)?;
    // 1 KiB and its headers at 4 Gb/s take 2.3 us; after a pause at most two packets a plane may follow each other.
    let early = sent.iter().filter(|s| s.0 < sent[0].0 + US).count();
    check((1..=5).contains(&early), format!("C-020: {early} packets in the first microsecond"))
}

fn a_hint_bounds_the_window(k: &mut Kit<'_>) -> Outcome {
    // 10 Gb/s x (1.5 x 5 us + 2 us) are 11875 bytes, 12 packets of 1 KiB.
    let c = hinted_after(k, 2 * US, |ack| ack.hint(1, 10_000))?;
    k.post_write(&c, 1, 0, 262_144)?;
    let sent = k.collect(15 * US)?;
    check((2..=13).contains(&sent.len()), format!("C-021: {} packets on the way, at most 12", sent.len()))
}

fn one_packet_may_always_be_on_the_way(k: &mut Kit<'_>) -> Outcome {
    let c = hinted(k, |ack| ack.hint(1, 1))?;
    k.post_write(&c, 1, 0, 4096)?;
    let sent = k.collect(MS)?;
    check(!sent.is_empty(), "C-021: the lowest hint stops the connection")
}

/// Packets that leave in the next 3 us of a long message: few under a hint of 1 Gb/s, many without.
fn leaves(k: &mut Kit<'_>, c: &Conn) -> Outcome<usize> {
    k.post_write(c, 1, 0, 262_144)?;
    Ok(k.collect(3 * US)?.len())
}

fn is_limited(k: &mut Kit<'_>, c: &Conn) -> Outcome {
    let count = leaves(k, c)?;
    check((1..=6).contains(&count), format!("C-020: {count} packets in 3 us under a hint of 1 Gb/s"))
}

fn is_free(k: &mut Kit<'_>, c: &Conn) -> Outcome {
    let count = leaves(k, c)?;
    check(count > 50, format!("C-023: {count} packets in 3 us without a limit"))
}

/// A second acknowledgement of what is acknowledged, with this hint.
fn another_hint(k: &mut Kit<'_>, c: &Conn, seq: u8, mbps: u32) -> Outcome {
    let again = c.packet(Opcode::Ack).cum(0).trig(0).echo(0).hint(seq, mbps).with_axth(|h| _ = h.set_syndrome(0x1f));
    k.inject(&again)
}

fn the_newest_hint_wins(k: &mut Kit<'_>) -> Outcome {
    let c = hinted(k, |ack| ack.hint(5, 1_000))?;
    another_hint(k, &c, 4, RATE_HINT_UNLIMITED)?;
    is_limited(k, &c)
}

fn the_newest_hint_wins_across_the_wrap(k: &mut Kit<'_>) -> Outcome {
    let c = hinted(k, |ack| ack.hint(254, RATE_HINT_UNLIMITED))?;
    another_hint(k, &c, 2, 1_000)?;
    another_hint(k, &c, 255, RATE_HINT_UNLIMITED)?;
    is_limited(k, &c)
}

fn an_unlimited_hint_ends_the_limit(k: &mut Kit<'_>) -> Outcome {
    let c = hinted(k, |ack| ack.hint(1, 1_000))?;
    another_hint(k, &c, 2, RATE_HINT_UNLIMITED)?;
    is_free(k, &c)
}

fn a_hint_without_its_flag_is_ignored(k: &mut Kit<'_>) -> Outcome {
    let c = hinted(k, |ack| ack.hint(1, 1_000).with_axth(|h| _ = h.set_hint(false)))?;
    is_free(k, &c)
}

fn a_hint_of_zero_is_ignored(k: &mut Kit<'_>) -> Outcome {
    let c = hinted(k, |ack| ack.hint(1, 0))?;
    is_free(k, &c)
}

fn a_hint_expires(k: &mut Kit<'_>) -> Outcome {
    // 4 round trips of 5 us.
    let c = hinted(k, |ack| ack.hint(1, 1_000))?;
    k.advance(4 * RTT + 2 * US)?;
    is_free(k, &c)?;
    k.reset(&Default::default())?;
    let limited = hinted(k, |ack| ack.hint(1, 1_000))?;
    k.advance(2 * RTT)?;
    is_limited(k, &limited)
}

fn answers_to_reads_are_inbound_too(k: &mut Kit<'_>) -> Outcome {
    let conns = senders(k, 2, |_, _| ())?;
    let mut shares = Vec::new();
    let mut ids = Vec::new();
    for c in &conns {
        let op = SendOp::Read { remote: crate::kit::remote(0) };
        k.post(c, SendWr::new(1, op, k.local(0), 100_000))?;
        let request = k.expect(Opcode::ReadReq, k.at_once())?;
        k.inject(&c.ack(&request))?;
        ids.push(request.rrth().map_or(0, |h| h.read_id()));
    }
    for n in 0..2u32 {
        shares.clear();
        for (c, id) in conns.iter().zip(&ids) {
            k.inject(&c.read_rsp(n, *id, 4096 * n, 100_000, &[1; 4096]).ack_req())?;
            shares.push(ack_of(k, c, n)?.hint.map_or(0, |h| h.1));
        }
    }
    check(shares[0].abs_diff(shares[1]) <= 1, format!("C-012: shares of two servers: {shares:?} Mb/s"))?;
    shares_sum_up(k, &shares)
}

fn answers_to_reads_keep_to_the_hint(k: &mut Kit<'_>) -> Outcome {
    let c = hinted(k, |ack| ack.hint(1, 1_000))?;
    k.inject(&c.read(0, 1, 0, 200_000))?;
    let sent: Vec<_> = k.collect(3 * US)?.into_iter().filter(|s| s.opcode == Opcode::ReadRsp).collect();
    check((1..=6).contains(&sent.len()), format!("C-020: {} packets in 3 us under a hint of 1 Gb/s", sent.len()))
}

fn retransmissions_are_not_held_back_but_counted(k: &mut Kit<'_>) -> Outcome {
    // A kilobyte takes 0.45 us at this rate, and 18 of them may be on the way.
    let (rate, lost) = (20_000, 13);
    let c = hinted(k, |ack| ack.hint(1, rate))?;
    let sent = k.burst(&c, 1, lost + 1)?;
    k.inject(&c.ack(&sent[lost as usize]).cum(0).sack(&[lost as u32]).hint(1, rate))?;
    let again: Vec<_> = k.collect(US)?.into_iter().filter(|s| s.bth.rtx()).collect();
    equal(again.len() as u64, lost, "C-020: packets sent again at once")?;
    k.inject(&c.ack(&again[again.len() - 1]).cum(lost as u32 + 1).hint(1, rate))?;
    k.post_write(&c, 100, 0, BURST_BYTES)?;
    // What was sent again is paid for first.
    k.silence(3 * US)?;
    let next = k.expect(Opcode::Write, 4 * US)?;
    check(!next.bth.rtx(), "R-004: a packet that is acknowledged is sent again")
}
