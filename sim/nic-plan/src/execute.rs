//! Runs a plan: its runs side by side on threads, their results in the order of the plan.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;

use crate::plan::{Plan, PlanError};
use crate::run::{run, Run, RunProgress};

/// How a plan is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads, each with one run at a time.
    pub jobs: usize,
    /// Where captures of the network go.
    pub directory: PathBuf,
}

/// How far a plan is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Place of the run in the plan.
    pub run: usize,
    /// Case of the run.
    pub case: &'a str,
    /// Transport of the run.
    pub transport: &'a str,
    /// How far the run is; none when it has just ended.
    pub state: Option<RunProgress>,
}

/// Runs a plan. `progress` is called from every thread, one at a time.
///
/// # Errors
/// The first [`PlanError`] of any run; the others are then stopped.
pub fn execute(
    plan: &Plan,
    options: &Options,
    progress: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Result<Vec<Run>, PlanError> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let progress = Mutex::new(progress);
    let results: Mutex<BTreeMap<usize, Result<Run, PlanError>>> = Mutex::new(BTreeMap::new());
    let work = || loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(spec) = plan.runs.get(index).filter(|_| !stop.load(Ordering::Relaxed)) else { break };
        let report = |state: Option<RunProgress>| {
            if let Ok(mut progress) = progress.lock() {
                progress(Progress { run: index, case: &spec.case, transport: &spec.transport, state });
            }
        };
        let result = run(spec, &options.directory, &stop, &mut |state| report(Some(state)));
        report(None);
        if result.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        if let Ok(mut results) = results.lock() {
            results.insert(index, result);
        }
    };
    let jobs = options.jobs.clamp(1, plan.runs.len().max(1));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..jobs).map(|_| scope.spawn(work)).collect();
        work();
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    results.into_inner().unwrap_or_default().into_values().collect()
}
