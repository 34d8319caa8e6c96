//! Runs plans and prints what came: `cargo run -p nic-plan --example run_plan -- [case=NAME] [transport=NAME] PLAN.toml ...`.
//! With `COUNTERS=1` the counters of every run follow.
//!
//! The command for people is `nicsim fabric`; this one needs nothing but this crate.

use std::path::{Path, PathBuf};

use nic_plan::report::{outcome_rows, run_rows};
use nic_plan::{execute, Options, Plan};

fn print(rows: &[Vec<String>]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| format!("{cell:<width$}", width = width(column)));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    println!();
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (filters, files): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word.contains('='));
    for file in files {
        let mut plan = Plan::read(Path::new(&file))?;
        let named = |key: &str| -> Vec<String> {
            filters.iter().filter_map(|filter| filter.strip_prefix(key)).map(String::from).collect()
        };
        plan.select(&named("case="), &named("transport="));
        let options = Options { jobs: 2, directory: PathBuf::from(".") };
        let runs = execute(&plan, &options, &mut |progress| {
            if progress.state.is_none() {
                eprintln!("{}: {}, {} is done", plan.name, progress.case, progress.transport);
            }
        })?;
        println!("{}", plan.title);
        print(&run_rows(&runs));
        for run in runs.iter().filter(|_| std::env::var_os("COUNTERS").is_some()) {
            println!(
                "{} {}: {:?}",
                run.case,
                run.transport,
                run.counters.iter().filter(|entry| *entry.1 > 0).collect::<Vec<_>>()
            );
        }
        let outcomes: Vec<_> = plan.expects.iter().map(|expect| expect.outcome(&runs)).collect();
        print(&outcome_rows(&outcomes));
    }
    Ok(())
}
