//! Connections that begin and end by packets.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::{Caps, Nanos};
use crate::failure::{check, equal, Failure, Outcome};
use crate::kit::{peer_address, set_paths, Kit, Sent, MS, US};
use crate::packet::Packet;
use crate::setup::{ConnConfig, ConnId, Event, SendOp, SendWr};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::{Psn, Qpn};
use nic_spec::wire::{CmParam, CmParamKind, CmStatus, Cmth, Opcode, CM_QPN, CM_VERSION};
use std::collections::BTreeMap;
use std::ops::Range;

cases! { "establish":
    "E-011" [Caps::CONNECT] a_request_states_service_id_nonce_and_parameters;
    "E-011" [Caps::CONNECT] a_request_is_repeated_with_doubling_waits_and_given_up;
    "E-011" [Caps::CONNECT.and(Caps::TWO_PORTS)] a_request_is_repeated_by_another_plane;
    "E-011" [Caps::CONNECT] every_attempt_has_a_nonce_of_its_own;
    "E-012" + "E-014" [Caps::CONNECT] a_grant_is_confirmed_and_data_flow;
    "E-012" [Caps::CONNECT] a_grant_may_be_smaller_than_what_was_asked_for;
    "E-012" [Caps::CONNECT] a_grant_of_more_than_was_asked_for_is_not_taken;
    "E-012" [Caps::CONNECT] a_refusal_for_want_of_a_service_ends_the_attempt => |k| refused(k, CmStatus::NoService);
    "E-012" [Caps::CONNECT] a_refusal_for_want_of_resources_ends_the_attempt => |k| refused(k, CmStatus::NoResource);
    "E-012" [Caps::CONNECT] a_refusal_of_the_version_ends_the_attempt => |k| refused(k, CmStatus::BadVersion);
    "E-012" [Caps::CONNECT] a_refusal_of_a_parameter_ends_the_attempt => |k| refused(k, CmStatus::BadParam);
    "E-014" [Caps::CONNECT] a_repeated_grant_is_confirmed_again;
    "E-016" + "E-017" [Caps::CONNECT] an_answer_with_another_nonce_establishes_nothing;
    "E-017" [Caps::CONNECT] an_attempt_that_is_given_up_ends_at_once_and_its_grant_too;
    "E-001" + "E-003" [Caps::CONNECT] data_before_the_grant_are_dropped;

    "E-012" [Caps::CONNECT] a_listener_grants_with_the_smaller_numbers;
    "E-012" [Caps::CONNECT] a_grant_is_repeated_until_it_is_confirmed;
    "E-013" [Caps::CONNECT] a_copy_of_a_request_opens_nothing_new;
    "E-014" + "E-001" [Caps::CONNECT] data_confirm_a_grant;
    "E-015" + "M-032" [Caps::CONNECT.and(Caps::CREDIT)] a_granted_connection_begins_without_credit;
    "E-012" [Caps::CONNECT] a_service_without_a_listener_is_refused => |k| refuses(k, CmStatus::NoService, |r| r.service = SERVICE + 1);
    "E-012" [Caps::CONNECT] a_request_without_pmtu_is_refused => |k| refuses(k, CmStatus::BadParam, |r| r.drop(CmParamKind::PmtuLog2));
    "E-012" [Caps::CONNECT] a_request_without_paths_is_refused => |k| refuses(k, CmStatus::BadParam, |r| r.drop(CmParamKind::Paths));
    "E-012" [Caps::CONNECT] a_request_without_streams_is_refused => |k| refuses(k, CmStatus::BadParam, |r| r.drop(CmParamKind::Streams));
    "E-012" [Caps::CONNECT] a_request_for_the_control_stream_is_refused => |k| refuses(k, CmStatus::BadParam, |r| r.set(CmParamKind::Streams, &[0, 0]));
    "E-012" [Caps::CONNECT] a_request_without_first_numbers_is_refused => |k| refuses(k, CmStatus::BadParam, |r| r.drop(CmParamKind::First));
    "E-012" [Caps::CONNECT] a_request_for_no_path_is_refused => |k| refuses(k, CmStatus::BadParam, |r| r.set(CmParamKind::Paths, &[0, 0]));
    "E-012" [Caps::CONNECT] a_request_for_a_pmtu_of_512_is_refused => |k| refuses(k, CmStatus::BadParam, |r| r.set(CmParamKind::PmtuLog2, &[9]));
    "E-012" [Caps::CONNECT] a_request_of_another_version_is_refused => |k| refuses(k, CmStatus::BadVersion, |r| r.version = CM_VERSION + 1);
    "E-018" [Caps::CONNECT.and(Caps::TWO_PORTS)] a_peer_with_fewer_planes_is_granted_those_that_it_has;
    "E-018" [Caps::CONNECT] a_request_without_an_address_on_the_first_plane_is_refused => |k| refuses(k, CmStatus::BadParam, |r| r.planes = 1..2);
    "E-018" [Caps::CONNECT.and(Caps::TWO_PORTS)] a_grant_on_fewer_planes_is_taken;
    "E-010" [Caps::CONNECT] unknown_parameters_are_passed_over;
    "E-010" [Caps::CONNECT] content_that_ends_within_its_fixed_part_is_dropped => |k| broken(k, |content| content.truncate(15));
    "E-010" [Caps::CONNECT] content_that_ends_within_a_parameter_is_dropped => |k| broken(k, |content| content.truncate(content.len() - 1));
    "E-010" [Caps::CONNECT] a_parameter_of_impossible_length_is_dropped => |k| broken(k, |content| content.extend([CmParamKind::Streams.code(), 3, 0, 1, 0]));
    "E-011" + "W-015" [Caps::CONNECT] a_request_to_another_id_is_dropped;

    "E-020" [Caps::CONNECT] the_end_waits_for_what_was_asked_for;
    "E-020" [Caps::CONNECT] the_end_is_asked_for_again_and_comes_alone;
    "E-021" [Caps::CONNECT] a_peer_that_ends_is_answered_and_the_rest_flushed;
    "E-021" + "E-016" [Caps::CONNECT] an_end_with_another_nonce_is_ignored;
    "E-021" [Caps::CONNECT] the_end_of_a_connection_that_is_not_there_is_answered;
    "E-022" [Caps::CONNECT] an_id_rests_after_its_connection;
    "E-014" + "E-016" [Caps::CONNECT] a_confirmation_with_another_nonce_confirms_nothing;
    "E-020" [Caps::CONNECT.and(Caps::CREDIT)] the_end_waits_for_what_was_not_begun;
    "E-020" + "M-013" [Caps::CONNECT] the_end_waits_for_the_rest_of_the_peer_s_messages;
    "E-020" + "R-031" [Caps::CONNECT.and(Caps::PROBE)] the_end_does_not_wait_for_a_peer_that_is_gone;
}

const SERVICE: u16 = 0x1234;
const NONCE: u64 = 0x0123_4567_89ab_cdef;
/// Id of the connection at the peer.
const PEER_ID: u32 = 0x77_0003;

/// Content of a connection management packet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    version: u8,
    status: u8,
    service: u16,
    nonce: u64,
    conn_id: u32,
    /// Planes on which the peer has an address.
    planes: Range<usize>,
    params: BTreeMap<u8, Vec<u8>>,
}

impl Content {
    fn new(nonce: u64) -> Self {
        let (version, status) = (CM_VERSION, CmStatus::Ok.code());
        Self { version, status, service: SERVICE, nonce, conn_id: PEER_ID, planes: 0..2, params: BTreeMap::new() }
    }

    /// With everything that a connection needs.
    fn full(nonce: u64, pmtu_log2: u8, paths: u16) -> Self {
        let mut c = Self::new(nonce);
        c.set(CmParamKind::PmtuLog2, &[pmtu_log2]);
        c.set(CmParamKind::Paths, &paths.to_be_bytes());
        c.set(CmParamKind::Streams, &[0, 1]);
        c.set(CmParamKind::First, &[0, 0, 0, 10, 0, 0, 0, 20, 0, 0, 0, 30]);
        c.set(CmParamKind::Address, &[]);
        c
    }

    fn set(&mut self, kind: CmParamKind, value: &[u8]) {
        self.params.insert(kind.code(), value.to_vec());
    }

    fn drop(&mut self, kind: CmParamKind) {
        self.params.remove(&kind.code());
    }

    fn param(&self, kind: CmParamKind) -> Option<&[u8]> {
        self.params.get(&kind.code()).map(Vec::as_slice)
    }

    /// The peer's addresses stand for the address parameter.
    fn to_bytes(&self) -> Vec<u8> {
        let mut h = Cmth::zeroed();
        h.set_version(self.version).set_status(self.status).set_service(self.service).set_nonce(self.nonce);
        h.set_conn_id(Qpn::new(self.conn_id));
        let mut out = h.0.to_vec();
        let mut put = |kind: u8, value: &[u8]| {
            let mut p = CmParam::zeroed();
            p.set_kind(kind).set_value_len(value.len() as u8);
            out.extend(p.0);
            out.extend(value);
        };
        for (kind, value) in &self.params {
            if *kind != CmParamKind::Address.code() {
                put(*kind, value);
                continue;
            }
            for plane in self.planes.clone() {
                let a = peer_address(plane, false);
                let value = [&[plane as u8, 0][..], &a.mac.to_be_bytes()[2..], &a.ip.to_be_bytes()].concat();
                put(*kind, &value);
            }
        }
        out
    }

    /// The content of a packet of the card; of parameters of one kind the last.
    fn of(sent: &Sent) -> Outcome<Self> {
        let (fixed, mut rest) =
            sent.payload.split_at_checked(Cmth::LEN).ok_or_else(|| Failure::new("E-010: content shorter than CMTH"))?;
        let h = Cmth(fixed);
        let mut c = Self {
            version: h.version(),
            status: h.status(),
            service: h.service(),
            nonce: h.nonce(),
            conn_id: h.conn_id().get(),
            planes: 0..0,
            params: BTreeMap::new(),
        };
        while !rest.is_empty() {
            let (head, after) = rest.split_at_checked(CmParam::LEN).ok_or_else(|| Failure::new("E-010: parameter"))?;
            let p = CmParam(head);
            let (value, next) = after
                .split_at_checked(p.value_len().into())
                .ok_or_else(|| Failure::new(format!("E-010: parameter {} ends early", p.kind())))?;
            c.params.insert(p.kind(), value.to_vec());
            rest = next;
        }
        Ok(c)
    }
}

/// A connection management packet of the peer to connection `dest`.
fn packet(k: &Kit<'_>, opcode: Opcode, dest: u32, content: &Content) -> Packet {
    let card = k.dut.addresses(false)[0];
    Packet::new(opcode, peer_address(0, false), card, false, Qpn::new(dest)).payload(&content.to_bytes())
}

/// Connections as the card is to open or to grant them.
fn config(k: &mut Kit<'_>, paths: usize) -> Outcome<ConnConfig> {
    k.config(|cfg| {
        set_paths(cfg, paths, 2);
        cfg.pmtu_log2 = 12;
    })
}

/// The next event about the beginning or end of a connection.
fn event(k: &mut Kit<'_>) -> Outcome<Option<Event>> {
    while let Some(event) = k.dut.event()? {
        let is_it = matches!(event, Event::Connected { .. } | Event::ConnectFailed { .. } | Event::Disconnected { .. });
        if is_it {
            return Ok(Some(event));
        }
    }
    Ok(None)
}

/// Lets the card ask for a connection; its first request.
fn ask(k: &mut Kit<'_>, paths: usize) -> Outcome<(ConnId, ConnConfig, Sent, Content)> {
    let cfg = config(k, paths)?;
    let id = k.dut.connect(SERVICE, &cfg)?;
    let request = k.expect(Opcode::ConnReq, k.at_once())?;
    let content = Content::of(&request)?;
    Ok((id, cfg, request, content))
}

fn a_request_states_service_id_nonce_and_parameters(k: &mut Kit<'_>) -> Outcome {
    let (_, cfg, request, c) = ask(k, 4)?;
    equal(request.bth.dest_qpn(), CM_QPN, "DestQP of a request")?;
    equal((c.version, c.status, c.service), (CM_VERSION, 0, SERVICE), "version, status and service")?;
    equal(c.conn_id, cfg.local_id.get(), "id at the sender")?;
    equal(c.param(CmParamKind::PmtuLog2), Some(&[12][..]), "PMTU")?;
    equal(c.param(CmParamKind::Paths), Some(&[0, 4][..]), "paths")?;
    equal(c.param(CmParamKind::Streams), Some(&[0, 1][..]), "streams")?;
    equal(c.param(CmParamKind::First), Some(&[0; 12][..]), "first numbers")?;
    check(c.param(CmParamKind::Address).is_some_and(|a| a.len() == 24), "E-011: no address")
}

fn a_request_is_repeated_with_doubling_waits_and_given_up(k: &mut Kit<'_>) -> Outcome {
    let (id, _, first, content) = ask(k, 1)?;
    let mut at = vec![first.at];
    while let Some(sent) = k.next(400 * MS)? {
        equal(sent.opcode, Opcode::ConnReq, "what is sent without an answer")?;
        equal(Content::of(&sent)?, content.clone(), "content of a repeated request")?;
        at.push(sent.at);
    }
    let waits: Vec<Nanos> = at.windows(2).map(|w| w[1] - w[0]).collect();
    let slack = k.at_once();
    let is_right = waits.len() == 7 && waits.iter().enumerate().all(|(n, w)| w.abs_diff(MS << n) <= slack);
    check(is_right, format!("E-011: waits between requests: {waits:?} ns"))?;
    equal(event(k)?, Some(Event::ConnectFailed { conn: id, status: CmStatus::NoService }), "event")
}

fn a_request_is_repeated_by_another_plane(k: &mut Kit<'_>) -> Outcome {
    let (_, _, first, _) = ask(k, 2)?;
    let second = k.expect(Opcode::ConnReq, 2 * MS)?;
    check(first.port != second.port, format!("E-011: both requests by plane {}", first.port))
}

fn every_attempt_has_a_nonce_of_its_own(k: &mut Kit<'_>) -> Outcome {
    let mut nonces = Vec::new();
    for _ in 0..4 {
        let (_, _, _, content) = ask(k, 1)?;
        nonces.push(content.nonce);
    }
    let all = nonces.len();
    nonces.sort_unstable();
    nonces.dedup();
    equal(nonces.len(), all, "different nonces")
}

/// Grants what the card asked for, with so many paths; the connection as the card then sees it.
fn grant(k: &mut Kit<'_>, id: ConnId, mut cfg: ConnConfig, asked: &Content, paths: u16) -> Outcome<Conn> {
    let mut content = Content { params: asked.params.clone(), ..Content::new(asked.nonce) };
    content.set(CmParamKind::Paths, &paths.to_be_bytes());
    content.set(CmParamKind::Address, &[]);
    let rep = packet(k, Opcode::ConnRep, cfg.local_id.get(), &content);
    k.inject(&rep)?;
    let rtu = k.expect(Opcode::ConnRtu, k.at_once())?;
    equal(rtu.bth.dest_qpn().get(), PEER_ID, "DestQP of the confirmation")?;
    equal(Content::of(&rtu)?.nonce, asked.nonce, "nonce of the confirmation")?;
    equal(event(k)?, Some(Event::Connected { conn: id, service: SERVICE }), "event")?;
    set_paths(&mut cfg, paths.into(), 2);
    cfg.remote_id = Qpn::new(PEER_ID);
    Ok(Conn { id, cfg, key: k.key })
}

/// A WRITE to the card and one from it.
fn exchange(k: &mut Kit<'_>, c: &Conn, first: u32, mseq: u32) -> Outcome {
    k.inject(&c.write(first, 64, b"granted").mseq(mseq))?;
    let ack = k.acks(first, &[])?;
    equal(ack.apath, 0, "path acknowledged")?;
    k.post_write(c, 1, 64, 7)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    equal(data.bth.dest_qpn(), c.cfg.remote_id, "DestQP of data")?;
    equal((&data.payload[..], data.bth.pseq().get()), (&b"granted"[..], first), "payload and PSEQ")?;
    equal(data.mxth().map(|h| h.mseq().get()), Some(mseq), "MSEQ")?;
    k.inject(&c.ack(&data))?;
    k.completes(&[(1, Status::Ok)]).map(|_| ())
}

fn a_grant_is_confirmed_and_data_flow(k: &mut Kit<'_>) -> Outcome {
    let (id, cfg, _, asked) = ask(k, 2)?;
    let c = grant(k, id, cfg, &asked, 2)?;
    exchange(k, &c, 0, 0)?;
    k.silence(100 * MS)
}

fn a_grant_may_be_smaller_than_what_was_asked_for(k: &mut Kit<'_>) -> Outcome {
    let (id, cfg, _, mut asked) = ask(k, 8)?;
    asked.set(CmParamKind::PmtuLog2, &[10]);
    let c = grant(k, id, cfg, &asked, 1)?;
    // One path of the eight, and packets of 1024 bytes.
    k.post_write(&c, 1, 0, 2048)?;
    let first = k.expect(Opcode::Write, k.at_once())?;
    equal((first.pxth.path_id().get(), first.payload.len()), (0, 1024), "path and bytes of the first packet")?;
    k.silence(50 * US)
}

fn a_grant_of_more_than_was_asked_for_is_not_taken(k: &mut Kit<'_>) -> Outcome {
    let (id, cfg, _, asked) = ask(k, 2)?;
    let mut content = Content { params: asked.params.clone(), ..Content::new(asked.nonce) };
    content.set(CmParamKind::Paths, &[0, 3]);
    content.set(CmParamKind::Address, &[]);
    let rep = packet(k, Opcode::ConnRep, cfg.local_id.get(), &content);
    k.inject(&rep)?;
    equal(event(k)?, Some(Event::ConnectFailed { conn: id, status: CmStatus::BadParam }), "event")
}

fn refused(k: &mut Kit<'_>, status: CmStatus) -> Outcome {
    let (id, cfg, _, asked) = ask(k, 1)?;
    let content = Content { status: status.code(), conn_id: 1, ..Content::new(asked.nonce) };
    let rep = packet(k, Opcode::ConnRep, cfg.local_id.get(), &content);
    k.inject(&rep)?;
    equal(event(k)?, Some(Event::ConnectFailed { conn: id, status }), "event")?;
    k.silence(300 * MS)
}

fn a_repeated_grant_is_confirmed_again(k: &mut Kit<'_>) -> Outcome {
    let (id, cfg, _, asked) = ask(k, 1)?;
    let c = grant(k, id, cfg, &asked, 1)?;
    let content = Content { params: asked.params.clone(), ..Content::new(asked.nonce) };
    let rep = packet(k, Opcode::ConnRep, c.cfg.local_id.get(), &content);
    k.inject(&rep)?;
    k.expect(Opcode::ConnRtu, k.at_once())?;
    equal(event(k)?, None, "a second event")?;
    exchange(k, &c, 0, 0)
}

fn an_answer_with_another_nonce_establishes_nothing(k: &mut Kit<'_>) -> Outcome {
    let (id, cfg, _, asked) = ask(k, 1)?;
    for status in [CmStatus::Ok, CmStatus::NoService] {
        let stale = Content { status: status.code(), params: asked.params.clone(), ..Content::new(!asked.nonce) };
        let rep = packet(k, Opcode::ConnRep, cfg.local_id.get(), &stale);
        k.inject(&rep)?;
        if status == CmStatus::Ok {
            end_of_a_late_grant(k, !asked.nonce)?;
        }
        k.silence(k.at_once())?;
        equal(event(k)?, None, "event")?;
    }
    grant(k, id, cfg, &asked, 1).map(|_| ())
}

/// The card tells the peer, which granted something that nobody waits for any more.
fn end_of_a_late_grant(k: &mut Kit<'_>, nonce: u64) -> Outcome {
    let end = k.expect(Opcode::DiscReq, k.at_once())?;
    equal((end.bth.dest_qpn().get(), Content::of(&end)?.nonce), (PEER_ID, nonce), "DestQP and nonce of the end")
}

fn an_attempt_that_is_given_up_ends_at_once_and_its_grant_too(k: &mut Kit<'_>) -> Outcome {
    let (id, cfg, _, asked) = ask(k, 1)?;
    k.dut.disconnect(id)?;
    k.silence(k.at_once())?;
    equal(event(k)?, Some(Event::Disconnected { conn: id }), "event")?;
    let late = Content { params: asked.params.clone(), ..Content::new(asked.nonce) };
    let rep = packet(k, Opcode::ConnRep, cfg.local_id.get(), &late);
    k.inject(&rep)?;
    end_of_a_late_grant(k, asked.nonce)?;
    equal(event(k)?, None, "event")
}

fn data_before_the_grant_are_dropped(k: &mut Kit<'_>) -> Outcome {
    let (id, cfg, ..) = ask(k, 1)?;
    let c = Conn { id, cfg, key: k.key };
    let before = k.snapshot()?;
    k.inject(&c.write(0, 0, b"early"))?;
    k.silence(k.at_once())?;
    k.refused(&before, &[(Counter::RxConnError, 1)])?;
    k.memory_holds_only(&[])
}

/// Lets the card listen for connections of at most 4 paths.
fn listen(k: &mut Kit<'_>) -> Outcome<ConnConfig> {
    let template = config(k, 1)?;
    k.dut.listen(SERVICE, &template, 4)?;
    Ok(template)
}

/// Asks the card for a connection; its answer.
fn request(k: &mut Kit<'_>, content: &Content) -> Outcome<Content> {
    let req = packet(k, Opcode::ConnReq, CM_QPN.get(), content);
    k.inject(&req)?;
    let rep = k.expect(Opcode::ConnRep, k.at_once())?;
    equal(rep.bth.dest_qpn().get(), content.conn_id, "DestQP of the answer")?;
    Content::of(&rep)
}

/// The connection that the card granted.
fn granted(template: ConnConfig, rep: &Content, key: u32) -> Conn {
    let mut cfg = template;
    let paths = rep.param(CmParamKind::Paths).map_or(1, |p| u16::from_be_bytes([p[0], p[1]]));
    set_paths(&mut cfg, paths.into(), 2);
    (cfg.local_id, cfg.remote_id) = (Qpn::new(rep.conn_id), Qpn::new(PEER_ID));
    for p in cfg.rx_paths.iter_mut().chain(&mut cfg.tx_paths) {
        p.first = Psn::new(10);
    }
    Conn { id: ConnId(0), cfg, key }
}

/// A connection that was asked for, granted and confirmed.
fn established(k: &mut Kit<'_>) -> Outcome<Conn> {
    let template = listen(k)?;
    let rep = request(k, &Content::full(NONCE, 12, 1))?;
    let rtu = packet(k, Opcode::ConnRtu, rep.conn_id, &Content::new(NONCE));
    k.inject(&rtu)?;
    let mut c = granted(template, &rep, k.key);
    c.id = connected(k)?;
    Ok(c)
}

fn connected(k: &mut Kit<'_>) -> Outcome<ConnId> {
    match event(k)? {
        Some(Event::Connected { conn, service: SERVICE }) => Ok(conn),
        other => Err(Failure::new(format!("E-014: no connection, but {other:?}"))),
    }
}

fn a_listener_grants_with_the_smaller_numbers(k: &mut Kit<'_>) -> Outcome {
    listen(k)?;
    let rep = request(k, &Content::full(NONCE, 13, 100))?;
    equal((rep.status, rep.nonce, rep.service), (0, NONCE, SERVICE), "status, nonce and service")?;
    equal(rep.param(CmParamKind::PmtuLog2), Some(&[12][..]), "PMTU of 12 and 13")?;
    equal(rep.param(CmParamKind::Paths), Some(&[0, 4][..]), "paths of 4 and 100")?;
    k.advance(400 * MS)?;
    k.reset(&Default::default())?;
    listen(k)?;
    let rep = request(k, &Content::full(NONCE, 10, 2))?;
    equal(rep.param(CmParamKind::PmtuLog2), Some(&[10][..]), "PMTU of 12 and 10")?;
    equal(rep.param(CmParamKind::Paths), Some(&[0, 2][..]), "paths of 4 and 2")
}

fn a_grant_is_repeated_until_it_is_confirmed(k: &mut Kit<'_>) -> Outcome {
    let template = listen(k)?;
    let rep = request(k, &Content::full(NONCE, 12, 1))?;
    for wait in [2 * MS, 3 * MS] {
        let again = k.expect(Opcode::ConnRep, wait)?;
        equal(Content::of(&again)?, rep.clone(), "content of a repeated grant")?;
    }
    equal(event(k)?, None, "event before the confirmation")?;
    let rtu = packet(k, Opcode::ConnRtu, rep.conn_id, &Content::new(NONCE));
    k.inject(&rtu)?;
    let mut c = granted(template, &rep, k.key);
    c.id = connected(k)?;
    k.silence(300 * MS)?;
    exchange(k, &c, 10, 20)
}

fn a_copy_of_a_request_opens_nothing_new(k: &mut Kit<'_>) -> Outcome {
    listen(k)?;
    let content = Content::full(NONCE, 12, 1);
    let first = request(k, &content)?;
    let second = request(k, &content)?;
    equal(second, first.clone(), "answer to a copy")?;
    // Another nonce is another attempt.
    let other = request(k, &Content { conn_id: PEER_ID + 1, ..Content::full(NONCE + 1, 12, 1) })?;
    check(other.conn_id != first.conn_id, "E-013: two attempts with one id")
}

fn data_confirm_a_grant(k: &mut Kit<'_>) -> Outcome {
    let template = listen(k)?;
    let rep = request(k, &Content::full(NONCE, 12, 1))?;
    let mut c = granted(template, &rep, k.key);
    // The confirmation is lost; a packet of data is as good.
    k.inject(&c.write(10, 0, b"data").mseq(20))?;
    k.acks(10, &[])?;
    c.id = connected(k)?;
    k.silence(300 * MS)?;
    k.memory_holds_only(&[(0, b"data")])
}

fn a_granted_connection_begins_without_credit(k: &mut Kit<'_>) -> Outcome {
    let c = established(k)?;
    let wr = SendWr::new(5, SendOp::Send { imm: None, inv: None, tag: None }, k.local(0), 8);
    k.post(&c, wr)?;
    let sent = k.collect(50 * US)?;
    check(sent.iter().all(|s| s.opcode != Opcode::Send), "E-015: a SEND without credit")?;
    k.inject(&c.packet(Opcode::Ack).cum(9).trig(9).with_axth(|h| _ = h.set_syndrome(0x1f)).credit(1, 31))?;
    let sent = k.expect(Opcode::Send, k.at_once())?;
    equal(sent.mxth().map(|h| h.rsn().get()), Some(30), "RSN of the first SEND")
}

fn refuses(k: &mut Kit<'_>, status: CmStatus, change: impl Fn(&mut Content)) -> Outcome {
    listen(k)?;
    let mut content = Content::full(NONCE, 12, 1);
    change(&mut content);
    let rep = request(k, &content)?;
    equal((rep.status, rep.nonce), (status.code(), NONCE), "status and nonce of the refusal")?;
    k.silence(300 * MS)?;
    equal(event(k)?, None, "event")
}

/// What the card sends of eight messages, which must all leave by port 0.
fn on_one_plane(k: &mut Kit<'_>, c: &Conn) -> Outcome {
    (0..8).try_for_each(|n| k.post_write(c, n, 0, 64))?;
    let sent = k.collect(k.at_once())?;
    let data: Vec<_> = sent.iter().filter(|s| s.opcode == Opcode::Write).collect();
    check(
        !data.is_empty() && data.iter().all(|s| s.port == 0),
        "E-018: no data, or data by a plane that the peer has not",
    )
}

fn a_peer_with_fewer_planes_is_granted_those_that_it_has(k: &mut Kit<'_>) -> Outcome {
    let template = listen(k)?;
    let rep = request(k, &Content { planes: 0..1, ..Content::full(NONCE, 12, 4) })?;
    equal((rep.status, rep.param(CmParamKind::Paths)), (0, Some(&[0, 4][..])), "status and paths")?;
    let rtu = packet(k, Opcode::ConnRtu, rep.conn_id, &Content::new(NONCE));
    k.inject(&rtu)?;
    let mut c = granted(template, &rep, k.key);
    c.id = connected(k)?;
    on_one_plane(k, &c)
}

fn a_grant_on_fewer_planes_is_taken(k: &mut Kit<'_>) -> Outcome {
    let (id, cfg, _, asked) = ask(k, 4)?;
    let grant = Content { planes: 0..1, ..Content::full(asked.nonce, 12, 4) };
    let rep = packet(k, Opcode::ConnRep, cfg.local_id.get(), &grant);
    k.inject(&rep)?;
    k.expect(Opcode::ConnRtu, k.at_once())?;
    connected(k)?;
    on_one_plane(k, &Conn { id, cfg, key: k.key })
}

fn unknown_parameters_are_passed_over(k: &mut Kit<'_>) -> Outcome {
    listen(k)?;
    let mut content = Content::full(NONCE, 12, 1);
    content.params.insert(0, vec![1, 2, 3]);
    content.params.insert(200, vec![0; 255]);
    equal(request(k, &content)?.status, 0, "status")
}

fn broken(k: &mut Kit<'_>, change: impl Fn(&mut Vec<u8>)) -> Outcome {
    listen(k)?;
    let mut bytes = Content::full(NONCE, 12, 1).to_bytes();
    change(&mut bytes);
    let before = k.snapshot()?;
    let req = packet(k, Opcode::ConnReq, CM_QPN.get(), &Content::new(NONCE)).payload(&bytes);
    k.inject(&req)?;
    k.silence(10 * MS)?;
    k.refused(&before, &[(Counter::RxBadLength, 1)])?;
    equal(request(k, &Content::full(NONCE, 12, 1))?.status, 0, "status of the answer to a whole request")
}

fn a_request_to_another_id_is_dropped(k: &mut Kit<'_>) -> Outcome {
    listen(k)?;
    let before = k.snapshot()?;
    let req = packet(k, Opcode::ConnReq, 2, &Content::full(NONCE, 12, 1));
    k.inject(&req)?;
    k.silence(10 * MS)?;
    k.refused(&before, &[(Counter::RxUnknownConn, 1)])
}

fn the_end_waits_for_what_was_asked_for(k: &mut Kit<'_>) -> Outcome {
    let c = established(k)?;
    k.post_write(&c, 1, 0, 64)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    k.dut.disconnect(c.id)?;
    let sent = k.collect(50 * US)?;
    check(sent.iter().all(|s| s.opcode != Opcode::DiscReq), "E-020: the end before the data are acknowledged")?;
    k.inject(&c.ack(&data))?;
    k.completes(&[(1, Status::Ok)])?;
    let disc = k.expect(Opcode::DiscReq, MS)?;
    let content = Content::of(&disc)?;
    equal((content.nonce, content.conn_id), (NONCE, c.cfg.local_id.get()), "nonce and id")?;
    equal(event(k)?, None, "event before the answer")?;
    let rep = packet(k, Opcode::DiscRep, c.cfg.local_id.get(), &Content::new(NONCE));
    k.inject(&rep)?;
    equal(event(k)?, Some(Event::Disconnected { conn: c.id }), "event")?;
    k.silence(300 * MS)
}

fn the_end_is_asked_for_again_and_comes_alone(k: &mut Kit<'_>) -> Outcome {
    let c = established(k)?;
    k.dut.disconnect(c.id)?;
    let mut count = 0;
    while let Some(sent) = k.next(400 * MS)? {
        equal(sent.opcode, Opcode::DiscReq, "what is sent without an answer")?;
        count += 1;
    }
    equal(count, 8, "times that the end is asked for")?;
    equal(event(k)?, Some(Event::Disconnected { conn: c.id }), "event")
}

fn a_peer_that_ends_is_answered_and_the_rest_flushed(k: &mut Kit<'_>) -> Outcome {
    let c = established(k)?;
    k.post_recv(&c, 7, 0, 64)?;
    k.collect(k.at_once())?;
    let disc = packet(k, Opcode::DiscReq, c.cfg.local_id.get(), &Content::new(NONCE));
    k.inject(&disc)?;
    let rep = k.expect(Opcode::DiscRep, k.at_once())?;
    equal((rep.bth.dest_qpn().get(), Content::of(&rep)?.nonce), (PEER_ID, NONCE), "DestQP and nonce of the answer")?;
    equal(event(k)?, Some(Event::Disconnected { conn: c.id }), "event")?;
    k.completes(&[(7, Status::WrFlush)])?;
    // The answer was lost: the copy is answered too.
    k.inject(&disc)?;
    k.expect(Opcode::DiscRep, k.at_once()).map(|_| ())
}

fn an_end_with_another_nonce_is_ignored(k: &mut Kit<'_>) -> Outcome {
    let c = established(k)?;
    let disc = packet(k, Opcode::DiscReq, c.cfg.local_id.get(), &Content::new(!NONCE));
    k.inject(&disc)?;
    k.silence(k.at_once())?;
    equal(event(k)?, None, "event")?;
    exchange(k, &c, 10, 20)
}

fn the_end_of_a_connection_that_is_not_there_is_answered(k: &mut Kit<'_>) -> Outcome {
    let before = k.snapshot()?;
    let disc = packet(k, Opcode::DiscReq, 0x12_0101, &Content::new(NONCE));
    k.inject(&disc)?;
    let rep = k.expect(Opcode::DiscRep, k.at_once())?;
    equal((rep.bth.dest_qpn().get(), Content::of(&rep)?.nonce), (PEER_ID, NONCE), "DestQP and nonce of the answer")?;
    k.refused(&before, &[(Counter::RxUnknownConn, 1)])
}

fn an_id_rests_after_its_connection(k: &mut Kit<'_>) -> Outcome {
    let c = established(k)?;
    let disc = packet(k, Opcode::DiscReq, c.cfg.local_id.get(), &Content::new(NONCE));
    k.inject(&disc)?;
    k.expect(Opcode::DiscRep, k.at_once())?;
    let id = c.cfg.local_id;
    k.advance(9 * MS)?;
    check(k.open(|cfg| cfg.local_id = id).is_err(), "E-022: the id was used again after 9 ms")?;
    let before = k.snapshot()?;
    k.inject(&c.write(10, 0, b"late").mseq(20))?;
    k.silence(k.at_once())?;
    check(k.counted(&before, Counter::RxData)? == 0, "E-022: a late packet was taken")?;
    k.advance(2 * MS)?;
    k.open(|cfg| cfg.local_id = id).map(|_| ())
}

fn a_confirmation_with_another_nonce_confirms_nothing(k: &mut Kit<'_>) -> Outcome {
    listen(k)?;
    let rep = request(k, &Content::full(NONCE, 12, 1))?;
    let stray = packet(k, Opcode::ConnRtu, rep.conn_id, &Content::new(!NONCE));
    k.inject(&stray)?;
    equal(event(k)?, None, "event after a confirmation of another attempt")?;
    k.expect(Opcode::ConnRep, 2 * MS)?;
    let rtu = packet(k, Opcode::ConnRtu, rep.conn_id, &Content::new(NONCE));
    k.inject(&rtu)?;
    connected(k).map(|_| ())
}

fn the_end_waits_for_what_was_not_begun(k: &mut Kit<'_>) -> Outcome {
    // A SEND without credit: nothing is on the way, and yet not all is done.
    let c = established(k)?;
    let wr = SendWr::new(5, SendOp::Send { imm: None, inv: None, tag: None }, k.local(0), 8);
    k.post(&c, wr)?;
    k.dut.disconnect(c.id)?;
    let sent = k.collect(5 * MS)?;
    check(sent.iter().all(|s| s.opcode != Opcode::DiscReq), "E-020: the end before what was asked for is done")?;
    k.inject(&c.packet(Opcode::Ack).cum(9).trig(9).with_axth(|h| _ = h.set_syndrome(0x1f)).credit(1, 31))?;
    let data = k.expect(Opcode::Send, k.at_once())?;
    k.inject(&c.ack(&data))?;
    k.completes(&[(5, Status::Ok)])?;
    k.expect(Opcode::DiscReq, MS).map(|_| ())
}

fn the_end_waits_for_the_rest_of_the_peer_s_messages(k: &mut Kit<'_>) -> Outcome {
    let c = established(k)?;
    // The first of two packets, and a message behind the one that is missing.
    let first = c.write_many(10, 20, 0, &[1; 2048], 1024);
    k.inject(&first[0])?;
    k.inject(&c.write(12, 4096, b"behind").mseq(21))?;
    k.dut.disconnect(c.id)?;
    let no_end = |k: &mut Kit<'_>| {
        let sent = k.collect(5 * MS)?;
        check(
            sent.iter().all(|s| s.opcode != Opcode::DiscReq),
            "E-020: the end before a message of the peer is complete",
        )
    };
    no_end(k)?;
    k.inject(&first[1])?;
    let sent = k.collect(MS)?;
    check(sent.iter().any(|s| s.opcode == Opcode::DiscReq), "E-020: no end though all is complete")?;
    k.memory_holds_only(&[(0, &[1; 2048]), (4096, b"behind")])
}

fn the_end_does_not_wait_for_a_peer_that_is_gone(k: &mut Kit<'_>) -> Outcome {
    let c = established(k)?;
    k.inject(&c.write_many(10, 20, 0, &[1; 2048], 1024)[0])?;
    k.dut.disconnect(c.id)?;
    // More than RETRY_LIMIT probes bring nothing; then the end is asked for until it comes alone.
    let sent = k.collect(600 * MS)?;
    let count = |opcode| sent.iter().filter(|s| s.opcode == opcode).count();
    equal((count(Opcode::ProbeReq), count(Opcode::DiscReq)), (8, 8), "probes, and times that the end is asked for")?;
    equal(event(k)?, Some(Event::Disconnected { conn: c.id }), "event")
}
