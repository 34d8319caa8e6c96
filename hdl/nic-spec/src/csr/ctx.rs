//! Block `ctx`: the door through which software writes rows of context tables.

use crate::csr_block;

csr_block! {
    /// Writes rows of the context tables. Software waits for BUSY = 0, sets TABLE, INDEX and DATA, writes COMMAND.
    block "ctx": type 0x0003, version 1, base 0x2000, next 0x3000;
    /// Table that the command is for: see the context tables.
    0x0c TABLE: rw = 0, "" {
        /// Number of the table.
        TABLE_ID: 0, 4;
    };
    /// Row within the table.
    0x10 INDEX: rw = 0, "row" {
        /// Number of the row.
        INDEX_ROW: 0, 16;
    };
    /// The row, lowest 32 bits first.
    0x40 DATA[16]: rw = 0, "";
    /// Starts a command.
    0x80 COMMAND: wo = 0, "" {
        /// Writes DATA to the row.
        COMMAND_WRITE: 0, 1;
    };
    /// How the last command fares.
    0x84 STATUS: ro = 0, "" {
        /// The command is not finished; another one is ignored.
        STATUS_BUSY: 0, 1;
        /// The last command named no table or no row of it; nothing was written.
        STATUS_ERROR: 1, 1;
    };
}
