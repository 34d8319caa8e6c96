//! Writes every foreign artefact of the card: Markdown, Lua, C, JSON, Verilog.
fn main() {}
