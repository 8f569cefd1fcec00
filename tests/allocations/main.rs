//! The number of memory allocations on a small message's way through the proxy, in steady state.
//!
//! There are two for each message: its list of frames and its new signature. The read buffer is reused only
//! when no message that was read into it exists any more.

#![allow(unreachable_pub, reason = "a test binary has no outside")]

use nb::{route, wire, zmtp};

mod sockets;
#[allow(dead_code, reason = "the bench needs the rest")]
#[path = "../../benches/pure/traffic.rs"]
mod traffic;

use allocation_counter::measure;
use traffic::{Cell, Keys, Linked, Way, on_the_wire, output};

/// Returns how many allocations `times` calls make, after as many calls before.
fn asked(times: usize, mut once: impl FnMut()) -> u64 {
    (0..times).for_each(|_| once());
    measure(|| (0..times).for_each(|_| once())).count_total
}

#[test]
fn an_output_asks_twice_for_memory_between_two_reads() {
    let keys = Keys::signing();
    let read = on_the_wire([output(1).into_frames(&keys.kernel)]);
    let mut way = Way::new(keys, 3);
    assert_eq!(asked(1000, || _ = way.pass(&read)), 2 * 1000);
}

#[test]
fn of_many_outputs_in_a_read_each_asks_twice_for_memory_and_the_read_itself() {
    let keys = Keys::signing();
    let outputs = (0..64).map(|number| output(number).into_frames(&keys.kernel));
    let read = on_the_wire(outputs);
    let mut way = Way::new(keys, 3);
    let times = 1000;
    let buffers = asked(times, || _ = way.pass(&read));
    let most = (2 * 64 + 2) * times as u64;
    assert!(buffers <= most, "{buffers} for {times} reads");
}

#[test]
fn an_output_asks_twice_for_memory_on_its_way_between_two_sockets() {
    let asked = sockets::asked(1000);
    assert!(asked < 2 * 1000 + 10, "{asked} for 1000 outputs");
}

#[test]
fn a_cell_and_its_five_answers_ask_for_memory_forty_six_times() {
    // The parts of a request that are kept until its answer is complete, also for the journal; and a record
    // that it has ended, for clients that have missed that.
    let (mut linked, cell) = (Linked::new(), Cell::new());
    let times = 1000;
    assert_eq!(
        asked(times, || _ = cell.run(&mut linked)),
        46 * times as u64
    );
}
