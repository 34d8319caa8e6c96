//! nic.json: every table for programs; one field a line, so that a change shows as a line.

use nic_spec::{
    codes::Codes,
    consts::{Kind, CONSTANTS},
    csr,
    csr::stats::{Class, COUNTERS},
    desc,
    layout::{Layout, Order},
    wire,
    wire::opcode::{Body, OPCODES},
};
use serde_json::{json, Value};

use crate::text::one_line;

/// Version of the JSON's own shape.
const SCHEMA: u32 = 1;

/// A named list of objects, each on a line of its own.
fn list(key: &str, indent: usize, items: impl IntoIterator<Item = Value>) -> String {
    let pad = " ".repeat(indent);
    let lines: Vec<String> = items.into_iter().map(|item| format!("{pad}  {item}")).collect();
    format!("{pad}{}: [\n{}\n{pad}]", json!(key), lines.join(",\n"))
}

/// An object with plain members on the first lines and one list at the end.
fn object(indent: usize, members: &[(&str, Value)], last: &str) -> String {
    let pad = " ".repeat(indent);
    let members: String = members.iter().map(|(key, value)| format!("{pad}  {}: {value},\n", json!(key))).collect();
    format!("{pad}{{\n{members}{last}\n{pad}}}")
}

fn objects(key: &str, items: Vec<String>) -> String {
    format!("  {}: [\n{}\n  ]", json!(key), items.join(",\n"))
}

fn layout(layout: &Layout) -> String {
    let order = match layout.order {
        Order::Big => "big",
        Order::Little => "little",
    };
    let fields = layout
        .fields
        .iter()
        .map(|f| json!({"name": f.name, "bit": f.bit_offset, "bits": f.bits, "doc": one_line(f.doc)}));
    object(
        4,
        &[
            ("name", json!(layout.name)),
            ("doc", json!(one_line(layout.doc))),
            ("order", json!(order)),
            ("bytes", json!(layout.len_bytes)),
        ],
        &list("fields", 6, fields),
    )
}

fn codes(codes: &Codes) -> String {
    let items = codes.codes.iter().map(|c| json!({"name": c.name, "value": c.value, "doc": one_line(c.doc)}));
    object(4, &[("name", json!(codes.name)), ("doc", json!(one_line(codes.doc)))], &list("codes", 6, items))
}

fn blocks() -> Vec<String> {
    let register = |r: &nic_spec::register::Register| {
        let fields: Vec<Value> = r
            .fields
            .iter()
            .map(|f| json!({"name": f.name, "shift": f.shift, "bits": f.bits, "doc": one_line(f.doc)}))
            .collect();
        json!({
            "name": r.name, "address": r.address, "count": r.count, "access": r.access.name(), "reset": r.reset,
            "unit": r.unit, "doc": one_line(r.doc), "fields": fields,
        })
    };
    let is_counter = |address: u32| COUNTERS.iter().any(|c| c.registers.iter().any(|r| r.address == address));
    let block = |b: &&nic_spec::register::Block| {
        object(
            4,
            &[
                ("name", json!(b.name)),
                ("type", json!(b.type_id)),
                ("version", json!(b.version)),
                ("base", json!(b.base)),
                ("doc", json!(one_line(b.doc))),
            ],
            &list("registers", 6, b.registers.iter().filter(|r| !is_counter(r.address)).map(register)),
        )
    };
    csr::BLOCKS.iter().map(block).collect()
}

fn opcodes() -> String {
    list("opcodes", 2, OPCODES.iter().map(|info| {
        let steps: Vec<Value> = info.steps.iter().map(|s| match s.when {
            None => json!({"header": s.header.layout().name}),
            Some(when) => json!({"header": s.header.layout().name, "if": {"header": when.header.layout().name, "flags": when.flags}}),
        }).collect();
        let body = match info.body {
            Body::None => "none",
            Body::Payload => "payload",
            Body::Opaque => "opaque",
        };
        json!({"name": info.name, "code": info.opcode.code(), "sequenced": info.is_sequenced, "headers": steps, "body": body, "doc": one_line(info.doc)})
    }))
}

fn counters() -> String {
    list("counters", 2, COUNTERS.iter().map(|c| {
        let (kind, reason) = match c.class {
            Class::Drop => ("drop", None),
            Class::Nak(reason) => ("nak", Some(reason.name())),
            Class::Event => ("event", None),
        };
        json!({
            "name": c.name, "code": c.counter.code(), "address": c.counter.address(), "kind": kind, "reason": reason,
            "unit": c.registers[0].unit, "doc": one_line(c.doc),
        })
    }))
}

fn constants() -> String {
    list(
        "constants",
        2,
        CONSTANTS.iter().map(|c| {
            json!({
                "name": c.name, "value": c.value, "unit": c.unit, "min": c.min, "max": c.max,
                "fixed": c.kind == Kind::Fixed, "reason": c.reason, "doc": one_line(c.doc),
            })
        }),
    )
}

/// The whole document.
pub fn json() -> String {
    let doorbells = json!({
        "base": csr::DOORBELL_BASE, "page_bytes": csr::DOORBELL_PAGE_BYTES, "sq": csr::DOORBELL_SQ,
        "rq": csr::DOORBELL_RQ, "cq": csr::DOORBELL_CQ,
    });
    let all_codes = wire::CODED_FIELDS[1..].iter().map(|c| c.codes).chain(desc::CODES.iter().copied());
    let parts = [
        format!("  \"schema\": {SCHEMA}"),
        format!("  \"format_version\": {}", desc::FORMAT_VERSION),
        format!("  \"doorbells\": {doorbells}"),
        constants(),
        objects("blocks", blocks()),
        counters(),
        objects("headers", wire::LAYOUTS.iter().map(|l| layout(l)).collect()),
        opcodes(),
        objects("descriptors", desc::LAYOUTS.iter().map(|l| layout(l)).collect()),
        objects("codes", all_codes.map(codes).collect()),
    ];
    format!("{{\n{}\n}}\n", parts.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_json_and_holds_a_known_field() {
        let document: Value = serde_json::from_str(&json()).unwrap();
        let bth = document["headers"].as_array().unwrap().iter().find(|h| h["name"] == "Bth").unwrap();
        let pseq = bth["fields"].as_array().unwrap().iter().find(|f| f["name"] == "pseq").unwrap();
        assert_eq!((&pseq["bit"], &pseq["bits"]), (&json!(72), &json!(24)));
        assert_eq!(document["counters"].as_array().unwrap().len(), COUNTERS.len());
    }
}
