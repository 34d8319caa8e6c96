//! Looks over the shoulder of a host's card: what it is told, and how its connections conduct themselves.

use nic_fabric::Frame;
use nic_model::wire::frame::Payload;
use nic_model::wire::packet::{Body, Message, Packet};
use nic_model::wire::parser::{parse, PortFilter};
use nic_model::work::ConnId;
use nic_model::ConnState;

use super::Host;
use crate::conduct::Limits;
use crate::plan::Begin;

impl Host {
    /// What a packet says to a connection that is there, before its card has it.
    pub(super) fn overhear(&mut self, now_ps: u64, frame: &Frame) {
        let len = frame.payload().len_bytes();
        if len > 0 && self.conn_plans.iter().all(|plan| plan.bounded.is_empty()) {
            return;
        }
        let config = self.card.nic().config();
        let filter = PortFilter {
            mac: None,
            udp_dport: config.udp_dport,
            frame_bytes_max: config.frame_bytes_max,
            elide_icrc: config.elide_icrc,
        };
        let row_mask = config.conns_max - 1;
        // What the payload is does not matter here, nor then whether it is damaged.
        let payload = if len > 0 { Payload::Virtual(len as u32) } else { Payload::EMPTY };
        let frame = nic_model::wire::frame::Frame::new(frame.header(), payload, frame.trailer());
        let Ok(packet) = parse(&frame, &filter) else { return };
        let conn = ConnId(packet.dest.get() & row_mask);
        let Some(index) = self.index_of(conn).filter(|index| self.stages[*index].is_there()) else { return };
        match &packet.body {
            Body::Ack(ack) | Body::ProbeRsp(ack) => {
                if let Some(paths) = self.card.nic().paths(conn) {
                    self.conduct[index].hears(now_ps, ack, paths);
                }
            }
            Body::PortStatus { planes_up, seq, .. } => self.hear_report(index, *planes_up, *seq),
            Body::Send(message, _) | Body::Write(message, _) => self.check_credit(now_ps, index, &packet, message),
            _ => {}
        }
    }

    /// The peer says which of its ports have a link. Connections that were not there from the start may have been told
    /// before this host knew of them.
    fn hear_report(&mut self, index: usize, planes_up: u16, seq: u16) {
        let is_new = |old: u16| (1..1 << 15).contains(&seq.wrapping_sub(old));
        let is_agreed = self.conn_plans[index].begin == Begin::Agreed && !self.has_failed[index];
        if is_agreed && self.reports[index].is_none_or(|(old, _)| is_new(old)) {
            self.reports[index] = Some((seq, planes_up));
        }
    }

    /// A sender that knows which receives are posted takes no other.
    fn check_credit(&mut self, now_ps: u64, index: usize, packet: &Packet, message: &Message) {
        let takes_ordinal = message.tag.is_none() && (message.has_imm || matches!(packet.body, Body::Send(..)));
        let bounded = self.conn_plans[index].bounded.iter().find(|(stream, _)| *stream == packet.stream);
        let Some((_, first)) = bounded.filter(|_| takes_ordinal && !self.has_failed[index]) else { return };
        let posted = self.posted.get(&(index, packet.stream)).copied().unwrap_or(0);
        if message.rsn.distance_from(*first) >= posted {
            let what = format!(
                "connection {index} stream {}: a message for receive {}, {posted} posted from {first} on",
                packet.stream, message.rsn
            );
            self.violate(now_ps, what);
        }
    }

    /// Every connection conducts itself as a sender must.
    pub(super) fn check_conduct(&mut self, now_ps: u64) {
        for index in 0..self.conns.len() {
            let conn = self.conns[index].filter(|_| self.stages[index].is_there() && !self.has_failed[index]);
            let Some(conn) = conn else { continue };
            let nic = self.card.nic();
            let is_alive = nic.conn_state(conn).is_some_and(|s| !matches!(s, ConnState::Init | ConnState::Error));
            let Some(paths) = nic.paths(conn).filter(|_| is_alive) else { continue };
            let limits = Limits {
                linked: self.linked & self.limits[index].linked,
                denied: self.denied[index],
                min_rtt_ps: nic.min_rtt_ps(conn).unwrap_or(0),
                ..self.limits[index]
            };
            if let Some(what) = self.conduct[index].check(now_ps, paths, &limits) {
                self.violate(now_ps, format!("connection {index} {what}"));
            }
        }
    }

    /// No path is on a plane that the peer reported down, while there is one that is in use. To be asked when everything
    /// that the card says about its planes is known.
    pub(super) fn check_reports(&mut self, now_ps: u64) {
        for index in 0..self.conns.len() {
            let Some((_, planes_up)) = self.reports[index].filter(|_| !self.has_failed[index]) else { continue };
            let in_use = self.linked & self.limits[index].linked & planes_up & !self.down[index];
            let Some(paths) = self.paths(index).filter(|_| in_use != 0) else { continue };
            let astray = paths.iter().position(|path| planes_up >> path.plane & 1 == 0);
            if let Some(number) = astray {
                let what =
                    format!("connection {index} path {number} is on a plane that is down, up are {planes_up:#b}");
                self.violate(now_ps, what);
            }
        }
    }
}
