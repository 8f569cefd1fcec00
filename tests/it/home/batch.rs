//! Clients that run a notebook's cells without a person.

use super::SHARED;
use crate::world::{World, succeed};

fn batch(case: &str) {
    let world = World::opened();
    let mut script = world.script("batch.py", SHARED);
    script.args(["--case", case]);
    if let Ok(rounds) = std::env::var("NB_ROUNDS") {
        script.args(["--rounds", &rounds]);
    }
    succeed(&mut script);
}

#[test]
fn the_end_of_a_batch_client_leaves_anothers_waiting_cell_alone() {
    batch("interrupt");
}

#[test]
fn two_batch_clients_at_once_leave_each_others_cells_alone() {
    batch("two");
}

#[test]
fn a_batch_clients_time_out_ends_its_own_cell() {
    batch("timeout");
}

#[test]
fn a_kernels_death_is_a_batch_clients_too() {
    batch("death");
}

#[test]
fn jupyter_execute_fails_with_its_kernel_although_it_allows_errors() {
    batch("execute");
}

#[test]
fn sigterm_alone_restarts_nothing_and_the_log_says_why() {
    batch("sigterm");
}

#[test]
fn a_console_on_a_terminal_gets_another_kernel() {
    batch("console");
}

#[test]
fn a_script_without_a_terminal_reads_what_brings_a_kernel() {
    batch("script");
}

/// `nbclient` sets no variable that names the notebook; the program's arguments do.
#[test]
fn jupyter_execute_uses_the_kernel_of_its_notebook() {
    let world = World::opened();
    let python = crate::python::interpreter();
    let open = ["open", "other.ipynb", "--python"];
    succeed(world.nb().args(open).arg(python));
    let code = "value = 'other.ipynb'; value";
    for notebook in ["other.ipynb", "third.ipynb"] {
        succeed(world.nb().args(["open", notebook, "--no-kernel"]));
        succeed(world.nb().args(["insert", notebook, code]));
    }
    let run = |notebook| succeed(world.nb().args(["run", "-n", notebook, "value"]));
    for notebook in ["t.ipynb", "other.ipynb"] {
        let code = "value = 'untouched'";
        succeed(world.nb().args(["run", "-n", notebook, code]));
    }
    let execute = |notebook| {
        let mut execute = world.command(&python.with_file_name("jupyter-execute"));
        succeed(execute.args(["--kernel_name=nb-shared", "--inplace", notebook]));
    };
    execute("t.ipynb");
    execute("other.ipynb");
    assert!(run("other.ipynb").contains("other.ipynb"));
    assert!(run("t.ipynb").contains("untouched"));
    // A notebook without a kernel runs on that of another, which its first cell says.
    execute("third.ipynb");
    let stdout = succeed(world.nb().args(["cell", "third.ipynb", "0"]));
    assert!(
        stdout.contains("ran on the kernel of other.ipynb"),
        "{stdout}"
    );
}
