//! `nicsim conform` as a user meets it.

use std::process::{Command, Output};

fn conform(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_nicsim")).arg("conform").args(args).output().expect("the program runs");
    (status.code(), String::from_utf8(stdout).expect("UTF-8"), String::from_utf8(stderr).expect("UTF-8"))
}

#[test]
fn a_filter_runs_its_cases_with_the_names_of_cargo_test() {
    let (code, out, err) = conform(&["--bench", "model", "--filter", "::drop::three_tags"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("test model::drop::three_tags::W-003 ... ok"), "{out}");
    assert!(out.ends_with("result: ok. 1 passed; 0 failed; 0 ignored\n"), "{out}");
}

#[test]
fn json_is_an_object_a_case_and_the_counts_at_the_end() {
    let (code, out, _) = conform(&["--json", "--requirement", "R-003"]);
    assert_eq!(code, Some(0), "{out}");
    let rows: Vec<serde_json::Value> = out.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let (counts, cases) = rows.split_last().expect("a line");
    assert!(cases.len() > 2);
    for case in cases {
        assert_eq!((&case["outcome"], &case["text"]), (&"passed".into(), &serde_json::Value::Null), "{case}");
        let ids = case["requirements"].as_array().expect("a list");
        assert!(ids.contains(&"R-003".into()), "{case}");
    }
    assert_eq!((&counts["passed"], &counts["failed"]), (&cases.len().into(), &0.into()));
}

#[test]
fn the_list_names_every_case_and_runs_none() {
    let (code, out, _) = conform(&["--list"]);
    assert_eq!(code, Some(0));
    assert!(out.lines().any(|l| l == "model::drop::three_tags::W-003: test"), "{out}");
    assert!(!out.contains("..."));
}

#[test]
fn what_does_not_exist_is_named_and_exits_with_2() {
    for (args, word) in [
        (&["--bench", "rtk"][..], "--bench is one of: model"),
        (&["--requirement", "Z-999"], "Z-999"),
        (&["--filter", "no such case"], "--list"),
    ] {
        let (code, out, err) = conform(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}");
        assert!(err.contains(word), "{args:?}: {err}");
    }
}
