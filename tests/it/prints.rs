//! Flushed prints through the proxy: none is lost.

use crate::world::{World, succeed};

fn all_arrive(lines: u32, rounds: u32) {
    let world = World::opened();
    let mut script = world.script("prints.py", "nb-shared");
    succeed(
        script
            .args(["--lines", &lines.to_string()])
            .args(["--rounds", &rounds.to_string()]),
    );
}

/// A modest number: a kernel drops what its reader does not take fast enough, and this runs on
/// debug builds, beside other tests.
#[test]
fn flushed_prints_all_arrive() {
    all_arrive(800, 3);
}

#[test]
#[ignore = "counts on an idle machine only: cargo test --release --test it prints -- --ignored"]
fn twenty_thousand_flushed_prints_all_arrive_twenty_times() {
    all_arrive(20_000, 20);
}
