//! Seeded fault runs from the command line.
//!
//! Exit codes: 0 every run was good, 1 one was not, 2 it could not run.
#![forbid(unsafe_code)]

use clap::Parser;
use nic_vopr::cli::{run, VoprArgs};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "nic-vopr", version)]
struct Args {
    #[command(flatten)]
    vopr: VoprArgs,
}

fn main() -> ExitCode {
    run(&Args::parse().vopr).unwrap_or_else(|error| {
        eprintln!("nic-vopr: {error:#}");
        ExitCode::from(2)
    })
}
