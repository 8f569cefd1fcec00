//! Random worlds, and the cases that they found or that a reader would look for.

mod cases;
mod world;

use std::cell::RefCell;
use std::collections::BTreeSet;

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use self::world::{World, steps};

thread_local! {
    static REACHED: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
}

/// Records that a branch was reached, for [`the_worlds_reach_each_branch`].
pub(super) fn reached(branch: &'static str) {
    REACHED.with_borrow_mut(|reached| reached.insert(branch));
}

/// The branches that the worlds must reach, so that their checks mean something.
const BRANCHES: [&str; 21] = [
    "a change that is not written",
    "a change that is written",
    "a cell is made anew",
    "a choice is outdated",
    "a conflict is over",
    "a conflict is shown",
    "a nameless cell gets its id",
    "an unknown base",
    "a text is overwritten",
    "an own save",
    "both are kept",
    "inserted",
    "metadata",
    "moved",
    "open again",
    "outputs",
    "refused, another text",
    "refused, the person types",
    "removed",
    "set",
    "synced",
];

/// Runs worlds; `NB_WORLDS` sets another number.
fn run_worlds(default: u32) {
    let number = std::env::var("NB_WORLDS")
        .ok()
        .and_then(|it| it.parse().ok());
    let cases = number.unwrap_or(default);
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&steps(), |steps| {
        World::new().run(&steps);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn the_worlds_lose_nothing_and_reach_each_branch() {
    run_worlds(2000);
    let reached = REACHED.with_borrow(Clone::clone);
    let missing: Vec<_> = BRANCHES
        .iter()
        .filter(|it| !reached.contains(*it))
        .collect();
    assert!(missing.is_empty(), "never reached: {missing:?}");
}
