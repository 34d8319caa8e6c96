//! Makes a failing run smaller: faults, connections and messages are taken away while it still fails.

use crate::run::{run_scenario, Cut, Report, Scenario};

/// The smallest part of a seed found that still fails, and its report. `None` if the seed does not fail.
///
/// Each step is one run, told to `on_step`; there are some tens at most.
///
/// # Errors
/// As [`run_scenario`].
pub fn shrink(seed: u64, mut on_step: impl FnMut(&Cut, bool)) -> anyhow::Result<Option<(Cut, Report)>> {
    let mut fails = |cut: &Cut| -> anyhow::Result<Option<Report>> {
        let report = Some(run_scenario(&Scenario::draw_cut(seed, cut), 1, None)?).filter(|report| !report.is_good());
        on_step(cut, report.is_some());
        Ok(report)
    };
    let mut best = Cut::NONE;
    let Some(mut report) = fails(&best)? else { return Ok(None) };
    let fault_count = Scenario::draw(seed).faults.list.len() as u64;
    let conn_count = 8;
    let mut kept: Vec<u64> = (0..conn_count).collect();
    for number in (0..conn_count).rev() {
        let fewer: Vec<u64> = kept.iter().copied().filter(|other| *other != number).collect();
        let cut = Cut { connections: Some(fewer.clone()), ..best.clone() };
        if let Some(smaller) = fails(&cut)? {
            (best, report, kept) = (cut, smaller, fewer);
        }
    }
    let mut kept: Vec<u64> = (0..fault_count).collect();
    for number in 0..fault_count {
        let fewer: Vec<u64> = kept.iter().copied().filter(|other| *other != number).collect();
        let cut = Cut { faults: Some(fewer.clone()), ..best.clone() };
        if let Some(smaller) = fails(&cut)? {
            (best, report, kept) = (cut, smaller, fewer);
        }
    }
    for messages_max in [0, 1, 2, 3, 4, 6, 8, 12, 16] {
        let cut = Cut { messages_max, ..best.clone() };
        if let Some(smaller) = fails(&cut)? {
            (best, report) = (cut, smaller);
            break;
        }
    }
    Ok(Some((best, report)))
}
