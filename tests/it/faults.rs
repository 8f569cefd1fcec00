//! Faults that must do no harm: kernels that end, kills by parent pid, bad input.

use std::path::Path;

use crate::python;
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
fn a_notebook_that_jupyterlab_shows_runs_nothing_of_its_folder() {
    let world = World::served();
    succeed(&mut world.script("unchosen.py", SHARED));
}

#[test]
fn a_notebook_in_a_room_of_jupyterlab_is_not_written() {
    let world = World::served();
    let mut script = world.command(python::interpreter());
    succeed(script.arg("-u").arg(python::script("room.py")));
}

#[test]
fn an_environment_that_was_passed_over_is_reported_in_the_first_cell() {
    let world = World::served();
    succeed(&mut world.script("passed_over.py", SHARED));
}

#[test]
fn an_editor_killed_leaves_no_proxy_behind() {
    let world = World::new();
    succeed(&mut world.script("orphans.py", SHARED));
}

#[test]
fn what_breaks_off_in_the_middle_delays_and_costs_nobody_else() {
    let world = World::opened();
    succeed(&mut world.script("breakdowns.py", SHARED));
}

#[test]
fn without_file_descriptors_new_clients_are_refused_and_the_old_served() {
    let world = World::opened();
    succeed(&mut world.script("no_descriptors.py", SHARED));
}

#[test]
fn on_a_full_disk_everybody_is_served_who_needs_no_room_there() {
    if !crate::skipped::can_mount() {
        return;
    }
    let world = World::new();
    std::fs::create_dir(world.project().join(".nb")).expect("make a folder");
    let script = format!(
        r#"
        set -e
        mount -t tmpfs -o size=2m,mode=700 tmpfs .nb
        mount -t tmpfs -o size=1m tmpfs /var/tmp
        "$NB_TEST_BINARY" open t.ipynb --python "$NB_TEST_PYTHON"
        code=0
        "$NB_TEST_PYTHON" -u {} --kernel {SHARED} || code=$?
        rm -f .nb/filler
        "$NB_TEST_BINARY" shutdown t.ipynb --force
        exit $code
        "#,
        crate::python::script("full_disk.py").display()
    );
    let mut command = world.command(Path::new("unshare"));
    succeed(command.args(["-rm", "sh", "-c", &script]));
}

fn somebody_who_is_stopped_holds(file: &str) {
    let world = World::opened();
    let mut script = world.script("held_lock.py", SHARED);
    succeed(script.args(["--file", file]));
}

#[test]
fn a_stopped_process_that_holds_the_journals_lock_stops_no_front_end() {
    somebody_who_is_stopped_holds("journal.jsonl");
}

#[test]
fn a_stopped_process_that_holds_the_states_lock_stops_no_front_end() {
    somebody_who_is_stopped_holds("state.lock");
}

#[test]
fn a_stopped_process_that_holds_every_lock_stops_no_front_end() {
    somebody_who_is_stopped_holds("all");
}

#[test]
fn a_proxy_may_open_all_files_it_ever_may_and_its_kernel_as_many_as_before() {
    let world = World::new();
    succeed(&mut world.script("descriptors.py", SHARED));
}
