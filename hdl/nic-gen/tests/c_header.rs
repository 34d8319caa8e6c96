//! The C header: it compiles without a warning, and a WQE written in C has the bytes that Rust writes.

use std::{path::PathBuf, process::Command};

use nic_spec::{
    csr,
    desc::{Cqe, Status, Wqe, WqeOpcode},
    num::{Lkey, Qpn, Rkey},
};

const PROGRAM: &str = r#"
#include <stdio.h>
#include "nic.h"

int main(void)
{
	struct nic_wqe wqe = {{0}};
	nic_put(&wqe, NIC_WQE_OPCODE, NIC_WQE_OPCODE_WRITE_IMM);
	nic_put(&wqe, NIC_WQE_SIGNALED, 1);
	nic_put(&wqe, NIC_WQE_FENCE, 1);
	nic_put(&wqe, NIC_WQE_LENGTH, 0x80000000u);
	nic_put(&wqe, NIC_WQE_LOCAL_VA, 0x1122334455667788ull);
	nic_put(&wqe, NIC_WQE_LKEY, 0xaabbccddu);
	nic_put(&wqe, NIC_WQE_RKEY, 0x101u);
	nic_put(&wqe, NIC_WQE_REMOTE_VA, 0xffffffffffffffffull);
	nic_put(&wqe, NIC_WQE_IMM, 0xdeadbeefu);
	for (unsigned i = 0; i < sizeof wqe; i++)
		printf("%02x", wqe.bytes[i]);

	struct nic_cqe cqe = {{CQE_BYTES}};
	printf("\n%x %x %x %x %x\n", (unsigned)nic_get(&cqe, NIC_CQE_QPN), (unsigned)nic_get(&cqe, NIC_CQE_WQE_INDEX),
	       nic_get(&cqe, NIC_CQE_STATUS) == NIC_STATUS_RETRY_EXC, (unsigned)nic_get(&cqe, NIC_CQE_PHASE),
	       (unsigned)nic_get(&cqe, NIC_CQE_BYTE_LEN));
	printf("%x %x %x\n", NIC_CTX_DATA(15), NIC_PORT_CONTROL_PROMISCUOUS_MASK, NIC_STATS_RX_BAD_ICRC_COUNT);
	return 0;
}
"#;

fn compile(args: &[&str], source: &str, name: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (file, program) = (dir.path().join(name), dir.path().join("program"));
    std::fs::write(&file, source).unwrap();
    let include = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../nic-spec/generated");
    let mut gcc = Command::new("g++");
    gcc.args(args)
        .args(["-Wall", "-Wextra", "-Wconversion", "-Werror", "-I"])
        .arg(include)
        .arg(file)
        .arg("-o")
        .arg(&program);
    let out = gcc.output().expect("g++ runs (Debian package g++)");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    (dir, program)
}

#[test]
fn a_program_in_c_writes_and_reads_the_bytes_that_rust_does() {
    let mut wqe = Wqe::zeroed();
    wqe.set_opcode(WqeOpcode::WriteImm.code()).set_signaled(true).set_fence(true).set_length(0x8000_0000);
    wqe.set_local_va(0x1122_3344_5566_7788).set_lkey(Lkey::new(0xaabb_ccdd)).set_rkey(Rkey::new(0x101));
    wqe.set_remote_va(u64::MAX).set_imm(0xdead_beef);
    let mut cqe = Cqe::zeroed();
    cqe.set_qpn(Qpn::new(0x12_3456)).set_wqe_index(0xabc).set_status(Status::RetryExc.code()).set_phase(true);
    cqe.set_byte_len(0x1000);
    let bytes: Vec<String> = cqe.0.iter().map(u8::to_string).collect();
    let (_dir, program) = compile(&["-x", "c", "-std=c11"], &PROGRAM.replace("CQE_BYTES", &bytes.join(",")), "test.c");
    let out = Command::new(program).output().unwrap();
    let wqe_hex: String = wqe.0.iter().map(|b| format!("{b:02x}")).collect();
    let registers = format!(
        "{:x} {:x} {:x}",
        csr::ctx::DATA.at(15),
        csr::port::CONTROL_PROMISCUOUS.mask(),
        csr::stats::Counter::RxBadIcrc.address()
    );
    assert_eq!(String::from_utf8(out.stdout).unwrap(), format!("{wqe_hex}\n123456 abc 1 1 1000\n{registers}\n"));
}

#[test]
fn the_header_alone_compiles_as_c_and_as_cpp() {
    let source = "#include \"nic.h\"\n#include \"nic.h\"\n";
    compile(&["-x", "c", "-std=c11", "-pedantic", "-fsyntax-only"], source, "test.c");
    compile(&["-x", "c++", "-std=c++11", "-pedantic", "-fsyntax-only"], source, "test.cpp");
}
