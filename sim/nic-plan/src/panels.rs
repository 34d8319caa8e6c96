//! A picture of small panels, one beside the other on common terms.
//!
//! Drawing is the one place with floating point; nothing is computed from it.

use std::ops::Range;
use std::path::Path;

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// What goes wrong while drawing.
pub(crate) type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// A line of a panel.
pub(crate) struct Line {
    /// Its colour, and its name in the picture's key where it has one.
    pub hue: usize,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// Lines that are looked at together.
pub(crate) struct Panel {
    /// What sets it apart from the others.
    pub title: String,
    /// Drawn in this order: the last lies on top.
    pub lines: Vec<Line>,
    /// Where the horizontal axis ends; the largest value if there is none.
    pub x_max: Option<f64>,
}

/// How the horizontal axis is divided.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    /// Evenly, from 0.
    Linear,
    /// By factors, from the smallest value.
    Log,
}

/// Where the vertical axes end.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum End {
    /// Here.
    At(f64),
    /// A little above the largest value of all panels, so that they compare.
    Common,
    /// A little above the largest value of each.
    Own,
}

/// A picture.
pub(crate) struct Picture<'a> {
    /// Above everything.
    pub title: String,
    /// What runs to the right, with its unit.
    pub x_name: &'a str,
    /// How it is divided.
    pub axis: Axis,
    /// What rises, with its unit.
    pub y_name: &'a str,
    /// Where the vertical axis ends.
    pub y_end: End,
    /// Names of the hues; empty: the hues are many and of one kind.
    pub names: Vec<String>,
    /// From left to right, then down.
    pub panels: Vec<Panel>,
}

const PANEL_WIDTH: u32 = 420;
const PANEL_HEIGHT: u32 = 250;
const HEAD_HEIGHT: u32 = 64;
const COLUMNS_MAX: usize = 3;
/// Distinct for most eyes, in print too (after Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(120, 120, 120),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];
/// Lines of one kind differ in shade, over this many.
const SHADE_COUNT: usize = 12;

impl Picture<'_> {
    /// Writes the picture as SVG.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn draw(&self, path: &Path) -> Result<(), DrawError> {
        let columns = self.panels.len().clamp(1, COLUMNS_MAX);
        let rows = self.panels.len().div_ceil(columns).max(1);
        let size = (PANEL_WIDTH * columns as u32, HEAD_HEIGHT + PANEL_HEIGHT * rows as u32);
        let root = SVGBackend::new(path, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(HEAD_HEIGHT);
        self.draw_head(&head)?;
        for (panel, area) in self.panels.iter().zip(body.split_evenly((rows, columns))) {
            let x_max = panel.x_max.unwrap_or_else(|| padded(panel.values(|point| point.0).fold(0.0, f64::max)));
            let y = match self.y_end {
                End::At(value) => 0.0..value,
                End::Common => 0.0..padded(self.panels.iter().map(Panel::largest).fold(0.0, f64::max)),
                End::Own => 0.0..padded(panel.largest()),
            };
            match self.axis {
                Axis::Linear => self.draw_panel(panel, &area, 0.0..x_max, y)?,
                Axis::Log => {
                    // Whole decades: their ends are what gets a label.
                    let x_min = panel.values(|point| point.0).fold(x_max, f64::min).max(x_max / 1e6);
                    let decades = 10f64.powf(x_min.log10().floor())..10f64.powf(x_max.log10().ceil());
                    self.draw_panel(panel, &area, decades.log_scale(), y)?;
                }
            }
        }
        root.present()
    }

    fn draw_head(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), DrawError> {
        let title = ("sans-serif", 18).into_text_style(area);
        area.draw(&Text::new(self.title.as_str(), (14, 10), title))?;
        let style = ("sans-serif", 13).into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
        let mut x = 16;
        for (hue, name) in self.names.iter().enumerate() {
            area.draw(&PathElement::new([(x, 46), (x + 20, 46)], colour(hue, true).stroke_width(3)))?;
            area.draw(&Text::new(name.as_str(), (x + 26, 46), style.clone()))?;
            // About as wide as the letters of this size.
            x += 50 + 8 * name.chars().count() as i32;
        }
        Ok(())
    }

    fn draw_panel<X>(
        &self,
        panel: &Panel,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        x: X,
        y: Range<f64>,
    ) -> Result<(), DrawError>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut builder = ChartBuilder::on(area);
        builder.caption(&panel.title, ("sans-serif", 14)).margin(8).x_label_area_size(36).y_label_area_size(56);
        let mut chart = builder.build_cartesian_2d(x, y)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(self.x_name).y_desc(self.y_name).x_labels(6).y_labels(6).light_line_style(WHITE);
        mesh.bold_line_style(BLACK.mix(0.12)).label_style(("sans-serif", 11)).axis_desc_style(("sans-serif", 12));
        mesh.x_label_formatter(&|value| short(*value)).y_label_formatter(&|value| short(*value)).draw()?;
        for line in &panel.lines {
            let style = colour(line.hue, !self.names.is_empty()).stroke_width(2);
            chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
        }
        Ok(())
    }
}

impl Panel {
    fn largest(&self) -> f64 {
        self.values(|point| point.1).fold(0.0, f64::max)
    }

    fn values<'a, F: Fn(&(f64, f64)) -> f64 + 'a>(&'a self, part: F) -> impl Iterator<Item = f64> + 'a {
        self.lines.iter().flat_map(|line| &line.points).map(part)
    }
}

/// A little above the largest value; of an empty axis, one.
fn padded(largest: f64) -> f64 {
    if largest > 0.0 {
        largest * 1.05
    } else {
        1.0
    }
}

fn colour(hue: usize, is_named: bool) -> RGBAColor {
    if is_named {
        return COLOURS[hue % COLOURS.len()].to_rgba();
    }
    let part = (hue % SHADE_COUNT) as f64 / SHADE_COUNT as f64;
    HSLColor(0.45 + 0.25 * part, 0.75, 0.25 + 0.4 * part).to_rgba()
}

/// A number on an axis: as many digits as it takes.
fn short(value: f64) -> String {
    if value != 0.0 && value.abs() < 10.0 {
        let text = format!("{value:.2}");
        return text.trim_end_matches('0').trim_end_matches('.').to_string();
    }
    format!("{value:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(names: &[&str], axis: Axis, panels: usize) -> Picture<'static> {
        let line = |hue| Line { hue, points: vec![(1.0, 2.0), (10.0, 4.0), (1000.0, 3.0)] };
        let panel = |index| Panel { title: format!("case {index}"), lines: vec![line(0), line(1)], x_max: None };
        Picture {
            title: "Title".into(),
            x_name: "time, us",
            axis,
            y_name: "Gb/s",
            y_end: End::Own,
            names: names.iter().map(|name| name.to_string()).collect(),
            panels: (0..panels).map(panel).collect(),
        }
    }

    fn svg(picture: &Picture<'_>) -> String {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let path = directory.path().join("picture.svg");
        picture.draw(&path).expect("drawn");
        std::fs::read_to_string(path).expect("a file")
    }

    #[test]
    fn every_panel_has_its_title_and_its_lines() {
        for axis in [Axis::Linear, Axis::Log] {
            let text = svg(&picture(&["metaroce", "rocev2"], axis, 4));
            assert!((0..4).all(|index| text.contains(&format!("case {index}"))), "{text}");
            // A line in each panel, and one in the key.
            assert_eq!(text.matches("#0072B2").count(), 5);
            assert_eq!(text.matches("#D55E00").count(), 5);
        }
    }

    #[test]
    fn pictures_without_lines_or_panels_can_be_drawn() {
        let mut empty = picture(&[], Axis::Log, 1);
        empty.panels[0].lines.clear();
        assert!(svg(&empty).contains("case 0"));
        assert!(svg(&picture(&[], Axis::Linear, 0)).contains("Title"));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 0.5, 2.25, 10.4, 400_000.0].map(short), ["0", "0.5", "2.25", "10", "400000"]);
    }
}
