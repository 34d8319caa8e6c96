//! What a run records beside its result, chosen by environment variables so that a failing test is traced unchanged.

use crate::{error::SimError, model::ModelBuilder, run::Sim};
use std::{env, ops::Range, path::PathBuf};

/// The file of the trace.
const TRACE: &str = "COCOTB_RS_TRACE";
/// The cycles of the trace, `FROM..TO`; either may be left out.
const TRACE_CYCLES: &str = "COCOTB_RS_TRACE_CYCLES";
/// The file of the coverage.
const COVERAGE: &str = "COCOTB_RS_COVERAGE";

/// What to record.
///
/// ```no_run
/// # use cocotb_rs::{ModelBuilder, Observe, PowerOn, Sim};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let observe = Observe::from_env()?;
/// let model = observe.variant(ModelBuilder::new("top").verilog("module top; endmodule")).build()?;
/// let mut sim = Sim::new(&model, PowerOn::Zeros)?;
/// observe.start(&mut sim)?;
/// // ... the test ...
/// observe.finish(&mut sim)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observe {
    /// The FST file to write, and the cycles of the first clock it shows.
    pub trace: Option<(PathBuf, Range<u64>)>,
    /// The coverage file to write.
    pub coverage: Option<PathBuf>,
}

/// A variable that says what to record cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{TRACE_CYCLES}={value} is no range of cycles: give FROM..TO, FROM.. or ..TO in decimal")]
pub struct ObserveError {
    value: String,
}

impl Observe {
    /// `COCOTB_RS_TRACE=file.fst` asks for a trace, `COCOTB_RS_TRACE_CYCLES=from..to` limits it to those cycles, and
    /// `COCOTB_RS_COVERAGE=file.dat` asks for coverage.
    ///
    /// # Errors
    /// The range of cycles cannot be read.
    pub fn from_env() -> Result<Self, ObserveError> {
        let path = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cycles = match env::var(TRACE_CYCLES) {
            Ok(value) => parse_cycles(&value)?,
            Err(_) => 0..u64::MAX,
        };
        Ok(Observe { trace: path(TRACE).map(|path| (path, cycles)), coverage: path(COVERAGE) })
    }

    /// The builder of the variant of the model that can record it.
    pub fn variant(&self, builder: ModelBuilder) -> ModelBuilder {
        builder.trace(self.trace.is_some()).coverage(self.coverage.is_some())
    }

    /// Starts the trace, if one is wanted.
    ///
    /// # Errors
    /// As [`Sim::trace`].
    pub fn start(&self, sim: &mut Sim) -> Result<(), SimError> {
        match &self.trace {
            Some((path, cycles)) => sim.trace(path, cycles.clone()),
            None => Ok(()),
        }
    }

    /// Completes the trace and writes the coverage, as far as wanted.
    ///
    /// # Errors
    /// As [`Sim::write_coverage`].
    pub fn finish(&self, sim: &mut Sim) -> Result<(), SimError> {
        sim.end_trace();
        match &self.coverage {
            Some(path) => sim.write_coverage(path),
            None => Ok(()),
        }
    }
}

fn parse_cycles(text: &str) -> Result<Range<u64>, ObserveError> {
    let error = || ObserveError { value: text.to_owned() };
    let (from, to) = text.trim().split_once("..").ok_or_else(error)?;
    let bound = |text: &str, default| if text.is_empty() { Ok(default) } else { text.parse().map_err(|_| error()) };
    let cycles = bound(from, 0)?..bound(to, u64::MAX)?;
    if cycles.is_empty() {
        Err(error())
    } else {
        Ok(cycles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_cycles_are_read_with_either_end_open() {
        assert_eq!(parse_cycles("10..20"), Ok(10..20));
        assert_eq!(parse_cycles("10.."), Ok(10..u64::MAX));
        assert_eq!(parse_cycles("..20"), Ok(0..20));
        for wrong in ["10", "20..10", "a..b", "1..2..3"] {
            assert!(parse_cycles(wrong).unwrap_err().to_string().contains(wrong));
        }
    }
}
