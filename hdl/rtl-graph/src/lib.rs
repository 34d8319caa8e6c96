//! Width-checked RTL graphs in Rust: one description gives Verilog, an interpreter and a rust-hdl block.
