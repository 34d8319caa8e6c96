//! Pictures of a plan's runs: goodput over time, completion times, queue depth, windows of paths.
//!
//! Drawing is the one place with floating point; nothing is computed from it.

use std::ops::Range;
use std::path::{Path, PathBuf};

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::plan::{Plan, PlanError};
use crate::report::slug;
use crate::run::Run;
use crate::series::rate_mbps;

/// A line of a picture.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

struct Chart<'a> {
    title: String,
    x_name: &'a str,
    y_name: &'a str,
    lines: Vec<Line>,
    /// Lines rise in steps (a distribution).
    y_max: Option<f64>,
}

const SIZE: (u32, u32) = (960, 540);
/// Most lines that are named beside the picture.
const NAMED_MAX: usize = 14;

/// Draws a plan's pictures into a directory. Returns their paths.
///
/// # Errors
/// [`PlanError::Plot`].
pub fn draw(plan: &Plan, runs: &[Run], directory: &Path) -> Result<Vec<PathBuf>, PlanError> {
    let name = |run: &Run| format!("{}, {}", run.case, run.transport);
    let us = |ps: u64| ps as f64 / 1e6;
    let over_time = |value: &dyn Fn(&crate::Sample, &crate::Sample) -> f64| -> Vec<Line> {
        let points = |run: &Run| {
            let pairs = run.series.samples.windows(2);
            pairs.map(|pair| (us(pair[1].time_ps), value(&pair[0], &pair[1]))).collect()
        };
        runs.iter().map(|run| Line { name: name(run), points: points(run) }).collect()
    };
    let goodput = over_time(&|before, after| {
        rate_mbps(after.received_bytes - before.received_bytes, after.time_ps - before.time_ps) as f64 / 1e3
    });
    let queue = over_time(&|_, after| after.queue_bytes as f64 / 1024.0);
    let completion = |run: &Run| {
        let count = run.completion_ps.len().max(1) as f64;
        let steps = (0..).zip(&run.completion_ps);
        steps
            .flat_map(|(index, ps)| {
                [(us(*ps), 100.0 * index as f64 / count), (us(*ps), 100.0 * (index + 1) as f64 / count)]
            })
            .collect()
    };
    let completions = runs.iter().map(|run| Line { name: name(run), points: completion(run) }).collect();
    let mut charts = vec![
        ("goodput".to_string(), chart(plan, "goodput of all hosts", "time, us", "Gb/s", goodput, None)),
        ("completions".to_string(), chart(plan, "messages complete", "time, us", "%", completions, Some(100.0))),
        ("queue".to_string(), chart(plan, "deepest queue", "time, us", "KiB", queue, None)),
    ];
    for run in runs {
        let Some(count) = run.series.samples.last().map(|sample| sample.paths.len()).filter(|count| *count > 0) else {
            continue;
        };
        let line = |path: usize| {
            let windows = run.series.samples.iter().filter_map(|sample| {
                let gauge = sample.paths.get(path)?;
                // Where there is no window, what is in flight.
                let bytes = if gauge.window_bytes == u64::MAX { gauge.in_flight_bytes } else { gauge.window_bytes };
                Some((us(sample.time_ps), bytes as f64 / 1024.0))
            });
            Line { name: format!("path {path}"), points: windows.collect() }
        };
        let title = format!("windows of paths, {}", name(run));
        let lines = (0..count).map(line).collect();
        let file = format!("{}.{}.windows", slug(&run.case), slug(&run.transport));
        charts.push((file, chart(plan, &title, "time, us", "KiB", lines, None)));
    }
    let mut paths = Vec::new();
    for (kind, chart) in charts {
        let path = directory.join(format!("{}.{kind}.svg", slug(&plan.name)));
        chart.draw(&path).map_err(|error| PlanError::Plot { path: path.clone(), message: error.to_string() })?;
        paths.push(path);
    }
    Ok(paths)
}

fn chart<'a>(
    plan: &Plan,
    what: &str,
    x_name: &'a str,
    y_name: &'a str,
    lines: Vec<Line>,
    y_max: Option<f64>,
) -> Chart<'a> {
    Chart { title: format!("{}: {what}", plan.title), x_name, y_name, lines, y_max }
}

impl Chart<'_> {
    fn draw(&self, path: &Path) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut builder = ChartBuilder::on(&root);
        builder.caption(&self.title, ("sans-serif", 18)).margin(12).x_label_area_size(40).y_label_area_size(70);
        let mut picture =
            builder.build_cartesian_2d(self.span(|point| point.0, None), self.span(|point| point.1, self.y_max))?;
        picture.configure_mesh().x_desc(self.x_name).y_desc(self.y_name).light_line_style(WHITE).draw()?;
        for (index, line) in self.lines.iter().enumerate() {
            let colour = Palette99::pick(index).to_rgba();
            let series = LineSeries::new(line.points.iter().copied(), colour.stroke_width(2));
            let drawn = picture.draw_series(series)?;
            if index < NAMED_MAX {
                drawn
                    .label(&line.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
            }
        }
        if self.lines.len() > NAMED_MAX {
            let style = ("sans-serif", 12).into_text_style(&root).pos(Pos::new(HPos::Right, VPos::Top));
            let text = format!("{} further lines are not named", self.lines.len() - NAMED_MAX);
            root.draw(&Text::new(text, (SIZE.0 as i32 - 20, 32), style))?;
        }
        let mut names = picture.configure_series_labels();
        names.background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
        root.present()
    }

    /// From 0 to a little above the largest.
    fn span(&self, value: impl Fn(&(f64, f64)) -> f64, fixed: Option<f64>) -> Range<f64> {
        let largest = self.lines.iter().flat_map(|line| &line.points).map(value).fold(0.0, f64::max);
        0.0..fixed.unwrap_or(if largest > 0.0 { largest * 1.05 } else { 1.0 })
    }
}
