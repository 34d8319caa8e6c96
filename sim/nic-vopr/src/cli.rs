//! The command line: which seeds, how long, what is printed.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use nic_spec::csr::stats::COUNTERS;

use crate::run::{run_seed, Report, Scenario};

const PS_PER_HOUR: f64 = 3.6e15;

/// Plays random scenarios of a network of cards that lose, copy, delay and damage frames, and checks the protocol's promises
#[derive(Args, Clone, Debug)]
pub struct VoprArgs {
    /// First seed; those after it follow
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many seeds to play [default: 100, or no limit with --hours-sim]
    #[arg(long)]
    pub runs: Option<u64>,
    /// Stop when so many hours of network time are simulated
    #[arg(long)]
    pub hours_sim: Option<f64>,
    /// Play on after a seed that fails
    #[arg(long)]
    pub keep_going: bool,
    /// One JSON object a line and run instead of text
    #[arg(long)]
    pub json: bool,
    /// Say what each seed stands for, and at the end what the cards counted
    #[arg(long)]
    pub describe: bool,
    /// Write what passes the hosts' cables into this folder, a pcap file per direction; for a single run
    #[arg(long, value_name = "DIR")]
    pub pcap: Option<PathBuf>,
}

#[derive(Default)]
struct Sum {
    runs: u64,
    failed: Vec<u64>,
    simulated_ps: u64,
    messages: u64,
    frames: u64,
    link_hops: u64,
    dropped: u64,
    counters: BTreeMap<&'static str, u64>,
}

/// Plays what the arguments ask for. 0 when every run was good, 1 when one was not.
///
/// # Errors
/// A capture or the output could not be written.
pub fn run(args: &VoprArgs) -> anyhow::Result<ExitCode> {
    let runs = args.runs.unwrap_or(if args.hours_sim.is_some() || args.pcap.is_some() { u64::MAX } else { 100 });
    let runs = if args.pcap.is_some() { 1 } else { runs };
    let limit_ps = args.hours_sim.map_or(u64::MAX, |hours| (hours * PS_PER_HOUR) as u64);
    let bar = progress(args, runs, limit_ps);
    let mut sum = Sum::default();
    let mut out = std::io::stdout().lock();
    while sum.runs < runs && sum.simulated_ps < limit_ps {
        let seed = args.seed.wrapping_add(sum.runs);
        let report = run_seed(seed, 1, args.pcap.as_deref()).with_context(|| format!("seed {seed}"))?;
        sum.runs += 1;
        sum.simulated_ps += report.simulated_ps;
        sum.messages += report.messages;
        sum.frames += report.frames;
        sum.link_hops += report.link_hops;
        sum.dropped += report.dropped;
        for (name, value) in &report.counters {
            *sum.counters.entry(name).or_insert(0) += value;
        }
        if !report.is_good() {
            sum.failed.push(seed);
        }
        if args.json {
            serde_json::to_writer(&mut out, &report)?;
            writeln!(out)?;
        } else if !report.is_good() || args.describe {
            bar.suspend(|| print(&mut out, &report))?;
        }
        bar.set_position(if limit_ps == u64::MAX { sum.runs } else { sum.simulated_ps / 1_000_000 });
        bar.set_message(format!("seed {seed}, {} messages, {} frames", sum.messages, sum.frames));
        if !report.is_good() && !args.keep_going {
            break;
        }
    }
    bar.finish_and_clear();
    if args.describe && !args.json {
        for info in COUNTERS {
            writeln!(out, "{:>14} {}", sum.counters.get(info.name).unwrap_or(&0), info.name)?;
        }
    }
    if !args.json {
        writeln!(
            out,
            "{} runs, {} failed; {} ms simulated, {} messages, {} frames, {} lost, {} link-hops",
            sum.runs,
            sum.failed.len(),
            sum.simulated_ps / 1_000_000_000,
            sum.messages,
            sum.frames,
            sum.dropped,
            sum.link_hops
        )?;
    }
    Ok(if sum.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn progress(args: &VoprArgs, runs: u64, limit_ps: u64) -> ProgressBar {
    if args.json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (length, unit) = if limit_ps == u64::MAX { (runs, "runs") } else { (limit_ps / 1_000_000, "us simulated") };
    let style = ProgressStyle::with_template(&format!("{{bar:30}} {{pos}}/{{len}} {unit} {{eta}} {{msg}}"));
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn print(out: &mut impl Write, report: &Report) -> std::io::Result<()> {
    if report.is_good() {
        writeln!(out, "seed {}: good", report.seed)?;
        return Scenario::draw(report.seed).describe().iter().try_for_each(|line| writeln!(out, "  {line}"));
    }
    writeln!(out, "seed {}: FAILED", report.seed)?;
    report.violations.iter().try_for_each(|what| writeln!(out, "  ! {what}"))?;
    report.story.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    writeln!(out, "  replay: {}", replay(report.seed))
}

/// The command that plays a seed again.
pub fn replay(seed: u64) -> String {
    format!("cargo run -p nic-vopr -- --seed {seed} --runs 1")
}
