//! What the driver reports: what was tried, with which value, and the way out.

use nic_spec::desc::Table;

use crate::pci::{Direction, PciError};

/// Result of an operation of the driver.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation of the driver failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The size of BAR 0 could not be read.
    #[error("cannot ask for the size of BAR 0")]
    Region {
        /// Cause.
        #[source]
        source: PciError,
    },
    /// BAR 0 cannot hold the registers.
    #[error("BAR 0 has {have_bytes:#x} bytes and needs {need_bytes:#x} (is this the right device?)")]
    BarTooSmall {
        /// Size found.
        have_bytes: u64,
        /// Size needed.
        need_bytes: u64,
    },
    /// The card could not be reset.
    #[error("cannot reset the card")]
    Reset {
        /// Cause.
        #[source]
        source: PciError,
    },
    /// A register could not be accessed.
    #[error("cannot {direction} register {block}.{register}")]
    Csr {
        /// Read or write.
        direction: Direction,
        /// Name of the register block.
        block: &'static str,
        /// Name of the register.
        register: &'static str,
        /// Cause.
        #[source]
        source: PciError,
    },
    /// The chain of register blocks is broken.
    #[error("the chain of register blocks goes to {address:#x}: {reason} (is this the right device?)")]
    Chain {
        /// Where the chain leads.
        address: u32,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The card lacks a register block.
    #[error("the card has no register block {block:?} (type {type_id:#x})")]
    BlockMissing {
        /// Name of the block.
        block: &'static str,
        /// Its type.
        type_id: u32,
    },
    /// The card has another version of a register block than the driver.
    #[error("register block {block:?} has version {have}, this driver knows version {want} (update driver or card)")]
    BlockVersion {
        /// Name of the block.
        block: &'static str,
        /// Version found.
        have: u32,
        /// Version known.
        want: u32,
    },
    /// The card is not a card of this project.
    #[error("magic number {found:#010x} instead of {expected:#010x} (is this the right device?)")]
    Magic {
        /// Found.
        found: u32,
        /// Expected.
        expected: u32,
    },
    /// The card reports a size that this driver cannot work with.
    #[error("the card reports {register} = {value}: {reason}")]
    Parameter {
        /// Name of the register.
        register: &'static str,
        /// What it reads.
        value: u32,
        /// What would be right.
        reason: &'static str,
    },
    /// The card refused a context row.
    #[error("the card refused row {row} of context table {table}: bad table or index")]
    CtxRefused {
        /// The table.
        table: Table,
        /// The row.
        row: u32,
    },
    /// Something did not happen in the given number of polls.
    #[error("no {what} after {polls} polls")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// How often the driver looked.
        polls: u32,
    },
    /// The device ended while the driver waited for it.
    #[error("cannot wait for the device")]
    Idle {
        /// Cause.
        #[source]
        source: PciError,
    },
    /// A range does not lie in the memory it is meant for.
    #[error("{len_bytes:#x} bytes at {offset_bytes:#x} are no range of {have_bytes:#x} bytes (and may not be empty)")]
    Range {
        /// Start of the range.
        offset_bytes: u64,
        /// Its length.
        len_bytes: u64,
        /// Size of the memory.
        have_bytes: u64,
    },
    /// Memory could not be mapped for the device.
    #[error("cannot map {len_bytes:#x} bytes for the device")]
    DmaMap {
        /// Length of the range.
        len_bytes: u64,
        /// Cause.
        #[source]
        source: PciError,
    },
    /// The device's address space is used up.
    #[error("no free device addresses for {len_bytes:#x} bytes (deregister memory first)")]
    NoIova {
        /// Length asked for.
        len_bytes: u64,
    },
    /// An interrupt could not be set up.
    #[error("cannot set up interrupt vector {vector}")]
    Irq {
        /// The vector.
        vector: u32,
        /// Cause.
        #[source]
        source: PciError,
    },
    /// All of the card's resources of a kind are in use.
    #[error("all {have} {what} are in use (destroy one, or build the card with more)")]
    Exhausted {
        /// What is used up.
        what: &'static str,
        /// How many there are.
        have: u32,
    },
    /// A setting is outside what card and protocol allow.
    #[error("{what} cannot be {value} ({reason})")]
    Config {
        /// Which setting.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What would be right.
        reason: &'static str,
    },
    /// Two objects belong to different cards.
    #[error("the {what} belongs to another card")]
    OtherDevice {
        /// Which object.
        what: &'static str,
    },
    /// The peers' settings do not fit.
    #[error("cannot connect: {what} is {local} here and {remote} at the peer (configure both alike)")]
    Mismatch {
        /// Which setting.
        what: &'static str,
        /// Value here.
        local: String,
        /// Value at the peer.
        remote: String,
    },
    /// Connection data from the peer cannot be read.
    #[error("cannot read the peer's connection data")]
    ConnInfo {
        /// Cause.
        #[source]
        source: serde_json::Error,
    },
    /// The queue pair is not in the right state for the operation.
    #[error("cannot {operation} a queue pair in state {state}")]
    State {
        /// What was tried.
        operation: &'static str,
        /// State of the queue pair.
        state: crate::qp::QpState,
    },
    /// A queue has no room; nothing was posted.
    #[error("{count} more entries would overflow the {queue} of {entries} entries (poll completions first)")]
    WouldOverflow {
        /// Which queue.
        queue: &'static str,
        /// Entries that were to be added.
        count: usize,
        /// Size of the queue.
        entries: u32,
    },
    /// A doorbell could not be rung. What it was for counts as posted.
    #[error("cannot ring the doorbell of the {queue}")]
    Doorbell {
        /// Which queue.
        queue: &'static str,
        /// Cause.
        #[source]
        source: PciError,
    },
    /// The card wrote a completion entry that makes no sense. The entry is consumed.
    #[error("entry {index} of completion queue {cqn} makes no sense: {reason}")]
    BadCqe {
        /// Number of the queue.
        cqn: u32,
        /// Free-running index of the entry.
        index: u16,
        /// What is wrong with it.
        reason: String,
    },
}
