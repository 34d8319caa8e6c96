//! `nicsim fabric`: experiments from plan files.

use crate::output::{line, table};
use anyhow::{bail, Context, Result};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nic_plan::report::{outcome_json, outcome_rows, run_json, run_rows, write_tables};
use nic_plan::{execute, headline, plot, Options, Outcome, Plan, Progress, Verdict};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Parts into which a run is divided on the progress bar.
const PARTS: u64 = 1_000;

#[derive(Args)]
pub struct FabricArgs {
    /// Plans to run (TOML)
    #[arg(required = true, value_name = "PLAN")]
    plans: Vec<PathBuf>,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
    /// Write tables (CSV) and plots (SVG) to this folder, and captures that a plan asks for
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Write the expectations of all plans as one Markdown table
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Run this case only (may be repeated)
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Run this transport only (may be repeated)
    #[arg(long = "transport", value_name = "NAME")]
    transports: Vec<String>,
    /// Root of every random choice of the networks, instead of the plan's
    #[arg(long)]
    seed: Option<u64>,
    /// Runs side by side [default: one per processor]
    #[arg(long)]
    jobs: Option<usize>,
    /// Read the plans, say what would be run, run nothing
    #[arg(long)]
    dry_run: bool,
    /// No progress bar
    #[arg(long)]
    quiet: bool,
}

/// Runs the command.
pub fn run(args: &FabricArgs) -> Result<ExitCode> {
    let plans = args.plans.iter().map(|path| read(path, args)).collect::<Result<Vec<_>>>()?;
    if args.dry_run {
        for plan in &plans {
            line(&format!("{}: {} runs, {} expectations", plan.name, plan.runs.len(), plan.expects.len()))?;
            plan.runs.iter().try_for_each(|run| line(&format!("  {}, {}", run.case, run.transport)))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(directory) = &args.plot {
        std::fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    }
    let mut results: Vec<(Plan, Vec<Outcome>)> = Vec::new();
    for plan in plans {
        let outcomes = run_plan(&plan, args)?;
        results.push((plan, outcomes));
    }
    if let Some(path) = &args.markdown {
        std::fs::write(path, headline::markdown(&results)).with_context(|| format!("writing {}", path.display()))?;
    }
    let is_met = results.iter().flat_map(|result| &result.1).all(|outcome| outcome.verdict == Verdict::Met);
    Ok(if is_met { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn read(path: &Path, args: &FabricArgs) -> Result<Plan> {
    let mut plan = Plan::read(path)?;
    plan.select(&args.cases, &args.transports);
    if plan.runs.is_empty() {
        bail!("{} has no such case and transport (see --dry-run without --case and --transport)", path.display());
    }
    if let Some(seed) = args.seed {
        plan.runs.iter_mut().for_each(|run| run.seed = seed);
    }
    Ok(plan)
}

fn run_plan(plan: &Plan, args: &FabricArgs) -> Result<Vec<Outcome>> {
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let options = Options { jobs, directory: args.plot.clone().unwrap_or_else(|| PathBuf::from(".")) };
    let bar = progress_bar(plan, args.quiet || args.json);
    let mut parts = vec![0; plan.runs.len()];
    let runs = execute(plan, &options, &mut |progress: Progress<'_>| {
        parts[progress.run] = progress.state.map_or(PARTS, |state| state.done_steps * PARTS / state.all_steps.max(1));
        bar.set_position(parts.iter().sum());
        let now_us = progress.state.map_or(0, |state| state.now_ps / 1_000_000);
        if now_us > 0 {
            bar.set_message(format!("{}, {}, at {now_us} us", progress.case, progress.transport));
        }
    });
    bar.finish_and_clear();
    let runs = runs.with_context(|| format!("running {}", plan.name))?;
    let outcomes: Vec<Outcome> = plan.expects.iter().map(|expect| expect.outcome(&runs)).collect();
    if args.json {
        runs.iter().try_for_each(|run| line(&run_json(plan, run).to_string()))?;
        outcomes.iter().try_for_each(|outcome| line(&outcome_json(plan, outcome).to_string()))?;
    } else {
        line(&plan.title)?;
        line(&table(&run_rows(&runs)))?;
        if !outcomes.is_empty() {
            line(&table(&outcome_rows(&outcomes)))?;
        }
    }
    if let Some(directory) = &args.plot {
        runs.iter().try_for_each(|run| write_tables(plan, run, directory).map(drop))?;
        plot::draw(plan, &runs, directory)?;
    }
    Ok(outcomes)
}

fn progress_bar(plan: &Plan, is_quiet: bool) -> ProgressBar {
    let length = plan.runs.len() as u64 * PARTS;
    if is_quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{prefix} [{bar:30}] {percent} % {elapsed} {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style).with_prefix(plan.name.clone())
}
