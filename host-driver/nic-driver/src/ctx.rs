//! Writes rows of the card's context tables, through the one window that the `ctx` block has for it.

use std::sync::{Mutex, PoisonError};

use nic_spec::csr::ctx;
use nic_spec::desc::{Table, CTX_ROW_BYTES};

use crate::bar::Bar;
use crate::error::{Error, Result};

/// How often the driver looks whether the card is done with a row.
pub const CTX_POLLS_MAX: u32 = 10_000;

/// The window; one row at a time.
#[derive(Default)]
pub struct CtxWindow {
    in_use: Mutex<()>,
}

impl CtxWindow {
    /// Writes a row and waits until the card has taken it over.
    ///
    /// # Errors
    /// [`Error::CtxRefused`] when the card has no such row, [`Error::Timeout`] when it does not finish, [`Error::Csr`].
    pub fn write_row(&self, bar: &Bar, table: Table, row: u32, bytes: &[u8; CTX_ROW_BYTES]) -> Result<()> {
        let block = bar.block(&ctx::BLOCK)?;
        let _guard = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        // A command that an earlier caller gave up waiting for would swallow this one.
        Self::wait(bar)?;
        block.write(ctx::TABLE, ctx::TABLE_ID.put(0, u32::from(table.code())))?;
        block.write(ctx::INDEX, ctx::INDEX_ROW.put(0, row))?;
        for (i, word) in bytes.chunks_exact(4).enumerate() {
            let word = word.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
            block.write_at(ctx::DATA, i as u32, word)?;
        }
        block.write(ctx::COMMAND, ctx::COMMAND_WRITE.put(0, 1))?;
        let status = Self::wait(bar)?;
        if ctx::STATUS_ERROR.get(status) != 0 {
            return Err(Error::CtxRefused { table, row });
        }
        Ok(())
    }

    /// Waits for the end of a command and returns the status.
    fn wait(bar: &Bar) -> Result<u32> {
        let block = bar.block(&ctx::BLOCK)?;
        for _ in 0..CTX_POLLS_MAX {
            let status = block.read(ctx::STATUS)?;
            if ctx::STATUS_BUSY.get(status) == 0 {
                return Ok(status);
            }
            bar.device().idle().map_err(|source| Error::Idle { source })?;
        }
        Err(Error::Timeout { what: "end of a context command", polls: CTX_POLLS_MAX })
    }
}
