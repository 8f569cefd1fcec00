//! A cell's outputs are recorded, whatever happens to the notebook and to the recorder.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::exec::{GATE, begin, cell, file, notebook, text, wait_for_output, wait_for_state};
use super::{has_ended, kill, nb, pid, until};
use crate::world::World;

/// Returns the record of a job, once `holds` is true of it.
fn record(world: &World, job: &str, condition: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let file = world.project().join(".nb/jobs").join(job).join("job.json");
    until(condition, || {
        let text = std::fs::read(&file).ok()?;
        let job: Value = serde_json::from_slice(&text).ok()?;
        holds(&job).then_some(job)
    })
}

fn set_mode(path: &PathBuf, mode: u32) {
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("set the mode");
}

fn open_the_gate(world: &World) {
    std::fs::write(world.project().join("go"), "").expect("open the gate");
}

#[test]
fn a_notebook_that_could_not_be_written_for_a_while_has_it_all_at_the_end() {
    let world = notebook(&[GATE]);
    set_mode(&file(&world), 0o444);
    let id = begin(&world, &["0"]);
    let record = record(&world, &id, "unwritten", |job| {
        job["cells"][0]["unwritten"].is_string()
    });
    let why = record["cells"][0]["unwritten"].as_str().expect("a text");
    assert!(why.contains("read-only"), "{why}");
    assert_eq!(cell(&world, 0)["outputs"], json!([]));
    set_mode(&file(&world), 0o644);
    open_the_gate(&world);
    nb(&world, ["wait", &id]).ended(0).with("after");
    assert_eq!(text(&world, 0), "before\nafter\n");
    wait_for_state(&world, &id, "done");
}

/// Returns the process that records a job.
fn recorder(job: &str) -> u32 {
    until("the recorder", || {
        let found = std::fs::read_dir("/proc").ok()?.flatten();
        let mut pids = found.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
        pids.find(|pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&format!("\"id\":\"{job}\""))
        })
    })
}

/// Kills the recorder of a job that runs and has printed, before it can write anything.
fn kill_recorder(world: &World, job: &str) {
    wait_for_output(world, job, "before");
    let pid = recorder(job);
    kill(pid);
    until("its end", || has_ended(pid).then_some(()));
}

/// Returns all text of a cell's outputs in the file.
pub(super) fn all_text(world: &World, index: usize) -> String {
    let outputs = cell(world, index)["outputs"].clone();
    let outputs = outputs.as_array().expect("outputs").clone();
    let lines = outputs
        .iter()
        .filter_map(|output| output["text"].as_array());
    let lines = lines.flatten().filter_map(Value::as_str);
    lines.collect()
}

#[test]
fn a_recorder_that_is_killed_is_noticed_by_the_next_command_and_another_goes_on() {
    let world = notebook(&[GATE, "'after it'"]);
    let id = begin(&world, &["0..2"]);
    kill_recorder(&world, &id);
    // Any command reports it, once to each actor.
    nb(&world, ["cells", "a.ipynb", "--as", "ada"])
        .ended(0)
        .with(&format!("the recorder of job {id} was killed"))
        .with("1 cell after it is not run")
        .with(&format!("nb wait {id}"));
    let again = nb(&world, ["cells", "a.ipynb", "--as", "ada"]).ended(0);
    assert!(!again.stderr.contains("killed"), "{again:?}");
    let output = nb(&world, ["cells", "a.ipynb", "--as", "bob", "--json"]).ended(0);
    assert_eq!(output.json()["lost"][0]["job"], json!(id));
    // The cell still runs, and nothing says otherwise.
    nb(&world, ["wait", &id, "--timeout", "0.1"])
        .ended(4)
        .with("before");
    open_the_gate(&world);
    let ended = nb(&world, ["wait", &id, "--json"]).json();
    assert_eq!(ended["cells"][0]["status"], "ok", "{ended}");
    assert_eq!(ended["cells"][1]["status"], "not_run");
    let text = all_text(&world, 0);
    assert!(text.starts_with("before\n"), "{text}");
    assert!(text.contains("may be missing here"), "{text}");
    assert!(text.ends_with("after\n"), "{text}");
    assert_eq!(cell(&world, 1)["outputs"], json!([]));
    // The next cell does not wait for one that has ended.
    nb(&world, ["exec", "a.ipynb", "1"])
        .ended(0)
        .with("after it");
}

#[test]
fn a_running_cell_is_in_the_notebook_before_it_says_anything() {
    // In the second run the cell prints nothing at its start.
    let code = format!("{GATE}\nos.remove('go')").replace("print('before', flush=True)", "");
    let code = format!("import os\n{code}");
    let world = notebook(&[&code]);
    open_the_gate(&world);
    nb(&world, ["exec", "a.ipynb", "0"]).ended(0);
    assert_eq!(text(&world, 0), "after\n");
    let id = begin(&world, &["0"]);
    let running = until("the file shows that it runs", || {
        let cell = cell(&world, 0);
        (cell["outputs"] == json!([])).then_some(cell)
    });
    assert_eq!(running["execution_count"], Value::Null, "{running}");
    wait_for_state(&world, &id, "running");
    open_the_gate(&world);
    nb(&world, ["wait", &id]).ended(0);
    let ended = cell(&world, 0);
    assert_eq!(ended["execution_count"], 2, "{ended}");
    assert_eq!(text(&world, 0), "after\n");
}

#[test]
fn a_cell_whose_recorder_and_kernel_were_killed_ends_with_an_error() {
    let world = notebook(&[GATE]);
    let id = begin(&world, &["0"]);
    kill_recorder(&world, &id);
    let status = nb(&world, ["status", "--json"]).ended(0).json();
    kill(pid(&status["sessions"][0]));
    nb(&world, ["wait", &id]).ended(6).with("next: nb open");
    let outputs = cell(&world, 0)["outputs"].clone();
    let outputs = outputs.as_array().expect("outputs");
    let error = outputs.last().expect("an output");
    assert_eq!(error["ename"], "KernelDied", "{outputs:?}");
    let text = error["evalue"].as_str().expect("a text");
    assert!(
        text.starts_with("the kernel of a.ipynb was killed"),
        "{text}"
    );
    assert!(all_text(&world, 0).starts_with("before\n"), "{outputs:?}");
}

#[test]
fn a_cell_whose_end_nobody_received_is_not_called_finished() {
    let gate = format!("{GATE}\nopen('over', 'w').close()");
    let world = notebook(&[&gate]);
    let id = begin(&world, &["0"]);
    kill_recorder(&world, &id);
    open_the_gate(&world);
    let over = world.project().join("over");
    until("the cell's end", || over.exists().then_some(()));
    let output = nb(&world, ["wait", &id])
        .ended(1)
        .with("was killed")
        .with("before");
    assert!(!output.stdout.contains("after"), "{output:?}");
    nb(&world, ["jobs"]).ended(0).with("unknown_end");
    assert!(all_text(&world, 0).starts_with("before\n"));
}

#[test]
fn outputs_that_could_not_be_written_stay_in_the_job_and_are_written_when_asked() {
    let world = notebook(&[GATE]);
    set_mode(&file(&world), 0o444);
    let id = begin(&world, &["0"]);
    wait_for_output(&world, &id, "before");
    open_the_gate(&world);
    let command = format!("nb jobs {id} --write");
    nb(&world, ["wait", &id])
        .ended(0)
        .with("read-only")
        .with(&command);
    nb(&world, ["jobs"]).ended(0).with(&command);
    nb(&world, ["jobs", &id, "--write"])
        .ended(1)
        .with("read-only")
        .with(&command);
    assert_eq!(cell(&world, 0)["outputs"], json!([]));
    set_mode(&file(&world), 0o644);
    nb(&world, ["jobs", &id, "--write"]).ended(0);
    assert_eq!(text(&world, 0), "before\nafter\n");
    assert_eq!(cell(&world, 0)["execution_count"], 1);
    let shown = nb(&world, ["jobs", &id]).ended(0);
    assert!(!shown.stdout.contains("not in the notebook"), "{shown:?}");
    // Outputs of a later run stay.
    nb(&world, ["exec", "a.ipynb", "0"]).ended(0);
    nb(&world, ["jobs", &id, "--write"])
        .ended(5)
        .with("run again since");
    assert_eq!(cell(&world, 0)["execution_count"], 2);
    nb(&world, ["edit", "a.ipynb", "0", "-s", "'new'"]).ended(0);
    nb(&world, ["jobs", &id, "--write", "--force"])
        .ended(0)
        .with("says something else by now");
    nb(&world, ["jobs", "--write"])
        .ended(2)
        .with("needs its id");
}

#[test]
fn a_notebook_that_goes_elsewhere_in_mid_run_gets_its_outputs_there() {
    let world = notebook(&[GATE]);
    let id = begin(&world, &["0"]);
    wait_for_output(&world, &id, "before");
    let moved = world.project().join("b.ipynb");
    std::fs::rename(file(&world), &moved).expect("move the notebook");
    open_the_gate(&world);
    nb(&world, ["wait", &id])
        .ended(0)
        .with("there is no notebook")
        .with("nb jobs");
    nb(&world, ["jobs", &id, "b.ipynb", "--write"])
        .ended(0)
        .with("b.ipynb");
    std::fs::rename(&moved, file(&world)).expect("move it back");
    assert_eq!(text(&world, 0), "before\nafter\n");
}

#[test]
fn a_kernel_that_never_answers_keeps_nobody() {
    // No thread of the kernel can run while this holds the GIL, so the thread that reports the cell's start
    // has to run before.
    let holds = "import ctypes, sys\nsys.stdout.flush()\nctypes.PyDLL(None).usleep(300_000_000)";
    let world = notebook(&[holds, "'never'"]);
    let first = begin(&world, &["0"]);
    wait_for_state(&world, &first, "running");
    let second = begin(&world, &["1"]);
    nb(&world, ["wait", &second, "--timeout", "0.5"])
        .ended(4)
        .with("still waiting");
    nb(&world, ["interrupt", &second]).ended(0);
    let answer = nb(&world, ["wait", &second, "--json"]).ended(130).json();
    assert_eq!(answer["cells"][0]["status"], "withdrawn");
    nb(&world, ["interrupt", &first]).ended(0);
    nb(&world, ["wait", &first]).ended(130);
}

#[test]
fn a_kernel_that_somebody_else_restarts_in_mid_cell_leaves_what_was_printed() {
    let world = notebook(&[GATE]);
    let id = begin(&world, &["0"]);
    wait_for_output(&world, &id, "before");
    nb(&world, ["restart", "a.ipynb", "--as", "bob"]).ended(5);
    nb(&world, ["restart", "a.ipynb", "--as", "bob", "--force"]).ended(0);
    nb(&world, ["wait", &id]).ended(6).with("restarted by bob");
    assert!(all_text(&world, 0).starts_with("before\n"));
}

/// Ends the kernel beside a running cell and four jobs that wait. None of them runs, not even on the next kernel, and
/// each says why.
fn end_beside_waiting_jobs(says: &str, end: impl Fn(&World)) {
    let world = notebook(&[GATE]);
    let first = begin(&world, &["0"]);
    wait_for_output(&world, &first, "before");
    let waiting = [1, 2, 3, 4].map(|number| {
        let code = format!("open('ran', 'a').write('{number}')");
        let begun = nb(&world, ["run", "--detach", "--json", &code]).ended(0);
        begun.json()["job"].as_str().expect("an id").to_owned()
    });
    for job in &waiting {
        record(&world, job, "it waits behind the cell", |job| {
            job["behind"].is_string()
        });
    }
    end(&world);
    let python = crate::python::interpreter();
    let open = ["open".as_ref(), "a.ipynb".as_ref(), "--python".as_ref()];
    nb(&world, open.into_iter().chain([python.as_os_str()])).ended(0);
    for job in &waiting {
        nb(&world, ["wait", job])
            .ended(6)
            .with(says)
            .with("Its variables are gone.")
            .with("it was not run");
    }
    assert!(!world.project().join("ran").exists());
    nb(&world, ["run", "'next'"]).ended(0).with("next");
}

#[test]
fn jobs_that_wait_before_a_restart_do_not_run_after_it() {
    end_beside_waiting_jobs("the kernel was restarted by bob", |world| {
        nb(world, ["restart", "a.ipynb", "--as", "bob", "--force"]).ended(0);
    });
}

#[test]
fn jobs_that_wait_before_a_shutdown_do_not_run_after_it() {
    end_beside_waiting_jobs("the kernel was shut down by bob", |world| {
        nb(world, ["shutdown", "a.ipynb", "--as", "bob", "--force"]).ended(0);
    });
}

#[test]
fn jobs_that_wait_before_a_kernel_dies_do_not_run_on_the_next_one() {
    end_beside_waiting_jobs("the kernel of a.ipynb was killed at", |world| {
        let status = nb(world, ["status", "a.ipynb", "--json"]).json();
        kill(pid(&status["sessions"][0]));
    });
}

#[test]
fn a_save_of_the_running_cell_in_between_does_not_take_its_outputs_away() {
    let world = notebook(&[GATE]);
    let old = std::fs::read(file(&world)).expect("read the notebook");
    let id = begin(&world, &["0"]);
    until("outputs in the file", || {
        (cell(&world, 0)["outputs"] != json!([])).then_some(())
    });
    // An editor that has not seen the outputs saves.
    std::fs::write(file(&world), old).expect("save");
    open_the_gate(&world);
    nb(&world, ["wait", &id]).ended(0);
    assert_eq!(text(&world, 0), "before\nafter\n");
}

#[test]
fn what_a_recorder_holds_is_written_when_the_notebook_is_saved() {
    let world = notebook(&[GATE]);
    let id = begin(&world, &["0"]);
    wait_for_output(&world, &id, "before");
    // Without the save, the recorder would not have written yet.
    let saved = nb(&world, ["save", "a.ipynb", "--json"]).ended(0).json();
    assert_eq!(text(&world, 0), "before\n");
    assert_eq!(saved["flushed"][0]["job"], json!(id), "{saved}");
    assert_eq!(saved["flushed"][0]["unwritten"], json!([]));
    nb(&world, ["save", "a.ipynb"])
        .ended(0)
        .with(&format!("job {id} (agent): all its outputs so far"))
        .with("a.ipynb: revision");
    set_mode(&file(&world), 0o444);
    open_the_gate(&world);
    let record = record(&world, &id, "its end", |job| job["state"] == "done");
    assert!(record["cells"][0]["unwritten"].is_string(), "{record}");
    set_mode(&file(&world), 0o644);
    // No recorder holds outputs any more.
    let saved = nb(&world, ["save", "a.ipynb", "--json"]).ended(0).json();
    assert_eq!(saved["flushed"], json!([]), "{saved}");
}

#[test]
fn of_two_executions_of_one_cell_the_later_stays_and_nothing_is_lost() {
    let code = "import os, time\nruns = globals().get('runs', 0) + 1\nprint('begin', runs, flush=True)\n\
        while not os.path.exists(f'go{runs}'): time.sleep(0.01)\nprint('end', runs)";
    let world = notebook(&[code]);
    let begin = |name: &str| {
        let words = ["exec", "a.ipynb", "0", "-d", "--json", "--as", name];
        let answer = nb(&world, words).ended(0).json();
        answer["job"].as_str().expect("a job").to_owned()
    };
    let first = begin("ada");
    wait_for_output(&world, &first, "begin 1");
    let second = begin("bob");
    nb(&world, ["wait", &second, "--timeout", "0.5"])
        .ended(4)
        .with("ada");
    // The earlier job cannot write until the later one runs.
    set_mode(&file(&world), 0o444);
    std::fs::write(world.project().join("go1"), "").expect("open the gate");
    nb(&world, ["wait", &first])
        .ended(0)
        .with("end 1")
        .with("not in the notebook");
    wait_for_output(&world, &second, "begin 2");
    set_mode(&file(&world), 0o644);
    std::fs::write(world.project().join("go2"), "").expect("open the gate");
    nb(&world, ["wait", &second]).ended(0).with("end 2");
    assert_eq!(text(&world, 0), "begin 2\nend 2\n");
    assert_eq!(cell(&world, 0)["execution_count"], 2);
    // The command for the earlier job reports that, and the job's outputs stay recorded.
    nb(&world, ["jobs", &first, "--write"])
        .ended(5)
        .with("run again since");
    let kept = nb(&world, ["wait", &first, "--all", "--as", "ada"]).ended(0);
    assert_eq!(kept.stdout, "begin 1\nend 1\n");
    assert_eq!(text(&world, 0), "begin 2\nend 2\n");
}

#[test]
fn on_a_full_disk_outputs_stay_in_the_job_until_there_is_room() {
    if !crate::skipped::can_mount() {
        return;
    }
    let world = World::new();
    // The project's `.nb` is on another file system, which has room.
    for folder in [".nb", "small"] {
        std::fs::create_dir(world.project().join(folder)).expect("make a folder");
    }
    let script = r#"
        set -e
        mount -t tmpfs -o size=512k tmpfs small
        "$NB_TEST_BINARY" open small/d.ipynb --python "$NB_TEST_PYTHON"
        "$NB_TEST_BINARY" insert small/d.ipynb -s "print('line ' * 20_000)"
        dd if=/dev/zero of=small/filler bs=1k count=4000 2> /dev/null || true
        echo "--- full"
        "$NB_TEST_BINARY" exec small/d.ipynb 0 --json > answer || echo "exec: $?"
        cat answer
        job=$(sed 's/.*"job":"\([0-9a-f]*\)".*/\1/' answer)
        "$NB_TEST_BINARY" jobs "$job"
        "$NB_TEST_BINARY" jobs "$job" --write 2>&1 || echo "write: $?"
        grep -c 'line line' small/d.ipynb || true
        rm small/filler
        echo "--- room"
        "$NB_TEST_BINARY" jobs "$job" --write
        grep -c 'line line' small/d.ipynb
        "$NB_TEST_BINARY" shutdown small/d.ipynb
        ls -A small
    "#;
    let mut command = world.command(std::path::Path::new("unshare"));
    let ran = super::output_of(command.args(["-rm", "sh", "-c", script]));
    eprintln!("{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(ran.code, Some(0));
    let (_, full) = ran.stdout.split_once("--- full\n").expect("it was full");
    let (full, room) = full.split_once("--- room\n").expect("there was room");
    // The job ran, and its message says how to fix it.
    assert!(
        full.contains("its outputs are not in the notebook"),
        "{full}"
    );
    assert!(
        full.contains("write: 1") && full.contains("\n0\n"),
        "{full}"
    );
    assert!(ran.stderr.contains("--write"), "{}", ran.stderr);
    assert!(room.contains("are in ") && room.contains("\n1\n"), "{room}");
    // No partial file is left behind.
    assert!(room.ends_with("d.ipynb\n"), "{room}");
}

#[test]
fn a_question_outlives_the_recorder_that_received_it() {
    let world = notebook(&["print('before', flush=True)\nprint('hi', input('name? '))"]);
    let id = begin(&world, &["0"]);
    wait_for_state(&world, &id, "waiting_input");
    kill_recorder(&world, &id);
    nb(&world, ["wait", &id]).ended(7).with("name? ");
    nb(&world, ["reply", &id, "Ada"]).ended(0).with("hi Ada");
    let text = all_text(&world, 0);
    assert!(
        text.starts_with("before\n") && text.ends_with("hi Ada\n"),
        "{text}"
    );
}

/// Code whose task prints the name of each of these files once it is there, and then makes a file.
fn task(files: &str) -> String {
    format!(
        "import asyncio, os\nasync def late():\n    for name in {files:?}.split():\n        \
         while not os.path.exists(name): await asyncio.sleep(0.01)\n        print(name, flush=True)\n        \
         open(name + '.printed', 'w').close()\n_ = asyncio.create_task(late())\nprint('begun')"
    )
}

/// As `GATE`, while tasks go on.
const OPEN_GATE: &str = "print('before', flush=True)\n\
    while not os.path.exists('go'): await asyncio.sleep(0.01)\nprint('after')";

fn touch(world: &World, name: &str) {
    std::fs::write(world.project().join(name), "").expect("a file");
}

#[test]
fn outputs_after_the_end_of_their_cell_are_recorded() {
    let shown = "shown = display('old', display_id=True)";
    let updates = "async def update():\n    while not os.path.exists('b'): await asyncio.sleep(0.01)\n    \
                   shown.update('new')\n_ = asyncio.create_task(update())";
    let world = notebook(&[&task("a b"), shown, updates, OPEN_GATE]);
    let id = begin(&world, &["0..=2"]);
    nb(&world, ["wait", &id]).ended(0);
    assert_eq!(text(&world, 0), "begun\n");
    // A later job runs meanwhile.
    let later = begin(&world, &["3"]);
    wait_for_output(&world, &later, "before");
    touch(&world, "a");
    until("the first line", || {
        (text(&world, 0) == "begun\na\n").then_some(())
    });
    touch(&world, "b");
    until("the others", || {
        let is_new = cell(&world, 1)["outputs"][0]["data"]["text/plain"] == json!(["'new'"]);
        (is_new && text(&world, 0) == "begun\na\nb\n").then_some(())
    });
    let output = nb(&world, ["wait", &id, "--all"]).ended(0);
    assert!(output.stdout.contains("begun\na\nb\n"), "{output:?}");
    assert_eq!(cell(&world, 0)["execution_count"], 1);
    touch(&world, "go");
    nb(&world, ["wait", &later]).ended(0);
    assert_eq!(text(&world, 3), "before\nafter\n");

    // One process listens, also after the job, and until the kernel ends.
    let listen = || {
        let processes = world.processes().into_iter();
        processes
            .filter(|(_, words)| words.contains("Record"))
            .count()
    };
    until("one recorder", || (listen() == 1).then_some(()));
    nb(&world, ["shutdown", "--force"]).ended(0);
    until("no recorder", || (listen() == 0).then_some(()));
}

#[test]
fn late_outputs_wait_for_the_end_of_their_job() {
    let world = notebook(&[&task("a"), OPEN_GATE]);
    let id = begin(&world, &["--all"]);
    wait_for_output(&world, &id, "before");
    touch(&world, "a");
    until("the task's line", || {
        world.project().join("a.printed").exists().then_some(())
    });
    touch(&world, "go");
    nb(&world, ["wait", &id]).ended(0);
    until("the late line", || {
        (text(&world, 0) == "begun\na\n").then_some(())
    });
    assert_eq!(text(&world, 1), "before\nafter\n");
}

#[test]
fn late_outputs_bring_nothing_back_into_a_cell_that_was_cleared() {
    let threads = task("a b c")
        .replace("await asyncio.sleep", "time.sleep")
        .replace(
            "_ = asyncio.create_task(late())",
            "import threading, time\nthreading.Thread(target=late).start()",
        );
    let world = notebook(&[&threads.replace("async def", "def")]);
    let id = begin(&world, &["0"]);
    nb(&world, ["wait", &id]).ended(0);
    touch(&world, "a");
    until("the first line", || {
        (text(&world, 0) == "begun\na\n").then_some(())
    });
    nb(&world, ["clear", "0"]).ended(0);
    touch(&world, "b");
    wait_for_output(&world, &id, "b\\n");
    touch(&world, "c");
    // The lines before this one are written by now.
    wait_for_output(&world, &id, "c\\n");
    assert_eq!(cell(&world, 0)["outputs"], json!([]));
    wait_for_state(&world, &id, "done");
}
