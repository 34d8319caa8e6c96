//! The command: the checked-in files are current, a difference is found and named.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn nic_gen(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nic-gen")).args(args).output().unwrap()
}

fn checked_in() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../nic-spec/generated")
}

fn check(dir: &Path) -> (Option<i32>, String) {
    let out = nic_gen(&["all", "--check", "--dir", dir.to_str().unwrap()]);
    (out.status.code(), String::from_utf8(out.stderr).unwrap())
}

#[test]
fn the_checked_in_files_are_current() {
    assert_eq!(check(&checked_in()), (Some(0), String::new()));
}

#[test]
fn the_files_together_stay_readable() {
    let files: Vec<_> = std::fs::read_dir(checked_in()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let lines: usize = files.iter().map(|file| std::fs::read_to_string(file).unwrap().lines().count()).sum();
    // Eight from the tables, and coverage.txt from the conformance cases.
    assert_eq!(files.len(), 9);
    // A page of the text more or less; every constant is three lines of them.
    assert!(lines < 3200, "{lines} lines");
}

#[test]
fn what_all_writes_passes_the_check_and_an_edit_is_named_with_its_line() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("generated");
    // The page of the text that is written too stands beside.
    std::fs::create_dir(root.path().join("spec")).unwrap();
    std::fs::create_dir(&dir).unwrap();
    assert_eq!(check(&dir).0, Some(1), "an empty folder lacks every file");
    assert_eq!(nic_gen(&["all", "--dir", dir.to_str().unwrap()]).status.code(), Some(0));
    assert_eq!(check(&dir), (Some(0), String::new()));

    let edited = dir.join("registers.md");
    let text = std::fs::read_to_string(&edited).unwrap();
    std::fs::write(&edited, text.replacen("| `SCRATCH` | rw |", "| `SCRATCH` | ro |", 1)).unwrap();
    std::fs::remove_file(dir.join("nic.lua")).unwrap();
    let (code, message) = check(&dir);
    let line = text.lines().position(|l| l.contains("`SCRATCH`")).unwrap() + 1;
    assert_eq!(code, Some(1));
    assert!(message.contains(&format!("registers.md differs from the tables in line {line}")), "{message}");
    assert!(message.contains("nic.lua is missing"), "{message}");
}

#[test]
fn what_cannot_run_exits_2_and_says_the_way_out() {
    let out = nic_gen(&["all", "--dir", "no/such/folder"]);
    assert_eq!(out.status.code(), Some(2));
    let message = String::from_utf8(out.stderr).unwrap();
    assert_eq!(message, "nic-gen: no folder no/such/folder (run from the root of the repository, or give --dir)\n");
    assert_eq!(nic_gen(&["all", "--chek"]).status.code(), Some(2));
    assert_eq!(nic_gen(&["nothing"]).status.code(), Some(2));
}
