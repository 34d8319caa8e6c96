//! A case: one behaviour that the text requires, stated once, run on every bench that has what it needs.

use crate::dut::{Bench, Caps};
use crate::failure::{Failure, Outcome};
use crate::kit::Kit;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// A case.
#[derive(Clone, Copy)]
pub struct Case {
    /// The requirement that it is about.
    pub id: &'static str,
    /// Further requirements that it would find broken.
    pub also: &'static [&'static str],
    /// Section and claim.
    pub name: &'static str,
    /// What bench and card must have.
    pub needs: Caps,
    /// Fails when the claim does not hold.
    pub run: fn(&mut Kit<'_>) -> Outcome,
}

/// The cases of one section: `"id" + "further id" [what it needs] name;`, where `name` is a function, or
/// `name => |kit| ...`.
macro_rules! cases {
    ($section:literal: $($id:literal $(+ $also:literal)* $([$needs:expr])? $name:ident $(=> $run:expr)?;)+) => {
        /// The cases of this section.
        pub const CASES: &[$crate::case::Case] = &[$($crate::case::Case {
            id: $id,
            also: &[$($also),*],
            name: concat!($section, "::", stringify!($name)),
            needs: $crate::dut::Caps::NONE$(.and($needs))?,
            run: $crate::case::cases!(@ $name $($run)?),
        }),+];
    };
    (@ $name:ident) => { $name };
    (@ $name:ident $run:expr) => { $run };
}
pub(crate) use cases;

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The claim holds.
    Passed,
    /// The bench or its card has not what the case needs.
    NotApplicable(Caps),
    /// The claim does not hold.
    Failed(Failure),
}

impl Case {
    /// Its name on a bench: `bench::section::claim::id`.
    pub fn full_name(&self, bench: &dyn Bench) -> String {
        format!("{}::{}::{}", bench.name(), self.name, self.id)
    }

    /// All requirements that it is about, the first one first.
    pub fn ids(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.id).chain(self.also.iter().copied())
    }

    /// Runs it on a card of its own.
    pub fn run_on(&self, bench: &dyn Bench) -> Verdict {
        if !bench.caps().has(self.needs) {
            return Verdict::NotApplicable(self.needs);
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut dut = bench.open()?;
            (self.run)(&mut Kit::new(&mut *dut)?)
        }));
        match outcome {
            Ok(Ok(())) => Verdict::Passed,
            Ok(Err(failure)) => Verdict::Failed(failure),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
                Verdict::Failed(Failure::new(format!("the bench panicked: {text}")))
            }
        }
    }
}

/// Every case, section by section.
pub fn all() -> Vec<&'static Case> {
    crate::cases::SECTIONS.iter().flat_map(|section| section.iter()).collect()
}

/// Runs every case whose full name contains `filter` and tells each verdict as it comes.
pub fn conform(bench: &dyn Bench, filter: &str, mut report: impl FnMut(&Case, &Verdict)) {
    for case in all().into_iter().filter(|case| case.full_name(bench).contains(filter)) {
        report(case, &case.run_on(bench));
    }
}
