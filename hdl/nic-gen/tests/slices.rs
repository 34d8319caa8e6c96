//! The slices that the tables give for a bus are read by a Verilog simulator as the accessors read the bytes.

use std::{fmt::Write, process::Command};

use nic_spec::{
    desc,
    layout::{get_bits, Field, Layout},
    wire,
};

/// Where on the bus the formats begin, so that an offset that is forgotten shows.
const BASE_BYTE: usize = 3;

/// Bytes that differ from one another and from format to format.
fn sample(layout: &Layout) -> Vec<u8> {
    (0..layout.len_bytes).map(|i| (i * 167 + layout.name.len() * 89 + 13) as u8).collect()
}

/// A Verilog module that prints every field of every format, a field a line.
fn program(layouts: &[&Layout]) -> String {
    let mut out = String::from("module test;\n");
    for layout in layouts {
        let hex: String = sample(layout).iter().rev().map(|b| format!("{b:02x}")).collect();
        let bits = 8 * (layout.len_bytes + BASE_BYTE);
        let pad = "00".repeat(BASE_BYTE);
        let _ = writeln!(out, "wire [{}:0] {}_bus = {bits}'h{hex}{pad};", bits - 1, layout.name);
    }
    out.push_str("initial begin #1;\n");
    for layout in layouts {
        for field in layout.fields {
            let slices: Vec<String> = field
                .lanes(BASE_BYTE)
                .map(|(lsb, bits)| format!("{}_bus[{}:{lsb}]", layout.name, lsb + bits - 1))
                .collect();
            let _ = writeln!(out, "$display(\"%h\", {{{}}});", slices.join(", "));
        }
    }
    out.push_str("end\nendmodule\n");
    out
}

/// The field's value as Verilog prints it.
fn expected(layout: &Layout, field: &Field) -> String {
    let bytes = sample(layout);
    let digits = field.bits.div_ceil(4);
    if field.bits <= 64 {
        return format!("{:0digits$x}", get_bits(&bytes, field.order, field.bit_offset, field.bits));
    }
    let mut part = bytes[field.bit_offset / 8..(field.bit_offset + field.bits) / 8].to_vec();
    if field.order == nic_spec::layout::Order::Little {
        part.reverse();
    }
    part.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn a_verilog_simulator_reads_every_field_as_the_accessors_do() {
    let layouts: Vec<&Layout> = wire::LAYOUTS.iter().chain(desc::LAYOUTS).copied().collect();
    let dir = tempfile::tempdir().unwrap();
    let (source, compiled) = (dir.path().join("test.v"), dir.path().join("test.vvp"));
    std::fs::write(&source, program(&layouts)).unwrap();
    let build = Command::new("iverilog").arg("-o").arg(&compiled).arg(&source).output();
    let build = build.expect("iverilog runs (Debian package iverilog)");
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
    let shown = String::from_utf8(Command::new("vvp").arg(&compiled).output().unwrap().stdout).unwrap();
    let mut shown = shown.lines();
    for layout in layouts {
        for field in layout.fields {
            assert_eq!(shown.next(), Some(expected(layout, field).as_str()), "{} of {}", field.name, layout.name);
        }
    }
    assert_eq!(shown.next(), None);
}
