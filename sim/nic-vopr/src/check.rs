//! What has to hold when a run is over: memory byte for byte, words added to exactly once, every frame accounted for.

use std::collections::BTreeMap;
use std::ops::Range;

use nic_fabric::{Fabric, NodeId};
use nic_model::counters::Counters;
use nic_spec::csr::stats::{Class, Counter, COUNTERS};

use crate::host::Host;
use crate::memory::BASE;
use crate::plan::{Counter as Word, Fate, HostPlan};
use crate::run::Scenario;

/// Differences of memory that are told, per host.
const DIFFERENCES_MAX: usize = 4;

/// Everything that does not hold.
pub fn check_end(fabric: &Fabric, scenario: &Scenario, hosts: u32) -> Vec<String> {
    let plan = &scenario.plan;
    let mut wrong = Vec::new();
    let host = |number: u32| fabric.node::<Host>(NodeId(number)).expect("every host was attached");
    for (number, expected) in (0..hosts).zip(&plan.hosts) {
        // A message that completed well is whole, whatever became of its connection.
        let whole: Vec<Range<usize>> = (0..hosts)
            .flat_map(|other| host(other).filled())
            .filter(|t| t.0 == number as usize)
            .map(|t| t.1.clone())
            .collect();
        check_memory(number, host(number), expected, &whole, &mut wrong);
        let counters = host(number).card().nic().counters();
        let failures = expected.fates.iter().filter(|fate| **fate != Fate::Lives).count() as u64;
        check_card(number, counters, failures, &mut wrong);
        if plan.doomed_conns == 0 && plan.ended_conns == 0 && !scenario.faults.has_damage {
            let bootstraps = plan.hosts.iter().flat_map(|h| &h.conns).any(|conn| conn.config.transport.bootstrap);
            let is_excused = |counter| is_excused(counter, scenario, bootstraps);
            check_peers(number, counters, is_excused, &mut wrong);
        }
        // Packets of a connection that is over find none, or one that has its id now.
        let astray = sum(counters, &[Counter::RxUnknownConn, Counter::RxBadPkey]);
        if plan.ended_conns == 0 && astray != 0 {
            wrong.push(format!("host {number}: {astray} packets for connections that are not theirs"));
        }
        // The last message before an end may be placed without the sender being told.
        let ends = expected.conns.iter().filter(|conn| conn.ends).count() as u64;
        let messages =
            [(Counter::TxMessages, expected.tx_messages, ends), (Counter::RxMessages, expected.rx_messages, 0)];
        for (counter, most, untold) in messages {
            let is = counters.get(counter);
            if plan.doomed_conns == 0 && !(most.saturating_sub(untold)..=most).contains(&is) {
                wrong.push(format!("host {number}: {} is {is}, not {most}, less {untold} at most", counter.name()));
            }
        }
    }
    for word in &plan.counters {
        check_word(&host, word, &mut wrong);
    }
    let all: Vec<&Counters> = (0..hosts).map(|number| host(number).card().nic().counters()).collect();
    let tag_bytes = (0..hosts).map(|number| host(number).tag_bytes()).sum();
    check_frames(fabric, scenario, &all, tag_bytes, &mut wrong);
    wrong
}

/// What a byte of memory may be at the end.
#[derive(Clone, Copy)]
enum Kind {
    /// What the plan says.
    Sure,
    /// That, or what it was.
    Loose,
    /// Anything.
    Open,
}

fn check_memory(number: u32, host: &Host, expected: &HostPlan, whole: &[Range<usize>], wrong: &mut Vec<String>) {
    let memory = host.card().memory();
    let before = expected.memory.bytes();
    // Where a connection failed, most bytes of megabytes may be as they were: what each may be is looked up, not searched.
    let mut kinds = vec![Kind::Sure; before.len()];
    let parts = [(&expected.loose_ranges[..], Kind::Loose), (whole, Kind::Sure), (&expected.open_ranges, Kind::Open)];
    for (ranges, kind) in parts {
        ranges.iter().for_each(|range| kinds[range.clone()].fill(kind));
    }
    let is_excused = |at: usize, is: u8| match kinds[at] {
        Kind::Open => true,
        Kind::Loose => is == before[at],
        Kind::Sure => false,
    };
    let pairs = memory.bytes().iter().zip(&expected.image).enumerate();
    let wrong_at = pairs.filter(|(at, (is, should))| is != should && !is_excused(*at, **is));
    let different: Vec<usize> = wrong_at.map(|(at, _)| at).collect();
    if memory.bytes().len() != expected.image.len() {
        wrong.push(format!("host {number}: memory has {} bytes, not {}", memory.bytes().len(), expected.image.len()));
    }
    for at in different.iter().take(DIFFERENCES_MAX) {
        let (is, should) = (memory.bytes()[*at], expected.image[*at]);
        let region = memory.region_at(*at);
        wrong.push(format!(
            "host {number}: byte {:#x} is {is:#x}, not {should:#x}, one of {} in {region:x?}",
            BASE + *at as u64,
            different.len()
        ));
    }
}

/// Every addition fetched what another one left, from the first value to the last.
fn check_word<'a>(host: &impl Fn(u32) -> &'a Host, word: &Word, wrong: &mut Vec<String>) {
    let load = |number: u32, iova: u64| {
        u64::from_le_bytes(host(number).card().memory().at(iova, 8).try_into().expect("8 bytes"))
    };
    let mut left = BTreeMap::new();
    for (number, iova, add) in &word.adds {
        if left.insert(load(*number, *iova), *add).is_some() {
            wrong.push(format!("two additions to {:#x} of host {} fetched the same", word.iova, word.host));
        }
    }
    let mut value = word.first;
    while let Some(add) = left.remove(&value) {
        value = value.wrapping_add(add);
    }
    if !left.is_empty() || value != load(word.host, word.iova) {
        let last = load(word.host, word.iova);
        wrong.push(format!(
            "additions to {:#x} of host {} lead to {value:#x} and leave {}, it holds {last:#x}",
            word.iova,
            word.host,
            left.len()
        ));
    }
}

/// Frames that a card sent and that are counted by kind.
const SENT_KINDS: [Counter; 8] = [
    Counter::TxData,
    Counter::TxRtxGap,
    Counter::TxRtxRto,
    Counter::TxRedundant,
    Counter::TxAckShort,
    Counter::TxAckLong,
    Counter::TxNak,
    Counter::TxProbe,
];

/// What must not have happened to a card.
const NEVER: [Counter; 3] = [Counter::CqOverflow, Counter::DmaReadError, Counter::DmaWriteError];

fn check_card(number: u32, counters: &Counters, failures: u64, wrong: &mut Vec<String>) {
    for counter in [Counter::ConnErrors, Counter::WqeBad] {
        if counters.get(counter) > failures {
            wrong.push(format!("host {number}: {} is {}", counter.name(), counters.get(counter)));
        }
    }
    for counter in NEVER {
        if counters.get(counter) != 0 {
            wrong.push(format!("host {number}: {} is {}", counter.name(), counters.get(counter)));
        }
    }
    let (sent, frames) = (sum(counters, &SENT_KINDS), counters.get(Counter::TxFrames));
    if sent > frames {
        wrong.push(format!("host {number}: {sent} packets sent by kind in {frames} frames"));
    }
    let (taken, frames) = (taken(counters), counters.get(Counter::RxFrames));
    if taken > frames {
        wrong.push(format!("host {number}: {taken} packets received by kind in {frames} frames"));
    }
}

/// No card sent what another one has to drop or to refuse for good.
fn check_peers(number: u32, counters: &Counters, is_excused: impl Fn(Counter) -> bool, wrong: &mut Vec<String>) {
    let refused = COUNTERS.iter().filter(|info| matches!(info.class, Class::Drop | Class::Nak(_)));
    for info in refused.filter(|info| !is_excused(info.counter) && counters.get(info.counter) > 0) {
        wrong.push(format!("host {number}: {} is {}", info.counter.name(), counters.get(info.counter)));
    }
}

/// True for what the peer may do without being wrong.
fn is_excused(counter: Counter, scenario: &Scenario, bootstraps: bool) -> bool {
    let plan = &scenario.plan;
    match counter {
        // The peer is asked for a receive that is not there; it granted what the card has not heard of yet.
        Counter::NakRnr | Counter::RxDuplicate | Counter::RxConnError => true,
        // Its window of messages is smaller, or it is asked for answers while some are not acknowledged.
        Counter::NakNoResource => {
            !plan.has_even_windows || plan.hosts.iter().flat_map(|host| &host.conns).any(|conn| conn.is_asked)
        }
        // The peer asks for more paths than this side opens, or a copy comes by a path that is closed.
        Counter::RxUnknownPath => bootstraps || plan.has_closings,
        // An acknowledgement may be older than a window.
        Counter::RxBadAck => scenario.faults.has_delay,
        _ => false,
    }
}

fn sum(counters: &Counters, which: &[Counter]) -> u64 {
    which.iter().map(|counter| counters.get(*counter)).sum()
}

/// Frames received that are counted by kind. An acknowledgement that says nonsense is counted as such besides.
fn taken(counters: &Counters) -> u64 {
    let refused = COUNTERS.iter().filter(|info| matches!(info.class, Class::Drop | Class::Nak(_)));
    let refused: u64 = refused.map(|info| counters.get(info.counter)).sum();
    refused - counters.get(Counter::RxBadAck) + sum(counters, &[Counter::RxData, Counter::RxAck])
}

fn check_frames(fabric: &Fabric, scenario: &Scenario, cards: &[&Counters], tag_bytes: u64, wrong: &mut Vec<String>) {
    let stats = fabric.stats();
    let total = |counter: Counter| -> u64 { cards.iter().map(|counters| counters.get(counter)).sum() };
    let mut equal = |what: &str, is: u64, should: u64| {
        if is != should {
            wrong.push(format!("{what}: {is}, not {should}"));
        }
    };
    let accounted = stats.delivered + stats.drops.total() + stats.in_flight;
    equal("frames delivered, dropped and in flight", accounted, stats.sent + stats.duplicated);
    equal("frames the cards sent", total(Counter::TxFrames), stats.sent);
    equal("frames the cards received", total(Counter::RxFrames), stats.delivered);
    equal("bytes the cards received", total(Counter::RxBytes), stats.delivered_bytes + tag_bytes);
    // What a connection had under way when it failed need not be accepted.
    if scenario.plan.doomed_conns == 0 {
        equal("data packets accepted", total(Counter::RxData), total(Counter::TxData));
        equal("bytes accepted", total(Counter::RxDataBytes), total(Counter::TxDataBytes));
        let messages = scenario.plan.hosts.iter().map(|host| host.tx_messages).sum();
        equal("messages placed", total(Counter::RxMessages), messages);
    }
    let keeps_order = !scenario.network.is_spraying && !scenario.faults.has_delay && !scenario.faults.has_core_outage;
    let needless = total(Counter::TxRedundant) + total(Counter::TxRtxRto);
    let mut at_most = |what: &str, is: u64, most: u64| {
        if is > most {
            wrong.push(format!("{what}: {is}, at most {most}"));
        }
    };
    // Where packets keep their order, what a gap shows to be lost is lost.
    if keeps_order {
        at_most("duplicates received", total(Counter::RxDuplicate), needless);
    }
    // Nothing protects the mark of an IPv6 packet, so damage may set it.
    if !scenario.faults.has_damage {
        at_most("marked packets received", total(Counter::RxCe), stats.ecn_marked + stats.duplicated);
    }
    let unkind = |frames: Counter, kinds: u64| total(frames).saturating_sub(kinds);
    let sent_kinds: u64 = cards.iter().map(|counters| sum(counters, &SENT_KINDS)).sum();
    let taken_kinds: u64 = cards.iter().map(|counters| taken(counters)).sum();
    // Probes are not counted where they arrive, nor is what is neither data nor acknowledgement anywhere.
    let others = unkind(Counter::TxFrames, sent_kinds) + total(Counter::TxProbe) + stats.duplicated;
    at_most("packets received of no kind", unkind(Counter::RxFrames, taken_kinds), others);
}
