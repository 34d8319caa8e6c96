//! Width-checked RTL graphs in Rust: one description gives Verilog, an interpreter and a rust-hdl block.
//!
//! A module is a function that builds a graph of signals ([`S`]) through a builder ([`B`]). Ordinary Rust (loops,
//! functions, tables, recursion) decides the structure; widths are checked as the graph is built, drivers and
//! combinational loops when a module is finished, always with a sentence and the line at fault. [`module!`] gives a
//! module its port list and its typed instance handle, [`record!`] and [`bundle!`] name the fields of rows, payloads and
//! ports. A finished module ([`ModDef`]) is printed as Verilog or run by the interpreter ([`Sim`]).
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod async_fifo;
mod block;
mod builder;
mod check;
mod code;
mod crossing;
mod emit;
mod flat;
mod fold;
pub mod formal;
pub mod hdl;
mod layout;
mod logic;
mod mem;
mod module;
mod names;
mod node;
mod signal;
mod sim;
mod words;

pub use async_fifo::AsyncFifo;
pub use block::{on_big_stack, verilog, BlockOf, ClockPorts, HdlBlock, HdlGroup, HdlModule, HdlPorts};
pub use builder::{Domain, When, B};
pub use layout::{Bundle, ConstRecord, Field, Fields, Flow, Layout, Raw, Record, Stream};
pub use logic::Fsm;
pub use mem::{Mem, RamStyle};
pub use module::{debug_hash, push_param, Group, Instance, Lib, ModDef, ModuleParam, PortDef};
pub use names::snake_case;
pub use signal::{Operand, Uint, S};
pub use sim::{Pin, Sim};
pub use words::{count_bits, index_bits};
