//! Which kernel a front end's notebook gets.

use super::SHARED;
use crate::world::{World, succeed};

fn late(world: &World, case: &str) {
    succeed(world.script("late.py", SHARED).args(["--case", case]));
}

#[test]
fn a_third_notebook_gets_a_kernel_of_its_own() {
    late(&World::opened(), "third");
}

#[test]
fn the_first_notebook_makes_its_project() {
    late(&World::served(), "first");
}

#[test]
fn a_shared_kernel_is_found_restarted_and_reported() {
    late(&World::opened(), "shared");
}

#[test]
fn a_name_that_comes_late_is_followed() {
    late(&World::opened(), "unnamed");
}

#[test]
fn a_kernel_that_must_not_be_started_is_not() {
    late(&World::opened(), "refused");
}

#[test]
fn a_kernel_that_cannot_be_started_says_why() {
    late(&World::opened(), "broken");
}

#[test]
fn an_explicit_notebook_wins() {
    late(&World::opened(), "explicit");
}

#[test]
fn what_the_system_removes_is_not_needed() {
    late(&World::opened(), "vanished");
}

#[test]
fn a_kernel_without_its_sockets_is_reported() {
    late(&World::opened(), "sockets");
}

#[test]
fn notebooks_leave_their_kernels_until_they_are_ended() {
    late(&World::opened(), "several");
}

#[test]
fn a_kernel_that_is_lent_meanwhile_is_followed() {
    late(&World::opened(), "lent");
}
