//! The generated dissector under tshark: what it shows equals what the tables say.

mod packet;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use nic_spec::{
    csr::stats::Counter,
    wire::{icrc, Ipv4, Ipv6, Udp},
};
use packet::{ip_offset, spec_dir, vectors, walk, Fields, Value};
use pcap_file::pcap::{PcapPacket, PcapWriter};
use serde_json::Value as Json;

/// A frame as captured: the bytes kept, and how long it was.
struct Captured {
    bytes: Vec<u8>,
    len: usize,
}

impl From<Vec<u8>> for Captured {
    fn from(bytes: Vec<u8>) -> Self {
        Captured { len: bytes.len(), bytes }
    }
}

fn write_pcap(dir: &Path, frames: &[Captured]) -> PathBuf {
    let path = dir.join("frames.pcap");
    let mut writer = PcapWriter::new(std::fs::File::create(&path).unwrap()).unwrap();
    for (i, frame) in frames.iter().enumerate() {
        writer.write_packet(&PcapPacket::new(Duration::from_micros(i as u64), frame.len as u32, &frame.bytes)).unwrap();
    }
    path
}

fn tshark(pcap: &Path, more: &[&str]) -> Output {
    let script = format!("lua_script:{}", spec_dir().join("generated/nic.lua").display());
    let out = Command::new("tshark").arg("-r").arg(pcap).args(["-n", "-X", &script]).args(more).output();
    out.expect("tshark runs (Debian package tshark)")
}

/// What the dissector shows of each frame, as JSON layers.
fn dissect(frames: &[Captured]) -> Vec<Json> {
    let dir = tempfile::tempdir().unwrap();
    let out = tshark(&write_pcap(dir.path(), frames), &["-T", "json", "--no-duplicate-keys"]);
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success() && !errors.contains("Lua"), "{errors}");
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(!text.contains("Lua Error"), "{text}");
    let packets: Vec<Json> = serde_json::from_str(&text).unwrap();
    assert_eq!(packets.len(), frames.len());
    packets.into_iter().map(|packet| packet["_source"]["layers"].clone()).collect()
}

/// Every value under `json` whose key is `name`.
fn find(json: &Json, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    match json {
        Json::Object(members) => {
            for (key, value) in members {
                match value {
                    Json::String(text) if key == name => found.push(text.clone()),
                    Json::Array(items) if key == name => {
                        found.extend(items.iter().filter_map(|i| i.as_str().map(String::from)))
                    }
                    _ => found.extend(find(value, name)),
                }
            }
        }
        Json::Array(items) => found.extend(items.iter().flat_map(|item| find(item, name))),
        _ => {}
    }
    found
}

/// Names of the expert entries of this protocol in a frame.
fn experts(json: &Json) -> Vec<String> {
    let mut found = Vec::new();
    match json {
        Json::Object(members) => {
            for (key, value) in members {
                if key == "_ws.expert" {
                    let entries = match value {
                        Json::Array(entries) => entries.clone(),
                        entry => vec![entry.clone()],
                    };
                    let keys = entries.iter().filter_map(Json::as_object).flat_map(|entry| entry.keys());
                    found.extend(keys.filter_map(|k| k.strip_prefix("metaroce.")).map(String::from));
                }
                found.extend(experts(value));
            }
        }
        Json::Array(items) => found.extend(items.iter().flat_map(experts)),
        _ => {}
    }
    found
}

/// The expert entry that names the counter of a drop.
fn expert_of(counter: Counter) -> String {
    counter.name().trim_end_matches("_count").to_string()
}

fn shown_number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

fn assert_shows(name: &str, layers: &Json, fields: &Fields) {
    let transport =
        |key: &str| !["eth", "vlan0", "vlan1", "ipv4", "ipv6", "udp"].contains(&key.split('.').next().unwrap());
    for (key, expected) in fields.iter().filter(|(key, _)| transport(key)) {
        let shown = find(layers, &format!("metaroce.{key}"));
        match expected {
            Value::Bytes(bytes) if bytes.is_empty() => assert!(shown.is_empty(), "{key} of {name}"),
            _ => assert_eq!(shown.len(), 1, "{key} of {name}: {layers:#}"),
        }
        match expected {
            Value::Number(number) => assert_eq!(shown_number(&shown[0]), *number, "{key} of {name}"),
            Value::Bytes(bytes) if key == "icrc" => {
                assert_eq!(
                    shown_number(&shown[0]),
                    u64::from(u32::from_be_bytes(bytes[..].try_into().unwrap())),
                    "{name}"
                );
            }
            Value::Bytes(bytes) => assert_eq!(packet::unhex(&shown.concat()), *bytes, "{key} of {name}"),
        }
    }
}

#[test]
fn every_field_of_every_vector_is_shown_and_nothing_is_reported() {
    let vectors = vectors();
    let frames: Vec<Captured> = vectors.iter().map(|v| v.frame.clone().into()).collect();
    for (vector, layers) in vectors.iter().zip(dissect(&frames)) {
        assert_shows(&vector.name, &layers, &walk(&vector.frame));
        assert_eq!(find(&layers, "metaroce.icrc.good"), ["1"], "{}", vector.name);
        assert_eq!(experts(&layers), [""; 0], "{}", vector.name);
    }
}

#[test]
fn the_bitmap_is_shown_as_sequence_numbers_across_the_wrap() {
    let vector = vectors().into_iter().find(|v| v.name == "ack_wrap").unwrap();
    let layers = dissect(&[vector.frame.into()]);
    let shown: Vec<u64> = find(&layers[0], "metaroce.sack.received").iter().map(|t| shown_number(t)).collect();
    assert_eq!(shown, [0, 2, 254], "cum 0xfffffe, bits 1, 3 and 255");
}

#[test]
fn a_wrong_icrc_is_an_error_in_every_kind_of_frame() {
    let mut frames: Vec<Vec<u8>> = vectors().into_iter().map(|v| v.frame).collect();
    for (i, frame) in frames.iter_mut().enumerate() {
        let ip = ip_offset(frame);
        // The ICRC itself, the source port, or the last byte that it covers.
        let headers = if frame[ip] == 0x45 { Ipv4::LEN } else { Ipv6::LEN };
        let at = [frame.len() - 1, ip + headers + 1, frame.len() - 5][i % 3];
        frame[at] ^= 0x40;
    }
    let captured: Vec<Captured> = frames.iter().cloned().map(Captured::from).collect();
    for (frame, layers) in frames.iter().zip(dissect(&captured)) {
        assert!(experts(&layers).contains(&expert_of(Counter::RxBadIcrc)), "{frame:02x?}");
        assert_eq!(find(&layers, "metaroce.icrc.good"), ["0"]);
    }
}

/// `packet` (IP onward, no ICRC) with its lengths set and an ICRC, in an Ethernet frame of IPv4.
fn reseal(eth: &[u8], mut packet: Vec<u8>) -> Captured {
    let len = packet.len() + 4;
    Ipv4(&mut packet[..]).set_total_len(len as u16).fill_checksum();
    Udp(&mut packet[Ipv4::LEN..]).set_len((len - Ipv4::LEN) as u16);
    packet.extend(icrc::icrc(&packet).unwrap().to_le_bytes());
    [eth, &packet].concat().into()
}

#[test]
fn a_truncated_packet_is_reported_at_every_length() {
    // Every prefix of a frame with all its lengths adjusted: really short packets.
    let vector = vectors().into_iter().find(|v| v.name == "nak_rnr_bitmap").unwrap();
    let (eth, packet) = vector.frame.split_at(14);
    let (headers, whole) = (Ipv4::LEN + Udp::LEN + 12, packet.len() - 4);
    let short: Vec<Captured> = (headers..whole).map(|len| reseal(eth, packet[..len].to_vec())).collect();
    for (i, layers) in dissect(&short).iter().enumerate() {
        assert_eq!(experts(layers), [expert_of(Counter::RxTruncated)], "{} of {whole} bytes", headers + i);
    }
}

#[test]
fn a_cut_capture_never_makes_an_error_of_the_script() {
    let mut cut = Vec::new();
    for vector in
        vectors().into_iter().filter(|v| ["write_ipv6_2_tags", "ack_long", "send_tag_imm"].contains(&v.name.as_str()))
    {
        let first = ip_offset(&vector.frame);
        cut.extend(
            (first..vector.frame.len())
                .map(|keep| Captured { bytes: vector.frame[..keep].to_vec(), len: vector.frame.len() }),
        );
    }
    // `dissect` fails on any error of the script.
    for layers in dissect(&cut) {
        assert!(!experts(&layers).contains(&expert_of(Counter::RxBadIcrc)), "what was not captured is not wrong");
    }
}

#[test]
fn malformed_packets_are_named_by_the_counter_of_their_drop() {
    let of = |name: &str| vectors().into_iter().find(|v| v.name == name).unwrap().frame;
    let bth = 14 + Ipv4::LEN + Udp::LEN;
    let edited = |name: &str, edit: fn(&mut Vec<u8>, usize)| {
        let mut frame = of(name);
        frame.truncate(frame.len() - 4);
        edit(&mut frame, bth);
        reseal(&frame[..14], frame[14..].to_vec())
    };
    let frames = [
        edited("write", |frame, bth| frame[bth] = 0xef),
        edited("ack_short", |frame, _| frame.extend([0; 4])),
        edited("write_empty", |frame, bth| frame[bth + 1] |= 0x10),
    ];
    let shown: Vec<Vec<String>> = dissect(&frames).iter().map(experts).collect();
    let names = [Counter::RxUnknownOpcode, Counter::RxBadLength, Counter::RxBadLength].map(|c| vec![expert_of(c)]);
    assert_eq!(shown, names);
}

#[test]
fn another_port_is_recognised_by_its_icrc_and_another_version_is_left_alone() {
    let write = vectors().into_iter().find(|v| v.name == "write").unwrap().frame;
    let (eth, packet) = write.split_at(14);
    let with = |edit: fn(&mut Vec<u8>)| {
        let mut packet = packet[..packet.len() - 4].to_vec();
        edit(&mut packet);
        packet
    };
    let other_port = with(|p| _ = Udp(&mut p[Ipv4::LEN..]).set_dst_port(5555));
    let mut other_port_bad = reseal(eth, other_port.clone());
    *other_port_bad.bytes.last_mut().unwrap() ^= 1;
    let roce = with(|p| p[Ipv4::LEN + Udp::LEN..][..2].copy_from_slice(&[0x0a, 0x00]));
    let layers = dissect(&[reseal(eth, other_port), other_port_bad, reseal(eth, roce)]);
    assert_eq!(find(&layers[0], "metaroce.icrc.good"), ["1"]);
    assert!(layers[1].get("metaroce").is_none() && layers[2].get("metaroce").is_none());
    assert!(layers[2].get("infiniband").is_some(), "plain RoCEv2 goes to Wireshark's own dissector");
}

#[test]
fn the_summary_line_names_packet_path_and_sequence() {
    let dir = tempfile::tempdir().unwrap();
    let frames: Vec<Captured> = ["write", "nak_range"]
        .iter()
        .map(|name| vectors().into_iter().find(|v| v.name == *name).unwrap().frame.into())
        .collect();
    let out =
        tshark(&write_pcap(dir.path(), &frames), &["-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info"]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            "MetaRoCE\tWRITE conn=0x123 path=3 pseq=7 mseq=9",
            "MetaRoCE\tACK conn=0x456 path=3 apath=3 cum=9 trig=10 NAK RANGE"
        ]
    );
}
