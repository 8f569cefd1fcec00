//! Kernels that end while a front end is joined.

use super::SHARED;
use crate::world::{World, succeed};

fn revival(case: &str) {
    let world = World::opened();
    succeed(world.script("revival.py", SHARED).args(["--case", case]));
}

#[test]
fn a_killed_kernel_comes_back_with_the_next_cell() {
    revival("killed");
}

#[test]
fn a_kernel_that_died_in_an_agents_cell_says_so() {
    revival("agents");
}

#[test]
fn a_kernel_that_was_shut_down_stays_down() {
    revival("stopped");
}

#[test]
fn a_restart_by_somebody_else_is_reported() {
    revival("restarted");
}

#[test]
fn a_launch_on_a_dead_kernel_reports_its_end() {
    revival("launched");
}

#[test]
fn an_attached_kernel_is_not_brought_back() {
    revival("attached");
}

#[test]
fn under_a_jupyter_server_it_is_the_same() {
    let world = World::opened();
    succeed(&mut world.script("server_death.py", SHARED));
}
