//! Proofs of a module's assertions with yosys-smtbmc and z3: bounded check from reset, then induction.
//!
//! [`prove`] shows that no assertion of the module or of anything below it can fail, for all inputs that keep its
//! assumptions, for ever. Induction starts from any state that satisfied the assertions for `steps` cycles, so the
//! properties must pin the state down: put invariants inside the module (a FIFO: its level is the difference of its
//! pointers). An `assume` in an instance is assumed in the proof of its parent too. The tools `yosys`, `yosys-smtbmc` and
//! `z3` must be installed.
use crate::builder::PropKind;
use crate::module::ModDef;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Why a proof did not come about.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProofError {
    /// The module cannot be proved this way.
    Unsupported(String),
    /// A tool could not be run or refused its input.
    Tool(String),
    /// An assertion fails within the bound after reset; the text is smtbmc's report.
    Falsified(String),
    /// The assertions hold after reset up to the bound but are not inductive; the text is smtbmc's report.
    NotInductive(String),
}

impl std::fmt::Display for ProofError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProofError::Unsupported(s) => write!(f, "no proof: {s}"),
            ProofError::Tool(s) => write!(f, "the proof did not run: {s}"),
            ProofError::Falsified(s) => write!(f, "an assertion fails:\n{s}"),
            ProofError::NotInductive(s) => write!(f, "the assertions are not inductive:\n{s}"),
        }
    }
}

impl std::error::Error for ProofError {}

/// Proves every assertion of `def`: `steps` cycles from reset, and induction over `steps` cycles.
///
/// # Errors
/// When the tools are missing, the module has more than one clock or no assertion, or the proof fails.
pub fn prove(def: &ModDef, steps: u32) -> Result<(), ProofError> {
    prove_text(def, &def.verilog(), steps)
}

/// Like [`prove`] for another text of the same module, as a test of the proof itself with a fault planted.
///
/// # Errors
/// See [`prove`].
pub fn prove_text(def: &ModDef, verilog: &str, steps: u32) -> Result<(), ProofError> {
    if def.domains().len() != 1 {
        return Err(ProofError::Unsupported(format!("`{}` has more than one clock", def.name)));
    }
    if count_assertions(def) == 0 {
        return Err(ProofError::Unsupported(format!("`{}` asserts nothing", def.name)));
    }
    let dir = Scratch::new()?;
    let write = |name: &str, text: &str| {
        std::fs::write(dir.0.join(name), text).map_err(|e| ProofError::Tool(format!("cannot write {name}: {e}")))
    };
    write("dut.v", verilog)?;
    write("top.v", &wrapper(def))?;
    let script = "read_verilog -formal -sv dut.v top.v; prep -top formal_top; memory_nordff; async2sync; dffunmap; \
                  write_smt2 -wires dut.smt2";
    let (ok, text) = run(&dir.0, "yosys", &["-q", "-p", script])?;
    if !ok {
        return Err(ProofError::Tool(text));
    }
    let n = steps.to_string();
    let (ok, text) = run(&dir.0, "yosys-smtbmc", &["-s", "z3", "-t", &n, "dut.smt2"])?;
    if !ok {
        return Err(if text.contains("Assert failed") { ProofError::Falsified(text) } else { ProofError::Tool(text) });
    }
    let (ok, text) = run(&dir.0, "yosys-smtbmc", &["-s", "z3", "-i", "-t", &n, "dut.smt2"])?;
    match ok {
        true => Ok(()),
        false if text.contains("induction failed") => Err(ProofError::NotInductive(text)),
        false => Err(ProofError::Tool(text)),
    }
}

fn count_assertions(def: &ModDef) -> usize {
    let own = def.inner.props.iter().filter(|p| p.kind == PropKind::Assert).count();
    own + def.inner.insts.iter().map(|i| count_assertions(&i.def)).sum::<usize>()
}

/// A module around `def` that passes every port through and begins with a reset.
fn wrapper(def: &ModDef) -> String {
    let mut t = String::from("module formal_top (\n");
    for (k, p) in def.ports.iter().enumerate() {
        let dir = if p.is_output { "output" } else { "input" };
        let end = if k + 1 == def.ports.len() { "" } else { "," };
        let _ = writeln!(t, "  {dir} wire [{}:0] {}{end}", p.width - 1, p.name);
    }
    let ports: Vec<String> = def.ports.iter().map(|p| format!(".{0}({0})", p.name)).collect();
    let _ = write!(t, ");\n  {} dut ({});\n  initial assume (rst);\nendmodule\n", def.name, ports.join(", "));
    t
}

fn run(dir: &Path, tool: &str, args: &[&str]) -> Result<(bool, String), ProofError> {
    let out = Command::new(tool).current_dir(dir).args(args).output();
    let out = out.map_err(|e| ProofError::Tool(format!("cannot run {tool}: {e} (is it installed?)")))?;
    let text = [out.stdout, out.stderr].iter().map(|s| String::from_utf8_lossy(s).into_owned()).collect();
    Ok((out.status.success(), text))
}

/// A directory that goes away with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, ProofError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let k = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("rtl-graph-proof-{}-{k}", std::process::id()));
        std::fs::create_dir_all(&dir)
            .map_err(|e| ProofError::Tool(format!("cannot make the directory {}: {e}", dir.display())))?;
        Ok(Scratch(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file left behind in the temporary directory harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
