//! The specification's text: ids are unique, and every drop and refusal that the card counts is required somewhere.

mod packet;

use std::collections::BTreeSet;

use nic_spec::csr::stats::{Class, COUNTERS};

fn spec_files() -> Vec<(String, String)> {
    let mut paths: Vec<_> =
        std::fs::read_dir(packet::spec_dir().join("spec")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: std::path::PathBuf| {
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(&path).unwrap())
    };
    paths.into_iter().map(read).collect()
}

/// `X-123` at the start of a requirement: `* **X-123** …`.
fn ids(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("* **")?.split_once("**").map(|(id, _)| id)).collect()
}

#[test]
fn every_requirement_has_a_well_formed_id_of_its_own() {
    let files = spec_files();
    let all: Vec<&str> = files.iter().flat_map(|(_, text)| ids(text)).collect();
    assert!(all.len() > 50, "{} requirements", all.len());
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "an id is used twice");
    for id in all {
        let (letter, digits) = id.split_once('-').unwrap();
        assert!("WPCSRMEH".contains(letter) && digits.len() == 3 && digits.parse::<u16>().is_ok(), "{id}");
    }
}

#[test]
fn an_id_that_the_text_refers_to_exists() {
    let files = spec_files();
    let known: BTreeSet<&str> = files.iter().flat_map(|(_, text)| ids(text)).collect();
    for (name, text) in &files {
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-') {
            let is_id = word.len() == 5 && "WPCSRMEH".contains(&word[..1]) && word[1..2] == *"-";
            assert!(!is_id || known.contains(word), "{name} refers to {word}");
        }
    }
}

#[test]
fn every_drop_and_refusal_counter_is_named_by_a_requirement() {
    let text: String = spec_files().into_iter().map(|(_, text)| text).collect();
    for info in COUNTERS.iter().filter(|info| info.class != Class::Event) {
        assert!(text.contains(&format!("`{}`", info.name)), "no requirement names {}", info.name);
    }
    // And the other way round: what the text names is counted.
    for name in text.split('`').filter(|word| word.ends_with("_count") && !word.contains(' ')) {
        assert!(COUNTERS.iter().any(|info| info.name == name), "{name} is no counter");
    }
}
