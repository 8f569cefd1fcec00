//! A front end's Restart restarts the shared kernel, and nothing else does.

use super::SHARED;
use crate::world::{World, succeed};

fn restarts(order: &str) {
    let world = World::opened();
    succeed(world.script("restarts.py", SHARED).args(["--order", order]));
}

#[test]
fn vscodes_restart_restarts_once() {
    restarts("after");
}

#[test]
fn vscodes_restart_that_launches_before_it_kills() {
    restarts("early");
}

#[test]
fn what_only_looks_like_a_restart_restarts_nothing() {
    restarts("nothing");
}

#[test]
fn a_restart_that_is_not_wanted_keeps_the_kernel() {
    restarts("keep");
}
