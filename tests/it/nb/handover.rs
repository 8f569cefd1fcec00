//! A front end that leaves while a cell runs: its proxy hands the cell over, and no output is lost.

use serde_json::{Value, json};

use super::{nb, open, until};
use crate::world::{World, succeed};

/// Makes a world with an open notebook whose cells `c0`, `c1`… have these sources.
fn desk(cells: &[&str]) -> World {
    let world = World::new();
    let cell = |(at, source): (usize, &&str)| {
        json!({
            "cell_type": "code", "id": format!("c{at}"), "source": source, "metadata": {},
            "outputs": [], "execution_count": null,
        })
    };
    let cells: Vec<_> = cells.iter().enumerate().map(cell).collect();
    let notebook = json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5});
    let file = world.project().join("t.ipynb");
    std::fs::write(file, notebook.to_string()).expect("write the notebook");
    open(&world, "t.ipynb");
    let settings = world.project().join(".nb/config.toml");
    std::fs::write(settings, "return_time = 1").expect("write the settings");
    succeed(world.nb().arg("serve"));
    world
}

/// Lets a front end run the cells, and leave.
fn goes(world: &World, how: &str, seed: u64, cells: &[&str]) {
    let code: Vec<_> = cells.iter().map(|cell| cell.replace('\n', "\\n")).collect();
    let mut script = world.script("handover.py", "nb-shared");
    script.args(["--how", how, "--code", &code.join("|||")]);
    script.args(["--seed", &seed.to_string()]);
    succeed(&mut script);
}

/// Returns the job that records the cells.
fn job(world: &World) -> String {
    let jobs = world.project().join(".nb/jobs");
    until("a job", || {
        let entry = std::fs::read_dir(&jobs).ok()?.flatten().next()?;
        Some(entry.file_name().to_string_lossy().into_owned())
    })
}

/// Returns all text that a cell of the file shows.
fn text(world: &World, index: usize) -> String {
    let text = std::fs::read(world.project().join("t.ipynb")).expect("read the notebook");
    let notebook: Value = serde_json::from_slice(&text).expect("JSON");
    let outputs = notebook["cells"][index]["outputs"].clone();
    let outputs = outputs.as_array().expect("outputs").clone();
    // In this file a text is one string, not a list of lines.
    let texts = outputs.iter().filter_map(|output| output["text"].as_str());
    texts.collect()
}

const COUNTS: &str =
    "import time\nfor n in range(300):\n    print(n, flush=True)\n    time.sleep(0.01)";

/// Code that waits until there is a file `go`.
const GATE: &str = "import os\nwhile not os.path.exists('go'): time.sleep(0.01)";

fn counted() -> String {
    (0..300).map(|n| format!("{n}\n")).collect()
}

#[test]
fn a_proxy_that_is_ended_in_mid_cell_hands_it_over_and_no_line_is_lost() {
    let rounds = std::env::var("NB_ROUNDS").ok();
    let rounds: u64 = rounds.and_then(|it| it.parse().ok()).unwrap_or(1);
    for seed in 0..rounds {
        let world = desk(&[COUNTS]);
        goes(&world, "ends", seed, &[COUNTS]);
        let id = job(&world);
        nb(&world, ["wait", &id, "--timeout", "60"]).ended(0);
        assert_eq!(text(&world, 0), counted(), "round {seed}");
        let answer = nb(&world, ["jobs", &id, "--json"]).ended(0).json();
        assert_eq!(answer["cells"][0]["status"], "ok", "{answer}");
        assert_eq!(answer["front_end"]["whole"], true, "{answer}");
        // The end is in the journal, so nobody waits for the cell any more.
        let log = nb(&world, ["log", "--json"]).ended(0);
        assert!(log.stdout.contains("\"status\":\"ok\""), "{log:?}");
    }
}

#[test]
fn cells_in_the_kernels_queue_are_handed_over_too() {
    let cells = [COUNTS, "print('second')", "1 / 0", "print('fourth')"];
    let world = desk(&cells);
    goes(&world, "queue", 1, &cells);
    let id = job(&world);
    nb(&world, ["wait", &id, "--timeout", "60"]).ended(3);
    let answer = nb(&world, ["jobs", &id, "--json"]).ended(0).json();
    let statuses: Vec<_> = (0..4)
        .map(|at| answer["cells"][at]["status"].clone())
        .collect();
    assert_eq!(statuses, ["ok", "ok", "error", "ok"], "{answer}");
    assert_eq!(text(&world, 0), counted());
    assert_eq!(text(&world, 1), "second\n");
    assert_eq!(text(&world, 3), "fourth\n");
}

#[test]
fn a_client_that_does_not_come_back_to_its_cell_leaves_it_to_a_recorder() {
    let code = format!("{COUNTS}\n{GATE}\nprint('end')");
    let world = desk(&[&code]);
    goes(&world, "leaves", 2, &[&code]);
    let id = job(&world);
    std::fs::write(world.project().join("go"), "").expect("open the gate");
    nb(&world, ["wait", &id, "--timeout", "60"]).ended(0);
    assert_eq!(text(&world, 0), format!("{}end\n", counted()));
}

/// Tests a cell of an editor that is killed, or is stopped and killed later; the cell ends after that.
fn an_editor_goes_before_its_cell_ends(how: &str) {
    let code = format!("{COUNTS}\n{GATE}\nprint('end')\nopen('ended', 'w').close()");
    let world = desk(&[&code]);
    goes(&world, how, 9, &[&code]);
    let id = job(&world);
    nb(&world, ["wait", &id, "--timeout", "60"]).ended(0);
    assert_eq!(text(&world, 0), format!("{}end\n", counted()));
    let answer = nb(&world, ["jobs", &id, "--json"]).ended(0).json();
    assert_eq!(answer["cells"][0]["status"], "ok", "{answer}");
}

#[test]
fn a_cell_that_ends_just_after_its_editor_was_killed_is_in_the_notebook() {
    an_editor_goes_before_its_cell_ends("dies");
}

#[test]
fn a_cell_that_ends_while_its_editor_stands_still_is_in_the_notebook_once_that_is_killed() {
    an_editor_goes_before_its_cell_ends("stands");
}

#[test]
fn a_window_that_was_reloaded_in_mid_cell_is_told_in_its_next_cell_where_the_outputs_are() {
    let code = format!("{COUNTS}\n{GATE}\nprint('end')");
    let world = desk(&[&code, "1"]);
    let code = code.replace('\n', "\\n");
    let mut script = world.script("handover.py", "nb-shared");
    script.args(["--how", "reloads", "--code", &code]);
    script.env("VSCODE_PID", "1").env("NB_NOTEBOOK", "t.ipynb");
    succeed(&mut script);
    nb(&world, ["wait", &job(&world), "--timeout", "60"]).ended(0);
    // They are written once the cell of the new window has ended and VS Code has saved.
    until("the outputs are in the notebook", || {
        (text(&world, 0) == format!("{}end\n", counted())).then_some(())
    });
}

#[test]
fn a_cell_whose_editor_has_read_its_end_leaves_no_job() {
    let code = "import time\nprint('a line', flush=True)\ntime.sleep(0.1)\nprint('end')";
    let world = desk(&[code]);
    goes(&world, "reads", 10, &[code]);
    assert!(!world.project().join(".nb/jobs").exists());
}

#[test]
fn what_a_proxy_that_was_killed_has_kept_is_found_by_the_next_command() {
    let code = format!("{COUNTS}\n{GATE}\nprint('end')");
    let world = desk(&[&code]);
    goes(&world, "killed", 5, &[&code]);
    nb(&world, ["cells", "t.ipynb"])
        .ended(0)
        .with("the nb-proxy of")
        .with("was killed");
    let id = job(&world);
    std::fs::write(world.project().join("go"), "").expect("open the gate");
    nb(&world, ["wait", &id, "--timeout", "60"]).ended(0);
    let text = text(&world, 0);
    assert!(text.starts_with("0\n1\n2\n"), "{text}");
    assert!(text.contains("may be missing here"), "{text}");
    assert!(text.ends_with("end\n"), "{text}");
}

#[test]
fn cells_of_a_proxy_that_was_killed_before_it_stored_anything_are_recorded() {
    let code = format!("import time\nprint('first', flush=True)\n{GATE}\nprint('end')");
    let world = desk(&[&code]);
    goes(&world, "early", 11, &[&code]);
    nb(&world, ["cells", "t.ipynb"])
        .ended(0)
        .with("the nb-proxy of")
        .with("was killed");
    let id = job(&world);
    // The recorder follows the cell from here on; what it prints before that is lost.
    until("the gap is noted", || {
        text(&world, 0)
            .contains("may be missing here")
            .then_some(())
    });
    std::fs::write(world.project().join("go"), "").expect("open the gate");
    nb(&world, ["wait", &id, "--timeout", "60"]).ended(0);
    let text = text(&world, 0);
    assert!(text.ends_with("end\n"), "{text}");
    // The next command finds nothing more.
    nb(&world, ["cells", "t.ipynb"]).ended(0);
    let jobs = std::fs::read_dir(world.project().join(".nb/jobs")).expect("the jobs");
    assert_eq!(jobs.count(), 1);
}

#[test]
fn a_question_to_a_proxy_that_was_killed_is_answered_from_a_command() {
    let world = desk(&["name = input('name? ')"]);
    goes(&world, "asks-killed", 12, &["name = input('name? ')"]);
    nb(&world, ["wait", "--timeout", "60"])
        .ended(7)
        .with("name? ");
    nb(&world, ["reply", "Ada", "--timeout", "60"]).ended(0);
    nb(&world, ["run", "-n", "t.ipynb", "name"])
        .ended(0)
        .with("'Ada'");
}

const ASKS: &str = "print('before', flush=True)\nname = input('name? ')\nprint('hi', name)";

#[test]
fn a_question_of_a_front_end_that_went_is_answered_from_a_command() {
    let world = desk(&[ASKS]);
    goes(&world, "asks", 3, &[ASKS]);
    let id = job(&world);
    let output = nb(&world, ["wait", &id, "--timeout", "60", "--json"]).ended(7);
    assert_eq!(
        output.json()["prompt"],
        json!({"prompt": "name? ", "password": false, "number": 1})
    );
    nb(&world, ["reply", &id, "Ada", "--timeout", "60"]).ended(0);
    assert_eq!(text(&world, 0), "before\nhi Ada\n");
    nb(&world, ["run", "-n", "t.ipynb", "name"])
        .ended(0)
        .with("'Ada'");
}

#[test]
fn a_question_of_a_front_end_that_went_can_be_interrupted() {
    let world = desk(&[ASKS]);
    goes(&world, "asks", 6, &[ASKS]);
    let id = job(&world);
    nb(&world, ["wait", &id, "--timeout", "60"])
        .ended(7)
        .with("name? ");
    nb(&world, ["interrupt", &id, "--force"]).ended(0);
    nb(&world, ["wait", &id, "--timeout", "60"]).ended(130);
    assert_eq!(text(&world, 0), "before\n");
    nb(&world, ["run", "-n", "t.ipynb", "6 * 7"])
        .ended(0)
        .with("42");
}

#[test]
fn what_is_asked_once_the_client_has_gone_is_answered_too() {
    let code = format!("{COUNTS}\n{GATE}\nname = input('name? ')\nprint('hi', name)");
    let world = desk(&[&code]);
    goes(&world, "stays", 7, &[&code]);
    let id = job(&world);
    nb(&world, ["wait", &id, "--timeout", "60"]).ended(0);
    assert_eq!(text(&world, 0), format!("{}hi Bob\n", counted()));
}

#[test]
fn what_is_asked_once_the_proxy_has_gone_is_answered_unseen() {
    let code = format!("{COUNTS}\n{GATE}\nname = input('name? ')\nprint('hi', name)");
    let world = desk(&[&code]);
    goes(&world, "ends", 8, &[&code]);
    let id = job(&world);
    nb(&world, ["reply", &id, "Ada"])
        .ended(5)
        .with(&format!("nb reply {id} TEXT --force"));
    nb(&world, ["jobs", &id])
        .ended(0)
        .with("goes to the window that is closed");
    std::fs::write(world.project().join("go"), "").expect("open the gate");
    // The kernel discards answers that come before it waits for input.
    until("its end", || {
        let ended = nb(&world, ["reply", &id, "Ada", "--force", "--timeout", "1"]);
        (ended.code == Some(0)).then_some(())
    });
    assert_eq!(text(&world, 0), format!("{}hi Ada\n", counted()));
}

#[test]
fn outputs_of_a_text_that_two_cells_have_stay_in_the_job() {
    let world = desk(&[COUNTS, COUNTS]);
    let notebook = world.project().join("t.ipynb");
    // As in VS Code, which names cells by an address.
    let text_of = std::fs::read_to_string(&notebook)
        .expect("read")
        .replace("\"c0\"", "\"d0\"");
    std::fs::write(&notebook, text_of).expect("write");
    goes(&world, "ends", 4, &[COUNTS]);
    let id = job(&world);
    nb(&world, ["wait", &id, "--timeout", "60"]).ended(0);
    assert_eq!(text(&world, 0), "");
    nb(&world, ["jobs", &id])
        .ended(0)
        .with("more than one cell");
    nb(&world, ["edit", "t.ipynb", "1", "-s", "2", "--force"]).ended(0);
    nb(&world, ["jobs", &id, "--write"]).ended(0);
    assert_eq!(text(&world, 0), counted());
}
