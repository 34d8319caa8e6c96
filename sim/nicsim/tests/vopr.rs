//! `nicsim vopr` as a user meets it.

use std::process::{Command, Output};

fn vopr(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nicsim")).arg("vopr").args(args).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn seeds_are_played_and_summed_up() {
    let done = vopr(&["--seed", "5", "--runs", "2", "--describe"]);
    let out = text(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{out}{}", text(&done.stderr));
    for word in ["seed 5: good", "seed 6: good", "2 runs, 0 failed", "messages", "link-hops"] {
        assert!(out.contains(word), "no {word:?} in {out}");
    }
}

#[test]
fn json_is_one_object_a_line_and_run() {
    let done = vopr(&["--seed", "5", "--hours-sim", "0.000001", "--json"]);
    let out = text(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{out}{}", text(&done.stderr));
    let runs: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(!runs.is_empty() && runs.iter().zip(5..).all(|(run, seed)| run["seed"] == seed), "{out}");
    assert!(runs.iter().all(|run| run["violations"] == serde_json::json!([]) && run["frames"].as_u64() > Some(0)));
}

#[test]
fn a_part_of_a_seed_is_played_and_threads_do_not_matter() {
    let done =
        vopr(&["--seed", "5", "--only-connections", "0", "--only-faults", "none", "--messages", "2", "--threads", "2"]);
    assert_eq!(done.status.code(), Some(0), "{}{}", text(&done.stdout), text(&done.stderr));
    assert!(text(&done.stdout).contains("1 runs, 0 failed"));
}

#[test]
fn what_it_cannot_do_is_said() {
    assert_eq!(vopr(&["--seed", "many"]).status.code(), Some(2));
    let done = vopr(&["--seed", "1", "--pcap", "/dev/null/folder"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("seed 1"), "{}", text(&done.stderr));
}
