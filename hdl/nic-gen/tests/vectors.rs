//! The tables read the packet vectors, which were made by other code.

mod packet;

use std::collections::BTreeSet;

use nic_spec::wire::{icrc, opcode::OPCODES, Opcode};
use packet::{ip_offset, vectors, walk};

#[test]
fn the_tables_give_every_field_that_a_vector_states() {
    for vector in vectors() {
        let fields = walk(&vector.frame);
        for (key, expected) in &vector.fields {
            assert_eq!(fields.get(key), Some(expected), "{key} of {}", vector.name);
        }
    }
}

#[test]
fn the_icrc_of_every_vector_is_right() {
    for vector in vectors() {
        assert_eq!(icrc::is_valid(&vector.frame[ip_offset(&vector.frame)..]), Ok(true), "{}", vector.name);
    }
}

#[test]
fn the_vectors_hold_every_opcode_and_every_optional_header() {
    let all: Vec<_> = vectors().iter().map(|v| walk(&v.frame)).collect();
    for info in OPCODES {
        let has = |fields: &&packet::Fields| fields["bth.opcode"] == packet::Value::Number(info.opcode.code().into());
        let headers: BTreeSet<&str> =
            all.iter().filter(has).flatten().filter_map(|(k, _)| k.split('.').next()).collect();
        assert!(headers.contains("bth"), "no vector of {}", info.name);
        for step in info.steps {
            let name = step.header.layout().name.to_lowercase();
            assert!(headers.contains(name.as_str()), "no vector of {} with {name}", info.name);
        }
    }
    assert_eq!(OPCODES.first().unwrap().opcode, Opcode::Write);
}
