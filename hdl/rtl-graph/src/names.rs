//! Names that are legal in Verilog, in Tcl and in VHDL tools alike.

/// Verilog-2005 and SystemVerilog words that an identifier of ours could hit.
const KEYWORDS: &[&str] = &[
    "alias",
    "always",
    "and",
    "assert",
    "assign",
    "assume",
    "automatic",
    "begin",
    "bind",
    "bins",
    "bit",
    "break",
    "buf",
    "byte",
    "case",
    "casex",
    "casez",
    "cell",
    "chandle",
    "class",
    "clocking",
    "config",
    "const",
    "constraint",
    "context",
    "continue",
    "cover",
    "cross",
    "deassign",
    "default",
    "defparam",
    "design",
    "disable",
    "dist",
    "do",
    "edge",
    "else",
    "end",
    "endcase",
    "endfunction",
    "endmodule",
    "enum",
    "event",
    "expect",
    "export",
    "extends",
    "extern",
    "final",
    "first_match",
    "for",
    "force",
    "foreach",
    "forever",
    "fork",
    "function",
    "generate",
    "genvar",
    "global",
    "if",
    "iff",
    "ifnone",
    "import",
    "include",
    "initial",
    "inout",
    "input",
    "inside",
    "instance",
    "int",
    "integer",
    "interface",
    "intersect",
    "join",
    "large",
    "let",
    "library",
    "local",
    "localparam",
    "logic",
    "longint",
    "macromodule",
    "matches",
    "medium",
    "modport",
    "module",
    "nand",
    "negedge",
    "new",
    "nor",
    "not",
    "null",
    "or",
    "output",
    "package",
    "packed",
    "parameter",
    "posedge",
    "primitive",
    "priority",
    "program",
    "property",
    "protected",
    "pull0",
    "pull1",
    "pure",
    "rand",
    "randc",
    "real",
    "ref",
    "reg",
    "release",
    "repeat",
    "restrict",
    "return",
    "scalared",
    "sequence",
    "shortint",
    "shortreal",
    "signed",
    "small",
    "solve",
    "specify",
    "static",
    "string",
    "strong",
    "struct",
    "super",
    "supply0",
    "supply1",
    "table",
    "tagged",
    "task",
    "this",
    "throughout",
    "time",
    "timeprecision",
    "timeunit",
    "tri",
    "type",
    "typedef",
    "union",
    "unique",
    "unsigned",
    "use",
    "uwire",
    "var",
    "vectored",
    "virtual",
    "void",
    "wait",
    "wand",
    "weak",
    "while",
    "wildcard",
    "wire",
    "with",
    "within",
    "wor",
    "xnor",
    "xor",
];

/// Panics, at the caller's line, on a name that some tool would refuse or rewrite.
#[track_caller]
pub(crate) fn check(name: &str) {
    check_part(name);
    assert!(KEYWORDS.binary_search(&name).is_err(), "`{name}` is a word of Verilog, choose another name");
}

/// The same for a part of a name, which may be a word of Verilog.
#[track_caller]
pub(crate) fn check_part(name: &str) {
    let ok = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    assert!(ok, "`{name}` is no name for hardware: use letters, digits and `_`, beginning with a letter");
    assert!(
        !name.contains("__") && !name.ends_with('_'),
        "`{name}`: `__` and a `_` at the end are kept for made-up names"
    );
}

/// `SackTable` to `sack_table`.
pub fn snake_case(s: &str) -> String {
    let mut out = String::new();
    for (i, c) in s.chars().enumerate() {
        if c.is_ascii_uppercase() {
            if i > 0 {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_sorted_for_the_binary_search() {
        assert!(KEYWORDS.windows(2).all(|w| w[0] < w[1]));
    }

    #[test]
    fn camel_case_becomes_snake_case() {
        assert_eq!(snake_case("SackTable"), "sack_table");
        assert_eq!(snake_case("Fifo2"), "fifo2");
    }
}
