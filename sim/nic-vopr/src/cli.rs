//! `nicsim vopr`: which seeds, how long, what is printed.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use nic_spec::csr::stats::COUNTERS;

use crate::run::{replay, run_scenario, Cut, Report, Scenario};
use crate::shrink::shrink;

const PS_PER_HOUR: f64 = 3.6e15;

/// Plays random scenarios of a network of cards that lose, copy, delay and damage frames, and checks the protocol's promises
#[derive(Args, Clone, Debug)]
pub struct VoprArgs {
    /// First seed; those after it follow
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many seeds to play [default: 100, or no limit with another limit]
    #[arg(long)]
    pub runs: Option<u64>,
    /// Begin no further seed after so many minutes
    #[arg(long)]
    pub minutes: Option<f64>,
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
    /// Make the first seed smaller if it fails: take faults, connections, messages away while it still fails
    #[arg(long)]
    pub shrink: bool,
    /// Play each seed on one and on so many threads, which must not differ
    #[arg(long, default_value_t = 1)]
    pub threads: u16,
    /// Keep only the faults with these numbers (`0,3`, or `none`), as a shrunk run says
    #[arg(long, value_name = "NUMBERS")]
    pub only_faults: Option<Numbers>,
    /// Keep only the connections with these numbers
    #[arg(long, value_name = "NUMBERS")]
    pub only_connections: Option<Numbers>,
    /// Messages of each direction of a stream, at most
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    pub messages: u64,
    /// Write what passes the hosts' cables into this folder, a pcap file per direction; for a single run
    #[arg(long, value_name = "DIR")]
    pub pcap: Option<PathBuf>,
}

/// Numbers with commas between them, or `none`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers(Vec<u64>);

impl std::str::FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Numbers, String> {
        if text == "none" {
            return Ok(Numbers(Vec::new()));
        }
        let number = |part: &str| part.parse().map_err(|_| format!("{part:?} is no number; expected 0,3 or none"));
        text.split(',').map(number).collect::<Result<_, _>>().map(Numbers)
    }
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
    let kept = |numbers: &Option<Numbers>| numbers.as_ref().map(|numbers| numbers.0.clone());
    let (faults, connections) = (kept(&args.only_faults), kept(&args.only_connections));
    let cut = Cut { faults, connections, messages_max: args.messages };
    if args.shrink {
        return print_shrunk(args);
    }
    let is_limited = args.hours_sim.is_some() || args.minutes.is_some();
    let runs = args.runs.unwrap_or(if is_limited { u64::MAX } else { 100 });
    let runs = if args.pcap.is_some() || cut != Cut::NONE { 1 } else { runs };
    let (started, span) =
        (Instant::now(), args.minutes.map(|minutes| Duration::from_secs_f64(minutes.max(0.0) * 60.0)));
    let limit_ps = args.hours_sim.map_or(u64::MAX, |hours| (hours * PS_PER_HOUR) as u64);
    let bar = progress(args, runs, limit_ps);
    let mut sum = Sum::default();
    let mut out = std::io::stdout().lock();
    let is_time_over = || span.is_some_and(|span| started.elapsed() >= span);
    while sum.runs < runs && sum.simulated_ps < limit_ps && !is_time_over() {
        let seed = args.seed.wrapping_add(sum.runs);
        let report = play(args, seed, &cut).with_context(|| format!("seed {seed}"))?;
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
            bar.suspend(|| print(&mut out, &report, &cut))?;
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

/// Plays a seed, on several threads too if that is asked for.
fn play(args: &VoprArgs, seed: u64, cut: &Cut) -> anyhow::Result<Report> {
    let scenario = Scenario::draw_cut(seed, cut);
    let mut report = run_scenario(&scenario, 1, args.pcap.as_deref())?;
    if args.threads > 1 && run_scenario(&scenario, args.threads, None)? != report {
        report.violations.push(format!("{} threads come to another end than one", args.threads));
        report.replay = Some(format!("{} --threads {}", replay(seed, cut), args.threads));
    }
    Ok(report)
}

fn print_shrunk(args: &VoprArgs) -> anyhow::Result<ExitCode> {
    let on_step = |cut: &Cut, fails: bool| {
        if !args.json {
            eprintln!("{}: {}", replay(args.seed, cut), if fails { "fails" } else { "good" });
        }
    };
    let mut out = std::io::stdout().lock();
    let Some((cut, report)) = shrink(args.seed, on_step)? else {
        writeln!(out, "seed {}: good", args.seed)?;
        return Ok(ExitCode::SUCCESS);
    };
    if args.json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else {
        print(&mut out, &report, &cut)?;
    }
    Ok(ExitCode::FAILURE)
}

fn progress(args: &VoprArgs, runs: u64, limit_ps: u64) -> ProgressBar {
    if args.json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (length, unit) = if limit_ps == u64::MAX { (runs, "runs") } else { (limit_ps / 1_000_000, "us simulated") };
    let style = ProgressStyle::with_template(&format!("{{bar:30}} {{pos}}/{{len}} {unit} {{eta}} {{msg}}"));
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn print(out: &mut impl Write, report: &Report, cut: &Cut) -> std::io::Result<()> {
    if report.is_good() {
        writeln!(out, "seed {}: good", report.seed)?;
        let scenario = Scenario::draw_cut(report.seed, cut);
        return scenario.describe().iter().try_for_each(|line| writeln!(out, "  {line}"));
    }
    writeln!(out, "seed {}: FAILED", report.seed)?;
    report.violations.iter().try_for_each(|what| writeln!(out, "  ! {what}"))?;
    report.story.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    report.replay.iter().try_for_each(|command| writeln!(out, "  replay: {command}"))
}
