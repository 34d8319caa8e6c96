//! Reads the packet vectors, and walks a frame by the tables alone.
#![allow(dead_code)] // each test binary uses its own part

use std::{collections::BTreeMap, path::PathBuf};

use nic_spec::{
    consts::ICRC_BYTES,
    layout::{get_bits, Layout},
    wire::{
        opcode::{Body, Condition},
        *,
    },
};

/// A field's value: a number, or bytes beyond 64 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

/// Values by `header.field`.
pub type Fields = BTreeMap<String, Value>;

pub struct Vector {
    pub name: String,
    pub frame: Vec<u8>,
    pub fields: Fields,
}

pub fn spec_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../nic-spec")
}

pub fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// Every vector of `vectors/packets.toml`.
pub fn vectors() -> Vec<Vector> {
    let text = std::fs::read_to_string(spec_dir().join("vectors/packets.toml")).unwrap();
    let document: toml::Table = text.parse().unwrap();
    let vector = |packet: &toml::Value| Vector {
        name: packet["name"].as_str().unwrap().to_string(),
        frame: unhex(packet["frame"].as_str().unwrap()),
        fields: packet["fields"]
            .as_table()
            .unwrap()
            .iter()
            .map(|(key, value)| (key.clone(), expected(key, value)))
            .collect(),
    };
    document["packet"].as_array().unwrap().iter().map(vector).collect()
}

/// A number, or a hex string: bytes, unless the field is one of 64 bits.
fn expected(key: &str, value: &toml::Value) -> Value {
    let (header, field) = key.split_once('.').unwrap_or((key, ""));
    let header = header.trim_end_matches(['0', '1']);
    let bits = LAYOUTS.iter().find(|l| l.name.to_lowercase() == header).and_then(|l| l.find(field)).map(|f| f.bits);
    match (value.as_integer(), value.as_str()) {
        (Some(number), _) => Value::Number(number as u64),
        (_, Some(hex)) if bits == Some(64) => Value::Number(u64::from_str_radix(hex, 16).unwrap()),
        (_, Some(hex)) => Value::Bytes(unhex(hex)),
        _ => panic!("{key} is neither a number nor a string"),
    }
}

fn take<'a>(fields: &mut Fields, prefix: &str, layout: &Layout, bytes: &'a [u8]) -> &'a [u8] {
    for f in layout.fields {
        let value = match f.bits {
            0..=64 => Value::Number(get_bits(bytes, f.order, f.bit_offset, f.bits)),
            _ => Value::Bytes(bytes[f.bit_offset / 8..(f.bit_offset + f.bits) / 8].to_vec()),
        };
        fields.insert(format!("{prefix}.{}", f.name), value);
    }
    &bytes[layout.len_bytes..]
}

fn number(fields: &Fields, key: &str) -> u64 {
    match fields[key] {
        Value::Number(number) => number,
        Value::Bytes(_) => panic!("{key} is no number"),
    }
}

/// Every field of a well-formed frame, found by the tables.
pub fn walk(frame: &[u8]) -> Fields {
    let mut fields = Fields::new();
    let mut rest = take(&mut fields, "eth", &Eth::LAYOUT, frame);
    let mut ethertype = number(&fields, "eth.ethertype");
    let mut tags = 0;
    while [ETHERTYPE_VLAN, ETHERTYPE_VLAN_SERVICE].contains(&(ethertype as u16)) {
        let prefix = format!("vlan{tags}");
        rest = take(&mut fields, &prefix, &Vlan::LAYOUT, rest);
        ethertype = number(&fields, &format!("{prefix}.ethertype"));
        tags += 1;
    }
    rest = match ethertype as u16 {
        ETHERTYPE_IPV4 => take(&mut fields, "ipv4", &Ipv4::LAYOUT, rest),
        ETHERTYPE_IPV6 => take(&mut fields, "ipv6", &Ipv6::LAYOUT, rest),
        other => panic!("Ethernet type {other:#06x}"),
    };
    rest = take(&mut fields, "udp", &Udp::LAYOUT, rest);
    rest = take(&mut fields, "bth", &Bth::LAYOUT, rest);
    rest = take(&mut fields, "pxth", &Pxth::LAYOUT, rest);
    let info = Opcode::try_from(number(&fields, "bth.opcode") as u8).unwrap().info();
    for step in info.steps {
        let is_set = |when: &Condition| {
            let header = when.header.layout().name.to_lowercase();
            when.flags.iter().all(|flag| number(&fields, &format!("{header}.{flag}")) == 1)
        };
        if step.when.as_ref().is_none_or(is_set) {
            rest = take(&mut fields, &step.header.layout().name.to_lowercase(), step.header.layout(), rest);
        }
    }
    let (content, icrc) = rest.split_at(rest.len() - ICRC_BYTES);
    let pad = number(&fields, "bth.pad_count") as usize;
    match info.body {
        Body::None => assert!(content.is_empty(), "content behind headers that carry none"),
        Body::Payload => _ = fields.insert("payload".into(), Value::Bytes(content[..content.len() - pad].to_vec())),
        Body::Opaque => _ = fields.insert("opaque".into(), Value::Bytes(content.to_vec())),
    }
    fields.insert("icrc".into(), Value::Bytes(icrc.to_vec()));
    fields
}

/// Where the IP header begins.
pub fn ip_offset(frame: &[u8]) -> usize {
    let is_tag = |at: usize| matches!(frame[at..at + 2], [0x81, 0x00] | [0x88, 0xa8]);
    let tags = (0..).take_while(|k| is_tag(12 + 4 * k)).count();
    14 + 4 * tags
}
