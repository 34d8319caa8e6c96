//! Writes every foreign artefact of the card: Markdown, Lua, C, JSON, Verilog.
//!
//! `nic-gen all` writes the files under `hdl/nic-spec/generated` from the tables of nic-spec; with `--check` it only
//! compares. `nic-gen verilog --out DIR` writes the design. Exit codes: 0 done, 1 a file differs, 2 it could not run.
#![forbid(unsafe_code)]

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{bail, Context, Result};
use clap::{Parser, Subcommand};
use nic_rtl::params::NicParams;

// One file a foreign language.
mod c_header;
mod json;
mod lua;
mod markdown;

// Helpers of all of them.
mod text;

/// Writes the card's documents, C header, JSON and Wireshark dissector.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the files generated from the tables of nic-spec
    All {
        /// Compare instead of writing; exit 1 when a file differs
        #[arg(long)]
        check: bool,
        /// Folder of the generated files
        #[arg(long, default_value = "hdl/nic-spec/generated", value_name = "DIR")]
        dir: PathBuf,
    },
    /// Write the card's design as Verilog: `card.v` with every module
    Verilog {
        /// Folder to write to; it is made if need be
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Connections (power of two)
        #[arg(long, default_value_t = NicParams::default().conns)]
        conns: u32,
        /// Paths of each connection (power of two)
        #[arg(long, default_value_t = NicParams::default().paths)]
        paths: u32,
        /// Packets in flight on one path (power of two, at most 256)
        #[arg(long, default_value_t = NicParams::default().window_pkts)]
        window_pkts: u32,
        /// Memory regions (power of two)
        #[arg(long, default_value_t = NicParams::default().mrs)]
        mrs: u32,
        /// Completion queues (power of two)
        #[arg(long, default_value_t = NicParams::default().cqs)]
        cqs: u32,
        /// Frequency of the core clock, kHz
        #[arg(long, default_value_t = NicParams::default().clock_khz)]
        clock_khz: u32,
    },
}

/// Name and content of every generated file.
fn artefacts() -> Vec<(&'static str, String)> {
    vec![
        ("constants.md", markdown::constants()),
        ("counters.md", markdown::counters()),
        ("descriptors.md", markdown::descriptors()),
        ("headers.md", markdown::headers()),
        ("nic.h", c_header::c_header()),
        ("nic.json", json::json()),
        ("nic.lua", lua::lua()),
        ("registers.md", markdown::registers()),
        ("../spec/85-constants.md", markdown::spec_constants()),
    ]
}

fn require_folder(dir: &Path) -> Result<()> {
    if !dir.is_dir() {
        bail!("no folder {} (run from the root of the repository, or give --dir)", dir.display());
    }
    Ok(())
}

fn write_all(dir: &Path) -> Result<ExitCode> {
    require_folder(dir)?;
    for (name, content) in artefacts() {
        let path = dir.join(name);
        std::fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Line number of the first difference, counted from 1.
fn first_difference(old: &str, new: &str) -> usize {
    old.lines().zip(new.lines()).take_while(|(a, b)| a == b).count() + 1
}

fn check_all(dir: &Path) -> Result<ExitCode> {
    require_folder(dir)?;
    let mut differing = 0;
    for (name, content) in artefacts() {
        let path = dir.join(name);
        let problem = match std::fs::read_to_string(&path) {
            Ok(old) if old == content => continue,
            Ok(old) => format!("differs from the tables in line {}", first_difference(&old, &content)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "is missing".to_string(),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        writeln!(std::io::stderr(), "{} {problem} (run `nic-gen all`)", path.display())?;
        differing += 1;
    }
    Ok(if differing == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn write_verilog(out: &Path, params: &NicParams) -> Result<ExitCode> {
    params.check().context("these sizes make no card")?;
    std::fs::create_dir_all(out).with_context(|| format!("making the folder {}", out.display()))?;
    let path = out.join("card.v");
    let text = nic_rtl::top::verilog(params);
    std::fs::write(&path, &text).with_context(|| format!("writing {}", path.display()))?;
    writeln!(
        std::io::stdout(),
        "{}: {} lines, top module {}",
        path.display(),
        text.lines().count(),
        nic_rtl::top::TOP
    )?;
    Ok(ExitCode::SUCCESS)
}

fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Verilog { out, conns, paths, window_pkts, mrs, cqs, clock_khz } => {
            let params = NicParams { conns, paths, window_pkts, mrs, cqs, clock_khz, ..NicParams::default() };
            write_verilog(&out, &params)
        }
        Command::All { check: true, dir } => check_all(&dir),
        Command::All { check: false, dir } => write_all(&dir),
    }
}

fn main() -> ExitCode {
    run(Args::parse()).unwrap_or_else(|error| {
        eprintln!("nic-gen: {error:#}");
        ExitCode::from(2)
    })
}
