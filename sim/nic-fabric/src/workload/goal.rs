//! GOAL schedules, the text format of LogGOPSim.
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//!   l1: calc 100 cpu 0
//!   l2: send 8b to 1 tag 0
//!   l2 requires l1
//! }
//! rank 1 {
//!   l1: recv 8b from 0 tag 0
//! }
//! ```
//!
//! `requires` waits until the other is done, `irequires` until it has started. A `calc` takes so many nanoseconds; hosts
//! have as many CPUs as they need, so `cpu` and `nic` numbers are read and mean nothing. Sends and receives of a pair of ranks
//! and a tag match in the order in which they are written.

use std::collections::BTreeMap;

use crate::workload::error::{lines, shown, ParseError, Place, Source, Words};
use crate::workload::graph::{
    Action, Builder, Message, MessageId, StepId, Verb, Workload, WorkloadError, HOST_COUNT_MAX, MESSAGE_BYTES_MAX,
};
use crate::PS_PER_NS;

/// One line with a label.
struct Operation {
    line: u32,
    step: StepId,
    /// What must be done before it starts.
    after: Vec<usize>,
    /// What must have started before it starts.
    after_start: Vec<usize>,
}

/// Sends and receives of one pair and tag, to be matched.
#[derive(Default)]
struct Channel {
    sends: Vec<Half>,
    receives: Vec<Half>,
}

#[derive(Clone, Copy)]
struct Half {
    line: u32,
    bytes: u64,
    rank: u32,
    /// Place in the rank's list of operations.
    operation: usize,
}

struct Rank {
    operations: Vec<Operation>,
    labels: BTreeMap<String, usize>,
}

/// Reads a schedule.
///
/// # Errors
/// [`ParseError`] with the line.
pub fn parse(file: &str, text: &str) -> Result<Workload, ParseError> {
    Reader::new(Source { file }, text)?.read(text)
}

struct Reader<'a> {
    source: Source<'a>,
    rank_count: u32,
    ranks: Vec<Option<Rank>>,
    channels: BTreeMap<(u32, u32, u64), Channel>,
    /// What each operation is, in the order of the file: (rank, place, action).
    actions: Vec<(u32, usize, Kind)>,
}

#[derive(Clone, Copy)]
enum Kind {
    Calc { duration_ps: u64 },
    Message,
}

impl<'a> Reader<'a> {
    fn new(source: Source<'a>, text: &str) -> Result<Reader<'a>, ParseError> {
        let Some((line, first)) = lines(text).next() else {
            return Err(source.error(Place::Whole, "\"num_ranks\" and their number", "an empty file"));
        };
        let mut words = Words::new(source, line, first);
        words.expect("num_ranks")?;
        let rank_count = words.number("a number of ranks", u64::from(HOST_COUNT_MAX))? as u32;
        words.end()?;
        let ranks = (0..rank_count).map(|_| None).collect();
        Ok(Reader { source, rank_count, ranks, channels: BTreeMap::new(), actions: Vec::new() })
    }

    fn read(mut self, text: &str) -> Result<Workload, ParseError> {
        let mut current: Option<(u32, u32)> = None;
        for (line, text) in lines(text).skip(1) {
            let mut words = Words::new(self.source, line, text);
            let first = words.next();
            match (current, first) {
                (None, Some("rank")) => {
                    let rank = self.rank(&mut words, "a rank")?;
                    words.expect("{")?;
                    if self.ranks[rank as usize].is_some() {
                        return Err(words.error("each rank once", Some(&rank.to_string())));
                    }
                    self.ranks[rank as usize] = Some(Rank { operations: Vec::new(), labels: BTreeMap::new() });
                    current = Some((rank, line));
                }
                (None, other) => return Err(words.error("\"rank\"", other)),
                (Some(_), Some("}")) => current = None,
                (Some((rank, _)), Some(word)) => self.line(rank, line, word, &mut words)?,
                (Some(_), None) => {}
            }
            words.end()?;
        }
        if let Some((rank, line)) = current {
            return Err(self.source.at_line(line, format!("\"}}\" at the end of rank {rank}"), "the end of the file"));
        }
        self.build()
    }

    fn rank(&self, words: &mut Words<'_>, what: &str) -> Result<u32, ParseError> {
        words.number(what, u64::from(self.rank_count.max(1) - 1)).map(|rank| rank as u32)
    }

    fn line(&mut self, rank: u32, line: u32, first: &str, words: &mut Words<'_>) -> Result<(), ParseError> {
        match first.strip_suffix(':') {
            Some(label) => self.operation(rank, line, label, words),
            None => self.requirement(rank, line, first, words),
        }
    }

    fn operation(&mut self, rank: u32, line: u32, label: &str, words: &mut Words<'_>) -> Result<(), ParseError> {
        let place = self.ranks[rank as usize].as_ref().map_or(0, |entry| entry.operations.len());
        let kind = match words.next() {
            Some("calc") => {
                let ns = words.number("a time in nanoseconds", crate::TIME_PS_MAX / PS_PER_NS)?;
                Kind::Calc { duration_ps: ns * PS_PER_NS }
            }
            Some(verb @ ("send" | "recv")) => {
                let size = words.next();
                let digits = size.and_then(|word| word.strip_suffix('b')).unwrap_or("");
                let bytes = words.parse(size, digits, "a size such as \"8b\", in bytes", MESSAGE_BYTES_MAX)?;
                let is_send = verb == "send";
                words.expect(if is_send { "to" } else { "from" })?;
                let peer = self.rank(words, "a rank")?;
                if peer == rank {
                    return Err(words.error("another rank", Some(&peer.to_string())));
                }
                words.expect("tag")?;
                let tag = words.number("a tag", u64::MAX)?;
                let half = Half { line, bytes, rank, operation: place };
                if is_send {
                    self.channels.entry((rank, peer, tag)).or_default().sends.push(half);
                } else {
                    self.channels.entry((peer, rank, tag)).or_default().receives.push(half);
                }
                Kind::Message
            }
            other => return Err(words.error("\"send\", \"recv\" or \"calc\"", other)),
        };
        while let Some(word) = words.next() {
            match word {
                "cpu" | "nic" => drop(words.number("its number", u64::MAX)?),
                other => return Err(words.error("\"cpu\", \"nic\" or the end of the line", Some(other))),
            }
        }
        let Some(entry) = &mut self.ranks[rank as usize] else { return Ok(()) };
        if let Some(other) = entry.labels.insert(label.into(), place) {
            let found = format!("\"{label}\", which line {} has", entry.operations[other].line);
            return Err(self.source.at_line(line, "a new label", found));
        }
        self.actions.push((rank, place, kind));
        entry.operations.push(Operation { line, step: StepId(0), after: Vec::new(), after_start: Vec::new() });
        Ok(())
    }

    fn requirement(&mut self, rank: u32, line: u32, label: &str, words: &mut Words<'_>) -> Result<(), ParseError> {
        let is_start = match words.next() {
            Some("requires") => false,
            Some("irequires") => true,
            other => {
                let expected = "a label with \":\", or a label and \"requires\" or \"irequires\"";
                return Err(words.error(expected, other.or(Some(label))));
            }
        };
        let other = words.next();
        let Some(entry) = &mut self.ranks[rank as usize] else { return Ok(()) };
        let find = |word: Option<&str>| {
            let place = word.and_then(|word| entry.labels.get(word)).copied();
            place.ok_or_else(|| self.source.at_line(line, "a label of an earlier line of this rank", shown(word)))
        };
        let (place, before) = (find(Some(label))?, find(other)?);
        let operation = &mut entry.operations[place];
        if is_start {
            operation.after_start.push(before);
        } else {
            operation.after.push(before);
        }
        Ok(())
    }

    fn build(mut self) -> Result<Workload, ParseError> {
        let mut builder = Builder::new(self.rank_count);
        let messages = self.match_channels(&mut builder)?;
        let mut line_of = Vec::new();
        for &(rank, place, kind) in &self.actions {
            let action = match kind {
                Kind::Calc { duration_ps } => Action::Wait { duration_ps },
                Kind::Message => messages[&(rank, place)],
            };
            let Some(entry) = &mut self.ranks[rank as usize] else { continue };
            // A gate before each operation: what it waits for in order to start. Who waits only for the start of an operation
            // comes after its gate.
            let gate = builder.wait(rank, 0, &[]);
            entry.operations[place].step = builder.step(rank, action, &[gate]);
            line_of.extend([entry.operations[place].line; 2]);
        }
        for entry in self.ranks.iter().flatten() {
            let gate = |place: usize| StepId(entry.operations[place].step.0 - 1);
            for (place, operation) in entry.operations.iter().enumerate() {
                operation.after.iter().for_each(|before| builder.order(entry.operations[*before].step, gate(place)));
                operation.after_start.iter().for_each(|before| builder.order(gate(*before), gate(place)));
            }
        }
        builder.build().map_err(|error| {
            let line = match &error {
                WorkloadError::Cycle(step) => line_of.get(step.0 as usize).copied(),
                _ => None,
            };
            let place = line.map_or(Place::Whole, Place::Line);
            self.source.error(place, "operations that do not wait for themselves", error.to_string())
        })
    }

    /// Makes a message of each send and the receive it belongs to.
    fn match_channels(&self, builder: &mut Builder) -> Result<BTreeMap<(u32, usize), Action>, ParseError> {
        let mut actions = BTreeMap::new();
        // Streams count the tags of a pair, so that each has an order of its own.
        let mut streams: BTreeMap<(u32, u32), u16> = BTreeMap::new();
        for (&(src, dst, tag), channel) in &self.channels {
            let stream = *streams.entry((src, dst)).and_modify(|stream| *stream = stream.wrapping_add(1)).or_insert(0);
            for (send, receive) in channel.sends.iter().zip(&channel.receives) {
                if send.bytes != receive.bytes {
                    let expected = format!("{}b, which line {} sends", send.bytes, send.line);
                    return Err(self.source.at_line(receive.line, expected, format!("{}b", receive.bytes)));
                }
                let message: MessageId =
                    builder.message(Message { src, dst, bytes: send.bytes, verb: Verb::Write, stream });
                actions.insert((send.rank, send.operation), Action::Send(message));
                actions.insert((receive.rank, receive.operation), Action::Receive(message));
            }
            let matched = channel.sends.len().min(channel.receives.len());
            if let Some(half) = channel.sends.get(matched) {
                let expected = format!("a \"recv\" from {src} with tag {tag} at rank {dst} for this \"send\"");
                return Err(self.source.at_line(half.line, expected, "none"));
            }
            if let Some(half) = channel.receives.get(matched) {
                let expected = format!("a \"send\" to {dst} with tag {tag} at rank {src} for this \"recv\"");
                return Err(self.source.at_line(half.line, expected, "none"));
            }
        }
        Ok(actions)
    }
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
    fn sample_binary_tree_is_read_and_takes_its_depth() {
        let workload = parse("tree", include_str!("samples/goal/binary_tree_32.goal.txt")).unwrap();
        assert_eq!((workload.host_count(), workload.messages().len()), (32, 31));
        // The longest way is through five messages: 0, 1, 3, 7, 15, 31.
        assert_eq!(LINE.duration_ps(&workload), 5 * 1_001);
    }

    #[test]
    fn calc_delays_what_requires_it_and_not_what_requires_its_start() {
        let duration = |word: &str| {
            let text = format!(
                "num_ranks 2\nrank 0 {{\nl1: calc 7 cpu 1\nl2: send 10b to 1 tag 3 nic 0\nl2 {word} l1\n}}\n\
                 rank 1 {{\nl1: recv 10b from 0 tag 3\n}}"
            );
            LINE.duration_ps(&parse("x", &text).unwrap())
        };
        assert_eq!((duration("requires"), duration("irequires")), (7_000 + 10 + 1_000, 7_000));
    }

    #[test]
    fn same_pair_and_tag_match_in_the_order_of_the_file() {
        let text = "num_ranks 2\nrank 0 {\na: send 1b to 1 tag 0\nb: send 2b to 1 tag 0\nc: send 3b to 1 tag 9\n}\n\
            rank 1 {\nc: recv 3b from 0 tag 9\na: recv 1b from 0 tag 0\nb: recv 2b from 0 tag 0\n}";
        let workload = parse("x", text).unwrap();
        assert_eq!(
            workload.messages().iter().map(|message| (message.bytes, message.stream)).collect::<Vec<_>>(),
            [(1, 0), (2, 0), (3, 1)]
        );
    }

    #[test]
    fn error_says_file_line_and_what_was_expected() {
        let check = |text: &str, expected: &str| {
            assert_eq!(parse("x.goal", text).unwrap_err().to_string(), expected);
        };
        check("ranks 2", "x.goal:1: expected \"num_ranks\", found \"ranks\"");
        check("num_ranks 2\nl1: calc 3", "x.goal:2: expected \"rank\", found \"l1:\"");
        check("num_ranks 2\nrank 2 {", "x.goal:2: expected a rank from 0 to 1, found \"2\"");
        check(
            "num_ranks 2\nrank 0 {\nl1: sned 3b to 1 tag 0\n}",
            "x.goal:3: expected \"send\", \"recv\" or \"calc\", found \"sned\"",
        );
        check(
            "num_ranks 2\nrank 0 {\nl1: send 3 to 1 tag 0\n}",
            "x.goal:3: expected a size such as \"8b\", in bytes from 0 to 2147483648, found \"3\"",
        );
        check(
            "num_ranks 2\nrank 0 {\nl1: calc 3\nl2 requires l1\n}",
            "x.goal:4: expected a label of an earlier line of this rank, found \"l2\"",
        );
        check(
            "num_ranks 2\nrank 0 {\nl1: calc 3\n",
            "x.goal:2: expected \"}\" at the end of rank 0, found the end of the file",
        );
        check(
            "num_ranks 2\nrank 0 {\nl1: send 3b to 1 tag 0\n}",
            "x.goal:3: expected a \"recv\" from 0 with tag 0 at rank 1 for this \"send\", found none",
        );
        check(
            "num_ranks 2\nrank 0 {\nl1: send 3b to 1 tag 0\n}\nrank 1 {\nl1: recv 4b from 0 tag 0\n}",
            "x.goal:6: expected 3b, which line 3 sends, found 4b",
        );
        let text = "num_ranks 1\nrank 0 {\na: calc 1\nb: calc 1\na requires b\nb requires a\n}";
        let cycle = parse("x.goal", text).unwrap_err();
        assert!(matches!(cycle.place, Place::Line(3 | 4)), "{cycle}");
    }
}
