//! Random worlds, and the cases that they found or that a reader would look for.

mod cases;
mod world;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::thread::ScopedJoinHandle;

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
const BRANCHES: [&str; 25] = [
    "a change that is not written",
    "a change that is written",
    "a cell is made anew",
    "a choice is outdated",
    "a conflict is over",
    "a conflict is shown",
    "a nameless cell gets its id",
    "a removal under a save",
    "an earlier base",
    "an unknown base",
    "a replaced version",
    "a replaced version is offered",
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

/// How many threads run worlds. Each has its own seed, so the worlds are the same on every machine.
const THREADS: u8 = 4;

/// Runs worlds, and returns the branches that they have reached; `NB_WORLDS` sets another number.
fn run_worlds(default: u32) -> BTreeSet<&'static str> {
    let number = std::env::var("NB_WORLDS")
        .ok()
        .and_then(|it| it.parse().ok());
    let cases = number.unwrap_or(default).div_ceil(u32::from(THREADS));
    std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|seed| scope.spawn(move || run_some(cases, seed)));
        let threads: Vec<_> = threads.collect();
        let reached = threads.into_iter().map(ScopedJoinHandle::join);
        reached
            .flat_map(|reached| reached.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

fn run_some(cases: u32, seed: u8) -> BTreeSet<&'static str> {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&steps(), |steps| {
        World::new().run(&steps);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    REACHED.take()
}

#[test]
fn the_worlds_lose_nothing_and_reach_each_branch() {
    let reached = run_worlds(2000);
    let missing: Vec<_> = BRANCHES
        .iter()
        .filter(|it| !reached.contains(*it))
        .collect();
    assert!(missing.is_empty(), "never reached: {missing:?}");
}
