//! `nicsim conform`: what the protocol requires of a card, case by case.

use crate::output::line;
use anyhow::{bail, Result};
use clap::Args;
use nic_conformance::bench::model::ModelBench;
use nic_conformance::case::{all, Case, Verdict};
use nic_conformance::dut::Bench;
use serde_json::{json, Value};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Every bench; one is a type that implements `Bench`.
const BENCHES: &[&dyn Bench] = &[&ModelBench];

#[derive(Args)]
pub struct ConformArgs {
    /// Where the card under test is
    #[arg(long, default_value = "model", value_name = "NAME")]
    bench: String,
    /// Run the cases whose name contains this text
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    filter: String,
    /// Run the cases about this requirement (may be repeated)
    #[arg(long = "requirement", value_name = "ID")]
    requirements: Vec<String>,
    /// Name the cases, run nothing
    #[arg(long)]
    list: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
    /// Cases side by side [default: one per processor]
    #[arg(long, value_name = "COUNT")]
    jobs: Option<usize>,
}

#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    not_applicable: usize,
}

/// Runs the command.
pub fn run(args: &ConformArgs) -> Result<ExitCode> {
    let Some(bench) = BENCHES.iter().find(|b| b.name() == args.bench).copied() else {
        let names: Vec<&str> = BENCHES.iter().map(|b| b.name()).collect();
        bail!("no bench {} (--bench is one of: {})", args.bench, names.join(", "));
    };
    let cases = select(args, bench)?;
    if args.list {
        return list(args, bench, &cases);
    }
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    if !args.json {
        line(&format!("running {} cases on {}", cases.len(), bench.name()))?;
    }
    let (mut counts, mut failures) = (Counts::default(), Vec::new());
    in_order(&cases, bench, jobs, |case, verdict| {
        match &verdict {
            Verdict::Passed => counts.passed += 1,
            Verdict::NotApplicable(_) => counts.not_applicable += 1,
            Verdict::Failed(_) => counts.failed += 1,
        }
        if args.json {
            return line(&case_json(case, bench, &verdict).to_string());
        }
        let outcome = match &verdict {
            Verdict::Passed => "ok".to_string(),
            Verdict::NotApplicable(needs) => format!("ignored, needs {needs}"),
            Verdict::Failed(_) => "FAILED".to_string(),
        };
        line(&format!("test {} ... {outcome}", case.full_name(bench)))?;
        if let Verdict::Failed(failure) = verdict {
            failures.push((case, failure));
        }
        Ok(())
    })?;
    if args.json {
        line(&counts_json(bench, &counts).to_string())?;
    } else {
        if !failures.is_empty() {
            line("\nfailures:\n")?;
            failures.iter().try_for_each(|(case, why)| line(&format!("{}\n    {why}\n", case.full_name(bench))))?;
        }
        let verdict = if counts.failed == 0 { "ok" } else { "FAILED" };
        let Counts { passed, failed, not_applicable } = counts;
        line(&format!("result: {verdict}. {passed} passed; {failed} failed; {not_applicable} ignored"))?;
    }
    Ok(if counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The cases asked for; an error when there is none, since that would pass for success.
fn select(args: &ConformArgs, bench: &dyn Bench) -> Result<Vec<&'static Case>> {
    let known = |id: &String| all().iter().any(|case| case.ids().any(|i| i == id));
    if let Some(id) = args.requirements.iter().find(|id| !known(id)) {
        bail!("no case is about requirement {id} (ids are like R-003; hdl/nic-spec/generated/coverage.txt lists them)");
    }
    let is_asked = |case: &Case| {
        let by_id = args.requirements.is_empty() || case.ids().any(|i| args.requirements.iter().any(|id| id == i));
        by_id && case.full_name(bench).contains(&args.filter)
    };
    let cases: Vec<_> = all().into_iter().filter(|case| is_asked(case)).collect();
    if cases.is_empty() {
        bail!("no case has `{}` in its name (--list names them all)", args.filter);
    }
    Ok(cases)
}

fn list(args: &ConformArgs, bench: &dyn Bench, cases: &[&'static Case]) -> Result<ExitCode> {
    for case in cases {
        if args.json {
            let needs = case.needs.to_string();
            line(&json!({"name": case.full_name(bench), "requirements": ids(case), "needs": needs}).to_string())?;
        } else {
            line(&format!("{}: test", case.full_name(bench)))?;
        }
    }
    if !args.json {
        line(&format!("\n{} tests", cases.len()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the cases on `jobs` threads and reports them in the order of the table, each as soon as those before it ended.
fn in_order(
    cases: &[&'static Case],
    bench: &dyn Bench,
    jobs: usize,
    mut report: impl FnMut(&'static Case, Verdict) -> Result<()>,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let (done, verdicts) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(cases.len()) {
            let (done, next) = (done.clone(), &next);
            scope.spawn(move || loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(case) = cases.get(at) else { return };
                if done.send((at, case.run_on(bench))).is_err() {
                    return;
                }
            });
        }
        drop(done);
        let mut early = std::collections::BTreeMap::new();
        let mut due = 0;
        for (at, verdict) in verdicts {
            early.insert(at, verdict);
            while let Some(verdict) = early.remove(&due) {
                report(cases[due], verdict)?;
                due += 1;
            }
        }
        Ok(())
    })
}

fn ids(case: &Case) -> Vec<&'static str> {
    case.ids().collect()
}

fn case_json(case: &Case, bench: &dyn Bench, verdict: &Verdict) -> Value {
    let (outcome, text) = match verdict {
        Verdict::Passed => ("passed", Value::Null),
        Verdict::NotApplicable(needs) => ("not applicable", format!("needs {needs}").into()),
        Verdict::Failed(failure) => ("failed", failure.to_string().into()),
    };
    json!({
        "schema": 1,
        "command": "conform",
        "bench": bench.name(),
        "name": case.full_name(bench),
        "requirements": ids(case),
        "outcome": outcome,
        "text": text,
    })
}

fn counts_json(bench: &dyn Bench, counts: &Counts) -> Value {
    json!({
        "schema": 1,
        "command": "conform",
        "bench": bench.name(),
        "passed": counts.passed,
        "failed": counts.failed,
        "not_applicable": counts.not_applicable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_come_in_the_order_of_the_table_whatever_the_threads_do() {
        let cases: Vec<_> = all().into_iter().filter(|case| case.name.starts_with("wire::")).collect();
        let mut seen = Vec::new();
        in_order(&cases, &ModelBench, 3, |case, verdict| {
            assert_eq!(verdict, Verdict::Passed, "{}", case.name);
            seen.push(case.name);
            Ok(())
        })
        .expect("they run");
        assert_eq!(seen, cases.iter().map(|case| case.name).collect::<Vec<_>>());
    }
}
