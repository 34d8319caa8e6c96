//! MSCCL algorithms (XML): per GPU thread blocks of steps that receive, reduce, copy and send chunks.
//!
//! ```text
//! <algo name=".." nchunksperloop="8" ngpus="8" coll="allreduce">
//!   <gpu id="0">
//!     <tb id="0" send="1" recv="7" chan="0">
//!       <step s="0" type="s" cnt="1" depid="-1" deps="-1"/>
//! ```
//!
//! The file says nothing of bytes: the caller gives the size of the buffer that `nchunksperloop` chunks make up. A thread
//! block goes on when a reception is done, and at once when a send is handed over, as NCCL does; `depid`, `deps` wait until
//! the step of another thread block has its data. Channel `chan` is a stream, on which sends and receptions of a pair match
//! in order. Reducing and copying take no time.

use std::collections::BTreeMap;

use roxmltree::{Document, Node};

use crate::workload::error::{ParseError, Place, Source};
use crate::workload::graph::{
    Action, Builder, Message, StepId, Verb, Workload, WorkloadError, HOST_COUNT_MAX, MESSAGE_BYTES_MAX,
};

/// Sends and receptions of a pair on a channel, each with the step's gate.
#[derive(Default)]
struct Channel {
    sends: Vec<End>,
    receives: Vec<End>,
}

#[derive(Clone, Copy)]
struct End {
    line: u32,
    chunks: u64,
    /// Place in the list of steps.
    place: usize,
}

/// A `<step>`.
struct StepEntry {
    line: u32,
    gpu: u32,
    /// Place of the step before it in its thread block.
    previous: Option<usize>,
    depends_on: Option<(u64, u64)>,
    gate: StepId,
    receive: Option<StepId>,
    send: Option<StepId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    receives: bool,
    sends: bool,
}

/// Reads an algorithm and applies it to a buffer of `bytes`.
///
/// # Errors
/// [`ParseError`] with the line.
pub fn parse(file: &str, text: &str, bytes: u64) -> Result<Workload, ParseError> {
    let source = Source { file };
    let document =
        Document::parse(text).map_err(|error| source.at_line(error.pos().row, "well-formed XML", error.to_string()))?;
    Reader { source, document: &document, bytes }.read()
}

struct Reader<'a> {
    source: Source<'a>,
    document: &'a Document<'a>,
    bytes: u64,
}

impl<'a> Reader<'a> {
    fn line(&self, node: Node<'_, '_>) -> u32 {
        self.document.text_pos_at(node.range().start).row
    }

    fn error(&self, node: Node<'_, '_>, expected: impl Into<String>, found: impl Into<String>) -> ParseError {
        self.source.at_line(self.line(node), expected, found)
    }

    /// Child elements, which must all have this name.
    fn children(&self, node: Node<'a, 'a>, name: &str) -> Result<Vec<Node<'a, 'a>>, ParseError> {
        let children: Vec<_> = node.children().filter(Node::is_element).collect();
        match children.iter().find(|child| !child.has_tag_name(name)) {
            Some(other) => Err(self.error(*other, format!("<{name}>"), format!("<{}>", other.tag_name().name()))),
            None => Ok(children),
        }
    }

    fn text(&self, node: Node<'a, 'a>, name: &str) -> Result<&'a str, ParseError> {
        let missing = || self.error(node, format!("{name}=\"...\" in <{}>", node.tag_name().name()), "none");
        node.attribute(name).ok_or_else(missing)
    }

    /// An attribute as a number up to `max`; `None` for -1.
    fn number_or_none(&self, node: Node<'a, 'a>, name: &str, max: u64) -> Result<Option<u64>, ParseError> {
        let text = self.text(node, name)?;
        if text == "-1" {
            return Ok(None);
        }
        let number = text.parse::<u64>().ok().filter(|number| *number <= max);
        let wrong = || self.error(node, format!("{name} from 0 to {max}, or -1"), format!("\"{text}\""));
        number.map(Some).ok_or_else(wrong)
    }

    fn number(&self, node: Node<'a, 'a>, name: &str, max: u64) -> Result<u64, ParseError> {
        let wrong = || self.error(node, format!("{name} from 0 to {max}"), "\"-1\"");
        self.number_or_none(node, name, max)?.ok_or_else(wrong)
    }

    fn read(&self) -> Result<Workload, ParseError> {
        let algo = self.document.root_element();
        if !algo.has_tag_name("algo") {
            return Err(self.error(algo, "<algo>", format!("<{}>", algo.tag_name().name())));
        }
        let gpu_count = self.number(algo, "ngpus", u64::from(HOST_COUNT_MAX))? as u32;
        let chunk_count = self.number(algo, "nchunksperloop", 1 << 20)?;
        if chunk_count == 0 {
            return Err(self.error(algo, "nchunksperloop of at least 1", "\"0\""));
        }
        let mut entries: Vec<StepEntry> = Vec::new();
        let mut channels: BTreeMap<(u32, u32, u16), Channel> = BTreeMap::new();
        // (gpu, thread block, step) to its place.
        let mut places: BTreeMap<(u32, u64, u64), usize> = BTreeMap::new();
        for gpu in self.children(algo, "gpu")? {
            let id = self.number(gpu, "id", u64::from(gpu_count.max(1) - 1))? as u32;
            for block in self.children(gpu, "tb")? {
                self.block(id, gpu_count, block, &mut entries, &mut channels, &mut places)?;
            }
        }
        self.build(gpu_count, chunk_count, &mut entries, &channels, &places)
    }

    fn block(
        &self,
        gpu: u32,
        gpu_count: u32,
        block: Node<'a, 'a>,
        entries: &mut Vec<StepEntry>,
        channels: &mut BTreeMap<(u32, u32, u16), Channel>,
        places: &mut BTreeMap<(u32, u64, u64), usize>,
    ) -> Result<(), ParseError> {
        let block_id = self.number(block, "id", u64::from(u32::MAX))?;
        let peer_max = u64::from(gpu_count.max(1) - 1);
        let (to, from) = (self.number_or_none(block, "send", peer_max)?, self.number_or_none(block, "recv", peer_max)?);
        let channel = self.number(block, "chan", u64::from(u16::MAX))? as u16;
        let mut previous = None;
        for step in self.children(block, "step")? {
            let kind = self.kind(step)?;
            let chunks = self.number(step, "cnt", 1 << 20)?;
            let block_of_dep = self.number_or_none(step, "depid", u64::from(u32::MAX))?;
            let step_of_dep = self.number_or_none(step, "deps", u64::from(u32::MAX))?;
            let place = entries.len();
            let number = self.number(step, "s", u64::from(u32::MAX))?;
            if places.insert((gpu, block_id, number), place).is_some() {
                return Err(self.error(step, "a step with a new number", format!("s=\"{number}\" again")));
            }
            let end = End { line: self.line(step), chunks, place };
            let peer = |peer: Option<u64>, what: &str| {
                let other = peer.filter(|peer| *peer != u64::from(gpu)).map(|peer| peer as u32);
                other.ok_or_else(|| self.error(step, format!("a thread block with {what} of another GPU"), "none"))
            };
            if kind.sends {
                channels.entry((gpu, peer(to, "send")?, channel)).or_default().sends.push(end);
            }
            if kind.receives {
                channels.entry((peer(from, "recv")?, gpu, channel)).or_default().receives.push(end);
            }
            entries.push(StepEntry {
                line: end.line,
                gpu,
                previous,
                depends_on: block_of_dep.zip(step_of_dep),
                gate: StepId(0),
                receive: None,
                send: None,
            });
            previous = Some(place);
        }
        Ok(())
    }

    fn kind(&self, step: Node<'a, 'a>) -> Result<Kind, ParseError> {
        let (receives, sends) = match self.text(step, "type")? {
            "s" => (false, true),
            "r" | "rrc" => (true, false),
            "rcs" | "rrs" | "rrcs" => (true, true),
            "cpy" | "re" | "nop" => (false, false),
            other => {
                let expected = "type s, r, rcs, rrc, rrs, rrcs, cpy, re or nop";
                return Err(self.error(step, expected, format!("\"{other}\"")));
            }
        };
        Ok(Kind { receives, sends })
    }

    fn build(
        &self,
        gpu_count: u32,
        chunk_count: u64,
        entries: &mut [StepEntry],
        channels: &BTreeMap<(u32, u32, u16), Channel>,
        places: &BTreeMap<(u32, u64, u64), usize>,
    ) -> Result<Workload, ParseError> {
        let mut builder = Builder::new(gpu_count);
        let mut line_of = Vec::new();
        for place in 0..entries.len() {
            let before = entries[place].previous.map(|previous| entries[previous].gate);
            entries[place].gate = builder.wait(entries[place].gpu, 0, before.as_slice());
            line_of.push(entries[place].line);
        }
        for (&(src, dst, stream), channel) in channels {
            for (send, receive) in channel.sends.iter().zip(&channel.receives) {
                if send.chunks != receive.chunks {
                    let expected = format!("cnt=\"{}\", which line {} sends", send.chunks, send.line);
                    return Err(self.source.at_line(receive.line, expected, format!("\"{}\"", receive.chunks)));
                }
                let bytes = u128::from(self.bytes) * u128::from(send.chunks);
                let bytes = u64::try_from(bytes.div_ceil(u128::from(chunk_count))).unwrap_or(u64::MAX);
                if bytes > MESSAGE_BYTES_MAX {
                    let found = format!("{bytes} (use a smaller buffer)");
                    return Err(self.source.at_line(
                        send.line,
                        format!("messages of at most {MESSAGE_BYTES_MAX} bytes"),
                        found,
                    ));
                }
                let message = builder.message(Message { src, dst, bytes, verb: Verb::Write, stream });
                let (sender, receiver) = (entries[send.place].gate, entries[receive.place].gate);
                entries[send.place].send = Some(builder.step(src, Action::Send(message), &[sender]));
                line_of.push(send.line);
                entries[receive.place].receive = Some(builder.step(dst, Action::Receive(message), &[receiver]));
                line_of.push(receive.line);
            }
            let matched = channel.sends.len().min(channel.receives.len());
            if let Some(end) = channel.sends.get(matched) {
                let expected = format!("a step of GPU {dst} that receives this from {src} on channel {stream}");
                return Err(self.source.at_line(end.line, expected, "none"));
            }
            if let Some(end) = channel.receives.get(matched) {
                let expected = format!("a step of GPU {src} that sends this to {dst} on channel {stream}");
                return Err(self.source.at_line(end.line, expected, "none"));
            }
        }
        for entry in entries.iter() {
            if let (Some(receive), Some(send)) = (entry.receive, entry.send) {
                builder.order(receive, send);
            }
            if let Some(receive) = entry.previous.and_then(|previous| entries[previous].receive) {
                builder.order(receive, entry.gate);
            }
            if let Some((block, step)) = entry.depends_on {
                let Some(place) = places.get(&(entry.gpu, block, step)) else {
                    let expected = format!("depid and deps of a step of GPU {}", entry.gpu);
                    return Err(self.source.at_line(entry.line, expected, format!("\"{block}\" and \"{step}\"")));
                };
                let other = &entries[*place];
                builder.order(other.receive.or(other.send).unwrap_or(other.gate), entry.gate);
            }
        }
        builder.build().map_err(|error| {
            let line = match &error {
                WorkloadError::Cycle(step) => line_of.get(step.0 as usize).copied(),
                _ => None,
            };
            let place = line.map_or(Place::Whole, Place::Line);
            self.source.error(place, "steps that do not wait for themselves", error.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::floor::Floor;

    #[test]
    fn sample_all_to_all_moves_all_chunks_but_those_that_stay() {
        let workload = parse("a2a", include_str!("samples/msccl/a2a2ll.xml"), 16_000).unwrap();
        // 8 GPUs, each with 16 chunks of 1,000 bytes, two per peer.
        assert_eq!((workload.host_count(), workload.bytes()), (8, 8 * 14 * 1_000));
        assert!(workload.messages().iter().all(|message| message.src != message.dst && message.bytes == 1_000));
    }

    #[test]
    fn sample_tree_all_reduce_is_read_and_finite() {
        let workload = parse("tree", include_str!("samples/msccl/ar_tree_12_LL.xml"), 24_000).unwrap();
        assert_eq!(workload.host_count(), 4);
        // Each of 24 chunks goes up and down a tree of four: six messages a chunk.
        assert_eq!((workload.messages().len(), workload.bytes()), (24 * 6, 24 * 6 * 1_000));
        let floor = Floor {
            rate_mbps: 8_000_000,
            latency_ps: 1_000_000,
            short_latency_ps: 1_000_000,
            mtu_bytes: 4_096,
            overhead_bytes: 0,
        };
        assert!(floor.duration_ps(&workload) > 4_000_000);
    }

    fn two(a: &str, b: &str) -> String {
        format!(
            "<algo ngpus=\"2\" nchunksperloop=\"2\">\n<gpu id=\"0\">\n<tb id=\"0\" send=\"1\" recv=\"1\" chan=\"0\">\n{a}\n</tb>\n</gpu>\n\
             <gpu id=\"1\">\n<tb id=\"0\" send=\"0\" recv=\"0\" chan=\"0\">\n{b}\n</tb>\n</gpu>\n</algo>"
        )
    }

    fn step(number: u32, kind: &str, dep: (i32, i32)) -> String {
        format!("<step s=\"{number}\" type=\"{kind}\" cnt=\"1\" depid=\"{}\" deps=\"{}\"/>", dep.0, dep.1)
    }

    #[test]
    fn block_does_not_wait_for_its_sends_but_for_its_receptions() {
        let none = (-1, -1);
        let text = two(
            &format!("{}{}{}", step(0, "s", none), step(1, "s", none), step(2, "r", none)),
            &format!("{}{}", step(0, "r", none), step(1, "rcs", none)),
        );
        let workload = parse("x", &text, 200).unwrap();
        let floor = Floor {
            rate_mbps: 8_000_000,
            latency_ps: 1_000,
            short_latency_ps: 1_000,
            mtu_bytes: 4_096,
            overhead_bytes: 0,
        };
        // There and back, 100 bytes each: both sends start at once.
        assert_eq!(floor.duration_ps(&workload), 2 * (100 + 1_000));
    }

    #[test]
    fn error_says_file_line_and_what_was_expected() {
        let check = |text: &str, expected: &str| {
            let error = parse("x.xml", text, 200).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        };
        let (none, good) = ((-1, -1), step(0, "r", (-1, -1)));
        check("<algo ngpus=\"2\"", "x.xml:1: expected well-formed XML, found ");
        check("<algorithm/>", "x.xml:1: expected <algo>, found <algorithm>");
        check("<algo ngpus=\"2\"/>", "x.xml:1: expected nchunksperloop=\"...\" in <algo>, found none");
        check(
            "<algo ngpus=\"2\" nchunksperloop=\"x\"/>",
            "x.xml:1: expected nchunksperloop from 0 to 1048576, or -1, found \"x\"",
        );
        check(
            &two(&step(0, "send", none), &good),
            "x.xml:4: expected type s, r, rcs, rrc, rrs, rrcs, cpy, re or nop, found \"send\"",
        );
        check(&two("<stop/>", &good), "x.xml:4: expected <step>, found <stop>");
        check(&two("", &good), "x.xml:9: expected a step of GPU 0 that sends this to 1 on channel 0, found none");
        check(
            &two(&step(0, "s", (0, 7)), &good),
            "x.xml:4: expected depid and deps of a step of GPU 0, found \"0\" and \"7\"",
        );
        let wait =
            two(&format!("{}\n{}", step(0, "r", none), step(1, "s", none)), &format!("{}{}", good, step(1, "s", none)));
        let cycle = parse("x.xml", &wait, 200).unwrap_err();
        assert_eq!(cycle.expected, "steps that do not wait for themselves");
        assert!(matches!(cycle.place, Place::Line(4..=11)), "{cycle}");
        check(&two(&format!("{good}{good}"), &good), "x.xml:4: expected a step with a new number, found s=\"0\" again");
    }
}
