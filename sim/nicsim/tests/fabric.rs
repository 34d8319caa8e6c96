//! `nicsim fabric` as a person or a script sees it.

use std::path::Path;
use std::process::{Command, Output};

const PLAN: &str = r#"
name = "two"
title = "Two hosts"
limit_us = 10_000
sample_us = 1
[network]
topology = { kind = "point-to-point" }
host_link = { rate_mbps = 100_000, delay_ns = 500 }
[workload]
kind = "pairs"
pairs = [[0, 1]]
message_bytes = 100_000
count = 3
depth = 1
[transport.metaroce]
kind = "metaroce"
paths = 4
[transport.rocev2]
kind = "rocev2"
[[case]]
name = "plain"
[[case]]
name = "lossy"
network.rule = [{ select = "h0->h1", action = { kind = "loss", ppm = 20_000 } }]
[[expect]]
label = "all messages, no loss"
case = "plain"
metric = "complete"
at_least = 1
[[expect]]
label = "all messages, 2 % loss"
case = "lossy"
metric = "complete"
at_least = 1
"#;

fn nicsim(directory: &Path, plan: &str, arguments: &[&str]) -> Output {
    std::fs::write(directory.join("plan.toml"), plan).expect("a folder to write to");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nicsim"));
    command.current_dir(directory).args(["fabric", "plan.toml"]).args(arguments).output().expect("nicsim starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn plan_gives_tables_json_plots_and_markdown() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let output = nicsim(directory.path(), PLAN, &["--plot", "out", "--markdown", "table.md"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(stdout.starts_with("Two hosts\n") && stdout.contains("lossy") && !stdout.contains("MISSED"), "{stdout}");
    let files = ["two.goodput.svg", "two.completions.svg", "two.queue.svg", "two.windows.svg"];
    for file in files {
        let svg = std::fs::read_to_string(directory.path().join("out").join(file)).expect(file);
        assert!(svg.contains("<svg") && svg.contains("Two hosts"), "{file}");
    }
    let samples = std::fs::read_to_string(directory.path().join("out/two.plain.rocev2.samples.csv")).expect("a table");
    assert!(samples.lines().count() > 10 && samples.starts_with("time_ns,goodput_mbps"), "{samples}");
    let table = std::fs::read_to_string(directory.path().join("table.md")).expect("a table");
    assert_eq!(table.lines().filter(|line| line.starts_with("| ") || line.starts_with("|--")).count(), 4, "{table}");

    let json = nicsim(directory.path(), PLAN, &["--json"]);
    let stdout = text(&json.stdout);
    let kinds: Vec<bool> = stdout.lines().map(|line| line.contains("\"kind\":\"run\"")).collect();
    assert_eq!(kinds, [true, true, true, true, false, false], "{stdout}");
    assert!(stdout.lines().all(|line| line.starts_with('{') && line.contains("\"schema\":1")), "{stdout}");
    assert_eq!(stdout, text(&nicsim(directory.path(), PLAN, &["--json", "--jobs", "1"]).stdout));
}

#[test]
fn missed_expectation_exits_1_and_a_bad_plan_2() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let missed = nicsim(directory.path(), &PLAN.replacen("at_least = 1", "at_least = 2", 1), &["--case", "plain"]);
    assert_eq!(missed.status.code(), Some(1));
    assert!(text(&missed.stdout).contains("MISSED"));
    let bad = nicsim(directory.path(), &PLAN.replacen("pairs = [[0, 1]]", "pairs = [[0, 7]]", 1), &[]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(text(&bad.stderr).contains("plan.toml: case \"plain\"") && text(&bad.stderr).contains("host 7"));
    assert_eq!(nicsim(directory.path(), PLAN, &["--case", "none"]).status.code(), Some(2));
}
