//! VS Code on the shared kernel, and JupyterLab's library where both must be equally fast.
//!
//! VS Code itself is not run: it needs its own download and a display. These tests run the libraries
//! through which its extension talks to kernels, with the extension's order of messages and its ways to
//! launch, restart and kill kernels; `tests/node/vscode.js` describes them.

use crate::python;
use crate::world::{World, succeed};

/// Runs a scenario of `tests/node` in the project of this world.
fn scenario(world: &World, name: &str) {
    if let Some(mut command) = world.node(name) {
        // In this environment a notebook without a kernel finds one.
        let environment = python::interpreter().ancestors().nth(2);
        command.env("VIRTUAL_ENV", environment.expect("it has a folder"));
        succeed(&mut command);
    }
}

#[test]
fn a_notebook_is_used() {
    let world = World::opened();
    scenario(&world, "vscode_use.js");
}

#[test]
fn joining_behind_a_long_cell_takes_no_time() {
    let world = World::opened();
    everybody_joins_at_once(&world);
}

/// IRkernel answers kernel_info only between two cells, and so does this stand-in.
#[test]
fn joining_a_busy_kernel_that_sends_nothing_meanwhile_takes_no_time() {
    let world = World::new();
    add_stand_in(&world);
    succeed(
        world
            .nb()
            .args(["open", "t.ipynb", "--kernel", "idle-info"]),
    );
    everybody_joins_at_once(&world);
}

/// Checks that each front end joins while a cell of 120 s runs, and is ready within 2 s.
fn everybody_joins_at_once(world: &World) {
    scenario(world, "vscode_busy.js");
    scenario(world, "jupyterlab_busy.js");
    succeed(&mut world.script("busy.py", "nb-shared"));
}

#[test]
fn restart_restarts_once_and_what_looks_like_it_nothing() {
    let world = World::opened();
    scenario(&world, "vscode_restart.js");
}

#[test]
fn stop_takes_back_ones_own_cell_first() {
    let world = World::opened();
    scenario(&world, "vscode_turns.js");
}

#[test]
fn a_kernel_that_dies_is_followed_by_another_and_a_stopped_one_is_not() {
    let world = World::opened();
    scenario(&world, "vscode_death.js");
}

#[test]
fn a_comm_is_closed_by_those_whose_it_is() {
    let world = World::opened();
    scenario(&world, "vscode_comms.js");
}

#[test]
fn a_widget_in_the_first_cell_of_a_first_start_is_drawn_and_the_next_cell_runs() {
    let world = World::served();
    let mut open = world.nb();
    open.args(["open", "t.ipynb", "--python"]);
    succeed(open.arg(python::with_libraries()));
    scenario(&world, "vscode_widgets.js");
}

#[test]
fn every_notebook_gets_its_own_kernel() {
    let world = World::new();
    world.open("a.ipynb");
    world.open("b.ipynb");
    scenario(&world, "vscode_names.js");
}

#[test]
fn notebooks_opened_and_closed_leave_their_kernels() {
    let world = World::served();
    add_stand_in(&world);
    scenario(&world, "vscode_several.js");
}

/// Installs the kernelspec of a stand-in kernel of `tests/python`.
fn add_stand_in(world: &World) {
    let root = world.project();
    let root = root.parent().expect("a world has a root");
    let folder = root.join("home/jupyter/kernels/idle-info");
    std::fs::create_dir_all(&folder).expect("make the spec's folder");
    let spec = serde_json::json!({
        "argv": [python::interpreter(), python::script("idle_info_kernel.py"), "{connection_file}"],
        "display_name": "A kernel that answers between two cells",
        "language": "python",
        "interrupt_mode": "signal",
    });
    std::fs::write(folder.join("kernel.json"), spec.to_string()).expect("write the spec");
}
