//! Chakra execution traces (`.et`): per rank a graph of computation, sends, receives and collectives.
//!
//! A file is a sequence of protocol buffer messages, each led by its length: `GlobalMetadata`, then `Node`s. Of a node its id,
//! type, data dependencies and duration count, and the attributes `comm_size`, `comm_src`, `comm_dst`, `comm_tag`, `comm_type`,
//! `is_cpu_op`. Collectives include all ranks and match in the order of the files; they run as rings, as binary trees where
//! they have a root (rank 0), or directly (all-to-all), and their sizes mean what they mean in ASTRA-sim. What is not
//! communication takes its duration, and nothing waits but by dependencies. A collective of the CPU without a size is the
//! framework's call around the real one and only takes its duration. Control
//! dependencies are not waited for, as in Chakra's own feeder: in recorded traces they point from an operation to its caller and
//! back. A dependency on a node that is not in the file (converters leave some out) counts as done.

use std::collections::BTreeMap;

use crate::workload::collective::{Collective, CollectiveKind};
use crate::workload::error::{ParseError, Place, Source};
use crate::workload::graph::{
    Action, Builder, Message, StepId, Verb, Workload, WorkloadError, HOST_COUNT_MAX, MESSAGE_BYTES_MAX,
};
use crate::workload::protobuf::{self, Value};
use crate::PS_PER_US;

/// How traces become a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Independent pieces of each message of a collective.
    pub slices: u32,
    /// Number of ranks. With a single file all of them replay it, which then must not send or receive.
    pub rank_count: u32,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Time,
    Send { dst: u32, tag: u64, bytes: u64 },
    Receive { src: u32, tag: u64, bytes: u64 },
    Collective { kind: CollectiveKind, bytes: u64 },
}

struct TraceNode {
    place: Place,
    id: u64,
    after: Vec<u64>,
    duration_ps: u64,
    kind: Kind,
}

/// Reads the traces of all ranks, the first file that of rank 0; each comes with its name.
///
/// # Errors
/// [`ParseError`] with the byte of the file.
pub fn parse(files: &[(&str, &[u8])], options: Options) -> Result<Workload, ParseError> {
    let first = files.first().map_or("", |file| file.0);
    let count = options.rank_count;
    let source = Source { file: first };
    if count == 0 || count > HOST_COUNT_MAX || (files.len() != 1 && files.len() != count as usize) {
        let found = format!("{} files for {count} ranks", files.len());
        return Err(source.error(Place::Whole, "one file, or one for each rank", found));
    }
    let mut traces = Vec::new();
    for (file, bytes) in files {
        let trace = read_trace(Source { file }, bytes, count)?;
        if files.len() == 1 && count > 1 {
            let is_local = |node: &&TraceNode| matches!(node.kind, Kind::Send { .. } | Kind::Receive { .. });
            if let Some(node) = trace.iter().find(is_local) {
                let expected = "no sends and receives in a file that all ranks replay (give one file for each rank)";
                return Err(source.error(node.place, expected, format!("one in node {}", node.id)));
            }
        }
        traces.push(trace);
    }
    Assembly { files, traces: &traces, count, options }.build()
}

fn read_trace(source: Source<'_>, bytes: &[u8], rank_count: u32) -> Result<Vec<TraceNode>, ParseError> {
    let mut rest = protobuf::Message::new(bytes);
    if rest.is_empty() {
        return Err(source.error(Place::Byte(0), "the length of the metadata", "an empty file"));
    }
    let mut metadata = rest.delimited(source)?;
    while metadata.field(source)?.is_some() {}
    let mut nodes = Vec::new();
    while !rest.is_empty() {
        let message = rest.delimited(source)?;
        nodes.push(read_node(source, message, rank_count)?);
    }
    Ok(nodes)
}

/// Attributes of a node that say something about communication.
#[derive(Default)]
struct Attributes {
    comm_size: Option<u64>,
    comm_type: Option<u64>,
    comm_src: Option<u64>,
    comm_dst: Option<u64>,
    comm_tag: u64,
    is_cpu_op: bool,
}

/// Field numbers of `Node`.
mod node_field {
    pub const ID: u64 = 1;
    pub const TYPE: u64 = 3;
    pub const DATA_DEPS: u64 = 5;
    pub const DURATION_MICROS: u64 = 7;
    pub const ATTR: u64 = 10;
}

/// Values of `NodeType`.
mod node_type {
    pub const METADATA: u64 = 1;
    pub const COMP: u64 = 4;
    pub const SEND: u64 = 5;
    pub const RECV: u64 = 6;
    pub const COLL: u64 = 7;
}

fn read_node(source: Source<'_>, mut message: protobuf::Message<'_>, rank_count: u32) -> Result<TraceNode, ParseError> {
    let place = message.place();
    let mut node = TraceNode { place, id: 0, after: Vec::new(), duration_ps: 0, kind: Kind::Time };
    let mut node_type = 0;
    let mut attributes = Attributes::default();
    while let Some((field, value)) = message.field(source)? {
        match (field, value) {
            (node_field::ID, Value::Varint(id)) => node.id = id,
            (node_field::TYPE, Value::Varint(number)) => node_type = number,
            (node_field::DATA_DEPS, value) => value.numbers(source, &mut node.after)?,
            (node_field::DURATION_MICROS, Value::Varint(us)) => node.duration_ps = us.saturating_mul(PS_PER_US),
            (node_field::ATTR, Value::Bytes(attribute)) => read_attribute(source, attribute, &mut attributes)?,
            _ => {}
        }
    }
    let id = node.id;
    let need = |value: Option<u64>, what: &str, max: u64| {
        let expected = || format!("attribute {what} from 0 to {max} in node {id}");
        match value {
            Some(number) if number <= max => Ok(number),
            other => Err(source.error(place, expected(), other.map_or("none".into(), |number| number.to_string()))),
        }
    };
    let rank_max = u64::from(rank_count - 1);
    node.kind = match node_type {
        node_type::METADATA..=node_type::COMP => Kind::Time,
        node_type::SEND => Kind::Send {
            dst: need(attributes.comm_dst, "comm_dst", rank_max)? as u32,
            tag: attributes.comm_tag,
            bytes: need(attributes.comm_size, "comm_size", MESSAGE_BYTES_MAX)?,
        },
        node_type::RECV => Kind::Receive {
            src: need(attributes.comm_src, "comm_src", rank_max)? as u32,
            tag: attributes.comm_tag,
            bytes: need(attributes.comm_size, "comm_size", MESSAGE_BYTES_MAX)?,
        },
        node_type::COLL if attributes.comm_size.is_none() && attributes.is_cpu_op => Kind::Time,
        node_type::COLL => {
            let kind = need(attributes.comm_type, "comm_type", 9)?;
            // A barrier moves nothing but the news.
            let bytes = if kind == 9 { 2 } else { need(attributes.comm_size, "comm_size", 1 << 40)? };
            collective(kind, bytes, rank_count)
        }
        other => {
            let expected = format!("a type from 1 to 7 in node {id}");
            return Err(source.error(place, expected, other.to_string()));
        }
    };
    Ok(node)
}

/// The collective of a `CollectiveCommType`.
fn collective(comm_type: u64, bytes: u64, rank_count: u32) -> Kind {
    let share = bytes / u64::from(rank_count);
    let (kind, bytes) = match comm_type {
        0 => (CollectiveKind::RingAllReduce, bytes),
        1 => (CollectiveKind::Reduce, bytes),
        2 => (CollectiveKind::AllGather, bytes),
        3 => (CollectiveKind::Gather, bytes),
        4 => (CollectiveKind::Scatter, bytes),
        5 => (CollectiveKind::Broadcast, bytes),
        6 => (CollectiveKind::AllToAll { depth: 0 }, share),
        7 | 8 => (CollectiveKind::ReduceScatter, bytes),
        _ => (CollectiveKind::TreeAllReduce, bytes),
    };
    Kind::Collective { kind, bytes }
}

/// Field numbers of `AttributeProto`: the name, and the kinds of values that are numbers.
mod attribute_field {
    pub const NAME: u64 = 1;
    pub const INT32: u64 = 7;
    pub const INT64: u64 = 9;
    pub const UINT32: u64 = 11;
    pub const UINT64: u64 = 13;
    pub const SINT32: u64 = 15;
    pub const SINT64: u64 = 17;
    pub const BOOL: u64 = 27;
}

fn read_attribute(
    source: Source<'_>,
    mut message: protobuf::Message<'_>,
    attributes: &mut Attributes,
) -> Result<(), ParseError> {
    use attribute_field as field;
    let (mut name, mut number) = ("", None);
    while let Some((field, value)) = message.field(source)? {
        match (field, value) {
            (field::NAME, Value::Bytes(text)) => name = text.text(source)?,
            (field::INT32 | field::INT64 | field::UINT32 | field::UINT64 | field::BOOL, Value::Varint(value)) => {
                number = Some(value)
            }
            // Signed, the sign in the lowest bit; what is negative is out of every range here.
            (field::SINT32 | field::SINT64, Value::Varint(value)) => {
                number = Some(if value & 1 == 0 { value >> 1 } else { u64::MAX });
            }
            _ => {}
        }
    }
    match name {
        "comm_size" => attributes.comm_size = number,
        "comm_type" => attributes.comm_type = number,
        "comm_src" => attributes.comm_src = number,
        "comm_dst" => attributes.comm_dst = number,
        "comm_tag" => attributes.comm_tag = number.unwrap_or(0),
        "is_cpu_op" => attributes.is_cpu_op = number == Some(1),
        _ => {}
    }
    Ok(())
}

/// The gate that a node's dependencies open, and the step that is done when the node is.
#[derive(Clone, Copy)]
struct NodeSteps {
    gate: StepId,
    done: StepId,
}

/// A send or receive that waits for its other half: rank, place of the node, bytes.
type Half = (u32, usize, u64);

/// By source, destination and tag: sends, and receives.
type Channels = BTreeMap<(u32, u32, u64), (Vec<Half>, Vec<Half>)>;

struct Assembly<'a> {
    files: &'a [(&'a str, &'a [u8])],
    traces: &'a [Vec<TraceNode>],
    count: u32,
    options: Options,
}

impl Assembly<'_> {
    fn trace(&self, rank: u32) -> &[TraceNode] {
        &self.traces[rank as usize % self.traces.len()]
    }

    fn error(&self, rank: u32, node: usize, expected: impl Into<String>, found: impl Into<String>) -> ParseError {
        let file = self.files[rank as usize % self.files.len()].0;
        Source { file }.error(self.trace(rank)[node].place, expected, found)
    }

    fn build(&self) -> Result<Workload, ParseError> {
        let mut builder = Builder::new(self.count);
        let mut steps: Vec<Vec<NodeSteps>> = Vec::new();
        let mut channels = Channels::new();
        let mut collectives: Vec<Vec<usize>> = Vec::new();
        // Per step where it comes from, for those that may be in a cycle.
        let mut origins: Vec<(u32, usize)> = Vec::new();
        for rank in 0..self.count {
            let (mut of_rank, mut of_collectives) = (Vec::new(), Vec::new());
            for (index, node) in self.trace(rank).iter().enumerate() {
                let gate = builder.wait(rank, 0, &[]);
                let duration_ps = if node.kind == Kind::Time { node.duration_ps } else { 0 };
                let done = builder.wait(rank, duration_ps, &[gate]);
                origins.extend([(rank, index); 2]);
                of_rank.push(NodeSteps { gate, done });
                match node.kind {
                    Kind::Send { dst, tag, bytes } if dst != rank => {
                        channels.entry((rank, dst, tag)).or_default().0.push((rank, index, bytes));
                    }
                    Kind::Receive { src, tag, bytes } if src != rank => {
                        channels.entry((src, rank, tag)).or_default().1.push((rank, index, bytes));
                    }
                    Kind::Send { .. } | Kind::Receive { .. } => {
                        return Err(self.error(rank, index, "a message between two ranks", format!("{rank} twice")));
                    }
                    Kind::Collective { .. } => of_collectives.push(index),
                    Kind::Time => {}
                }
            }
            steps.push(of_rank);
            collectives.push(of_collectives);
        }
        self.depend(&mut builder, &steps)?;
        self.match_messages(&mut builder, &steps, &channels)?;
        self.match_collectives(&mut builder, &steps, &collectives)?;
        builder.build().map_err(|error| {
            let origin = match &error {
                WorkloadError::Cycle(step) => origins.get(step.0 as usize).copied(),
                _ => None,
            };
            let expected = "nodes that do not wait for themselves";
            match origin {
                Some((rank, index)) => {
                    self.error(rank, index, expected, format!("node {}: {error}", self.trace(rank)[index].id))
                }
                None => Source { file: self.files[0].0 }.error(Place::Whole, expected, error.to_string()),
            }
        })
    }

    fn depend(&self, builder: &mut Builder, steps: &[Vec<NodeSteps>]) -> Result<(), ParseError> {
        for rank in 0..self.count {
            let trace = self.trace(rank);
            let of_rank = &steps[rank as usize];
            let mut by_id = BTreeMap::new();
            for (index, node) in trace.iter().enumerate() {
                if by_id.insert(node.id, index).is_some() {
                    return Err(self.error(rank, index, "a node with a new id", format!("id {} again", node.id)));
                }
            }
            for (index, node) in trace.iter().enumerate() {
                for before in &node.after {
                    let Some(other) = by_id.get(before) else { continue };
                    builder.order(of_rank[*other].done, of_rank[index].gate);
                }
            }
        }
        Ok(())
    }

    fn match_messages(
        &self,
        builder: &mut Builder,
        steps: &[Vec<NodeSteps>],
        channels: &Channels,
    ) -> Result<(), ParseError> {
        for (&(src, dst, tag), (sends, receives)) in channels {
            for (send, receive) in sends.iter().zip(receives) {
                if send.2 != receive.2 {
                    let expected = format!("comm_size {}, which rank {src} sends", send.2);
                    return Err(self.error(receive.0, receive.1, expected, receive.2.to_string()));
                }
                let message = builder.message(Message { src, dst, bytes: send.2, verb: Verb::Write, stream: 0 });
                for (half, action) in [(send, Action::Send(message)), (receive, Action::Receive(message))] {
                    let NodeSteps { gate, done } = steps[half.0 as usize][half.1];
                    let step = builder.step(half.0, action, &[gate]);
                    builder.order(step, done);
                }
            }
            let matched = sends.len().min(receives.len());
            if let Some((rank, index, _)) = sends.get(matched).or(receives.get(matched)) {
                let expected = format!("as many sends as receives from rank {src} to {dst} with comm_tag {tag}");
                let found = format!("{} and {}", sends.len(), receives.len());
                return Err(self.error(*rank, *index, expected, found));
            }
        }
        Ok(())
    }

    fn match_collectives(
        &self,
        builder: &mut Builder,
        steps: &[Vec<NodeSteps>],
        collectives: &[Vec<usize>],
    ) -> Result<(), ParseError> {
        let group: Vec<u32> = (0..self.count).collect();
        let longest = (0..self.count).max_by_key(|rank| collectives[*rank as usize].len()).unwrap_or(0);
        for number in 0..collectives[longest as usize].len() {
            let mut members: Vec<NodeSteps> = Vec::new();
            let mut first = None;
            for rank in 0..self.count {
                let Some(&index) = collectives[rank as usize].get(number) else {
                    let expected = format!("as many collectives at every rank, {} as at rank {rank}", number);
                    let at = collectives[longest as usize][number];
                    return Err(self.error(longest, at, expected, "one more"));
                };
                let kind = self.trace(rank)[index].kind;
                let expected = *first.get_or_insert(kind);
                if kind != expected {
                    let expected = format!("the collective that rank 0 has here, {expected:?}");
                    return Err(self.error(rank, index, expected, format!("{kind:?}")));
                }
                members.push(steps[rank as usize][index]);
            }
            let Some(Kind::Collective { kind, bytes }) = first else { continue };
            let slices = self.options.slices;
            let collective = Collective { kind, group: &group, bytes, slices, stream: 0, streams: 1 };
            let after: Vec<Vec<StepId>> = members.iter().map(|member| vec![member.gate]).collect();
            let ends = collective.add_to(builder, &after);
            members.iter().zip(ends).for_each(|(member, end)| builder.order(end, member.done));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::floor::Floor;

    const OPTIONS: Options = Options { slices: 1, rank_count: 2 };
    const LINE: Floor = Floor {
        rate_mbps: 8_000_000,
        latency_ps: 1_000,
        short_latency_ps: 1_000,
        mtu_bytes: 1 << 30,
        overhead_bytes: 0,
    };

    fn varint(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number > 0x7f {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    }

    fn number(field: u64, value: u64) -> Vec<u8> {
        [varint(field << 3), varint(value)].concat()
    }

    fn part(field: u64, bytes: &[u8]) -> Vec<u8> {
        [varint(field << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
    }

    fn node(id: u64, node_type: u64, after: &[u64], us: u64, attributes: &[(&str, u64)]) -> Vec<u8> {
        let mut bytes = [number(1, id), number(3, node_type), number(7, us)].concat();
        bytes.extend(part(5, &after.iter().flat_map(|id| varint(*id)).collect::<Vec<_>>()));
        for (name, value) in attributes {
            bytes.extend(part(10, &[part(1, name.as_bytes()), number(9, *value)].concat()));
        }
        bytes
    }

    fn trace(nodes: &[Vec<u8>]) -> Vec<u8> {
        let metadata = part(1, b"0.0.4");
        std::iter::once(&metadata)
            .chain(nodes)
            .flat_map(|part| [varint(part.len() as u64), part.clone()].concat())
            .collect()
    }

    #[test]
    fn sample_all_gather_of_four_ranks_is_read() {
        let files = [
            ("0", &include_bytes!("samples/chakra/all_gather_4npus_1MB.0.et")[..]),
            ("1", &include_bytes!("samples/chakra/all_gather_4npus_1MB.1.et")[..]),
            ("2", &include_bytes!("samples/chakra/all_gather_4npus_1MB.2.et")[..]),
            ("3", &include_bytes!("samples/chakra/all_gather_4npus_1MB.3.et")[..]),
        ];
        let workload = parse(&files, Options { slices: 1, rank_count: 4 }).unwrap();
        assert_eq!((workload.messages().len(), workload.bytes()), (12, 12 << 20));
        let alone = parse(&files[..1], Options { slices: 1, rank_count: 4 }).unwrap();
        assert_eq!(workload, alone);
    }

    #[test]
    fn dependencies_durations_and_messages_make_a_chain() {
        let a = trace(&[
            node(0, 4, &[], 3, &[]),
            node(1, 5, &[0], 0, &[("comm_size", 100), ("comm_dst", 1), ("comm_tag", 4)]),
        ]);
        let b = trace(&[
            node(7, 6, &[], 0, &[("comm_size", 100), ("comm_src", 0), ("comm_tag", 4)]),
            node(8, 4, &[7], 2, &[]),
        ]);
        let workload = parse(&[("a", &a), ("b", &b)], OPTIONS).unwrap();
        assert_eq!(LINE.duration_ps(&workload), 3_000_000 + 100 + 1_000 + 2_000_000);
    }

    #[test]
    fn call_around_a_collective_only_takes_its_time() {
        let call = [("is_cpu_op", 1)];
        let file = trace(&[node(0, 7, &[], 5, &call), node(1, 7, &[0], 0, &[("comm_type", 0), ("comm_size", 2_000)])]);
        let workload = parse(&[("a", &file)], OPTIONS).unwrap();
        assert_eq!(workload.bytes(), 2 * 2 * 1_000);
        assert_eq!(LINE.duration_ps(&workload), 5_000_000 + 2 * (1_000 + 1_000));
    }

    #[test]
    fn dependency_on_a_node_that_is_not_there_counts_as_done() {
        let file = trace(&[node(4, 4, &[3], 5, &[])]);
        let workload = parse(&[("a", &file)], OPTIONS).unwrap();
        assert_eq!(LINE.duration_ps(&workload), 5_000_000);
    }

    #[test]
    fn error_says_file_byte_and_what_was_expected() {
        let check = |nodes: &[Vec<u8>], expected: &str| {
            let error = parse(&[("a.et", &trace(nodes)), ("b.et", &trace(&[]))], OPTIONS).unwrap_err().to_string();
            assert_eq!(error, expected);
        };
        check(
            &[node(3, 5, &[], 0, &[])],
            "a.et at byte 9: expected attribute comm_dst from 0 to 1 in node 3, found none",
        );
        check(
            &[node(3, 5, &[], 0, &[("comm_dst", 2)])],
            "a.et at byte 9: expected attribute comm_dst from 0 to 1 in node 3, found 2",
        );
        check(&[node(3, 9, &[], 0, &[])], "a.et at byte 9: expected a type from 1 to 7 in node 3, found 9");
        check(
            &[node(3, 5, &[], 0, &[("comm_dst", 1), ("comm_size", 8)])],
            "a.et at byte 9: expected as many sends as receives from rank 0 to 1 with comm_tag 0, found 1 and 0",
        );
        check(
            &[node(3, 7, &[], 0, &[("comm_type", 0), ("comm_size", 8)])],
            "a.et at byte 9: expected as many collectives at every rank, 0 as at rank 1, found one more",
        );
        let mut cut = trace(&[node(3, 4, &[], 0, &[])]);
        cut.pop();
        let error = parse(&[("a.et", &cut)], OPTIONS).unwrap_err().to_string();
        assert_eq!(error, "a.et at byte 8: expected 8 bytes, as their length says, found 7 left");
        let error = parse(&[("a.et", &trace(&[node(0, 4, &[0], 1, &[])]))], OPTIONS).unwrap_err();
        assert_eq!(error.place, Place::Byte(9), "{error}");
    }
}
