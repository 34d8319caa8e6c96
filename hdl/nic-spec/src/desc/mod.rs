//! Formats in host memory and rows of the context tables, all little-endian.
//!
//! A context row is 64 bytes: what software puts into the DATA registers of the `ctx` block, lowest word first. The
//! owner of the table keeps the fields it needs.

// Written by software, read by the card.
mod wqe;

mod doorbell;

// Written by the card.
mod cqe;

// Context rows.
mod context;
mod mr;

pub use context::{AhRow, ConnRow, CqRow, PathRxRow, PathTxRow, SqRow, Table, CTX_ROW_BYTES};
pub use cqe::{Cqe, CqeOpcode, Status};
pub use doorbell::Doorbell;
pub use mr::{MrRow, ACCESS_LOCAL_WRITE, ACCESS_REMOTE_ATOMIC, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
pub use wqe::{Wqe, WqeOpcode};

use crate::{
    codes::{CodedField, Codes},
    layout::Layout,
};

/// Version of the formats in this module; a change of any of them raises it.
pub const FORMAT_VERSION: u32 = 1;

/// Every format.
pub const LAYOUTS: &[&Layout] = &[
    &Wqe::LAYOUT,
    &Cqe::LAYOUT,
    &Doorbell::LAYOUT,
    &ConnRow::LAYOUT,
    &AhRow::LAYOUT,
    &SqRow::LAYOUT,
    &PathTxRow::LAYOUT,
    &PathRxRow::LAYOUT,
    &MrRow::LAYOUT,
    &CqRow::LAYOUT,
];

/// Every enumeration used in the formats.
pub const CODES: &[&Codes] = &[&WqeOpcode::CODES, &CqeOpcode::CODES, &Status::CODES, &Table::CODES];

/// Fields that hold codes.
pub const CODED_FIELDS: &[CodedField] = &[
    CodedField { layout: &Wqe::LAYOUT, field: "opcode", codes: &WqeOpcode::CODES },
    CodedField { layout: &Cqe::LAYOUT, field: "opcode", codes: &CqeOpcode::CODES },
    CodedField { layout: &Cqe::LAYOUT, field: "status", codes: &Status::CODES },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Order;

    #[test]
    fn every_format_is_little_endian_and_a_context_row_fills_the_data_registers() {
        for layout in LAYOUTS {
            assert_eq!(layout.order, Order::Little, "{}", layout.name);
            assert!(!layout.name.ends_with("Row") || layout.len_bytes == CTX_ROW_BYTES, "{}", layout.name);
        }
        assert_eq!(4 * crate::csr::ctx::DATA.count as usize, CTX_ROW_BYTES);
        for &table in Table::ALL {
            assert!(LAYOUTS.contains(&table.layout()), "{table}");
        }
    }
}
