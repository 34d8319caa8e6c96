//! Finds Verilator and a C++ compiler and learns their versions, once per process.

use crate::error::BuildError;
use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, PoisonError},
};

/// The programs that turn Verilog into a shared object.
#[derive(Debug)]
pub(crate) struct Toolchain {
    pub(crate) verilator: PathBuf,
    /// The folder that holds Verilator's `include`.
    pub(crate) root: PathBuf,
    pub(crate) verilator_version: String,
    pub(crate) compiler: PathBuf,
    pub(crate) compiler_version: String,
}

impl Toolchain {
    pub(crate) fn is_clang(&self) -> bool {
        self.compiler_version.contains("clang")
    }

    pub(crate) fn include(&self) -> PathBuf {
        self.root.join("include")
    }
}

/// The toolchain for these overrides (none: environment, then `PATH`).
pub(crate) fn toolchain(verilator: Option<&Path>, compiler: Option<&Path>) -> Result<Arc<Toolchain>, BuildError> {
    type Known = BTreeMap<(Option<PathBuf>, Option<PathBuf>), Arc<Toolchain>>;
    static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());
    let key = (verilator.map(Path::to_owned), compiler.map(Path::to_owned));
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.get(&key) {
        return Ok(found.clone());
    }
    let found = Arc::new(locate(verilator, compiler)?);
    known.insert(key, found.clone());
    Ok(found)
}

fn locate(verilator: Option<&Path>, compiler: Option<&Path>) -> Result<Toolchain, BuildError> {
    let root = env::var_os("VERILATOR_ROOT").map(PathBuf::from);
    let mut candidates = Vec::new();
    match (verilator, env::var_os("VERILATOR_BIN")) {
        (Some(path), _) => candidates.push(path.to_owned()),
        (None, Some(path)) => candidates.push(path.into()),
        (None, None) => {
            candidates.extend(root.iter().map(|root| root.join("bin/verilator_bin")));
            candidates.extend(["verilator_bin".into(), "verilator".into()]);
        }
    }
    let verilator = find(&candidates).map_err(|tried| BuildError::ToolMissing {
        tool: "Verilator",
        tried,
        install: "Debian: apt-get install verilator",
        variable: "VERILATOR_BIN",
    })?;
    let verilator_version = first_line("Verilator", Command::new(&verilator).arg("--version"))?;
    if verilator_major(&verilator_version).is_none_or(|major| major < 5) {
        return Err(BuildError::ToolTooOld { tool: "Verilator", found: verilator_version, needed: "5.006" });
    }
    let root = match root {
        Some(root) => root,
        None => first_line("Verilator", Command::new(&verilator).args(["--getenv", "VERILATOR_ROOT"]))?.into(),
    };

    let candidates: Vec<PathBuf> = match (compiler, env::var_os("CXX")) {
        (Some(path), _) => vec![path.to_owned()],
        (None, Some(path)) => vec![path.into()],
        (None, None) => ["g++", "c++", "clang++"].map(PathBuf::from).into(),
    };
    let compiler = find(&candidates).map_err(|tried| BuildError::ToolMissing {
        tool: "a C++ compiler",
        tried,
        install: "Debian: apt-get install g++",
        variable: "CXX",
    })?;
    let compiler_version = first_line("the C++ compiler", Command::new(&compiler).arg("--version"))?;
    Ok(Toolchain { verilator, root, verilator_version, compiler, compiler_version })
}

/// The first candidate that is a file, or everything that was tried. A bare name is looked up in `PATH`.
fn find(candidates: &[PathBuf]) -> Result<PathBuf, Vec<String>> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut tried = Vec::new();
    for candidate in candidates {
        if candidate.components().count() > 1 {
            if candidate.is_file() {
                return Ok(candidate.clone());
            }
            tried.push(candidate.display().to_string());
        } else {
            if let Some(found) = env::split_paths(&path).map(|dir| dir.join(candidate)).find(|file| file.is_file()) {
                return Ok(found);
            }
            tried.push(format!("{} in PATH", candidate.display()));
        }
    }
    Err(tried)
}

/// "Verilator 5.006 2023-01-22 rev ..." gives 5.
fn verilator_major(version: &str) -> Option<u32> {
    version.split_whitespace().nth(1)?.split('.').next()?.parse().ok()
}

fn first_line(tool: &'static str, command: &mut Command) -> Result<String, BuildError> {
    let output = run(tool, command)?;
    Ok(output.lines().next().unwrap_or_default().trim().to_owned())
}

/// Runs a program to its end; its two output streams in one string, or an error that shows them.
pub(crate) fn run(tool: &'static str, command: &mut Command) -> Result<String, BuildError> {
    let shown = format!("{command:?}");
    let failed = |status: String, output: String| BuildError::ToolFailed { tool, status, command: shown, output };
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return Err(failed("could not start".into(), error.to_string())),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(text)
    } else {
        Err(failed(output.status.to_string(), text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_verilator_is_named_with_what_was_tried_and_what_to_install() {
        let error = toolchain(Some(Path::new("/nowhere/verilator_bin")), None).unwrap_err();
        let text = error.to_string();
        for part in ["cannot find Verilator", "/nowhere/verilator_bin", "apt-get install verilator", "VERILATOR_BIN"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }

    #[test]
    fn a_missing_compiler_is_named_with_what_was_tried_and_what_to_install() {
        let error = toolchain(None, Some(Path::new("no-such-compiler"))).unwrap_err();
        let text = error.to_string();
        for part in ["cannot find a C++ compiler", "no-such-compiler in PATH", "apt-get install g++", "CXX"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }

    #[test]
    fn the_version_line_gives_the_major_version() {
        assert_eq!(verilator_major("Verilator 5.006 2023-01-22 rev (Debian 5.006-3)"), Some(5));
        assert_eq!(verilator_major("Verilator 4.038 2020-07-11"), Some(4));
        assert_eq!(verilator_major("something else"), None);
    }
}
