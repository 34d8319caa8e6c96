//! The requester's half of a QP: a queue of messages, numbered packets, go-back-N.
//!
//! PSNs are kept in 64 bits and cut to 24 on the wire. A READ takes as many PSNs as its answer has packets; its answer
//! acknowledges it, and everything before it. Whatever shows that a packet is missing (a NAK, a gap in an answer, the timer)
//! makes the requester send again from the first packet that is not acknowledged.

use std::collections::VecDeque;

use nic_fabric::workload::{MessageId, Verb};

use crate::config::RoceConfig;
use crate::packet::Body;
use crate::rtt::Rtt;

/// First PSN of every QP; close to the end of the 24 bits, so that every run goes over it.
pub(crate) const PSN_START: u64 = 0xff_ff00;

/// The 64-bit PSN nearest to a known one that has these low 24 bits.
pub(crate) fn extend_psn(near: u64, psn: u32) -> u64 {
    const MASK: u64 = 0xff_ffff;
    const HALF: u64 = 1 << 23;
    let ahead = u64::from(psn).wrapping_sub(near) & MASK;
    if ahead < HALF {
        near + ahead
    } else {
        near.saturating_sub(MASK + 1 - ahead)
    }
}

/// A message in the queue.
#[derive(Clone, Copy, Debug)]
struct Wqe {
    message: MessageId,
    verb: Verb,
    bytes: u64,
    first: u64,
    /// PSN after its last packet.
    end: u64,
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub psn: u64,
    pub body: Body,
    /// It was sent before.
    pub is_retransmission: bool,
}

/// What an answer of the responder did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It was expected; so many bytes of it.
    Taken(u32),
    /// It came twice.
    Duplicate,
    /// Something before it is missing.
    Gap,
}

#[derive(Debug)]
pub(crate) struct Requester {
    queue: VecDeque<Wqe>,
    /// The message of which `next` is part, as a place in the queue.
    cursor: usize,
    /// First PSN that is not acknowledged.
    unacked: u64,
    /// Next PSN to send.
    next: u64,
    /// PSN after the last packet of the last message.
    end: u64,
    /// PSN after the last packet that was ever sent.
    sent: u64,
    /// READs whose request is out.
    reads_out: u32,
    /// A gap in an answer was acted upon, and nothing has come since.
    has_gone_back: bool,
    rtt: Rtt,
    /// A packet sent once whose acknowledgement will be timed: PSN, time.
    timed: Option<(u64, u64)>,
    deadline_ps: Option<u64>,
    /// Timeouts since something was acknowledged.
    expiries: u32,
    /// Timeouts since a round trip was measured. Only a packet that was sent once can be measured, so the doubled timeout stays
    /// until one was (Karn's algorithm); else a timeout below the round trip would expire for ever.
    backoff: u32,
}

impl Requester {
    pub(crate) fn new() -> Requester {
        Requester {
            queue: VecDeque::new(),
            cursor: 0,
            unacked: PSN_START,
            next: PSN_START,
            end: PSN_START,
            sent: PSN_START,
            reads_out: 0,
            has_gone_back: false,
            rtt: Rtt::default(),
            timed: None,
            deadline_ps: None,
            expiries: 0,
            backoff: 0,
        }
    }

    pub(crate) fn post(&mut self, message: MessageId, verb: Verb, bytes: u64, config: &RoceConfig) {
        let packets = bytes.div_ceil(u64::from(config.pmtu_bytes)).max(1);
        self.queue.push_back(Wqe { message, verb, bytes, first: self.end, end: self.end + packets });
        self.end += packets;
    }

    /// Whether a packet may be sent.
    pub(crate) fn has_packet(&self, config: &RoceConfig) -> bool {
        let Some(wqe) = self.queue.get(self.cursor) else { return false };
        let has_room = self.next - self.unacked < u64::from(config.window_packets);
        has_room && (wqe.verb == Verb::Write || self.reads_out < config.reads_max)
    }

    /// Takes the next packet, if [`Requester::has_packet`].
    pub(crate) fn take_packet(&mut self, now_ps: u64, config: &RoceConfig) -> Option<Outgoing> {
        if !self.has_packet(config) {
            return None;
        }
        let wqe = *self.queue.get(self.cursor)?;
        let psn = self.next;
        let offset = (psn - wqe.first) * u64::from(config.pmtu_bytes);
        let left = wqe.bytes - offset;
        let is_retransmission = psn < self.sent;
        let body = match wqe.verb {
            Verb::Write => {
                let is_last = psn + 1 == wqe.end;
                self.next += 1;
                let is_window_full = self.next - self.unacked >= u64::from(config.window_packets);
                Body::Write {
                    dma_len: (psn == wqe.first).then_some(wqe.bytes as u32),
                    imm: is_last.then_some(wqe.message.0),
                    len: left.min(u64::from(config.pmtu_bytes)) as u32,
                    ack_req: is_last || is_window_full,
                }
            }
            Verb::Read => {
                self.next = wqe.end;
                self.reads_out += 1;
                Body::ReadRequest { len: left as u32 }
            }
        };
        if self.next == wqe.end {
            self.cursor += 1;
        }
        if self.timed.is_none() && !is_retransmission {
            // The last packet of a message is acknowledged at once, others when the responder has counted enough.
            self.timed = Some((psn, now_ps));
        }
        self.sent = self.sent.max(self.next);
        if self.deadline_ps.is_none() {
            self.deadline_ps = Some(now_ps + self.rtt.rto_ps(config, self.backoff));
        }
        Some(Outgoing { psn, body, is_retransmission })
    }

    /// Everything up to this PSN arrived.
    pub(crate) fn on_ack(&mut self, psn: u32, now_ps: u64, config: &RoceConfig, done: &mut Vec<MessageId>) {
        let until = extend_psn(self.unacked, psn) + 1;
        if until <= self.unacked || until > self.sent {
            return;
        }
        if self.acknowledge(until, now_ps, config, done) < until {
            // The responder has answered a READ whose answer is not here.
            self.go_back();
        }
    }

    /// Everything before this PSN arrived, and then something later. Returns whether that is news.
    pub(crate) fn on_nak(&mut self, psn: u32, now_ps: u64, config: &RoceConfig, done: &mut Vec<MessageId>) -> bool {
        let until = extend_psn(self.unacked, psn);
        if until < self.unacked || until >= self.sent {
            return false;
        }
        self.acknowledge(until, now_ps, config, done);
        self.go_back();
        true
    }

    /// Part of a READ's answer.
    pub(crate) fn on_response(
        &mut self,
        psn: u32,
        len: u32,
        now_ps: u64,
        config: &RoceConfig,
        done: &mut Vec<MessageId>,
    ) -> Answer {
        let psn = extend_psn(self.unacked, psn);
        if psn < self.unacked || psn >= self.sent {
            return Answer::Duplicate;
        }
        // WRITEs before a READ that is being answered have arrived.
        let reached = self.acknowledge(psn, now_ps, config, done);
        let is_expected =
            reached == psn && self.queue.front().is_some_and(|wqe| wqe.verb == Verb::Read && wqe.first <= psn);
        if !is_expected {
            if self.has_gone_back {
                return Answer::Duplicate;
            }
            self.go_back();
            self.has_gone_back = true;
            return Answer::Gap;
        }
        self.progress(psn + 1, now_ps, config, done);
        Answer::Taken(len)
    }

    /// Moves the first unacknowledged PSN as far as `until`, but not over a READ without its answer. Returns how far.
    fn acknowledge(&mut self, until: u64, now_ps: u64, config: &RoceConfig, done: &mut Vec<MessageId>) -> u64 {
        let read = self.queue.iter().find(|wqe| wqe.verb == Verb::Read);
        let reached = read.map_or(until, |wqe| until.min(wqe.first.max(self.unacked)));
        if reached > self.unacked {
            self.progress(reached, now_ps, config, done);
        }
        self.unacked
    }

    fn progress(&mut self, until: u64, now_ps: u64, config: &RoceConfig, done: &mut Vec<MessageId>) {
        self.unacked = until;
        self.has_gone_back = false;
        self.expiries = 0;
        if let Some((_, at_ps)) = self.timed.filter(|timed| timed.0 < until) {
            self.rtt.measure(now_ps - at_ps);
            self.timed = None;
            self.backoff = 0;
        }
        while let Some(wqe) = self.queue.front().filter(|wqe| wqe.end <= until) {
            done.push(wqe.message);
            if wqe.verb == Verb::Read {
                self.reads_out = self.reads_out.saturating_sub(1);
            }
            self.queue.pop_front();
            self.cursor = self.cursor.saturating_sub(1);
        }
        if self.next < until {
            // What was to be sent again has arrived after all.
            self.next = until;
            self.cursor = 0;
        }
        let is_waiting = self.next > self.unacked;
        self.deadline_ps = is_waiting.then(|| now_ps + self.rtt.rto_ps(config, self.backoff));
    }

    fn go_back(&mut self) {
        self.next = self.unacked;
        self.cursor = 0;
        self.reads_out = 0;
        self.timed = None;
    }

    /// When the oldest packet will have waited too long.
    pub(crate) fn deadline_ps(&self) -> Option<u64> {
        self.deadline_ps
    }

    /// The deadline has passed. False if it has too often: the QP is in error.
    pub(crate) fn on_timeout(&mut self, now_ps: u64, config: &RoceConfig) -> bool {
        self.expiries += 1;
        if self.expiries > config.retry_limit {
            self.deadline_ps = None;
            return false;
        }
        self.backoff += 1;
        self.go_back();
        self.deadline_ps = Some(now_ps + self.rtt.rto_ps(config, self.backoff));
        true
    }

    /// Gives up everything.
    pub(crate) fn fail(&mut self) -> Vec<MessageId> {
        self.deadline_ps = None;
        self.cursor = 0;
        (self.next, self.unacked, self.sent) = (self.end, self.end, self.end);
        self.queue.drain(..).map(|wqe| wqe.message).collect()
    }

    /// Packets that were sent and not acknowledged.
    pub(crate) fn in_flight_packets(&self) -> u64 {
        self.next - self.unacked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> RoceConfig {
        RoceConfig { window_packets: 1_000, ..RoceConfig::new(400_000) }
    }

    fn low(psn: u64) -> u32 {
        psn as u32 & 0xff_ffff
    }

    fn send_all(requester: &mut Requester) -> Vec<u64> {
        std::iter::from_fn(|| requester.take_packet(0, &config())).map(|packet| packet.psn - PSN_START).collect()
    }

    fn with_messages(messages: &[(Verb, u64)]) -> Requester {
        let mut requester = Requester::new();
        for (index, (verb, packets)) in (0..).zip(messages) {
            requester.post(MessageId(index), *verb, packets * 4_096, &config());
        }
        requester
    }

    #[test]
    fn psn_is_extended_to_the_nearest() {
        for (near, psn, expected) in [
            (0xff_fffe, 0x00_0001, 0x100_0001),
            (0x100_0001, 0xff_fffe, 0xff_fffe),
            (0x100_0001, 0x00_0001, 0x100_0001),
            (0x500_0000, 0x7f_ffff, 0x57f_ffff),
            (0x500_0000, 0x80_0000, 0x480_0000),
        ] {
            assert_eq!(extend_psn(near, psn), expected, "{psn:#x} near {near:#x}");
        }
    }

    #[test]
    fn nak_sends_again_everything_from_the_missing_packet_on() {
        let mut requester = with_messages(&[(Verb::Write, 300), (Verb::Write, 2)]);
        assert_eq!(send_all(&mut requester).len(), 302);
        let mut done = Vec::new();
        assert!(requester.on_nak(low(PSN_START + 290), 5, &config(), &mut done));
        let again: Vec<Outgoing> = std::iter::from_fn(|| requester.take_packet(9, &config())).collect();
        assert_eq!((again.len(), again[0].psn), (12, PSN_START + 290));
        assert!(again.iter().all(|packet| packet.is_retransmission) && done.is_empty());
        requester.on_ack(low(PSN_START + 301), 20, &config(), &mut done);
        assert_eq!((done, requester.deadline_ps()), (vec![MessageId(0), MessageId(1)], None));
    }

    #[test]
    fn last_packet_asks_for_an_acknowledgement_and_carries_the_number() {
        let mut requester = with_messages(&[(Verb::Write, 2)]);
        let bodies: Vec<Body> = std::iter::from_fn(|| requester.take_packet(0, &config())).map(|p| p.body).collect();
        assert_eq!(bodies[0], Body::Write { dma_len: Some(8_192), imm: None, len: 4_096, ack_req: false });
        assert_eq!(bodies[1], Body::Write { dma_len: None, imm: Some(0), len: 4_096, ack_req: true });
    }

    #[test]
    fn window_holds_packets_back_and_its_last_one_asks() {
        let config = RoceConfig { window_packets: 3, ..config() };
        let mut requester = with_messages(&[(Verb::Write, 9)]);
        let packets: Vec<Outgoing> = std::iter::from_fn(|| requester.take_packet(0, &config)).collect();
        let asks: Vec<bool> =
            packets.iter().map(|packet| matches!(packet.body, Body::Write { ack_req: true, .. })).collect();
        assert_eq!(asks, [false, false, true]);
        requester.on_ack(low(PSN_START), 1, &config, &mut Vec::new());
        assert_eq!(requester.take_packet(2, &config).map(|packet| packet.psn), Some(PSN_START + 3));
        assert_eq!(requester.take_packet(2, &config), None);
    }

    #[test]
    fn gap_in_an_answer_asks_again_once_from_there() {
        let mut requester = with_messages(&[(Verb::Read, 5), (Verb::Read, 2)]);
        assert_eq!(send_all(&mut requester), [0, 5]);
        let mut done = Vec::new();
        let mut answer = |requester: &mut Requester, packet: u64| {
            requester.on_response(low(PSN_START + packet), 4_096, 7, &config(), &mut done)
        };
        assert_eq!(answer(&mut requester, 0), Answer::Taken(4_096));
        assert_eq!(answer(&mut requester, 2), Answer::Gap);
        assert_eq!(
            requester.take_packet(8, &config()).map(|packet| packet.body),
            Some(Body::ReadRequest { len: 4 * 4_096 })
        );
        assert_eq!(answer(&mut requester, 3), Answer::Duplicate);
        assert_eq!(answer(&mut requester, 0), Answer::Duplicate);
        assert!((1..7).all(|packet| {
            if packet == 5 {
                assert_eq!(requester.take_packet(9, &config()).map(|packet| packet.psn), Some(PSN_START + 5));
            }
            answer(&mut requester, packet) == Answer::Taken(4_096)
        }));
        assert_eq!(done, [MessageId(0), MessageId(1)]);
        assert_eq!(requester.deadline_ps(), None);
    }

    #[test]
    fn acknowledgement_of_a_write_behind_an_unanswered_read_asks_for_the_answer_again() {
        let mut requester = with_messages(&[(Verb::Write, 1), (Verb::Read, 3), (Verb::Write, 1)]);
        assert_eq!(send_all(&mut requester), [0, 1, 4]);
        let mut done = Vec::new();
        requester.on_ack(low(PSN_START + 4), 5, &config(), &mut done);
        assert_eq!(done, [MessageId(0)]);
        assert_eq!(send_all(&mut requester), [1, 4]);
    }

    #[test]
    fn doubled_timeout_stays_until_a_packet_sent_once_is_acknowledged() {
        let config = config();
        let mut requester = with_messages(&[(Verb::Write, 3)]);
        let take = |requester: &mut Requester, now_ps| requester.take_packet(now_ps, &config).map(|packet| packet.psn);
        assert_eq!(take(&mut requester, 0), Some(PSN_START));
        assert!(requester.on_timeout(config.rto_ps_initial, &config));
        assert_eq!(take(&mut requester, config.rto_ps_initial), Some(PSN_START));
        assert_eq!(take(&mut requester, config.rto_ps_initial), Some(PSN_START + 1));
        let now_ps = 2 * config.rto_ps_initial;
        requester.on_ack(low(PSN_START), now_ps, &config, &mut Vec::new());
        assert_eq!(requester.deadline_ps(), Some(now_ps + 2 * config.rto_ps_initial));
        assert_eq!(take(&mut requester, now_ps), Some(PSN_START + 2));
        requester.on_ack(low(PSN_START + 1), now_ps + 5_000_000, &config, &mut Vec::new());
        // The first measurement: 1 ms and 5 us, with half of it as variation.
        let rto_ps = 3 * (config.rto_ps_initial + 5_000_000);
        assert_eq!(requester.deadline_ps(), Some(now_ps + 5_000_000 + rto_ps));
    }

    #[test]
    fn timeouts_double_and_end_in_an_error() {
        let config = RoceConfig { backoff_max: 20, ..config() };
        let mut requester = with_messages(&[(Verb::Write, 1)]);
        let mut deadlines = Vec::new();
        let mut now_ps = 0;
        loop {
            assert!(requester.take_packet(now_ps, &config).is_some());
            now_ps = requester.deadline_ps().expect("a packet waits");
            deadlines.push(now_ps);
            if !requester.on_timeout(now_ps, &config) {
                break;
            }
        }
        let waits: Vec<u64> = deadlines.windows(2).map(|pair| (pair[1] - pair[0]) / config.rto_ps_initial).collect();
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128]);
        assert_eq!(requester.fail(), [MessageId(0)]);
        assert!(!requester.has_packet(&config));
    }
}
