//! Results on stdout, progress and errors on stderr.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{ErrorKind, IsTerminal, Write};

/// True when the reader of stdout has gone: no error of ours.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|e| e.downcast_ref::<std::io::Error>()).any(|e| e.kind() == ErrorKind::BrokenPipe)
}

/// Prints a line of result.
pub fn line(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

/// A progress bar over bytes; it draws only when stderr is a terminal and nobody asked for silence.
pub fn bytes_bar(total_bytes: u64, is_quiet: bool) -> ProgressBar {
    if is_quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(Some(total_bytes), ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {bytes}/{total_bytes} {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total_bytes).with_style(style)
}

/// Rows of a table, columns aligned: the first to the left, the others to the right.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|c| rows.iter().filter_map(|r| r.get(c)).map(|t| t.chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .enumerate()
            .map(|(c, text)| {
                if c == 0 {
                    format!("{text:<width$}", width = widths[c])
                } else {
                    format!("{text:>width$}", width = widths[c])
                }
            })
            .collect();
        out += cells.join("  ").trim_end();
        out.push('\n');
    }
    out
}

/// `12345678` as `12 345 678`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// Thousandths with a point: `12345` as `12.345`.
pub fn thousandths(number: u64) -> String {
    format!("{}.{:03}", number / 1000, number % 1000)
}
