//! The text of the specification: its names are in the tables, its ids are given once.

use nic_spec::{consts::CONSTANTS, csr::stats::COUNTERS};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

fn pages() -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../nic-spec/spec");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let read = |path: PathBuf| {
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(&path).unwrap())
    };
    files.into_iter().filter(|p| p.extension().is_some_and(|e| e == "md")).map(read).collect()
}

/// What stands between backquotes outside of code blocks.
fn quoted(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    for block in text.split("```").step_by(2) {
        out.extend(block.split('`').skip(1).step_by(2));
    }
    out
}

#[test]
fn every_constant_and_counter_that_the_text_names_is_in_the_tables() {
    let constants: BTreeSet<String> = CONSTANTS.iter().map(|c| c.name.replace("_NS", "")).collect();
    let counters: BTreeSet<&str> = COUNTERS.iter().map(|c| c.name).collect();
    for (file, text) in pages() {
        for word in quoted(&text) {
            let is_upper =
                word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
            if is_upper && !word.starts_with('_') {
                assert!(constants.contains(word), "{file} names {word}, which is no constant");
            }
            if word.ends_with("_count") {
                assert!(counters.contains(word), "{file} names {word}, which is no counter");
            }
        }
    }
}

#[test]
fn every_counter_of_drops_and_refusals_is_explained() {
    let text: String = pages().into_iter().map(|(_, text)| text).collect();
    let words: BTreeSet<&str> = quoted(&text).into_iter().collect();
    for info in COUNTERS.iter().filter(|c| c.class != nic_spec::csr::stats::Class::Event) {
        assert!(words.contains(info.name), "the text does not say when {} counts", info.name);
    }
}

#[test]
fn a_requirement_has_an_id_of_its_own_and_references_lead_somewhere() {
    let mut given = BTreeMap::new();
    for (file, text) in pages() {
        for line in text.lines() {
            if let Some((id, _)) = line.strip_prefix("* **").and_then(|rest| rest.split_once("**")) {
                let earlier = given.insert(id.to_string(), file.clone());
                assert_eq!(earlier, None, "{id} is given twice");
            }
        }
    }
    for (file, text) in pages() {
        for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')) {
            let bytes = word.as_bytes();
            let is_id = bytes.len() == 5
                && b"WPCSRMEH".contains(&bytes[0])
                && bytes[1] == b'-'
                && bytes[2..].iter().all(u8::is_ascii_digit);
            assert!(!is_id || given.contains_key(word), "{file} refers to {word}, which does not exist");
        }
    }
}
