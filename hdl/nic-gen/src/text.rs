//! Small text helpers that several emitters share.

use nic_spec::layout::{Field, Order};

/// A doc comment as one line of text.
pub fn one_line(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Name of a Rust type as a lower-case word: `AtomicEth` gives `atomiceth`.
pub fn lower(name: &str) -> String {
    name.to_lowercase()
}

/// Name of a Rust type in upper case with underscores: `PathTxRow` gives `PATH_TX_ROW`.
pub fn upper_snake(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(c.to_uppercase());
    }
    out
}

/// First and last byte that a field touches.
pub fn bytes_of(field: &Field) -> (usize, usize) {
    (field.bit_offset / 8, (field.bit_offset + field.bits - 1) / 8)
}

/// Position of a field's lowest bit within the number that the touched bytes form.
pub fn shift_of(field: &Field) -> usize {
    match field.order {
        Order::Big => 7 - (field.bit_offset + field.bits - 1) % 8,
        Order::Little => field.bit_offset % 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nic_spec::{desc::Cqe, wire::Ipv4};

    #[test]
    fn names_change_their_case_and_keep_their_words() {
        assert_eq!(
            (upper_snake("PathTxRow"), upper_snake("Wqe"), lower("ImmDt")),
            ("PATH_TX_ROW".into(), "WQE".into(), "immdt".into())
        );
        assert_eq!(one_line(" A\n  b. "), "A b.");
    }

    #[test]
    fn a_field_knows_its_bytes_and_its_place_in_them() {
        let place = |f: &Field| (bytes_of(f), shift_of(f));
        assert_eq!(place(&Ipv4::LAYOUT.field("version")), ((0, 0), 4));
        assert_eq!(place(&Ipv4::LAYOUT.field("frag_offset")), ((6, 7), 0));
        assert_eq!(place(&Cqe::LAYOUT.field("solicited")), ((5, 5), 1));
        assert_eq!(place(&Cqe::LAYOUT.field("qpn")), ((0, 2), 0));
    }
}
