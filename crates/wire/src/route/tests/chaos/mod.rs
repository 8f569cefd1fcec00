//! Random faults in random order: clients that connect, leave, reconnect, share identities and flood; a
//! kernel that is killed, stopped, restarted; sockets that drop, fill and come back; clocks that jump. After
//! each step the bridge's tables must agree with the simulated world. Once everything is quiet, each request
//! must have had one answer, and the bridge must hold nothing.
//!
//! `NB_CHAOS_SEED=N` runs one seed and prints its steps, `NB_CHAOS_SEEDS=N` runs that many seeds. A seed that
//! fails prints its number and the fewest steps that still fail.

mod kernel;
mod slow_subscriber;
mod step;
mod world;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use step::Step;
use world::ChaosWorld;

use super::world::Rng;

/// The number of worlds that `cargo test` runs, in some seconds; `scripts/slow` runs 100,000.
const SEEDS: u64 = 2_500;

fn number_from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn steps_of(seed: u64) -> Vec<Step> {
    step::draw(&mut Rng::of(seed))
}

/// Runs the steps; returns what the bridge produced, or the message of the failed assertion.
fn run(seed: u64, steps: &[Step]) -> Result<BTreeSet<String>, String> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut world = ChaosWorld::new(seed);
        for step in steps {
            world.run_step(*step);
        }
        world.settle();
        world.produced
    }));
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_else(|| "a panic without a message".into())
    })
}

/// The actions and the lines of the log that the worlds have to produce, so that what follows from them is tested.
const PRODUCED: [&str; 33] = [
    "CellHeld",
    "ClientGone",
    "ClientJoined",
    "CloseLinks",
    "HandOver",
    "IdleLost",
    "Interrupt",
    "Journal",
    "JournalInterrupt",
    "KernelSlow",
    "KernelStartedAnew",
    "LateInterrupt",
    "Leave",
    "MissedReported",
    "NoKernel",
    "NoStdin",
    "OpenLink",
    "Pause",
    "PromptAnswered",
    "Publish",
    "RequestFailed",
    "ResolveNotebook",
    "Resume",
    "Revive",
    "SessionSeen",
    "Shutdown",
    "SignalKernel",
    "StartupAnswered",
    "ToClient",
    "ToKernel",
    "Undeliverable",
    "UnreadableHeader",
    "Withdrawal",
];

/// Removes the steps that are not needed for the failure.
fn shrink(seed: u64, mut steps: Vec<Step>) -> Vec<Step> {
    let mut width = steps.len() / 2;
    while width > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + width).min(steps.len()));
            if run(seed, &fewer).is_err() {
                steps = fewer;
            } else {
                at += width;
            }
        }
        width /= 2;
    }
    steps
}

#[test]
fn random_faults_leave_no_message_lost_doubled_or_held() {
    if let Some(seed) = number_from_env("NB_CHAOS_SEED") {
        let steps = steps_of(seed);
        eprintln!("{steps:#?}");
        assert_eq!(run(seed, &steps).err(), None);
        return;
    }
    let last = number_from_env("NB_CHAOS_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(1);
    let failed = Mutex::new(None);
    let produced = Mutex::new(BTreeSet::new());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(4) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > last || failed.lock().expect("no panic in it").is_some() {
                        return;
                    }
                    match run(seed, &steps_of(seed)) {
                        Ok(new) => produced.lock().expect("no panic in it").extend(new),
                        Err(_) => {
                            failed.lock().expect("no panic in it").get_or_insert(seed);
                        }
                    }
                }
            });
        }
    });
    if let Some(seed) = failed.into_inner().expect("no panic in it") {
        let steps = shrink(seed, steps_of(seed));
        let message = run(seed, &steps).err();
        panic!("NB_CHAOS_SEED={seed} fails: {message:?}\nthe fewest steps that do: {steps:#?}");
    }
    let produced = produced.into_inner().expect("no panic in it");
    let missing: Vec<_> = PRODUCED
        .iter()
        .filter(|name| !produced.contains(**name))
        .collect();
    assert!(
        missing.is_empty(),
        "no world produces {missing:?}, only {produced:?}"
    );
}
