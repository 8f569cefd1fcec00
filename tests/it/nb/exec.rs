//! Cells run from the command line: their outputs are in the notebook, whichever process is killed.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Output, kill, nb, open, until};
use crate::world::World;

/// Code that waits until there is a file `go` beside the notebook.
pub(super) const GATE: &str = "import os, time\nprint('before', flush=True)\n\
    while not os.path.exists('go'): time.sleep(0.01)\nprint('after')";

/// Makes a world with an open notebook of these cells.
pub(super) fn notebook(cells: &[&str]) -> World {
    let world = World::new();
    open(&world, "a.ipynb");
    for cell in cells {
        nb(&world, ["insert", "a.ipynb", "-s", cell]).ended(0);
    }
    world
}

pub(super) fn file(world: &World) -> PathBuf {
    world.project().join("a.ipynb")
}

/// Returns a cell as it is in the file.
pub(super) fn cell(world: &World, index: usize) -> Value {
    let text = std::fs::read(file(world)).expect("read the notebook");
    let notebook: Value = serde_json::from_slice(&text).expect("JSON");
    notebook["cells"][index].clone()
}

/// Returns the text of a cell's first output in the file.
pub(super) fn text(world: &World, index: usize) -> String {
    let text = &cell(world, index)["outputs"][0]["text"];
    let lines = text.as_array().into_iter().flatten();
    lines.filter_map(Value::as_str).collect()
}

pub(super) fn job(output: &Output) -> String {
    let word = output.json()["job"].as_str().expect("a job").to_owned();
    assert_eq!(word.len(), 8, "{word}");
    word
}

pub(super) fn begin(world: &World, cells: &[&str]) -> String {
    let words = ["exec", "a.ipynb", "-d", "--json"];
    job(&nb(world, words.iter().chain(cells)).ended(0))
}

/// Waits until a job is in a state.
pub(super) fn wait_for_state(world: &World, job: &str, state: &str) {
    let record = world.project().join(".nb/jobs").join(job).join("job.json");
    until(state, || {
        let text = std::fs::read(&record).ok()?;
        let job: Value = serde_json::from_slice(&text).ok()?;
        (job["state"] == state).then_some(())
    });
}

/// Waits until a job has recorded this text.
pub(super) fn wait_for_output(world: &World, job: &str, text: &str) {
    let file = world
        .project()
        .join(".nb/jobs")
        .join(job)
        .join("events.jsonl");
    until(text, || {
        let log = std::fs::read_to_string(&file).ok()?;
        log.contains(text).then_some(())
    });
}

#[test]
fn outputs_are_printed_and_in_the_notebook() {
    let world = notebook(&["print('hello'); 6 * 7", "1 / 0", "'never'"]);
    let output = nb(&world, ["exec", "a.ipynb", "--all"]).ended(3);
    assert!(output.stdout.contains("hello\n42\n"), "{output:?}");
    let output = output
        .with("ZeroDivisionError")
        .with("2 of 3 cells ran in")
        .with(": 1 error; 1 more cell was not run");
    assert!(!output.stdout.contains("never"), "{output:?}");
    let first = cell(&world, 0);
    assert_eq!(first["execution_count"], 1);
    assert_eq!(first["outputs"][0]["text"], json!(["hello\n"]));
    assert_eq!(first["outputs"][1]["data"]["text/plain"], json!(["42"]));
    let times = first["metadata"]["execution"].as_object().expect("times");
    assert_eq!(times.len(), 4, "{times:?}");
    assert_eq!(cell(&world, 1)["outputs"][0]["ename"], "ZeroDivisionError");
    assert_eq!(cell(&world, 2)["outputs"], json!([]));

    let output = nb(&world, ["exec", "--all", "--allow-errors", "--json"]).ended(3);
    let cells = output.json()["cells"].clone();
    let statuses: Vec<_> = (0..3).map(|at| cells[at]["status"].clone()).collect();
    assert_eq!(statuses, ["ok", "error", "ok"]);
    assert_eq!(cell(&world, 2)["outputs"][0]["execution_count"], 5);
    // Only the cells that show an error.
    let output = nb(&world, ["exec", "--failed", "--json"]).ended(3);
    assert_eq!(output.json()["cells"].as_array().map(Vec::len), Some(1));
    nb(&world, ["exec"]).ended(2).with("nb exec --all");
}

#[test]
fn outputs_replace_those_of_a_machine_whose_clock_is_ahead() {
    let world = notebook(&["print('new')", "import time; time.sleep(1.5); print('new')"]);
    let mut saved: Value = {
        let text = std::fs::read_to_string(file(&world)).expect("read the notebook");
        serde_json::from_str(&text).expect("a notebook")
    };
    // The second time is past when the cell ends.
    for (at, ahead) in [(0, 180), (1, 1)] {
        let time = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(ahead);
        let cell = &mut saved["cells"][at];
        cell["metadata"]["execution"] = json!({"iopub.status.busy": time.to_string()});
        cell["execution_count"] = json!(7);
        cell["outputs"] = json!([{"output_type": "stream", "name": "stdout", "text": "old\n"}]);
    }
    std::fs::write(file(&world), saved.to_string()).expect("write the notebook");
    nb(&world, ["exec", "a.ipynb", "1"]).ended(0);
    let output = nb(&world, ["exec", "a.ipynb", "0"]).ended(0);
    assert!(!output.stderr.contains("run again"), "{output:?}");
    for at in [0, 1] {
        assert_eq!(
            cell(&world, at)["outputs"][0]["text"],
            json!(["new\n"]),
            "{at}"
        );
    }
}

#[test]
fn a_restart_before_cells_runs_what_is_in_the_file_after_it() {
    let world = notebook(&["print('old text')"]);
    let mut command = world.nb();
    command.args(["exec", "a.ipynb", "0", "--restart", "--json"]);
    let exec = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("run nb");
    let state = world.project().join(".nb/state.json");
    until("the kernel is being restarted", || {
        let state: Value = serde_json::from_slice(&std::fs::read(&state).ok()?).ok()?;
        (state["sessions"]["a.ipynb"]["status"] == "restarting").then_some(())
    });
    // An editor saves while the cell runs.
    let text = std::fs::read_to_string(file(&world)).expect("read the notebook");
    let saved = text.replace("old text", "what was saved meanwhile");
    std::fs::write(file(&world), saved).expect("save the notebook");
    let ended = exec.wait_with_output().expect("it ends");
    let out = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{ended:?}");
    assert!(out.contains("what was saved meanwhile"), "{out}");
    assert!(!cell(&world, 0)["outputs"].to_string().contains("old text"));
}

#[test]
fn a_command_that_is_killed_loses_nothing() {
    let world = notebook(&[GATE]);
    let mut command = world.nb();
    command.args(["exec", "a.ipynb", "0"]);
    let mut exec = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("run nb");
    let jobs = world.project().join(".nb/jobs");
    let id = until("a job", || {
        let entry = std::fs::read_dir(&jobs).ok()?.flatten().next()?;
        Some(entry.file_name().to_string_lossy().into_owned())
    });
    wait_for_output(&world, &id, "before");
    kill(exec.id());
    exec.wait().expect("it ends");
    nb(&world, ["wait", "--timeout", "0.1"])
        .ended(4)
        .with("before")
        .with(&format!("next: nb wait {id}"));
    nb(&world, ["jobs"]).ended(0).with("running");
    std::fs::write(world.project().join("go"), "").expect("open the gate");
    // First what was not shown yet, then everything.
    let output = nb(&world, ["wait", &id[..4]]).ended(0);
    assert_eq!(output.stdout, "after\n");
    nb(&world, ["wait", &id])
        .ended(0)
        .with("without output since you last looked");
    let output = nb(&world, ["wait", &id, "--all"]).ended(0);
    assert_eq!(output.stdout, "before\nafter\n");
    let output = nb(&world, ["wait", &id, "--as", "bob"]).ended(0);
    assert_eq!(output.stdout, "before\nafter\n");
    assert_eq!(text(&world, 0), "before\nafter\n");
    nb(&world, ["jobs"]).ended(0).with("done ok");
}

#[test]
fn jobs_and_wait_mean_the_notebook_that_is_named() {
    let world = notebook(&["print('of a')"]);
    open(&world, "b.ipynb");
    nb(&world, ["insert", "b.ipynb", "print('of b')"]).ended(0);
    let of_a = job(&nb(&world, ["exec", "a.ipynb", "0", "--json"]).ended(0));
    let of_b = job(&nb(&world, ["exec", "b.ipynb", "0", "--json"]).ended(0));
    let listed = nb(&world, ["jobs", "-n", "a.ipynb"]).ended(0);
    listed.with(&of_a).without(&of_b);
    let by_variable = |words: &[&str]| {
        let mut command = world.nb();
        super::output_of(command.args(words).env("NB_NOTEBOOK", "a.ipynb")).ended(0)
    };
    by_variable(&["jobs"]).with(&of_a).without(&of_b);
    by_variable(&["wait", "--all"]).with("of a").without("of b");
    nb(&world, ["wait", "--all", "-n", "b.ipynb"])
        .ended(0)
        .with("of b");
    nb(&world, ["wait", "--all"]).ended(0).with("of b");
    nb(&world, ["log", "-n", "5"])
        .ended(2)
        .with("nb log --lines 5");
}

#[test]
fn a_terminal_asks_only_the_question_that_is_open() {
    let world = notebook(&[]);
    let mut script = world.command(crate::python::interpreter());
    script.arg(crate::python::script("terminal_question.py"));
    script.arg(env!("CARGO_BIN_EXE_nb"));
    crate::world::succeed(&mut script);
}

#[test]
fn a_question_is_answered_from_another_command() {
    let world = notebook(&[
        "name = input('name? ')\nprint('hi', name)",
        "import getpass\nlen(getpass.getpass('key: '))",
    ]);
    let output = nb(&world, ["exec", "a.ipynb", "--all", "--json"]).ended(7);
    assert_eq!(
        output.json()["prompt"],
        json!({"prompt": "name? ", "password": false, "number": 1})
    );
    let id = job(&output);
    // The only job that asks is meant; the answer shows what its code says then.
    nb(&world, ["reply", "Ada"])
        .ended(7)
        .with("hi Ada")
        .with("key: ");
    nb(&world, ["reply", &id, "secret"])
        .ended(2)
        .with("list of processes");
    let mut reply = super::shell(&world, &format!("echo hunter2 | \"$NB\" reply {id} -"));
    reply.env("NB", world.nb().get_program());
    super::output_of(&mut reply).ended(0).with("7");
    nb(&world, ["reply", "-d", "again"])
        .ended(2)
        .with("no job asks");
    assert_eq!(text(&world, 0), "hi Ada\n");
    assert_eq!(
        cell(&world, 1)["outputs"][0]["data"]["text/plain"],
        json!(["7"])
    );
    // No file of the project contains it.
    let mut search = super::shell(&world, "grep -rl hunter2 . && exit 1 || exit 0");
    super::output_of(&mut search).ended(0);
    nb(&world, ["reply", &id, "again"])
        .ended(5)
        .with("asks nothing");
}

#[test]
fn a_job_leaves_the_queue_and_the_one_before_it_goes_on() {
    let world = notebook(&[GATE, "'behind'"]);
    let first = begin(&world, &["0"]);
    wait_for_state(&world, &first, "running");
    let second = begin(&world, &["1"]);
    nb(&world, ["interrupt", &second, "--as", "bob"])
        .ended(5)
        .with("--force");
    nb(&world, ["interrupt", &second]).ended(0);
    nb(&world, ["wait", &second]).ended(130);
    wait_for_state(&world, &first, "running");
    assert_eq!(cell(&world, 1)["outputs"], json!([]));
    std::fs::write(world.project().join("go"), "").expect("open the gate");
    nb(&world, ["wait", &first]).ended(0).with("after");
}

#[test]
fn what_runs_is_interrupted_and_the_cells_after_it_are_not_run() {
    let world = notebook(&[GATE, "'behind'"]);
    let id = begin(&world, &["0..2"]);
    wait_for_state(&world, &id, "running");
    until("output", || {
        let log = std::fs::read_to_string(
            world
                .project()
                .join(".nb/jobs")
                .join(&id)
                .join("events.jsonl"),
        )
        .ok()?;
        log.contains("before").then_some(())
    });
    nb(&world, ["interrupt", &id]).ended(0);
    let answer = nb(&world, ["wait", &id, "--json"]).ended(130).json();
    assert_eq!(answer["cells"][0]["status"], "interrupted");
    assert_eq!(answer["cells"][1]["status"], "not_run");
    assert_eq!(text(&world, 0), "before\n");
    // A cell that runs too long is interrupted.
    let output = nb(
        &world,
        ["exec", "a.ipynb", "0", "--max-time", "0.5", "--json"],
    )
    .ended(130);
    assert_eq!(output.json()["cells"][0]["status"], "interrupted");
}

#[test]
fn outputs_of_a_cell_that_was_edited_meanwhile_say_so() {
    let world = notebook(&[GATE, "2"]);
    let id = begin(&world, &["0"]);
    wait_for_state(&world, &id, "running");
    nb(&world, ["edit", "a.ipynb", "0", "-s", "'new'"]).ended(0);
    nb(&world, ["rm", "a.ipynb", "1"]).ended(0);
    std::fs::write(world.project().join("go"), "").expect("open the gate");
    nb(&world, ["wait", &id]).ended(0);
    let now = cell(&world, 0);
    assert_eq!(now["source"], json!(["'new'"]));
    assert_eq!(now["execution_count"], Value::Null);
    assert!(text(&world, 0).contains("earlier text"), "{now}");
    assert_eq!(now["outputs"][1]["text"], json!(["before\n", "after\n"]));
    nb(&world, ["cells", "a.ipynb"]).ended(0).with(" stale ");
    nb(&world, ["exec", "a.ipynb", "0"]).ended(0);
    let cells = nb(&world, ["cells", "--json"]).ended(0).json();
    assert_eq!(cells["cells"][0]["state"], Value::Null, "{cells}");
    // The cell was edited after it ran; its present source has no outputs yet.
    nb(&world, ["edit", "a.ipynb", "0", "-s", "1 / 0"]).ended(0);
    let cells = nb(&world, ["cells", "--json"]).ended(0).json();
    assert_eq!(cells["cells"][0]["state"], "stale", "{cells}");
    nb(&world, ["cell", "a.ipynb", "0"])
        .ended(0)
        .with("stale: edited since it ran");
    let output = nb(&world, ["cell", "a.ipynb", "0", "--json"]).ended(0);
    assert_eq!(output.json()["cells"][0]["state"], "stale");
    nb(&world, ["exec", "a.ipynb", "0"]).ended(3);
    let cells = nb(&world, ["cells", "--json"]).ended(0).json();
    assert_eq!(cells["cells"][0]["state"], "error", "{cells}");
}

#[test]
fn what_is_written_is_run_in_the_same_call() {
    let world = notebook(&["x = 1"]);
    nb(&world, ["insert", "a.ipynb", "-x", "x = 20\nx + 1"])
        .ended(0)
        .with("inserted")
        .with("21");
    let words = [
        "edit",
        "a.ipynb",
        "1",
        "--replace",
        "+ 1",
        "/ 0",
        "-x",
        "--json",
    ];
    let answer = nb(&world, words).ended(3).json();
    assert_eq!(answer["cells"][0]["status"], "error");
    assert_eq!(answer["changes"][0]["what"], "edited");
    assert_eq!(cell(&world, 1)["outputs"][0]["ename"], "ZeroDivisionError");
    // A text cell is written, and nothing runs.
    nb(
        &world,
        ["insert", "a.ipynb", "-x", "-t", "markdown", "# Title"],
    )
    .ended(0);
}

#[test]
fn cells_run_on_a_new_kernel_where_the_last_one_was_shut_down_and_not_where_it_died() {
    let world = notebook(&["6 * 7"]);
    nb(&world, ["shutdown"]).ended(0);
    let output = nb(&world, ["exec", "a.ipynb", "0"]).ended(0);
    output
        .with("a.ipynb: no kernel ran; started Python 3 (ipykernel)")
        .with("42\n");
    nb(&world, ["shutdown"]).ended(0);
    let output = nb(&world, ["insert", "a.ipynb", "-x", "1 + 1"]).ended(0);
    output
        .with("inserted")
        .with("no kernel ran; started")
        .with("2\n");
    std::fs::write(
        world.project().join("b.ipynb"),
        std::fs::read(world.project().join("a.ipynb")).expect("read it"),
    )
    .expect("copy it");
    nb(&world, ["exec", "b.ipynb", "-1"])
        .ended(0)
        .with("b.ipynb: no kernel ran; started");

    nb(
        &world,
        ["run", "-n", "a.ipynb", "import os; os.kill(os.getpid(), 9)"],
    )
    .ended(6);
    nb(&world, ["exec", "a.ipynb", "0"])
        .ended(6)
        .with("was killed at")
        .with("nb open a.ipynb");
}

#[test]
fn what_changed_is_run_and_a_new_kernel_runs_it_all() {
    let world = notebook(&["x = 1", "x += 1\nx"]);
    let ran = |words: &[&str]| {
        let words = ["exec", "a.ipynb", "--json"].iter().chain(words);
        let cells = nb(&world, words).ended(0).json()["cells"].clone();
        cells.as_array().map(Vec::len)
    };
    assert_eq!(ran(&["--changed"]), Some(2));
    assert_eq!(ran(&["--changed"]), Some(0));
    nb(&world, ["edit", "a.ipynb", "1", "--replace", "1", "2"]).ended(0);
    assert_eq!(ran(&["--changed"]), Some(1));
    assert_eq!(
        cell(&world, 1)["outputs"][0]["data"]["text/plain"],
        json!(["4"])
    );
    assert_eq!(ran(&["--all", "--restart"]), Some(2));
    assert_eq!(
        cell(&world, 1)["outputs"][0]["data"]["text/plain"],
        json!(["3"])
    );
    assert_eq!(cell(&world, 1)["execution_count"], 2);
}

#[test]
fn what_only_the_reply_contains_is_among_the_outputs() {
    // Some kernels report an error only in the reply.
    let silent = "shell = get_ipython()\n\
        shell._showtraceback = lambda kind, value, lines: setattr(shell, '_last_traceback', lines)\n\
        1 / 0";
    let world = notebook(&["print?", silent]);
    nb(&world, ["exec", "a.ipynb", "--all"])
        .ended(3)
        .with("Prints the values")
        .with("ZeroDivisionError");
    let page = cell(&world, 0)["outputs"][0].clone();
    assert_eq!(page["output_type"], "display_data");
    assert!(page["data"]["text/plain"].to_string().contains("Prints"));
    let error = cell(&world, 1)["outputs"][0].clone();
    assert_eq!(error["ename"], "ZeroDivisionError");
    assert!(!error["traceback"].as_array().expect("lines").is_empty());
    nb(&world, ["run", "print?"]).ended(0).with("Prints");
}

#[test]
fn tags_leave_cells_out_and_let_them_raise() {
    let world = World::new();
    let code = |id: &str, source: &str, tag: &str| {
        json!({
            "cell_type": "code", "id": id, "source": source, "metadata": {"tags": [tag]},
            "outputs": [], "execution_count": null,
        })
    };
    let cells = [
        code("skipped", "print('skipped')", "skip-execution"),
        code("raises", "1 / 0", "raises-exception"),
        code("after", "'after'", "other"),
    ];
    let notebook = json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5});
    std::fs::write(file(&world), notebook.to_string()).expect("write the notebook");
    open(&world, "a.ipynb");
    nb(&world, ["exec", "--all"]).ended(0).with("'after'");
    assert_eq!(cell(&world, 0)["outputs"], json!([]));
    assert_eq!(cell(&world, 1)["outputs"][0]["ename"], "ZeroDivisionError");
    // A cell that is named explicitly is not skipped.
    nb(&world, ["exec", "skipped"]).ended(0).with("skipped\n");
}

#[test]
fn outputs_find_their_notebook_where_the_projects_folder_is_elsewhere() {
    let world = World::new();
    // A home folder is never a project's root: its state is stored in another folder.
    let home = super::home(&world);
    std::fs::create_dir_all(&home).expect("make the home");
    let inside = |words: &[&str]| super::output_of(world.nb().current_dir(&home).args(words));
    let python = crate::python::interpreter();
    let python = python.to_str().expect("a path");
    inside(&["open", "h.ipynb", "--python", python]).ended(0);
    inside(&["insert", "h.ipynb", "-x", "6 * 7"])
        .ended(0)
        .with("42");
    let text = std::fs::read_to_string(home.join("h.ipynb")).expect("read the notebook");
    assert!(text.contains("\"42\""), "{text}");
    inside(&["shutdown", "h.ipynb"]).ended(0);
}

#[test]
fn what_the_kernels_own_queue_drops_is_reported() {
    // As if the kernel had sent so many messages that nobody received.
    let skip = |count: u32| {
        format!("get_ipython().kernel.session.message_count += {count}\nprint('after', flush=True)")
    };
    let world = notebook(&[&skip(500), &skip(10)]);
    let lost = "500 messages were lost by the kernel's own queue";
    let output = nb(&world, ["exec", "a.ipynb", "0", "--json"]).ended(0);
    let note = output.json()["notes"][0].clone();
    assert!(
        note.as_str().is_some_and(|note| note.contains(lost)),
        "{output:?}"
    );
    let outputs = cell(&world, 0)["outputs"].clone();
    assert_eq!(outputs[0]["text"], json!(["after\n"]));
    let warning = outputs[1]["text"][0].as_str().expect("a text");
    assert!(warning.starts_with(&format!("[nb] {lost}")), "{warning}");
    // So few missing messages may be replies to other clients.
    nb(&world, ["exec", "a.ipynb", "1"]).ended(0);
    assert_eq!(cell(&world, 1)["outputs"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_bar_is_shown_as_it_is_in_the_end() {
    let cleared = "from IPython.display import clear_output\n\
        for i in range(300): clear_output(wait=True); print(i, 'of 300')";
    let returned = "for i in range(3000): print(f'\\r{i} of 3000', end='', flush=i % 10 == 0)";
    let world = notebook(&[cleared, returned]);
    for (index, last) in ["299 of 300", "2999 of 3000"].iter().enumerate() {
        let at = index.to_string();
        let output = nb(&world, ["exec", "a.ipynb", &at, "--json"]).ended(0);
        let shown = output.json()["cells"][0]["stdout"].clone();
        let shown = shown.as_str().expect("a text").trim_end();
        assert_eq!(shown, *last);
        assert_eq!(text(&world, index).trim_end(), *last);
        // The job's recorded outputs give the same text.
        let waited = nb(&world, ["wait", &job(&output), "--all"]).ended(0);
        assert_eq!(waited.stdout.trim_end(), *last);
    }
}
