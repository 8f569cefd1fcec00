//! Kernels that exited unexpectedly: why, in whose cell, and to whom it is reported until the next kernel
//! starts.

use super::exec::{cell, notebook};
use super::{Output, kill, nb, open, pid, stat, until};
use crate::world::World;

fn recorded_end(world: &World) -> serde_json::Value {
    // No command asks the kernel: its supervisor records the end.
    let state = world.project().join(".nb/state.json");
    until("its end is written down", || {
        let text = std::fs::read(&state).ok()?;
        let state: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let session = state["sessions"]["t.ipynb"].clone();
        (session["status"] == "died").then(|| session["ended"].clone())
    })
}

fn with_its_end(output: Output) -> Output {
    output
        .with("the kernel of t.ipynb was killed at")
        .with("(SIGKILL) in cell")
}

#[test]
fn an_end_is_noticed_at_once_and_reported_by_every_command_until_the_next_start() {
    let world = World::new();
    let opened = open(&world, "t.ipynb");
    let source = "print('here', flush=True)\nwhile True: pass";
    nb(&world, ["insert", "t.ipynb", "0", source]).ended(0);
    let words = [
        "exec",
        "t.ipynb",
        "0",
        "-d",
        "--json",
        "--as",
        "claude-code",
    ];
    let job = nb(&world, words).json();
    until("it runs", || {
        let output = nb(&world, ["jobs", "--json"]).ended(0);
        output.stdout.contains("\"running\"").then_some(())
    });
    kill(pid(&opened));
    let ended = recorded_end(&world);
    assert_eq!(ended["exit"], serde_json::json!({ "signal": 9 }), "{ended}");
    assert_eq!(ended["job"], job["job"], "{ended}");
    assert_eq!(ended["cell_by"], "claude-code");
    assert!(
        ended["memory_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 10_000_000)
    );

    let output = with_its_end(nb(&world, ["status"]).ended(0));
    output.with(", for claude-code. Outputs until then are kept. next: nb open");
    with_its_end(nb(&world, ["run", "1"]).ended(6)).with("nb open");
    with_its_end(nb(&world, ["cells"]).ended(0));
    with_its_end(nb(&world, ["interrupt"]).ended(6));
    with_its_end(nb(&world, ["vars"]).ended(6));
    let cells = nb(&world, ["cells", "--json"]).ended(0).json();
    assert_eq!(cells["kernel_ended"]["how"]["job"], job["job"]);
    let count = nb(&world, ["run", "1"])
        .stderr
        .matches("was killed")
        .count();
    assert_eq!(count, 1, "it is reported once");

    with_its_end(nb(&world, ["open"]).ended(0)).with("Its variables are gone.");
    let output = nb(&world, ["cells"]).ended(0);
    assert!(!output.stderr.contains("killed"), "{output:?}");
}

/// Kills its kernel the first time that it runs.
const ONCE: &str = "\
import os, signal
print('before', flush=True)
if not os.path.exists('died'):
    open('died', 'w').close()
    os.kill(os.getpid(), signal.SIGKILL)
'ran'";

#[test]
fn a_cell_whose_kernel_died_ends_with_an_error_in_the_notebook() {
    let world = notebook(&[ONCE]);
    let output = nb(&world, ["exec", "a.ipynb", "0"]).ended(6);
    let cause = output.stderr.find("the kernel of a.ipynb was killed at");
    let position = output.stderr.find("Its variables are gone.");
    let next = output.stderr.find("next: nb open");
    assert!(
        cause.is_some() && cause < position && position < next,
        "{output:#?}"
    );
    assert_eq!(
        output.stderr.matches("was killed at").count(),
        1,
        "{output:#?}"
    );

    let died = cell(&world, 0);
    let outputs = died["outputs"].as_array().expect("outputs");
    let error = outputs.last().expect("an output");
    assert_eq!(error["output_type"], "error", "{died}");
    assert_eq!(error["ename"], "KernelDied", "{died}");
    let text = error["evalue"].as_str().expect("a text");
    assert!(text.contains("(SIGKILL) in cell"), "{died}");
    assert!(text.ends_with("Its variables are gone."), "{died}");
    nb(&world, ["cells", "a.ipynb"]).ended(0).with("error");
    nb(&world, ["jobs"]).ended(0).with("kernel_died");

    open(&world, "a.ipynb");
    nb(&world, ["exec", "a.ipynb", "--failed"])
        .ended(0)
        .with("'ran'");
    let ran = cell(&world, 0);
    let outputs = ran["outputs"].to_string();
    assert!(!outputs.contains("KernelDied"), "{ran}");
}

#[test]
fn crashes_and_exits_are_told_apart() {
    let world = World::new();
    for (code, how) in [
        (
            // Bypasses ipykernel, which captures writes to the usual descriptor.
            "import os, sys\n\
             os.write(sys.stderr._original_stdstream_copy, b'last words\\n')\n\
             os.abort()",
            "crashed at",
        ),
        ("import os; os._exit(3)", "ended by itself at"),
    ] {
        open(&world, "t.ipynb");
        nb(&world, ["run", code]).ended(6).with(how);
        let ended = recorded_end(&world);
        let status = nb(&world, ["status"]).ended(0).with(how);
        match how {
            "crashed at" => {
                assert_eq!(ended["reason"], "SIGABRT");
                status.with("  | last words");
            }
            _ => assert_eq!(ended["reason"], "exit status 3"),
        }
    }
}

#[test]
fn without_its_supervisor_a_kernel_lives_on_and_its_end_is_found_later() {
    let world = World::new();
    let opened = open(&world, "t.ipynb");
    let mut supervisors = world.processes().into_iter();
    let supervisor = supervisors.find(|(_, words)| words.contains("nb:supervise"));
    kill(supervisor.expect("it has one").0.unsigned_abs());
    nb(&world, ["run", "print(6 * 7)"]).ended(0).with("42");
    kill(pid(&opened));
    until("it is found", || {
        let output = nb(&world, ["status", "t.ipynb"]);
        (output.code == Some(6)).then_some(())
    });
    nb(&world, ["status"])
        .with("ended at")
        .with("(its process ended)");
    assert_eq!(open(&world, "t.ipynb")["how"], "started");
    nb(&world, ["restart"]).ended(0);
    nb(&world, ["shutdown"]).ended(0);
    assert_eq!(world.processes(), []);
}

#[test]
fn a_kernel_whose_process_is_stopped_is_called_so_with_the_command_that_continues_it() {
    let world = World::new();
    let pid = pid(&open(&world, "t.ipynb"));
    let signal = |signal| {
        let pid = i32::try_from(pid).ok();
        let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("signal it");
    };
    signal(rustix::process::Signal::STOP);
    until("it is stopped", || {
        (stat(pid, 0) == Some('T')).then_some(())
    });
    let says = |words: &[&str], code| {
        let output = nb(&world, words).ended(code);
        output.with(&format!("process {pid} is stopped (kill -CONT {pid} "));
    };
    says(&["status"], 0);
    says(&["run", "1 + 1"], 6);
    says(&["open", "t.ipynb"], 6);
    says(&["interrupt"], 6);
    signal(rustix::process::Signal::CONT);
    nb(&world, ["run", "1 + 1"]).ended(0).with("2");
}
