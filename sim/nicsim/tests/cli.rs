//! The command line as a user meets it: results, formats, exit codes, and what it says when it cannot.

use std::path::Path;
use std::process::{Command, Output};

fn nicsim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nicsim")).args(args).output().expect("the program runs")
}

fn transfer(dir: &Path, extra: &[&str]) -> Output {
    let (file, out) = (dir.join("in"), dir.join("out"));
    let mut args = vec!["transfer", "--file", file.to_str().expect("UTF-8"), "--out", out.to_str().expect("UTF-8")];
    args.extend(extra);
    nicsim(&args)
}

fn folder(len: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let bytes: Vec<u8> = (0..len).map(|i| (i * 31 % 253) as u8).collect();
    std::fs::write(dir.path().join("in"), bytes).expect("a file");
    dir
}

fn same_files(dir: &Path) -> bool {
    std::fs::read(dir.join("in")).expect("sent") == std::fs::read(dir.join("out")).expect("received")
}

#[test]
fn a_transfer_prints_its_result_and_writes_the_same_file() {
    let dir = folder(70_000);
    let done = transfer(dir.path(), &["--loss", "1%", "--paths", "4", "--seed", "7"]);
    let text = String::from_utf8_lossy(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(same_files(dir.path()));
    for word in [
        "bytes",
        "70 000",
        "simulated time",
        "goodput",
        "retransmitted",
        "duplicates",
        "network dropped",
        "kilo-cycles per second",
    ] {
        assert!(text.contains(word), "`{word}` is missing in\n{text}");
    }
    assert!(done.stderr.is_empty(), "progress is for terminals only");
}

#[test]
fn json_is_one_object_and_the_same_for_the_same_seed() {
    let dir = folder(20_000);
    let mut values = Vec::new();
    for _ in 0..2 {
        let done = transfer(dir.path(), &["--json", "--loss", "2%", "--ipv6"]);
        assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
        let text = String::from_utf8(done.stdout).expect("UTF-8");
        assert_eq!(text.lines().count(), 1);
        let mut value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&value["schema"], &value["is_equal"], &value["bytes"]), (&1.into(), &true.into(), &20_000.into()));
        // The only figure that is of this machine.
        value["cycles_per_cpu_second"].take();
        values.push(value);
    }
    assert_eq!(values[0], values[1]);
}

#[test]
fn a_capture_holds_every_frame_and_a_trace_holds_waves() {
    let dir = folder(9_000);
    let (pcap, fst) = (dir.path().join("p.pcap"), dir.path().join("t.fst"));
    let done = transfer(
        dir.path(),
        &[
            "--pcap",
            pcap.to_str().expect("UTF-8"),
            "--trace",
            fst.to_str().expect("UTF-8"),
            "--trace-cycles",
            "0..2000",
        ],
    );
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    let bytes = std::fs::read(&pcap).expect("the capture");
    assert_eq!(bytes[..4], 0xa1b2_3c4d_u32.to_be_bytes(), "nanosecond pcap");
    assert!(bytes.len() > 9_000 + 3 * 100);
    assert!(std::fs::metadata(&fst).expect("the trace").len() > 1000);
}

#[test]
fn what_cannot_be_done_is_said_with_the_value_and_the_way_out_and_code_2() {
    let dir = folder(100);
    let cases: &[(&[&str], &[&str])] = &[
        (&["--paths", "0"], &["--paths", "0", "1..=16"]),
        (&["--paths", "17"], &["17", "1..=16"]),
        (&["--loss", "120%"], &["--loss", "120%", "0% and 100%"]),
        (&["--loss", "lots"], &["lots", "1%"]),
        (&["--pmtu", "1500"], &["1500", "1024, 2048, 4096, 8192"]),
        (&["--message-size", "0"], &["--message-size 0", "1 byte"]),
        (&["--rate", "fast"], &["fast", "100Gbps"]),
        (&["--seed", "x"], &["--seed", "x"]),
        (&["--trace-cycles", "1..2"], &["--trace"]),
        (&["--pcap", "/nonexistent/p"], &["/nonexistent/p"]),
    ];
    for (extra, words) in cases {
        let done = transfer(dir.path(), extra);
        let text = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{extra:?}: {text}");
        for word in *words {
            assert!(text.contains(word), "{extra:?}: `{word}` is missing in {text}");
        }
        assert!(done.stdout.is_empty());
    }
    let done = nicsim(&["transfer", "--file", "/nonexistent/f", "--out", "/nonexistent/g"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("/nonexistent/f"));
    assert_eq!(nicsim(&["fly"]).status.code(), Some(2));
    assert_eq!(nicsim(&[]).status.code(), Some(2));
    assert_eq!(nicsim(&["--help"]).status.code(), Some(0));
}
