//! Every case on every bench that this crate has, with the names of `cargo test`.

use libtest_mimic::{Arguments, Trial};
use nic_conformance::bench::model::ModelBench;
use nic_conformance::case::{all, Verdict};
use nic_conformance::dut::Bench;

static MODEL: ModelBench = ModelBench;

fn main() {
    let benches: [&'static dyn Bench; 1] = [&MODEL];
    let trial = |bench: &'static dyn Bench, case: &'static nic_conformance::case::Case| {
        let is_for_it = bench.caps().has(case.needs);
        let run = move || match case.run_on(bench) {
            Verdict::Failed(failure) => Err(failure.to_string().into()),
            _ => Ok(()),
        };
        Trial::test(case.full_name(bench), run).with_ignored_flag(!is_for_it)
    };
    let trials = benches.iter().flat_map(|bench| all().into_iter().map(move |case| trial(*bench, case))).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
