//! What must not hurt: kernels that end, kills by parent pid, bad input.

use crate::world::{World, succeed};

const SHARED: &str = "nb-shared";

fn a_kernel_ends(how: &str) {
    let world = World::opened();
    succeed(world.script("death.py", SHARED).args(["--how", how]));
}

#[test]
fn a_kernel_killed_in_mid_cell() {
    a_kernel_ends("kill");
}

#[test]
fn a_kernel_restarted_in_mid_cell() {
    a_kernel_ends("restart");
}

#[test]
fn a_kernel_shut_down_in_mid_cell_and_opened_again() {
    a_kernel_ends("reopen");
}

#[test]
fn kills_by_parent_pid_leave_the_kernel_alive() {
    let world = World::new();
    succeed(&mut world.script("signals.py", SHARED));
}

#[test]
fn bad_input_on_every_port_hurts_nobody_else() {
    let world = World::opened();
    succeed(&mut world.script("bad_input.py", SHARED));
}

#[test]
fn a_kernel_that_sends_nonsense() {
    let world = World::served();
    succeed(&mut world.script("nonsense_kernel.py", SHARED));
}

#[test]
fn launches_that_cannot_work_say_why() {
    let world = World::opened();
    succeed(&mut world.script("launch_faults.py", SHARED));
}

#[test]
fn a_live_pid_that_is_not_our_kernel() {
    let world = World::new();
    succeed(&mut world.script("stale.py", SHARED));
}

#[test]
fn a_front_end_where_no_kernel_lives() {
    let world = World::new();
    succeed(&mut world.script("autostart.py", SHARED));
}

#[test]
fn an_editor_killed_leaves_no_proxy_behind() {
    let world = World::new();
    succeed(&mut world.script("orphans.py", SHARED));
}
