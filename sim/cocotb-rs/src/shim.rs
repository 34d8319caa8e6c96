//! The C++ between a Verilated class and Rust: reads the ports from Verilator's header, writes the functions Rust calls.
//!
//! Inputs are copied in from, and outputs out to, arrays of 64-bit words laid out as [`PortMap`] says, in one call per
//! clock edge; every copy has a size the compiler knows and `static_assert` checks. The Verilator runtime is built
//! with its stop, finish, fatal and print functions replaced by ours, which note the event in the instance.

use crate::{
    error::BuildError,
    port::{Direction, PortDecl, PortMap},
};
use std::fmt::Write as _;

/// Part of every cache key: changes when the text below changes meaning.
pub(crate) const SHIM_VERSION: &str = "2";

/// What the instance reports after an evaluation, as bits.
pub(crate) mod status {
    pub(crate) const STOPPED: u32 = 1;
    pub(crate) const FATAL: u32 = 4;
    pub(crate) const TEXT: u32 = 8;
}

/// Included before everything else in the runtime and the model.
pub(crate) const PRINT_HEADER: &str = "\
#pragma once
int cocotb_rs_print(const char* format, ...) __attribute__((format(printf, 1, 2)));
#define VL_PRINTF cocotb_rs_print
";

/// The ports declared in the header of a Verilated class, e.g. `VL_IN8(&clk,0,0);` or `VL_OUTW(&data,511,0,16);`.
pub(crate) fn ports_of_header(top: &str, header: &str) -> Result<Vec<PortDecl>, BuildError> {
    let mut ports = Vec::new();
    for line in header.lines().map(str::trim).filter(|line| line.starts_with("VL_") && line.ends_with(");")) {
        let unsupported = || BuildError::UnsupportedPort { top: top.into(), declaration: line.into() };
        let Some((kind, arguments)) = line.trim_end_matches(");").split_once('(') else { continue };
        let make = match kind.trim_end_matches(|c: char| c.is_ascii_digit() || c == 'W') {
            "VL_IN" => PortDecl::input,
            "VL_OUT" => PortDecl::output,
            "VL_INOUT" => return Err(unsupported()),
            _ => continue,
        };
        // An unpacked array as a port is written `VL_IN8((&name)[4],7,0)`.
        let mut fields = arguments.split(',');
        let name = fields.next().and_then(|name| name.strip_prefix('&')).ok_or_else(unsupported)?;
        let mut bound = || fields.next().and_then(|field| field.parse::<u32>().ok()).ok_or_else(unsupported);
        let (high, low) = (bound()?, bound()?);
        let width_bits = high.checked_sub(low).ok_or_else(unsupported)? + 1;
        ports.push(make(verilog_name(name), width_bits));
    }
    Ok(ports)
}

/// Undoes Verilator's mangling: `a___05Fb` is `a__b`, `__SYM__int` is `int`.
fn verilog_name(cpp: &str) -> String {
    cpp.strip_prefix("__SYM__").unwrap_or(cpp).replace("___05F", "__")
}

/// The member of the Verilated class that holds a port.
fn cpp_name(decl: &PortDecl, header: &str) -> String {
    let mangled = decl.name.replace("__", "___05F");
    let escaped = format!("__SYM__{mangled}");
    if header.contains(&format!("(&{escaped},")) {
        escaped
    } else {
        mangled
    }
}

/// Bytes the Verilated class uses for a port of that width.
fn storage_bytes(width_bits: u32) -> u32 {
    match width_bits {
        0..=8 => 1,
        9..=16 => 2,
        17..=32 => 4,
        33..=64 => 8,
        wide => wide.div_ceil(32) * 4,
    }
}

/// The shim of a model, for the ports found in `header`.
pub(crate) fn source(ports: &PortMap, header: &str) -> String {
    let (mut checks, mut load, mut store, mut clocks) = (String::new(), String::new(), String::new(), String::new());
    for (decl, port) in ports.iter() {
        let (name, word, bytes) = (cpp_name(decl, header), port.first_word(), storage_bytes(decl.width_bits));
        let wide = decl.width_bits > 64;
        let line = match decl.direction {
            Direction::Input if wide => writeln!(load, "  std::memcpy(&t.{name}, in + {word}, {bytes});"),
            Direction::Input => writeln!(load, "  t.{name} = static_cast<uint{}_t>(in[{word}]);", bytes * 8),
            Direction::Output => {
                let word = word - ports.input_words();
                if wide {
                    // The last word may be half used; clear it first.
                    let last = word + port.width_words() - 1;
                    writeln!(store, "  out[{last}] = 0; std::memcpy(out + {word}, &t.{name}, {bytes});")
                } else {
                    writeln!(store, "  out[{word}] = t.{name};")
                }
            }
        };
        let check = writeln!(
            checks,
            "static_assert(sizeof(std::declval<Vdut&>().{name}) == {bytes}, \"storage of {}\");",
            decl.name
        );
        let clock = if decl.direction == Direction::Input && decl.width_bits == 1 {
            writeln!(clocks, "    case {word}: s->clocks.push_back(&s->top->{name}); return 0;")
        } else {
            Ok(())
        };
        for result in [line, check, clock] {
            result.expect("writing to a String does not fail");
        }
    }
    TEMPLATE
        .replace("@CHECKS@", &checks)
        .replace("@LOAD@", &load)
        .replace("@STORE@", &store)
        .replace("@CLOCKS@", &clocks)
        .replace("@INPUT_WORDS@", &ports.input_words().to_string())
        .replace("@OUTPUT_WORDS@", &ports.output_words().to_string())
}

const TEMPLATE: &str = r#"#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include "verilated.h"
#include "Vdut.h"
#if VM_TRACE
#include "verilated_fst_c.h"
#endif
#if VM_COVERAGE
#include "verilated_cov.h"
#endif
@CHECKS@
#define COCOTB_RS_API extern "C" __attribute__((visibility("default")))
namespace {
enum : uint32_t { STOPPED = 1, FINISHED = 2, FATAL = 4, TEXT = 8 };
constexpr size_t TEXT_BYTES_MAX = 1 << 20;

struct Instance {
  VerilatedContext context;  // declared first: outlives the model
  std::unique_ptr<Vdut> top;
  std::vector<CData*> clocks;
  std::string text, reason;
  uint32_t status = 0;
#if VM_TRACE
  std::unique_ptr<VerilatedFstC> trace;
#endif
};
thread_local Instance* current = nullptr;

struct Fatal final : std::exception {};

void enter(Instance* s) {
  if (current != s) {
    current = s;
    Verilated::threadContextp(&s->context);
  }
}
void note(uint32_t status, const char* file, int line, const char* what) {
  if (!current) return;
  if (!current->reason.empty()) current->reason += "; ";
  if (file && file[0]) current->reason += std::string(file) + ":" + std::to_string(line) + ": ";
  current->reason += what;
  current->status |= status;
}
inline void load(Vdut& t, const uint64_t* in) {
@LOAD@  (void)t; (void)in;
}
inline void store(const Vdut& t, uint64_t* out) {
@STORE@  (void)t; (void)out;
}
uint32_t report(Instance* s) { return s->status | (s->text.empty() ? 0 : TEXT); }

template <class F> uint32_t guarded(Instance* s, F body) noexcept {
  enter(s);
  try {
    body();
  } catch (const Fatal&) {
    s->status |= FATAL;
  } catch (const std::exception& e) {
    note(FATAL, nullptr, 0, e.what());
  } catch (...) {
    note(FATAL, nullptr, 0, "unknown C++ exception");
  }
  return report(s);
}
}  // namespace

int cocotb_rs_print(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = 0;
  if (current) {
    va_list again;
    va_copy(again, arguments);
    length = std::vsnprintf(nullptr, 0, format, again);
    va_end(again);
    if (length > 0 && current->text.size() + length <= TEXT_BYTES_MAX) {
      const size_t old = current->text.size();
      current->text.resize(old + length + 1);
      std::vsnprintf(&current->text[old], length + 1, format, arguments);
      current->text.resize(old + length);
    }
  } else {
    length = std::vfprintf(stderr, format, arguments);
  }
  va_end(arguments);
  return length;
}
void vl_stop(const char* file, int line, const char*) { note(STOPPED, file, line, "$stop or failed assertion"); }
void vl_finish(const char* file, int line, const char*) { note(FINISHED, file, line, "$finish"); }
// The caller of vl_fatal relies on it not to return: it may stand in an endless loop.
void vl_fatal(const char* file, int line, const char*, const char* what) {
  note(FATAL, file, line, what);
  throw Fatal{};
}

COCOTB_RS_API void cocotb_rs_layout(uint64_t* words) {
  words[0] = @INPUT_WORDS@;
  words[1] = @OUTPUT_WORDS@;
}
COCOTB_RS_API Instance* cocotb_rs_new(int reset_kind, int seed) noexcept {
  try {
    std::unique_ptr<Instance> s{new Instance};
    enter(s.get());
    s->context.randReset(reset_kind);
    if (seed) s->context.randSeed(seed);
#if VM_TRACE
    s->context.traceEverOn(true);
#endif
    s->top.reset(new Vdut{&s->context, "TOP"});
    return s.release();
  } catch (...) {
    current = nullptr;
    return nullptr;
  }
}
COCOTB_RS_API void cocotb_rs_delete(Instance* s) noexcept {
  guarded(s, [&] {
#if VM_TRACE
    if (s->trace) s->trace->close();
#endif
    s->top->final();
  });
  delete s;
  current = nullptr;
}
COCOTB_RS_API int cocotb_rs_add_clock(Instance* s, uint64_t input_word) noexcept {
  switch (input_word) {
@CLOCKS@    default: return -1;
  }
}
COCOTB_RS_API uint32_t cocotb_rs_settle(Instance* s, const uint64_t* in, uint64_t* out) noexcept {
  return guarded(s, [&] {
    load(*s->top, in);
    s->top->eval();
    store(*s->top, out);
  });
}
COCOTB_RS_API uint32_t cocotb_rs_edge(Instance* s, const uint64_t* in, uint64_t* out, uint64_t rising,
                                      uint64_t settle_ps, uint64_t edge_ps, int dump) noexcept {
  return guarded(s, [&] {
    s->context.time(edge_ps);
    load(*s->top, in);
    s->top->eval();
    store(*s->top, out);
#if VM_TRACE
    if (dump && s->trace) s->trace->dump(settle_ps);
#endif
    for (size_t i = 0; i < s->clocks.size(); ++i)
      if (rising >> i & 1) *s->clocks[i] = 1;
    s->top->eval();
#if VM_TRACE
    if (dump && s->trace) s->trace->dump(edge_ps);
#endif
    (void)settle_ps;
    (void)dump;
  });
}
// Moves up to `capacity` bytes of text out; `what` 0 is what the design printed, 1 why it stopped.
COCOTB_RS_API size_t cocotb_rs_take_text(Instance* s, int what, char* buffer, size_t capacity) noexcept {
  std::string& text = what ? s->reason : s->text;
  const size_t length = text.size() < capacity ? text.size() : capacity;
  std::memcpy(buffer, text.data(), length);
  text.erase(0, length);
  return length;
}
COCOTB_RS_API int cocotb_rs_open_trace(Instance* s, const char* path) noexcept {
#if VM_TRACE
  int opened = 0;
  guarded(s, [&] {
    s->trace.reset(new VerilatedFstC);
    s->top->trace(s->trace.get(), 99);
    s->trace->open(path);
    opened = s->trace->isOpen();
    if (!opened) s->trace.reset();
  });
  return opened ? 1 : -1;
#else
  (void)s; (void)path;
  return 0;
#endif
}
COCOTB_RS_API void cocotb_rs_close_trace(Instance* s) noexcept {
#if VM_TRACE
  guarded(s, [&] { if (s->trace) { s->trace->close(); s->trace.reset(); } });
#else
  (void)s;
#endif
}
COCOTB_RS_API int cocotb_rs_write_coverage(Instance* s, const char* path) noexcept {
#if VM_COVERAGE
  guarded(s, [&] { s->context.coveragep()->write(path); });
  return 1;
#else
  (void)s; (void)path;
  return 0;
#endif
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_from_the_header_whatever_their_storage() {
        let header = "    VL_IN8(&clk,0,0);\n    VL_OUT16(&a___05Fb,8,0);\n    VL_INW(&w,99,0,4);\n    VL_IN64(&__SYM__int,63,0);\n\
                      \x20   VL_OUT(&r,31,0);\n    VL_UNCOPYABLE(Vdut);\n";
        let expected = [
            PortDecl::input("clk", 1),
            PortDecl::output("a__b", 9),
            PortDecl::input("w", 100),
            PortDecl::input("int", 64),
            PortDecl::output("r", 32),
        ];
        let ports = ports_of_header("t", header).unwrap();
        assert_eq!(ports, expected);
        let names: Vec<_> = ports.iter().map(|port| cpp_name(port, header)).collect();
        assert_eq!(names, ["clk", "a___05Fb", "w", "__SYM__int", "r"]);
    }

    #[test]
    fn ports_that_cannot_be_driven_by_words_are_refused() {
        for header in ["VL_INOUT8(&pad,0,0);", "VL_IN8((&lanes)[4],7,0);"] {
            let error = ports_of_header("t", header).unwrap_err();
            assert!(error.to_string().contains(header), "{error}");
        }
    }
}
