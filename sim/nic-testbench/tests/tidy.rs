//! House rules as tests: file sizes, the crate graph, banned names, dependencies that CONTRIBUTING explains.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a crate of ours may depend on, dev-dependencies left out (ARCHITECTURE.md draws the same picture).
const MAY_DEPEND: &[(&str, &[&str])] = &[
    ("nic-spec", &[]),
    ("rtl-graph", &[]),
    ("cocotb-rs", &[]),
    ("nic-fabric", &["nic-spec"]),
    ("nic-model", &["nic-spec"]),
    ("nic-rtl", &["nic-spec", "rtl-graph"]),
    ("nic-driver", &["nic-spec"]),
    ("nic-gen", &["nic-spec", "nic-rtl", "rtl-graph"]),
    ("nic-host", &["nic-spec", "nic-driver"]),
    ("nic-cosim", &["cocotb-rs", "nic-rtl", "nic-spec", "nic-model", "nic-host", "nic-driver"]),
    ("nic-baseline", &["nic-fabric", "nic-spec"]),
    ("nic-node", &["nic-fabric", "nic-model", "nic-spec"]),
    ("nic-vopr", &["nic-fabric", "nic-model", "nic-node", "nic-spec"]),
    ("nic-plan", &["nic-baseline", "nic-fabric", "nic-model", "nic-node", "nic-spec"]),
    ("nic-conformance", &["nic-model", "nic-spec"]),
    (
        "nic-testbench",
        &["nic-cosim", "nic-model", "nic-host", "nic-driver", "nic-fabric", "nic-spec", "cocotb-rs", "nic-rtl"],
    ),
    (
        "nicsim",
        &[
            "nic-baseline",
            "nic-conformance",
            "nic-node",
            "nic-plan",
            "nic-vopr",
            "nic-testbench",
            "nic-fabric",
            "nic-model",
            "nic-spec",
            "nic-driver",
            "nic-host",
            "nic-rtl",
        ],
    ),
];

const LINES_MAX: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace root exists")
}

fn tracked(suffix: &str) -> Vec<(String, String)> {
    let out = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    String::from_utf8(out.stdout)
        .expect("file names are UTF-8")
        .lines()
        .filter(|f| f.ends_with(suffix))
        .filter_map(|f| std::fs::read_to_string(root().join(f)).ok().map(|text| (f.to_string(), text)))
        .collect()
}

fn metadata() -> serde_json::Value {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    serde_json::from_slice(&out.stdout).expect("cargo metadata prints JSON")
}

#[test]
fn no_rust_file_is_longer_than_800_lines() {
    let long: Vec<String> = tracked(".rs")
        .into_iter()
        .filter(|(_, text)| text.lines().count() > LINES_MAX)
        .map(|(f, text)| format!("{f}: {} lines", text.lines().count()))
        .collect();
    assert!(long.is_empty(), "split these files, one mechanism each:\n{}", long.join("\n"));
}

#[test]
fn crates_depend_only_on_the_layers_below_them() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        MAY_DEPEND.iter().map(|(k, v)| (*k, v.iter().copied().collect())).collect();
    let meta = metadata();
    let mut wrong = vec![];
    for package in meta["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("name");
        let Some(may) = allowed.get(name) else {
            wrong.push(format!("{name} is not in the table of this test"));
            continue;
        };
        for dep in package["dependencies"].as_array().expect("dependencies") {
            let to = dep["name"].as_str().expect("name");
            if dep["kind"].is_null() && allowed.contains_key(to) && !may.contains(to) {
                wrong.push(format!("{name} must not depend on {to}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_dependency_has_a_line_in_contributing() {
    let text = std::fs::read_to_string(root().join("CONTRIBUTING.md")).expect("CONTRIBUTING.md");
    let ours: BTreeSet<&str> = MAY_DEPEND.iter().map(|(k, _)| *k).collect();
    let mut missing = BTreeSet::new();
    for package in metadata()["packages"].as_array().expect("packages") {
        for dep in package["dependencies"].as_array().expect("dependencies") {
            let name = dep["name"].as_str().expect("name");
            let listed = text.lines().any(|l| l.starts_with('|') && l.split([' ', ',', '|', '(']).any(|w| w == name));
            if !ours.contains(name) && !listed {
                missing.insert(name.to_string());
            }
        }
    }
    assert!(missing.is_empty(), "say in CONTRIBUTING.md what these are for: {missing:?}");
}

#[test]
fn model_and_fabric_use_no_clock_no_thread_randomness_and_no_hash_order() {
    let mut found = vec![];
    for (file, text) in tracked(".rs") {
        if ![
            "hdl/nic-model/src/",
            "sim/nic-fabric/src/",
            "hdl/nic-spec/src/",
            "sim/nic-baseline/src/",
            "sim/nic-node/src/",
        ]
        .iter()
        .any(|p| file.starts_with(p))
        {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            for (word, instead) in [
                ("Instant::now", "a time argument"),
                ("thread_rng", "a seeded ChaCha stream"),
                ("HashMap", "BTreeMap or Vec"),
                ("HashSet", "BTreeSet"),
            ] {
                if line.contains(word) && !line.trim_start().starts_with("//") {
                    found.push(format!("{file}:{}: {word}; use {instead}", number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn unsafe_code_stands_only_where_it_is_argued() {
    let mut found = vec![];
    for (file, text) in tracked(".rs") {
        let unsafe_lines: Vec<usize> = text
            .lines()
            .enumerate()
            .filter(|(_, l)| {
                !l.trim_start().starts_with("//")
                    && (l.contains("unsafe {") || l.contains("unsafe impl") || l.contains("unsafe fn"))
            })
            .map(|(n, _)| n + 1)
            .collect();
        let is_allowed = file.starts_with("sim/cocotb-rs/src/") || file == "sim/nic-fabric/src/prefetch.rs";
        let is_explained = is_allowed && text.contains("SAFETY:");
        if !unsafe_lines.is_empty() && !is_explained && !file.ends_with("tests/tidy.rs") {
            found.push(format!("{file}: lines {unsafe_lines:?}"));
        }
    }
    assert!(found.is_empty(), "unsafe outside cocotb-rs' model loader:\n{}", found.join("\n"));
}

#[test]
fn tests_are_neither_ignored_nor_silenced() {
    let marks =
        [concat!("#[ig", "nore"), concat!("to", "do!("), concat!("unimple", "mented!("), concat!("assert!(tr", "ue)")];
    let mut found = vec![];
    for (file, text) in tracked(".rs") {
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|m| line.contains(m)) {
                found.push(format!("{file}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
