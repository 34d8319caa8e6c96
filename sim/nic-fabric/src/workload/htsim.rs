//! htsim connection matrices (`.cm`).
//!
//! ```text
//! Nodes 4
//! Connections 2
//! Triggers 1
//! 0->1 id 1 start 0 size 2000000 send_done_trigger 1
//! 1->2 id 2 trigger 1 size 1000000
//! trigger id 1 oneshot
//! ```
//!
//! `start` is in picoseconds, `size` in bytes. A trigger is `oneshot` (fired once, starts all that wait for it),
//! `multishot` (each firing starts the next that waits) or `barrier count N` (fired N times, starts all). In htsim a trigger
//! works everywhere at once; here hosts learn nothing but by messages, so where it crosses hosts it costs one of
//! [`SIGNAL_BYTES`] bytes.

use std::collections::BTreeMap;

use crate::workload::collective::parts;
use crate::workload::error::{lines, ParseError, Place, Source, Words};
use crate::workload::graph::{
    Action, Builder, Message, StepId, Verb, Workload, WorkloadError, HOST_COUNT_MAX, MESSAGE_BYTES_MAX,
};

/// Size of the message that carries a trigger to another host.
pub const SIGNAL_BYTES: u64 = 8;

/// Stream of the messages that carry triggers.
const SIGNAL_STREAM: u16 = u16::MAX;

/// Most connections and triggers of a file.
const CONNECTION_COUNT_MAX: u64 = 1 << 22;

struct Flow {
    line: u32,
    src: u32,
    dst: u32,
    id: u64,
    size_bytes: u64,
    start_ps: Option<u64>,
    starts_on: Option<u64>,
    fires_when_sent: Option<u64>,
    fires_when_received: Option<u64>,
}

#[derive(Clone, Copy)]
enum Trigger {
    /// Fired so many times, it starts all that wait for it.
    All { count: u64 },
    /// Each firing starts the next that waits.
    Each,
}

/// Reads a connection matrix.
///
/// # Errors
/// [`ParseError`] with the line.
pub fn parse(file: &str, text: &str) -> Result<Workload, ParseError> {
    let source = Source { file };
    let mut node_count = None;
    let (mut flow_count, mut trigger_count) = (None, None);
    let mut flows: Vec<Flow> = Vec::new();
    let mut triggers: BTreeMap<u64, (u32, Trigger)> = BTreeMap::new();
    for (line, text) in lines(text) {
        let mut words = Words::new(source, line, text);
        match words.next() {
            Some("Nodes") => node_count = Some(words.number("a number of nodes", u64::from(HOST_COUNT_MAX))? as u32),
            Some("Connections") => {
                flow_count = Some((line, words.number("a number of connections", CONNECTION_COUNT_MAX)?));
            }
            Some("Triggers") => {
                trigger_count = Some((line, words.number("a number of triggers", CONNECTION_COUNT_MAX)?));
            }
            Some("trigger") => {
                let (id, trigger) = read_trigger(&mut words)?;
                if let Some((first, _)) = triggers.insert(id, (line, trigger)) {
                    return Err(source.at_line(line, "a new trigger id", format!("{id}, which line {first} has")));
                }
            }
            Some(pair) if pair.contains("->") => {
                let Some(count) = node_count else {
                    return Err(words.error("\"Nodes\" and their number before the first connection", Some(pair)));
                };
                flows.push(read_flow(&mut words, line, pair, count)?);
            }
            other => return Err(words.error(EXPECTED_LINE, other)),
        }
        words.end()?;
    }
    let Some(node_count) = node_count else {
        return Err(source.error(Place::Whole, "a line \"Nodes\" with their number", "none"));
    };
    for (what, announced, found) in
        [("connections", flow_count, flows.len()), ("triggers", trigger_count, triggers.len())]
    {
        if let Some((line, count)) = announced.filter(|announced| announced.1 != found as u64) {
            return Err(source.at_line(line, format!("the number of {what} that follow, {found}"), count.to_string()));
        }
    }
    build(source, node_count, &flows, &triggers)
}

const EXPECTED_LINE: &str = "\"Nodes\", \"Connections\", \"Triggers\", a connection such as \"0->1\", or \"trigger\"";

fn read_flow(words: &mut Words<'_>, line: u32, pair: &str, node_count: u32) -> Result<Flow, ParseError> {
    let (src, dst) = pair.split_once("->").unwrap_or((pair, ""));
    let last = u64::from(node_count.max(1) - 1);
    let node = |text: &str| words.parse(Some(pair), text, "a connection of nodes", last).map(|node| node as u32);
    let (src, dst) = (node(src)?, node(dst)?);
    if src == dst {
        return Err(words.error("a connection between two nodes", Some(pair)));
    }
    let mut flow = Flow {
        line,
        src,
        dst,
        id: 0,
        size_bytes: 0,
        start_ps: None,
        starts_on: None,
        fires_when_sent: None,
        fires_when_received: None,
    };
    let mut size_bytes = None;
    while let Some(key) = words.next() {
        match key {
            "id" => flow.id = words.number("an id", u64::MAX)?,
            "start" => flow.start_ps = Some(words.number("a start in picoseconds", crate::TIME_PS_MAX)?),
            "size" => size_bytes = Some(words.number("a size in bytes", 1 << 40)?),
            "trigger" => flow.starts_on = Some(words.number("a trigger id", u64::MAX)?),
            "send_done_trigger" => flow.fires_when_sent = Some(words.number("a trigger id", u64::MAX)?),
            "recv_done_trigger" => flow.fires_when_received = Some(words.number("a trigger id", u64::MAX)?),
            "prio" => drop(words.number("a priority", u64::MAX)?),
            other => return Err(words.error(EXPECTED_KEY, Some(other))),
        }
    }
    flow.size_bytes = size_bytes.ok_or_else(|| words.error("\"size\" and a number of bytes", None))?;
    if flow.start_ps.is_none() && flow.starts_on.is_none() {
        return Err(words.error("\"start\" or \"trigger\"", None));
    }
    Ok(flow)
}

const EXPECTED_KEY: &str =
    "\"id\", \"start\", \"size\", \"trigger\", \"send_done_trigger\", \"recv_done_trigger\" or \"prio\"";

fn read_trigger(words: &mut Words<'_>) -> Result<(u64, Trigger), ParseError> {
    words.expect("id")?;
    let id = words.number("a trigger id", u64::MAX)?;
    let trigger = match words.next() {
        Some("oneshot") => Trigger::All { count: 1 },
        Some("multishot") => Trigger::Each,
        Some("barrier") => {
            words.expect("count")?;
            Trigger::All { count: words.number("a number of firings", CONNECTION_COUNT_MAX)? }
        }
        other => return Err(words.error("\"oneshot\", \"multishot\" or \"barrier\"", other)),
    };
    Ok((id, trigger))
}

fn build(
    source: Source<'_>,
    node_count: u32,
    flows: &[Flow],
    triggers: &BTreeMap<u64, (u32, Trigger)>,
) -> Result<Workload, ParseError> {
    let mut builder = Builder::new(node_count);
    // Steps that fire each trigger, and those that wait for it.
    let mut firings: BTreeMap<u64, Vec<StepId>> = BTreeMap::new();
    let mut waits: BTreeMap<u64, Vec<StepId>> = BTreeMap::new();
    // Per step the line it comes from.
    let mut line_of: Vec<u32> = Vec::new();
    for flow in flows {
        for trigger in [flow.starts_on, flow.fires_when_sent, flow.fires_when_received].into_iter().flatten() {
            if !triggers.contains_key(&trigger) {
                let found = format!("{trigger}, which no line declares");
                return Err(source.at_line(flow.line, "the id of a trigger", found));
            }
        }
        // A trigger frees the gate, then the start counts.
        let gate = builder.wait(flow.src, 0, &[]);
        let start = builder.wait(flow.src, flow.start_ps.unwrap_or(0), &[gate]);
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        // Larger than one message may be: several, all at once.
        for bytes in parts(flow.size_bytes, flow.size_bytes.div_ceil(MESSAGE_BYTES_MAX).max(1)) {
            let (send, receive) = builder.write(flow.src, flow.dst, bytes, 0, &[start]);
            sends.push(send);
            receives.push(receive);
        }
        if let Some(trigger) = flow.fires_when_sent {
            firings.entry(trigger).or_default().push(builder.wait(flow.src, 0, &sends));
        }
        if let Some(trigger) = flow.fires_when_received {
            firings.entry(trigger).or_default().push(builder.wait(flow.dst, 0, &receives));
        }
        if let Some(trigger) = flow.starts_on {
            waits.entry(trigger).or_default().push(gate);
        }
        line_of.resize(builder.step_count(), flow.line);
    }
    for (id, gates) in &waits {
        let (line, trigger) = triggers[id];
        let fired = firings.get(id).map_or(&[][..], Vec::as_slice);
        for (place, gate) in (1..).zip(gates) {
            let (need, what) = match trigger {
                Trigger::All { count } => (count, "all that wait for it"),
                Trigger::Each => (place, "each that waits for it"),
            };
            if need > fired.len() as u64 {
                let found = format!("{} connections that fire it", fired.len());
                return Err(source.at_line(line, format!("{need} firings to start {what}"), found));
            }
            let host = builder.host_of(*gate);
            for step in fired {
                let here = carry(&mut builder, *step, host);
                builder.order(here, *gate);
            }
            builder.need(*gate, need as u32);
        }
        line_of.resize(builder.step_count(), line);
    }
    builder.build().map_err(|error| {
        let line = match &error {
            WorkloadError::Cycle(step) => line_of.get(step.0 as usize).copied(),
            _ => None,
        };
        let place = line.map_or(Place::Whole, Place::Line);
        source.error(place, "connections that do not wait for themselves", error.to_string())
    })
}

/// A step at `host` that is done when `step` is: itself, or the reception of a signal.
fn carry(builder: &mut Builder, step: StepId, host: u32) -> StepId {
    let at = builder.host_of(step);
    if at == host {
        return step;
    }
    let message = Message { src: at, dst: host, bytes: SIGNAL_BYTES, verb: Verb::Write, stream: SIGNAL_STREAM };
    let message = builder.message(message);
    builder.step(at, Action::Send(message), &[step]);
    builder.step(host, Action::Receive(message), &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::floor::Floor;

    const LINE: Floor = Floor {
        rate_mbps: 8_000_000,
        latency_ps: 1_000,
        short_latency_ps: 1_000,
        mtu_bytes: 1 << 20,
        overhead_bytes: 0,
    };

    #[test]
    fn sample_permutation_is_read() {
        let workload = parse("perm", include_str!("samples/htsim/perm_32n_32c_2MB.cm")).unwrap();
        assert_eq!((workload.host_count(), workload.messages().len(), workload.bytes()), (32, 32, 64_000_000));
        let first = workload.messages()[0];
        assert_eq!((first.src, first.dst, first.bytes), (19, 0, 2_000_000));
    }

    #[test]
    fn sample_outcast_incast_is_read() {
        let workload = parse("oi", include_str!("samples/htsim/outcast_incast.cm")).unwrap();
        assert_eq!((workload.host_count(), workload.messages().len()), (128, 21));
        assert_eq!(workload.messages().iter().filter(|message| message.dst == 0).count(), 3);
    }

    #[test]
    fn start_is_in_picoseconds() {
        let workload = parse("x", "Nodes 2\nConnections 1\n0->1 id 1 start 5000 size 100\n").unwrap();
        assert_eq!(LINE.duration_ps(&workload), 5_000 + 100 + 1_000);
    }

    #[test]
    fn trigger_starts_what_waits_when_the_sender_knows() {
        let text = "Nodes 3\nConnections 2\nTriggers 1\n\
            0->1 id 1 start 0 size 100 send_done_trigger 1\n0->2 id 2 trigger 1 size 100\ntrigger id 1 oneshot\n";
        let workload = parse("x", text).unwrap();
        assert_eq!(LINE.duration_ps(&workload), 100 + 2_000 + 100 + 1_000);
    }

    #[test]
    fn trigger_between_hosts_costs_a_small_message() {
        let text = "Nodes 3\nConnections 2\nTriggers 1\n\
            0->1 id 1 start 0 size 100 send_done_trigger 7\n1->2 id 2 trigger 7 size 100\ntrigger id 7 oneshot\n";
        let workload = parse("x", text).unwrap();
        assert_eq!(workload.messages().len(), 3);
        let signal = workload.messages()[2];
        assert_eq!((signal.src, signal.dst, signal.bytes), (0, 1, SIGNAL_BYTES));
    }

    #[test]
    fn multishot_starts_one_a_firing_and_barrier_all_at_the_last() {
        let flows =
            "0->1 id 1 start 0 size 100 recv_done_trigger 1\n0->1 id 2 start 50000 size 100 recv_done_trigger 1\n\
            1->0 id 3 trigger 1 size 100\n1->0 id 4 trigger 1 size 100\n";
        let starts = |kind: &str| {
            let text = format!("Nodes 2\nConnections 4\nTriggers 1\n{flows}trigger id 1 {kind}\n");
            let workload = std::sync::Arc::new(parse("x", &text).unwrap());
            let mut player = super::super::Player::new(workload, 1);
            let mut requests = Vec::new();
            player.start(0, &mut requests);
            player.on_arrival(super::super::MessageId(0), 1_000, &mut requests);
            let first = requests.len();
            player.on_arrival(super::super::MessageId(1), 2_000, &mut requests);
            (first, requests.len())
        };
        assert_eq!((starts("multishot"), starts("barrier count 2")), ((1, 2), (0, 2)));
    }

    #[test]
    fn error_says_file_line_and_what_was_expected() {
        let check = |text: &str, expected: &str| {
            assert_eq!(parse("my.cm", text).unwrap_err().to_string(), expected);
        };
        check("Nodes 4\nfoo 3\n", &format!("my.cm:2: expected {EXPECTED_LINE}, found \"foo\""));
        check(
            "Nodes 4\n0->1 id 1 start 0 size 2MB",
            "my.cm:2: expected a size in bytes from 0 to 1099511627776, found \"2MB\"",
        );
        check("Nodes 4\n\n0->9 size 1", "my.cm:3: expected a connection of nodes from 0 to 3, found \"0->9\"");
        check("Nodes 4\n1->1 size 1", "my.cm:2: expected a connection between two nodes, found \"1->1\"");
        check("Nodes 4\n0->1 start 0", "my.cm:2: expected \"size\" and a number of bytes, found the end of the line");
        check("Nodes 4\n0->1 size 5", "my.cm:2: expected \"start\" or \"trigger\", found the end of the line");
        check(
            "Nodes 4\nConnections 2\n0->1 start 0 size 5",
            "my.cm:2: expected the number of connections that follow, 1, found 2",
        );
        check(
            "0->1 start 0 size 5",
            "my.cm:1: expected \"Nodes\" and their number before the first connection, found \"0->1\"",
        );
        check("", "my.cm: expected a line \"Nodes\" with their number, found none");
        check(
            "Nodes 2\n0->1 trigger 1 size 5\ntrigger id 1 oneshot",
            "my.cm:3: expected 1 firings to start all that wait for it, found 0 connections that fire it",
        );
        check(
            "Nodes 2\n0->1 trigger 1 size 5",
            "my.cm:2: expected the id of a trigger, found 1, which no line declares",
        );
        let cycle =
            parse("my.cm", "Nodes 2\n0->1 trigger 1 size 5 send_done_trigger 1\ntrigger id 1 oneshot").unwrap_err();
        assert_eq!(cycle.place, Place::Line(2), "{cycle}");
    }
}
