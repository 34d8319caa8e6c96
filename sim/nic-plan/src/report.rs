//! Results as text, as JSON (one object a line) and as tables for other programs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{json, Map, Value};

use crate::expect::{Outcome, Verdict};
use crate::plan::{Plan, PlanError};
use crate::run::Run;
use crate::series::{rate_mbps, shown_time};

/// Version of the JSON objects.
pub const SCHEMA: u32 = 1;

/// A run as a JSON object.
pub fn run_json(plan: &Plan, run: &Run) -> Value {
    let counters: Map<String, Value> =
        run.counters.iter().filter(|entry| *entry.1 > 0).map(|(name, value)| ((*name).into(), json!(value))).collect();
    let drops: Map<String, Value> =
        run.stats.drops.iter().map(|(cause, count)| (cause.name().into(), json!(count))).collect();
    json!({
        "schema": SCHEMA,
        "kind": "run",
        "plan": plan.name,
        "case": run.case,
        "transport": run.transport,
        "seed": run.seed,
        "is_complete": run.is_complete,
        "failed_messages": run.failed_messages,
        "duration_ps": run.duration_ps,
        "floor_ps": run.floor_ps,
        "messages": run.completion_ps.len(),
        "bytes": run.bytes,
        "goodput_mbps": run.goodput_mbps(),
        "floor_goodput_mbps": run.floor_goodput_mbps(),
        "completion_median_ps": run.completion_ps_at(500_000),
        "completion_p99_ps": run.completion_ps_at(990_000),
        "completion_max_ps": run.completion_ps.last(),
        "frames_sent": run.stats.sent,
        "frames_delivered": run.stats.delivered,
        "frames_marked": run.stats.ecn_marked,
        "frames_dropped": drops,
        "pauses": run.stats.pauses,
        "link_hops": run.stats.link_hops,
        "queue_bytes_max": run.queue_bytes_max,
        "counters": counters,
    })
}

/// An expectation's outcome as a JSON object.
pub fn outcome_json(plan: &Plan, outcome: &Outcome) -> Value {
    let values: Map<String, Value> =
        outcome.values.iter().map(|(transport, value)| (transport.clone(), json!(value))).collect();
    let verdict = match outcome.verdict {
        Verdict::Met => "met",
        Verdict::Missed => "missed",
        Verdict::Absent => "absent",
    };
    json!({
        "schema": SCHEMA,
        "kind": "expect",
        "plan": plan.name,
        "label": outcome.label,
        "claim": outcome.claim,
        "transport": outcome.transport,
        "value": outcome.value,
        "values": values,
        "unit": format!("{:?}", outcome.unit).to_lowercase(),
        "at_least": outcome.at_least,
        "at_most": outcome.at_most,
        "limit": outcome.limit,
        "verdict": verdict,
    })
}

/// Rows of a table of runs, the head first.
pub fn run_rows(runs: &[Run]) -> Vec<Vec<String>> {
    let head = ["case", "transport", "time", "goodput", "of limit", "median", "p99", "dropped", "marked", "queue"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(runs.iter().map(|run| {
        let at = |ppm| run.completion_ps_at(ppm).map_or("-".into(), shown_time);
        let of_limit = u128::from(run.floor_ps) * 1_000 / u128::from(run.duration_ps.max(1));
        let goodput = run.goodput_mbps();
        vec![
            run.case.clone(),
            run.transport.clone(),
            if run.is_complete { shown_time(run.duration_ps) } else { "unfinished".into() },
            format!("{}.{} Gb/s", goodput / 1_000, goodput % 1_000 / 100),
            if run.is_complete { format!("{}.{} %", of_limit / 10, of_limit % 10) } else { "-".into() },
            at(500_000),
            at(990_000),
            run.stats.drops.total().to_string(),
            run.stats.ecn_marked.to_string(),
            format!("{} KiB", run.queue_bytes_max >> 10),
        ]
    }));
    rows
}

/// Rows of a table of outcomes, the head first.
pub fn outcome_rows(outcomes: &[Outcome]) -> Vec<Vec<String>> {
    let mut rows = vec![["expectation", "transport", "value", "bounds", ""].map(String::from).to_vec()];
    rows.extend(outcomes.iter().map(|outcome| {
        vec![
            outcome.label.clone(),
            outcome.transport.clone(),
            outcome.shown(outcome.value),
            outcome.shown_bounds(),
            if outcome.verdict == Verdict::Met { "met".into() } else { "MISSED".into() },
        ]
    }));
    rows
}

/// A name of a plan, case or transport as part of a file name.
pub(crate) fn slug(name: &str) -> String {
    let mut slug = String::new();
    for character in name.chars() {
        match character {
            '0'..='9' | 'a'..='z' | '.' => slug.push(character),
            'A'..='Z' => slug.push(character.to_ascii_lowercase()),
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    slug.trim_end_matches('-').into()
}

/// Writes samples and completion times of a run as CSV files. Returns their paths.
///
/// # Errors
/// [`PlanError::Write`].
pub fn write_tables(plan: &Plan, run: &Run, directory: &Path) -> Result<Vec<PathBuf>, PlanError> {
    let mut samples = String::from("time_ns,goodput_mbps,queue_bytes,drops,buffer_drops,marked");
    let planes = run.series.samples.last().map_or(0, |sample| sample.plane_bytes.len());
    (0..planes).for_each(|plane| samples += &format!(",plane{plane}_mbps"));
    samples.push('\n');
    for pair in run.series.samples.windows(2) {
        let [before, after] = pair else { continue };
        let ps = after.time_ps - before.time_ps;
        // Writing to a string does not fail.
        let _ = write!(
            samples,
            "{},{},{},{},{},{}",
            after.time_ps / 1_000,
            rate_mbps(after.received_bytes - before.received_bytes, ps),
            after.queue_bytes,
            after.drops,
            after.buffer_drops,
            after.marked
        );
        for (plane, bytes) in after.plane_bytes.iter().enumerate() {
            let before = before.plane_bytes.get(plane).copied().unwrap_or(0);
            let _ = write!(samples, ",{}", rate_mbps(bytes - before, ps));
        }
        samples.push('\n');
    }
    let mut completions = String::from("completion_ns,messages\n");
    for (index, ps) in (1..).zip(&run.completion_ps) {
        let _ = writeln!(completions, "{},{index}", ps / 1_000);
    }
    let mut paths = Vec::new();
    for (kind, text) in [("samples", samples), ("completions", completions)] {
        let name = format!("{}.{}.{}.{kind}.csv", slug(&plan.name), slug(&run.case), slug(&run.transport));
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(|source| PlanError::Write { path: path.clone(), source })?;
        paths.push(path);
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_file_names() {
        assert_eq!(slug("1 % loss, 64 MB"), "1-loss-64-mb");
        assert_eq!(slug("rocev2-pfc"), "rocev2-pfc");
        assert_eq!(slug("../x/0.1 %"), "..-x-0.1");
    }
}
