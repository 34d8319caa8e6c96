//! All headlines in one Markdown table.

use crate::expect::{Outcome, Verdict};
use crate::plan::Plan;

/// The transports that have a column, and its title.
const COLUMNS: [(&str, &str); 3] = [("rocev2", "RoCEv2"), ("rocev2-pfc", "RoCEv2 + PFC"), ("metaroce", "MetaRoCE")];

/// What a reader has to know of the table.
const PREAMBLE: &str = "\
# Headlines

Written by `make headlines` from the plans in `sim/nic-plan/plans`; plots and data go to `out/headlines`. All of it is
simulated. The columns of a row come from the same network, workload and seed; every value is an integer that depends on the
plan alone. *Limit* is what no NIC with this framing could beat; *reach* is what the plan demands of MetaRoCE. A dash: not
stated in public, not run, or not finished within the plan's time.

";

/// The table: a row for each expectation of each plan. The other transports' numbers come from the same plan, so the same
/// network, workload and seed.
pub fn markdown(results: &[(Plan, Vec<Outcome>)]) -> String {
    let titles: Vec<&str> = COLUMNS.iter().map(|column| column.1).collect();
    let mut text = String::from(PREAMBLE);
    text += &format!("| headline | measure | public claim | {} | limit | reach | |\n", titles.join(" | "));
    text += &format!("|---|---|---|{}---|---|---|\n", "---|".repeat(COLUMNS.len()));
    for (plan, outcomes) in results {
        for (index, outcome) in outcomes.iter().enumerate() {
            let title = if index == 0 { plan.title.as_str() } else { "" };
            let numbers: Vec<String> = COLUMNS
                .iter()
                .map(|(transport, _)| {
                    let value = outcome.values.iter().find(|value| value.0 == *transport);
                    outcome.shown(value.and_then(|value| value.1))
                })
                .collect();
            let verdict = if outcome.verdict == Verdict::Met { "met" } else { "**missed**" };
            let cells = [
                title,
                &outcome.label,
                outcome.claim.as_deref().unwrap_or("-"),
                &numbers.join(" | "),
                &outcome.shown(outcome.limit),
                &outcome.shown_bounds(),
                verdict,
            ];
            text += &format!("| {} |\n", cells.join(" | "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Unit;

    #[test]
    fn row_has_every_transport_in_its_column() {
        let plan = Plan { name: "x".into(), title: "Ring".into(), runs: Vec::new(), expects: Vec::new() };
        let outcome = Outcome {
            label: "1 % loss".into(),
            claim: Some("86 %".into()),
            transport: "metaroce".into(),
            value: Some(940_000),
            values: vec![("metaroce".into(), Some(940_000)), ("rocev2".into(), None)],
            unit: Unit::Ppm,
            at_least: Some(930_000),
            at_most: None,
            limit: Some(1_000_000),
            verdict: Verdict::Met,
        };
        let text = markdown(&[(plan, vec![outcome])]);
        let table = &text[PREAMBLE.len()..];
        let row = table.lines().nth(2).expect("a row");
        assert_eq!(row, "| Ring | 1 % loss | 86 % | - | - | 94.0 % | 100.0 % | >= 93.0 % | met |");
        let columns = |line: &str| line.matches('|').count();
        assert!(table.lines().all(|line| columns(line) == columns(row)), "{text}");
    }
}
