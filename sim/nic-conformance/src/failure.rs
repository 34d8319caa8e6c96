//! How a case says that a claim does not hold.

use std::fmt;
use std::panic::Location;

/// A claim that does not hold, or a bench that could not do what the case asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

/// What a case and its helpers return.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure with the caller's line in front.
    #[track_caller]
    pub fn new(what: impl fmt::Display) -> Self {
        let at = Location::caller();
        let file = at.file().rsplit('/').next().unwrap_or_default();
        Self(format!("{file}:{}: {what}", at.line()))
    }

    /// The same with what was going on in front.
    pub fn context(self, what: impl fmt::Display) -> Self {
        Self(format!("{what}: {}", self.0))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Fails unless `holds`.
#[track_caller]
pub fn check(holds: bool, what: impl fmt::Display) -> Outcome {
    if holds {
        Ok(())
    } else {
        Err(Failure::new(what))
    }
}

/// Fails unless `got` equals `want`.
#[track_caller]
pub fn equal<T: PartialEq<U> + fmt::Debug, U: fmt::Debug>(got: T, want: U, what: impl fmt::Display) -> Outcome {
    if got == want {
        Ok(())
    } else {
        Err(Failure::new(format!("{what}: got {got:?}, want {want:?}")))
    }
}
