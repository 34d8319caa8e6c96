//! Which cases are about which requirement, as a checked-in file.
//!
//! `UPDATE_EXPECT=1 cargo test -p nic-conformance --test trace` writes it.

use nic_conformance::case::all;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn spec() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hdl/nic-spec")
}

/// Ids of the requirements in the order of the text.
fn requirements() -> Vec<String> {
    let mut files: Vec<_> = std::fs::read_dir(spec().join("spec"))
        .expect("the folder of the text")
        .map(|e| e.expect("an entry").path())
        .collect();
    files.sort();
    let text: String = files.iter().map(|f| std::fs::read_to_string(f).expect("a text file")).collect();
    let id =
        |line: &str| line.strip_prefix("* **").and_then(|rest| rest.split_once("**")).map(|(id, _)| id.to_string());
    text.lines().filter_map(id).collect()
}

#[test]
fn every_case_has_a_name_of_its_own_and_requirements_that_exist() {
    let known: BTreeSet<String> = requirements().into_iter().collect();
    let mut names = BTreeSet::new();
    for case in all() {
        assert!(names.insert(case.name), "two cases are called {}", case.name);
        for id in [case.id].iter().chain(case.also) {
            assert!(known.contains(*id), "{} names {id}, which the text does not have", case.name);
        }
    }
    assert!(names.len() >= 150, "{} cases", names.len());
}

#[test]
fn the_coverage_file_is_current() {
    let mut cases: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for case in all() {
        for id in [case.id].iter().chain(case.also) {
            cases.entry(*id).or_default().push(case.name);
        }
    }
    let ids = requirements();
    let covered = ids.iter().filter(|id| cases.contains_key(id.as_str())).count();
    let mut text =
        String::from("# Requirement: the conformance cases that would find it broken, or - if none would.\n");
    text += "# Written by UPDATE_EXPECT=1 cargo test -p nic-conformance --test trace\n";
    text += &format!("# {} cases, {covered} of {} requirements\n", all().len(), ids.len());
    for id in &ids {
        let names = cases.get(id.as_str()).map_or("-".to_string(), |names| names.join(" "));
        text += &format!("{id} {names}\n");
    }
    let path = spec().join("generated/coverage.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &text).expect("writing coverage.txt");
    }
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = old.lines().zip(text.lines()).position(|(a, b)| a != b).map_or(old.lines().count(), |n| n) + 1;
    assert!(old == text, "coverage.txt differs from line {differs} on; if that is right: UPDATE_EXPECT=1");
}

#[test]
fn every_case_that_the_readme_names_exists() {
    let names: BTreeSet<&str> = all().iter().map(|case| case.name).collect();
    let sections: BTreeSet<&str> = names.iter().filter_map(|name| name.split("::").next()).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = std::fs::read_to_string(&path).expect("the README");
    let quoted = text.split("```").step_by(2).flat_map(|block| block.split('`').skip(1).step_by(2));
    let mut count = 0;
    for word in quoted.filter(|word| word.split("::").next().is_some_and(|section| sections.contains(section))) {
        assert!(!word.contains("::") || names.contains(word), "the README names {word}, which does not exist");
        count += usize::from(word.contains("::"));
    }
    assert!(count > 60, "{count} cases named: the README is not what this test takes it for");
}

#[test]
fn cases_and_what_they_work_with_know_no_model() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut seen) = (vec![source], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let is_bench = path.ends_with("bench/model.rs") || path.ends_with("src/setup.rs");
            let text = std::fs::read_to_string(&path).expect("a source file");
            assert!(is_bench || !text.contains("nic_model"), "{} knows the model", path.display());
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} files");
}
