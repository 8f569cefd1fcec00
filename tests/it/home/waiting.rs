//! A person's cell that waits at the proxy: who sees it, and what becomes of it when the kernel ends.

use super::SHARED;
use crate::world::{World, succeed};

fn waiting(case: &str) {
    let world = World::opened();
    succeed(world.script("waiting.py", SHARED).args(["--case", case]));
}

#[test]
fn a_cell_that_waits_before_a_restart_does_not_run_after_it() {
    waiting("restart");
}

#[test]
fn a_cell_that_waits_before_a_shutdown_does_not_run_after_it() {
    waiting("shutdown");
}

#[test]
fn a_cell_that_waits_before_a_kernel_dies_does_not_run_on_the_next_one() {
    waiting("kill");
}

#[test]
fn who_waits_is_shown_until_the_cell_is_sent() {
    waiting("seen");
}

#[test]
fn a_cell_that_its_user_withdraws_is_in_the_journal_with_its_id() {
    waiting("withdrawn");
}

#[test]
fn no_outputs_are_written_while_a_cell_of_vs_code_waits_or_runs() {
    waiting("held");
}

#[test]
fn no_late_outputs_are_written_while_a_cell_of_vs_code_runs() {
    waiting("late");
}
