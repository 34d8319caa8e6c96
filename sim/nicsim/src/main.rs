//! Command line of the simulator.
//!
//! Exit codes: 0 done, 1 it ran and the answer is no, 2 it could not run.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use std::process::ExitCode;

// Sizes, rates, times and fractions as people write them.
mod units;

// Results on stdout, progress and errors on stderr.
mod output;

// The main job.
mod transfer;

// Experiments at scale.
mod fabric;

// What the protocol requires.
mod conform;

/// Simulates MetaRoCE cards: the emitted RTL under Verilator, and the golden model alone, at scale and case by case.
#[derive(Parser)]
#[command(name = "nicsim", version, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send a file from one simulated card to another over a lossy multi-path network
    Transfer(transfer::TransferArgs),
    /// Run experiments from plan files: many modelled cards, workloads, faults, another transport to compare with
    Fabric(fabric::FabricArgs),
    /// Play random networks, workloads and faults, and check every promise of the protocol
    Vopr(nic_vopr::cli::VoprArgs),
    /// Hold a card to the protocol, case by case
    Conform(conform::ConformArgs),
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Transfer(args) => transfer::run(&args),
        Command::Fabric(args) => fabric::run(&args),
        Command::Vopr(args) => nic_vopr::cli::run(&args),
        Command::Conform(args) => conform::run(&args),
    };
    result.unwrap_or_else(|error| {
        if output::is_closed_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        eprintln!("nicsim: {error:#}");
        ExitCode::from(2)
    })
}
