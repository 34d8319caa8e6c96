//! The save files of the waveform viewer name only signals that the card has.

use nic_rtl::params::NicParams;
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn every_signal_of_a_save_file_is_a_net_of_the_card() {
    let verilog = nic_rtl::top::verilog(&NicParams::default());
    let words: BTreeSet<&str> = verilog.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../waves");
    let (mut files, mut signals, mut missing) = (0, 0, Vec::new());
    for entry in std::fs::read_dir(&folder).expect("waves/ exists") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|e| e != "gtkw") {
            continue;
        }
        files += 1;
        let text = std::fs::read_to_string(&path).expect("a text");
        for line in text.lines().filter(|l| l.starts_with("TOP.")) {
            signals += 1;
            // `TOP.top` is Verilator's root and the module; then instances, then the net with its range.
            let name = line.split('[').next().unwrap_or(line);
            if let Some(part) = name.split('.').skip(2).find(|part| !words.contains(part)) {
                missing.push(format!("{}: {name} ({part})", path.display()));
            }
        }
    }
    assert!(files >= 10 && signals >= 100, "{files} files, {signals} signals");
    assert!(missing.is_empty(), "these nets are gone:\n{}", missing.join("\n"));
}
