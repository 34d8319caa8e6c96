//! Pictures of a plan's runs: goodput over time, completion times, queue depth, windows of paths.
//!
//! One picture for each quantity, with a panel for each case; a transport has one colour in all of them.

use std::path::{Path, PathBuf};

use crate::panels::{Axis, End, Line, Panel, Picture};
use crate::plan::{Plan, PlanError};
use crate::report::slug;
use crate::run::Run;
use crate::series::{rate_mbps, Sample};

/// Most points of a line; samples between two are put together.
const POINT_COUNT_MAX: usize = 160;
/// A panel ends at this many times its shortest run, or one that hangs would press the others against the axis.
const SPAN_MAX: f64 = 4.0;

/// Draws a plan's pictures into a directory. Returns their paths.
///
/// # Errors
/// [`PlanError::Plot`].
pub fn draw(plan: &Plan, runs: &[Run], directory: &Path) -> Result<Vec<PathBuf>, PlanError> {
    let mut names: Vec<String> = Vec::new();
    runs.iter().for_each(|run| {
        if !names.contains(&run.transport) {
            names.push(run.transport.clone());
        }
    });
    let pictures = [
        ("goodput", by_case(plan, runs, &names, "goodput of all hosts", "Gb/s", &goodput)),
        ("completions", completions(plan, runs, &names)),
        ("queue", by_case(plan, runs, &names, "deepest queue", "KiB", &queue)),
        ("windows", windows(plan, runs)),
    ];
    let mut paths = Vec::new();
    for (kind, picture) in pictures {
        if picture.panels.is_empty() {
            continue;
        }
        let path = directory.join(format!("{}.{kind}.svg", slug(&plan.name)));
        picture.draw(&path).map_err(|error| PlanError::Plot { path: path.clone(), message: error.to_string() })?;
        paths.push(path);
    }
    Ok(paths)
}

fn us(ps: u64) -> f64 {
    ps as f64 / 1e6
}

/// Payload per time, between samples.
fn goodput(samples: &[Sample]) -> f64 {
    let (before, after) = (&samples[0], &samples[samples.len() - 1]);
    rate_mbps(after.received_bytes - before.received_bytes, after.time_ps - before.time_ps) as f64 / 1e3
}

/// The deepest of the samples.
fn queue(samples: &[Sample]) -> f64 {
    samples[1..].iter().map(|sample| sample.queue_bytes).max().unwrap_or(0) as f64 / 1024.0
}

/// A line of what is made of every few samples; the first of them is the last of those before.
fn over_time(samples: &[Sample], value: &dyn Fn(&[Sample]) -> f64) -> Vec<(f64, f64)> {
    let step = samples.len().div_ceil(POINT_COUNT_MAX).max(1);
    let starts = (0..samples.len().saturating_sub(1)).step_by(step);
    let parts = starts.map(|start| &samples[start..samples.len().min(start + step + 1)]);
    parts.map(|part| (us(part[part.len() - 1].time_ps), value(part))).collect()
}

/// Cases in their order, each with its runs.
fn cases(runs: &[Run]) -> Vec<(&str, Vec<&Run>)> {
    let mut cases: Vec<(&str, Vec<&Run>)> = Vec::new();
    for run in runs {
        match cases.iter_mut().find(|case| case.0 == run.case) {
            Some(case) => case.1.push(run),
            None => cases.push((&run.case, vec![run])),
        }
    }
    cases
}

/// The colour of a run. What the plan names first is drawn last, over the others.
fn hue(names: &[String], run: &Run) -> usize {
    names.iter().position(|name| *name == run.transport).unwrap_or(0)
}

fn by_case<'a>(
    plan: &Plan,
    runs: &[Run],
    names: &[String],
    what: &str,
    y_name: &'a str,
    value: &dyn Fn(&[Sample]) -> f64,
) -> Picture<'a> {
    let panel = |(case, runs): (&str, Vec<&Run>)| {
        let mut lines: Vec<Line> = Vec::new();
        for run in runs.iter().rev() {
            lines.push(Line { hue: hue(names, run), points: over_time(&run.series.samples, value) });
        }
        let ends = || lines.iter().filter_map(|line| line.points.last()).map(|point| point.0);
        let x_max = ends().fold(0.0, f64::max).min(ends().fold(f64::INFINITY, f64::min) * SPAN_MAX);
        lines.iter_mut().for_each(|line| line.points.retain(|point| point.0 <= x_max));
        Panel { title: case.to_string(), lines, x_max: (x_max > 0.0 && x_max.is_finite()).then_some(x_max) }
    };
    Picture {
        title: format!("{}: {what}", plan.title),
        x_name: "time, us",
        axis: Axis::Linear,
        y_name,
        y_end: End::Common,
        names: names.to_vec(),
        panels: cases(runs).into_iter().map(panel).collect(),
    }
}

fn completions<'a>(plan: &Plan, runs: &[Run], names: &[String]) -> Picture<'a> {
    let points = |run: &Run| {
        let all = run.completion_ps.len();
        let part = |count: usize| 100.0 * count as f64 / all.max(1) as f64;
        // A step at each message, or at every few of them.
        let every = all.div_ceil(2 * POINT_COUNT_MAX).max(1);
        let kept = (0..all).filter(|index| (index + 1) % every == 0 || index + 1 == all);
        let steps = kept.scan(0, |below, index| {
            let at = us(run.completion_ps[index]);
            let step = [(at, part(*below)), (at, part(index + 1))];
            *below = index + 1;
            Some(step)
        });
        steps.flatten().collect()
    };
    let panel = |(case, runs): (&str, Vec<&Run>)| {
        let lines = runs.iter().rev().map(|run| Line { hue: hue(names, run), points: points(run) }).collect();
        Panel { title: case.to_string(), lines, x_max: None }
    };
    Picture {
        title: format!("{}: messages complete within a time", plan.title),
        x_name: "time, us",
        axis: Axis::Log,
        y_name: "%",
        y_end: End::At(100.0),
        names: names.to_vec(),
        panels: cases(runs).into_iter().map(panel).collect(),
    }
}

/// A panel for each run that has paths to show.
fn windows<'a>(plan: &Plan, runs: &[Run]) -> Picture<'a> {
    let panel = |run: &Run| {
        let samples = &run.series.samples;
        let count = samples.last().map_or(0, |sample| sample.paths.len());
        let step = samples.len().div_ceil(POINT_COUNT_MAX).max(1);
        let line = |path: usize| {
            let windows = samples.iter().step_by(step).filter_map(|sample| {
                let gauge = sample.paths.get(path)?;
                // Where there is no window, what is in flight.
                let bytes = if gauge.window_bytes == u64::MAX { gauge.in_flight_bytes } else { gauge.window_bytes };
                Some((us(sample.time_ps), bytes as f64 / 1024.0))
            });
            Line { hue: path, points: windows.collect() }
        };
        let title = format!("{}, {}", run.case, run.transport);
        (count > 0).then(|| Panel { title, lines: (0..count).map(line).collect(), x_max: None })
    };
    Picture {
        title: format!("{}: windows of one connection's paths (in flight where there is no window)", plan.title),
        x_name: "time, us",
        axis: Axis::Linear,
        y_name: "KiB",
        y_end: End::Own,
        names: Vec::new(),
        panels: runs.iter().filter_map(panel).collect(),
    }
}
