//! Others at the same kernel: what they did is reported, and their work is not ended without consent.

use std::process::Stdio;

use serde_json::Value;

use super::{Output, kill, nb, open, opening, output_of, pid, until};
use crate::world::{World, succeed};

fn as_(world: &World, name: &str, words: &[&str]) -> Output {
    nb(world, [words, &["--as", name]].concat())
}

#[test]
fn what_others_did_is_reported_once_to_each_name() {
    let world = World::new();
    open(&world, "t.ipynb");
    // The first command reports nothing.
    let first = as_(&world, "ada", &["run", "x = 1; x"]).ended(0);
    assert_eq!(first.stderr, "");
    let first = as_(&world, "bob", &["run", "x = 2", "--json"]).ended(0);
    assert_eq!(first.json()["since"], serde_json::json!([]));
    as_(&world, "bob", &["run", "1/0"]).ended(3);
    as_(&world, "bob", &["restart"]).ended(0);

    let output = as_(&world, "ada", &["run", "x"]).ended(3);
    assert!(
        output.stderr.trim_end().ends_with(": variables are gone"),
        "{output:#?}"
    );
    let line = output.stderr.lines().last().expect("a line");
    assert!(line.starts_with("‣ since "), "{line}");
    assert!(
        line.contains(" · bob ran \"1/0\": it failed, ran 1 more, restarted the kernel "),
        "{line}"
    );
    // Each thing is reported once.
    assert_eq!(as_(&world, "ada", &["run", "y = 1; y"]).ended(0).stderr, "");

    let answer = as_(&world, "bob", &["interrupt", "--json"]).ended(0).json();
    assert_eq!(answer["since"][0]["by"], "ada");
    assert_eq!(answer["since"][0]["variables_gone"], false);
    assert_eq!(answer["kernel_generation"], 2);

    // A command that fails reports it too.
    as_(&world, "bob", &["shutdown"]).ended(0);
    let answer = as_(&world, "ada", &["run", "y", "--json"]).ended(6).json();
    assert_eq!(answer["error"]["kind"], "no-kernel");
    assert_eq!(answer["kernel_generation"], 2);
    let text = answer["since"][0]["text"].as_str().expect("a text");
    assert!(text.contains("shut the kernel down"), "{text}");
}

#[test]
fn two_sessions_of_one_agent_are_told_of_each_other_by_one_name() {
    let world = World::new();
    open(&world, "t.ipynb");
    let in_session = |id: &str, code: &str| {
        let mut nb = world.nb();
        nb.args(["run", code]).env("CLAUDECODE", "1");
        output_of(nb.env("CLAUDE_CODE_SESSION_ID", id)).ended(0)
    };
    assert_eq!(in_session("1", "x = 1; x").stderr, "");
    assert_eq!(in_session("2", "x = 2; x").stderr, "");
    let output = in_session("1", "x");
    assert!(
        output.stderr.contains(" · claude ran \"x = 2; x\" ok"),
        "{output:#?}"
    );
    assert_eq!(in_session("1", "x").stderr, "");
    nb(&world, ["log"])
        .ended(0)
        .with(" claude ran \"x = 2; x\" ok");
}

#[test]
fn a_death_is_reported_with_the_cell_that_it_happened_in() {
    let world = World::new();
    let opened = open(&world, "t.ipynb");
    as_(&world, "bob", &["run", "1"]).ended(0);
    let mut running = world
        .nb()
        .args(["run", "--as", "ada"])
        .arg("import time\nwhile True: time.sleep(0.01)")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start nb");
    let busy = until("the kernel is busy", || {
        let status = nb(&world, ["status", "t.ipynb", "--json"]).json();
        let session = status["sessions"][0].clone();
        (session["running"]["by"] == "ada").then_some(session)
    });
    assert_eq!(busy["running"]["text"], "ada's code \"import time\"");
    nb(&world, ["status"])
        .ended(0)
        .with("t.ipynb: busy: ada's code \"import time\" for ");
    kill(pid(&opened));
    assert_eq!(running.wait().expect("it ends").code(), Some(6));
    let output = as_(&world, "bob", &["status", "t.ipynb", "--json"]).ended(6);
    let answer = output.json();
    let ended = &answer["sessions"][0]["ended"];
    assert_eq!(ended["cell_by"], "ada");
    assert_eq!(ended["cell_of"], "ada's code \"import time\"");
    let since = answer["since"].as_array().expect("a list");
    let died = since
        .iter()
        .find(|doings| doings["by"] == Value::Null)
        .expect("the kernel's own line");
    assert_eq!(died["variables_gone"], true);
}

#[test]
fn what_a_person_has_queued_behind_an_agents_cell_is_not_thrown_out_unasked() {
    let world = World::new();
    open(&world, "t.ipynb");
    let endless = "import time\nwhile True: time.sleep(0.01)";
    as_(&world, "bob", &["run", "--detach", endless]).ended(0);
    // Of two jobs that find the kernel idle, the later one may be sent first.
    until("bob's code runs", || {
        let status = nb(&world, ["status", "t.ipynb", "--json"]).json();
        (status["sessions"][0]["running"]["by"] == "bob").then_some(())
    });
    as_(&world, "human", &["run", "--detach", "x = 1"]).ended(0);
    for action in ["restart", "shutdown"] {
        let refused = as_(&world, "bob", &[action]).ended(5);
        refused.with("human's code \"x = 1\", which waits for the kernel");
    }
    as_(&world, "bob", &["shutdown", "--force"]).ended(0);
}

#[test]
fn others_cells_are_not_ended_unasked() {
    let world = World::new();
    open(&world, "t.ipynb");
    let mut running = world
        .nb()
        .args(["run", "--as", "ada"])
        .arg("import time\nwhile True: time.sleep(0.01)")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start nb");
    until("the kernel is busy", || {
        let status = nb(&world, ["status", "t.ipynb", "--json"]).json();
        (status["sessions"][0]["state"] == "busy").then_some(())
    });
    for deed in ["interrupt", "restart", "shutdown"] {
        let refused = as_(&world, "bob", &[deed]).ended(5);
        let refused = refused.with("ada's code \"import time\", which has run since");
        refused.with(&format!("nb {deed} --force"));
    }
    let refused = as_(&world, "bob", &["restart", "--json"]).ended(5).json();
    assert_eq!(refused["error"]["kind"], "refused");
    as_(&world, "bob", &["shutdown", "--idle", "0s"])
        .ended(0)
        .with("t.ipynb: goes on: busy: ada's code");
    // An actor's own work can be ended without consent.
    as_(&world, "ada", &["interrupt"]).ended(0);
    let ended = running.wait().expect("it ends");
    assert!(matches!(ended.code(), Some(3 | 130)), "{ended}");
    as_(&world, "bob", &["restart"]).ended(0);
}

#[test]
fn the_end_of_a_cell_that_nobody_saw_counts_from_when_it_was_noticed() {
    let world = World::new();
    open(&world, "t.ipynb");
    let began = jiff::Timestamp::now();
    let long = "import time; time.sleep(6)";
    nb(&world, ["run", "--timeout", "0.5", long]).ended(4);
    let idle_since = until("the kernel is idle", || {
        let status = nb(&world, ["status", "t.ipynb", "--json"]).json();
        status["sessions"][0]["idle_since"]
            .as_str()
            .map(str::to_owned)
    });
    let idle_since: jiff::Timestamp = idle_since.parse().expect("a moment");
    let after = idle_since.duration_since(began);
    assert!(after.as_secs() >= 6, "{after}");
    // So the kernel does not count as unused since the cell was submitted.
    let kept = nb(&world, ["shutdown", "--idle", "6s", "--json"]).ended(0);
    assert_eq!(kept.json()["kernels"][0]["done"], "kept");
}

#[test]
fn a_person_at_a_front_end_is_asked_before_their_work_goes() {
    let world = World::opened();
    succeed(&mut world.script("company.py", "nb-shared"));
}

#[test]
fn behind_a_question_of_a_persons_cell_nobody_waits() {
    let world = World::opened();
    succeed(&mut world.script("asks_person.py", "nb-shared"));
}

#[test]
fn an_edit_waits_for_a_persons_running_cell() {
    let world = World::opened();
    succeed(&mut world.script("edits_beside_a_cell.py", "nb-shared"));
}

/// Creates a folder beside the project and opens a notebook in it.
fn elsewhere(world: &World, folder: &str, notebook: &str) -> (std::path::PathBuf, Value) {
    let folder = world.project().parent().expect("it has one").join(folder);
    std::fs::create_dir_all(folder.join(".nb")).expect("make a folder");
    let mut command = opening(world, notebook);
    let opened = output_of(command.current_dir(&folder)).ended(0).json();
    (folder, opened)
}

#[test]
fn kernels_of_all_projects_are_listed_and_ended_when_nobody_uses_them() {
    let world = World::new();
    let began = std::time::Instant::now();
    open(&world, "a.ipynb");
    open(&world, "b.ipynb");
    let (other, c) = elsewhere(&world, "other", "c.ipynb");
    let (deleted, d) = elsewhere(&world, "gone", "d.ipynb");
    eprintln!("opened after {:?}", began.elapsed());
    // The list is the same in any folder.
    let all = |words: &[&str]| output_of(world.nb().current_dir("/").args(words));
    let listed = all(&["status", "--all", "--json"]).ended(0).json();
    let kernels = listed["kernels"].as_array().expect("a list");
    let mut names: Vec<_> = kernels
        .iter()
        .map(|kernel| kernel["notebook"].as_str().expect("a name"))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["a.ipynb", "b.ipynb", "c.ipynb", "d.ipynb"]);
    for kernel in kernels {
        assert_eq!(kernel["state"], "idle");
        assert!(
            kernel["memory_bytes"].as_u64() > Some(1_000_000),
            "{kernel}"
        );
        assert!(kernel["idle_since"].is_string(), "{kernel}");
        assert_eq!(kernel["kernel_generation"], 1);
    }
    let text = all(&["status", "--all"]).ended(0);
    assert!(text.stdout.contains("4 kernels, "), "{text:#?}");
    assert!(
        text.stdout.contains(&other.display().to_string()),
        "{text:#?}"
    );

    // Only this project's kernels, and only those that are old enough.
    let dry = nb(&world, ["shutdown", "--idle", "0s", "--dry-run"]).ended(0);
    assert_eq!(dry.stdout.matches("would be ended").count(), 2, "{dry:#?}");
    let young = all(&["shutdown", "--idle", "1h", "--all", "--json"]);
    let young = young.ended(0).json();
    let kept = young["kernels"].as_array().expect("a list");
    assert_eq!(kept.len(), 4);
    assert!(
        kept.iter().all(|kernel| kernel["done"] == "kept"),
        "{young}"
    );

    // In a project that was deleted, the kernel cannot be asked any more, but is found.
    std::fs::remove_dir_all(&deleted).expect("delete the project");
    let left = all(&["status", "--all", "--json"]).ended(0).json();
    assert_eq!(left["left"][0]["kernel_pid"], pid(&d));
    all(&["status", "--all"])
        .ended(0)
        .with(&format!("to end it: kill {}", pid(&d)));

    let ended = all(&["shutdown", "--idle", "0s", "--all"]).ended(0);
    assert_eq!(ended.stdout.matches(": ended (").count(), 3, "{ended:#?}");
    ended.with("its .nb was removed or renamed");
    let ended = all(&["shutdown", "--all", "--force"]).ended(0);
    assert_eq!(ended.stdout.matches(": ended (").count(), 1, "{ended:#?}");
    for pid in [pid(&c), pid(&d)] {
        // The parent that adopted the process may not have reaped it yet.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }
    all(&["shutdown", "--idle", "0s", "--all"])
        .ended(0)
        .with("no kernel runs");
    let none = all(&["status", "--all", "--json"]).ended(0).json();
    assert_eq!(none["kernels"], serde_json::json!([]));
    assert_eq!(none["left"], serde_json::json!([]));
    output_of(
        world
            .nb()
            .current_dir("/")
            .args(["shutdown", "--idle", "0s"]),
    )
    .ended(6)
    .with("--all");
}

#[test]
fn settings_come_from_the_file_where_the_environment_says_nothing() {
    let world = World::new();
    open(&world, "a.ipynb");
    open(&world, "b.ipynb");
    let config = world.project().join(".nb/config.toml");
    std::fs::write(&config, "notebook = 'b.ipynb'\nas = 'eve'\ntimeout = 0.5\n").expect("write it");
    nb(&world, ["run", "import time; time.sleep(60)"])
        .ended(4)
        .with("still running after");
    let status = nb(&world, ["status", "--json"]).ended(0).json();
    assert_eq!(status["sessions"][0]["notebook"], "b.ipynb");
    assert_eq!(status["sessions"][0]["running"]["by"], "eve");
    nb(&world, ["interrupt"]).ended(0);
    let mut command = world.nb();
    command.env("NB_NOTEBOOK", "a.ipynb").args(["run", "2"]);
    output_of(command.env("NB_TIMEOUT", "30"))
        .ended(0)
        .with("2");
    std::fs::write(&config, "timeout = 'long'\n").expect("write it");
    nb(&world, ["status"]).ended(1).with("config.toml");
    std::fs::remove_file(&config).expect("remove it");
    output_of(world.nb().env("NB_TURNS", "perhaps").arg("status"))
        .ended(2)
        .with("NB_TURNS");
}

#[test]
fn an_agent_that_waits_is_told_that_a_debugger_has_stopped_its_cell() {
    let world = World::served();
    succeed(&mut world.script("breakpoint.py", "nb-shared"));
}
