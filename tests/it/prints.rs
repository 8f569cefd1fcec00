//! Flushed prints through the proxy: none gets lost.

use crate::python;
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

/// How many prints a kernel's queue holds in any case, also while its reader stands still: of its 1,000 places, libzmq
/// learns in steps of 500 that they are free. More arrive only if the reader gets enough time on a processor, as in the
/// tests of release builds.
const HELD: u32 = 480;

#[test]
fn flushed_prints_all_arrive() {
    all_arrive(HELD, 5);
}

#[test]
#[ignore = "counts on an idle machine only: cargo test --release --test it -- --ignored twenty_thousand"]
fn twenty_thousand_flushed_prints_all_arrive_twenty_times() {
    all_arrive(20_000, 20);
}

/// Runs prints on a kernel over TCP, whose own queue holds 1,000 messages.
fn a_burst_arrives(options: &[&str]) {
    let world = World::served();
    let mut open = world.nb();
    open.args(["open", "t.ipynb", "--transport", "tcp", "--python"]);
    succeed(open.arg(python::interpreter()));
    succeed(world.script("burst.py", "nb-shared").args(options));
}

#[test]
fn a_burst_of_large_prints_on_a_tcp_kernel_arrives_beside_one_who_stands_still() {
    a_burst_arrives(&[
        "--prints",
        &HELD.to_string(),
        "--size",
        "40000",
        "--rounds",
        "2",
        "--busy",
        "0",
        "--standing",
        "1",
    ]);
}

#[test]
#[ignore = "takes minutes: cargo test --release --test it -- --ignored burst"]
fn a_burst_of_large_prints_arrives_fifty_times_beside_two_busy_processes() {
    a_burst_arrives(&["--rounds", "50", "--busy", "2"]);
    a_burst_arrives(&["--rounds", "50", "--busy", "2", "--standing", "1"]);
}
