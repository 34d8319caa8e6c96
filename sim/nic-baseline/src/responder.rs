//! The responder's half of a QP: takes packets in sequence only, says once what is missing, answers READs in order.

use std::collections::VecDeque;

use nic_fabric::workload::MessageId;

use crate::config::RoceConfig;
use crate::packet::Body;
use crate::requester::{extend_psn, PSN_START};

/// What a request did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reaction {
    /// Payload bytes that were taken.
    pub bytes: u32,
    /// A message is complete.
    pub arrived: Option<MessageId>,
    /// What to answer at once: ACK or NAK, with its PSN.
    pub answer: Option<(u64, Body)>,
    /// The packet was ahead of what is missing.
    pub is_out_of_sequence: bool,
    /// The packet had come before.
    pub is_duplicate: bool,
}

/// A packet of an answer to a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub psn: u64,
    pub body: Body,
    /// The acknowledgement that may follow it.
    pub ack: Option<(u64, Body)>,
}

/// The rest of an answer to a READ.
#[derive(Clone, Copy, Debug)]
struct Job {
    psn: u64,
    left_bytes: u32,
    is_first: bool,
}

#[derive(Debug)]
pub(crate) struct Responder {
    expected: u64,
    /// The requester has been told of what is missing.
    has_sent_nak: bool,
    /// Packets since the last acknowledgement.
    unacked: u32,
    jobs: VecDeque<Job>,
    /// An acknowledgement waits until the answers before it have been sent.
    owes_ack: bool,
}

impl Responder {
    pub(crate) fn new() -> Responder {
        Responder { expected: PSN_START, has_sent_nak: false, unacked: 0, jobs: VecDeque::new(), owes_ack: false }
    }

    /// A WRITE packet or a READ request.
    pub(crate) fn on_request(&mut self, psn: u32, body: Body, config: &RoceConfig) -> Reaction {
        let psn = extend_psn(self.expected, psn);
        if psn > self.expected {
            let answer = (!self.has_sent_nak).then_some((self.expected, Body::NakSequence));
            self.has_sent_nak = true;
            return Reaction { answer, is_out_of_sequence: true, ..Reaction::default() };
        }
        let is_duplicate = psn < self.expected;
        match body {
            Body::ReadRequest { len } => {
                let packets = u64::from(len.div_ceil(config.pmtu_bytes).max(1));
                // Asked again: what was to be sent from there on is void.
                self.jobs.retain(|job| job.psn < psn);
                self.jobs.push_back(Job { psn, left_bytes: len, is_first: true });
                self.expected = self.expected.max(psn + packets);
                self.has_sent_nak &= is_duplicate;
                Reaction { is_duplicate, ..Reaction::default() }
            }
            Body::Write { .. } if is_duplicate => {
                Reaction { answer: self.acknowledge(), is_duplicate, ..Reaction::default() }
            }
            Body::Write { imm, len, ack_req, .. } => {
                self.expected += 1;
                self.has_sent_nak = false;
                self.unacked += 1;
                let is_due = ack_req || self.unacked >= config.ack_packets;
                let answer = if is_due { self.acknowledge() } else { None };
                Reaction { bytes: len, arrived: imm.map(MessageId), answer, ..Reaction::default() }
            }
            _ => Reaction::default(),
        }
    }

    fn acknowledge(&mut self) -> Option<(u64, Body)> {
        self.owes_ack = !self.jobs.is_empty();
        if self.owes_ack {
            return None;
        }
        self.unacked = 0;
        Some((self.expected - 1, Body::Ack))
    }

    /// Whether part of an answer is to be sent.
    pub(crate) fn has_response(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Takes the next packet of an answer.
    pub(crate) fn take_response(&mut self, config: &RoceConfig) -> Option<Response> {
        let job = self.jobs.front_mut()?;
        let len = job.left_bytes.min(config.pmtu_bytes);
        let is_last = len == job.left_bytes;
        let (psn, is_first) = (job.psn, job.is_first);
        job.psn += 1;
        job.left_bytes -= len;
        job.is_first = false;
        if is_last {
            self.jobs.pop_front();
        }
        let ack = if self.owes_ack && self.jobs.is_empty() { self.acknowledge() } else { None };
        Some(Response { psn, body: Body::ReadResponse { is_first, is_last, len }, ack })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> RoceConfig {
        RoceConfig::new(400_000)
    }

    fn psn(index: u64) -> u32 {
        (PSN_START + index) as u32 & 0xff_ffff
    }

    fn write(is_last: bool) -> Body {
        Body::Write { dma_len: None, imm: is_last.then_some(7), len: 100, ack_req: is_last }
    }

    #[test]
    fn packets_are_acknowledged_in_fours_and_at_the_end() {
        let mut responder = Responder::new();
        let answers: Vec<Option<(u64, Body)>> =
            (0..6).map(|index| responder.on_request(psn(index), write(index == 5), &config()).answer).collect();
        assert_eq!(answers[3], Some((PSN_START + 3, Body::Ack)));
        assert_eq!(answers[5], Some((PSN_START + 5, Body::Ack)));
        assert_eq!(answers.iter().flatten().count(), 2);
    }

    #[test]
    fn gap_is_reported_once_until_it_is_closed() {
        let mut responder = Responder::new();
        let first = responder.on_request(psn(1), write(false), &config());
        assert_eq!((first.answer, first.bytes), (Some((PSN_START, Body::NakSequence)), 0));
        assert!(responder.on_request(psn(2), write(false), &config()).answer.is_none());
        assert_eq!(responder.on_request(psn(0), write(false), &config()).bytes, 100);
        assert_eq!(
            responder.on_request(psn(2), write(false), &config()).answer,
            Some((PSN_START + 1, Body::NakSequence))
        );
    }

    #[test]
    fn duplicate_is_acknowledged_and_not_taken() {
        let mut responder = Responder::new();
        assert_eq!(responder.on_request(psn(0), write(true), &config()).arrived, Some(MessageId(7)));
        let again = responder.on_request(psn(0), write(true), &config());
        assert_eq!((again.arrived, again.bytes, again.is_duplicate), (None, 0, true));
        assert_eq!(again.answer, Some((PSN_START, Body::Ack)));
    }

    #[test]
    fn read_is_answered_before_what_came_after_it_is_acknowledged() {
        let mut responder = Responder::new();
        assert_eq!(responder.on_request(psn(0), Body::ReadRequest { len: 5_000 }, &config()).answer, None);
        assert_eq!(responder.on_request(psn(2), write(true), &config()).answer, None);
        let body = Body::ReadResponse { is_first: true, is_last: false, len: 4_096 };
        assert_eq!(responder.take_response(&config()), Some(Response { psn: PSN_START, body, ack: None }));
        let body = Body::ReadResponse { is_first: false, is_last: true, len: 904 };
        let ack = Some((PSN_START + 2, Body::Ack));
        assert_eq!(responder.take_response(&config()), Some(Response { psn: PSN_START + 1, body, ack }));
        assert!(!responder.has_response());
    }

    #[test]
    fn repeated_read_voids_the_rest_of_the_old_answer() {
        let mut responder = Responder::new();
        responder.on_request(psn(0), Body::ReadRequest { len: 5 * 4_096 }, &config());
        responder.on_request(psn(5), Body::ReadRequest { len: 4_096 }, &config());
        responder.take_response(&config());
        assert!(responder.on_request(psn(0), Body::ReadRequest { len: 5 * 4_096 }, &config()).is_duplicate);
        let psns: Vec<u64> = std::iter::from_fn(|| responder.take_response(&config()))
            .map(|response| response.psn - PSN_START)
            .collect();
        assert_eq!(psns, [0, 1, 2, 3, 4]);
    }
}
