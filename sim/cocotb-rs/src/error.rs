//! What can go wrong while a model is built or simulated.

use std::path::PathBuf;

/// A model could not be built or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A program the build needs was found nowhere.
    #[error("cannot find {tool}: tried {}; install it ({install}) or name it in {variable}", tried.join(", "))]
    ToolMissing {
        /// The program, in the words of its users.
        tool: &'static str,
        /// Every place looked at, in order.
        tried: Vec<String>,
        /// How to install it.
        install: &'static str,
        /// The environment variable that overrides the search.
        variable: &'static str,
    },
    /// A program is present but too old.
    #[error("{tool} is {found}; {needed} or newer is needed")]
    ToolTooOld {
        /// The program.
        tool: &'static str,
        /// The version line it printed.
        found: String,
        /// The oldest version that works.
        needed: &'static str,
    },
    /// A program ran and refused its input.
    #[error("{tool} failed ({status}) on {command}\n{output}")]
    ToolFailed {
        /// The program.
        tool: &'static str,
        /// Its exit status.
        status: String,
        /// The whole command line.
        command: String,
        /// What it wrote, both streams.
        output: String,
    },
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// The builder was given no Verilog.
    #[error("no Verilog was given for top module {top}")]
    NoVerilog {
        /// The top module asked for.
        top: String,
    },
    /// The ports named by the caller are not the ports of the module.
    #[error("ports of {top} differ from the list given: {difference}")]
    PortMismatch {
        /// The top module.
        top: String,
        /// The first difference, in words.
        difference: String,
    },
    /// The module has a port that cannot be driven from outside.
    #[error("port declaration of {top} is not supported: {declaration}")]
    UnsupportedPort {
        /// The top module.
        top: String,
        /// The declaration in Verilator's header.
        declaration: String,
    },
    /// The compiled model could not be loaded into the process.
    #[error("cannot load {}", path.display())]
    Load {
        /// The shared object.
        path: PathBuf,
        /// Why the loader refused it.
        #[source]
        source: libloading::Error,
    },
    /// A cache entry does not fit its own description (damaged by hand, or a full disk).
    #[error("cache entry {} is damaged: {reason}; remove it and run again", path.display())]
    DamagedCache {
        /// The entry's folder.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
}

impl BuildError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| BuildError::Io { action, path, source }
    }
}

/// A simulation could not be set up or did not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The model has no such port.
    #[error("model {model} has no port {name}; it has {known}")]
    UnknownPort {
        /// The top module.
        model: String,
        /// The name asked for.
        name: String,
        /// The ports there are.
        known: String,
    },
    /// A port exists but does not have the shape its use needs.
    #[error("port {name}: {reason}")]
    PortShape {
        /// The port.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The design executed `$stop` or `$fatal`, or an assertion in it failed.
    #[error("the design stopped at {time_ps} ps: {message}")]
    Stopped {
        /// Simulated time in picoseconds.
        time_ps: u64,
        /// Place and text, as far as the design gave any.
        message: String,
    },
    /// The design executed `$finish`.
    #[error("the design finished at {time_ps} ps: {message}")]
    Finished {
        /// Simulated time in picoseconds.
        time_ps: u64,
        /// Place and text.
        message: String,
    },
    /// The Verilator runtime gave up, for example on a combinational loop that does not converge.
    #[error("the model failed at {time_ps} ps: {message}")]
    ModelFailed {
        /// Simulated time in picoseconds.
        time_ps: u64,
        /// Place and text.
        message: String,
    },
    /// A bus functional model or a task reported a violation.
    #[error("violation at {time_ps} ps: {message}")]
    Violation {
        /// Simulated time in picoseconds.
        time_ps: u64,
        /// Who saw what.
        message: String,
    },
    /// A future did not complete within the cycle limit.
    #[error("not done after {limit_cycles} cycles (raise it with set_limit_cycles)")]
    LimitReached {
        /// The limit in rising edges of all clocks.
        limit_cycles: u64,
    },
    /// A future waits, and there is no clock and no timer that could ever wake it.
    #[error("nothing will ever happen: the simulation has no clock and no timer is pending")]
    Deadlock,
    /// Tracing or coverage was asked of a model built without it.
    #[error("model {model} was built without {feature}")]
    NotBuiltFor {
        /// The top module.
        model: String,
        /// The missing variant.
        feature: &'static str,
    },
    /// A trace or coverage file could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
    },
}
