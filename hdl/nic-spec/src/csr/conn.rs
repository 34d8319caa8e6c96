//! Block `conn`: which connections have failed, and why.

use crate::csr_block;

csr_block! {
    /// Which connections have failed, and why. An error ends when the connection's context is written again.
    block "conn": type 0x0005, version 1, base 0x4000, next 0x5000;
    /// Connection that ERROR_STATUS speaks about.
    0x0c ERROR_SELECT: rw = 0, "connection" {
        /// Index of the connection.
        ERROR_SELECT_INDEX: 0, 12;
    };
    /// Status of the selected connection: see the completion status codes; 0 = no error.
    0x10 ERROR_STATUS: ro = 0, "" {
        /// The status.
        ERROR_STATUS_CODE: 0, 8;
    };
    /// Bit c mod 32 of word c / 32 is set when connection c is in error. Words beyond the built size read 0.
    0x200 ERROR[128]: ro = 0, "";
}
