//! Unmodified front ends on the shared kernel: each works as on a kernel that it started itself.
//!
//! The scripts in `tests/python` take the kernelspec's name. With `python3` they show what a plain
//! ipykernel does, which is the reference.

use crate::world::{World, is_thorough, succeed};

const PLAIN: &str = "python3";
const SHARED: &str = "nb-shared";

#[test]
fn three_clients_at_once_get_what_is_theirs() {
    let world = World::opened();
    succeed(
        world
            .script("three_clients.py", SHARED)
            .args(["--count", if is_thorough() { "500" } else { "100" }]),
    );
}

#[test]
fn the_public_kernel_suite_gives_what_it_gives_on_the_kernel() {
    let world = World::opened();
    let on_the_kernel = succeed(&mut world.script("kernel_suite.py", PLAIN));
    let through = succeed(&mut world.script("kernel_suite.py", SHARED));
    assert_eq!(through, on_the_kernel);
    for outcome in [": \"failed\"", ": \"error\""] {
        assert!(!through.contains(outcome), "{through}");
    }
}

#[test]
fn an_editor_is_answered_on_a_comm_and_its_cells_are_recorded_when_it_goes() {
    let world = World::opened();
    succeed(&mut world.script("editor_comm.py", SHARED));
}

#[test]
fn the_cell_of_a_page_that_was_closed_is_recorded_though_its_server_stays_connected() {
    let world = World::opened();
    succeed(&mut world.script("closed_page.py", SHARED));
}

#[test]
fn nbclient_executes_a_notebook() {
    let world = World::opened();
    succeed(&mut world.script("notebook.py", SHARED));
}

#[test]
fn a_jupyter_server_session_comes_and_goes() {
    let world = World::opened();
    succeed(&mut world.script("server.py", SHARED));
}

#[test]
fn vscode_launches_uses_kills_and_launches_again() {
    let world = World::opened();
    succeed(&mut world.script("vscode.py", SHARED));
}

#[test]
fn two_shells_alternate_on_two_notebooks() {
    let world = World::new();
    succeed(
        world
            .script("two_shells.py", SHARED)
            .args(["--count", "60"]),
    );
}

#[test]
fn a_cell_is_interrupted_by_whoever_may() {
    let world = World::opened();
    succeed(&mut world.script("interrupts.py", SHARED));
}

#[test]
fn who_ran_what_is_known_of_nb_of_front_ends_and_of_those_past_both() {
    let world = World::opened();
    succeed(&mut world.script("actors.py", SHARED));
}
