//! The capture of a real transfer under tshark with the generated dissector: every frame decodes, every ICRC is right, and
//! a flipped bit is marked.

use nic_testbench::transfer::{run, TransferPlan};
use nic_testbench::wire::{write_pcap, WireFrame};
use std::path::Path;
use std::process::Command;

/// One line a frame: opcode, is the ICRC right, is there a bitmap, expert messages.
fn dissect(frames: Vec<WireFrame>) -> Vec<Vec<String>> {
    let dir = tempfile::tempdir().expect("a folder");
    let pcap = dir.path().join("transfer.pcap");
    write_pcap(frames, std::fs::File::create(&pcap).expect("a file")).expect("a capture");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hdl/nic-spec/generated/nic.lua");
    let fields = ["metaroce.bth.opcode", "metaroce.icrc.good", "metaroce.sack.bitmap", "_ws.expert.message"];
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&pcap).arg("-n").arg("-X").arg(format!("lua_script:{}", script.display())).args([
        "-T",
        "fields",
        "-E",
        "separator=|",
    ]);
    fields.iter().for_each(|f| {
        tshark.args(["-e", f]);
    });
    let out = tshark.output().expect("tshark runs (Debian package tshark)");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).lines().map(|l| l.split('|').map(str::to_string).collect()).collect()
}

#[test]
fn every_frame_of_a_lossy_transfer_decodes_with_a_right_icrc_and_a_flipped_bit_is_marked() {
    for is_ipv6 in [false, true] {
        let plan =
            TransferPlan { loss_ppm: 60_000, keep_frames: true, is_ipv6, ..TransferPlan::new(vec![0x3c; 400_000]) };
        let frames = run(&plan, |_| {}).expect("the transfer runs").frames;
        let rows = dissect(frames.clone());
        assert_eq!(rows.len(), frames.len());
        assert!(rows.iter().all(|r| r[1] == "1" || r[1] == "True"), "an ICRC is wrong");
        // Wireshark itself remarks on the UDP checksum, which is 0 over IPv6 too.
        assert!(rows.iter().all(|r| !r[3].contains("rx_")), "an expert entry of ours");
        let count = |code: &str| rows.iter().filter(|r| r[0] == code).count();
        assert!(count("0xe0") >= 98 && count("0xf0") >= 25, "{} writes, {} acks", count("0xe0"), count("0xf0"));
        assert_eq!(count("0xe0") + count("0xf0"), rows.len());
        assert!(rows.iter().any(|r| r[0] == "0xf0" && !r[2].is_empty()), "no acknowledgement has a bitmap");

        let mut broken = frames[..3].to_vec();
        for frame in &mut broken {
            let at = frame.bytes.len() - 10;
            frame.bytes[at] ^= 4;
        }
        let rows = dissect(broken);
        assert!(
            rows.iter().all(|r| (r[1] == "0" || r[1] == "False") && r[3].contains("rx_bad_icrc_count")),
            "{rows:?}"
        );
    }
}
