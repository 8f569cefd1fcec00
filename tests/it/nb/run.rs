//! Scratch code from the command line: a job like those of cells, but outside the notebook.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{kill, nb, open, output_of, shell, until};
use crate::world::World;

/// Code that waits until there is a file `go` beside the notebook.
const GATE: &str = "import os, time\nprint('before', flush=True)\n\
    while not os.path.exists('go'): time.sleep(0.01)\nprint('after')";

fn world() -> World {
    let world = World::new();
    open(&world, "a.ipynb");
    world
}

fn open_the_gate(world: &World) {
    std::fs::write(world.project().join("go"), "").expect("open the gate");
}

/// Returns the job that was submitted last.
fn last_job(world: &World) -> Value {
    let jobs = nb(world, ["jobs", "--json"]).ended(0).json()["jobs"].clone();
    jobs.as_array()
        .and_then(|jobs| jobs.last())
        .cloned()
        .unwrap_or_default()
}

fn detached(world: &World, code: &str) -> String {
    let answer = nb(world, ["run", "-d", "--json", code]).ended(0).json();
    answer["job"].as_str().expect("a job").to_owned()
}

/// Waits until a job has recorded this text.
fn wait_for_output(world: &World, job: &str, text: &str) {
    let events = world
        .project()
        .join(".nb/jobs")
        .join(job)
        .join("events.jsonl");
    until(text, || {
        let log = std::fs::read_to_string(&events).ok()?;
        log.contains(text).then_some(())
    });
}

#[test]
fn code_from_a_file_with_a_byte_order_mark_runs() {
    let world = world();
    let script = "printf '\\357\\273\\277x = 20\\nx + 1\\n' | \"$NB_TEST_BINARY\" run -";
    let output = output_of(&mut shell(&world, script)).ended(0);
    assert_eq!(output.stdout, "21\n");
}

#[test]
fn code_is_a_job_and_stays_out_of_the_notebook() {
    let world = world();
    let file = world.project().join("a.ipynb");
    let before = std::fs::read(&file).expect("read the notebook");
    let output = nb(&world, ["run", "print('a'); 6 * 7"]).ended(0);
    assert_eq!((&output.stdout[..], &output.stderr[..]), ("a\n42\n", ""));
    let id = detached(&world, GATE);
    wait_for_output(&world, &id, "before");
    nb(&world, ["jobs"])
        .ended(0)
        .with("code for a.ipynb · running");
    nb(&world, ["wait", "--timeout", "0.1"])
        .ended(4)
        .with("before");
    open_the_gate(&world);
    let output = nb(&world, ["wait", &id[..4]]).ended(0);
    assert_eq!(output.stdout, "after\n");
    assert_eq!(std::fs::read(&file).expect("read the notebook"), before);
    // Stdin holds the code, so questions are left to `nb reply`.
    let mut piped = shell(
        &world,
        "echo 'input(\"name? \")' | \"$NB_TEST_BINARY\" run -",
    );
    output_of(&mut piped).ended(7).with("the code asks: name? ");
    let id = last_job(&world)["id"].as_str().expect("an id").to_owned();
    nb(&world, ["reply", "-d", &id, "Ada"])
        .ended(0)
        .with("answered");
    nb(&world, ["wait"]).ended(0).with("'Ada'");
}

#[test]
fn nobody_waits_behind_a_question_unaware() {
    let world = world();
    let asks = "print('who are you?')\nname = input('name? ')";
    let mut bobs = world.nb();
    bobs.args(["run", "--detach", "--json", "--as", "bob", asks]);
    let first = output_of(&mut bobs).ended(0).json();
    let first = first["job"].as_str().expect("an id");
    until("a question", || {
        (last_job(&world)["state"] == "waiting_input").then_some(())
    });
    // For ever, if it waited.
    let output = nb(&world, ["run", "--timeout", "0", "name + '!'"]).ended(4);
    let output = output
        .with(&format!("'s code \"print('who are you?')\" (job {first})"))
        .with("(last: \"who are you?\")")
        .with(&format!("job {first} asks: name? "))
        .with(&format!("nb reply {first} TEXT"));
    assert_eq!(output.stdout, "");
    nb(&world, ["reply", first, "Ada"]).ended(0);
    // One's own job is meant, whoever else has one.
    nb(&world, ["wait"]).ended(0).with("'Ada!'");
}

#[test]
fn a_question_that_was_just_interrupted_holds_up_nobody() {
    let world = world();
    for round in 0..4 {
        nb(&world, ["run", "input('name? ')"]).ended(7);
        let output = nb(&world, ["interrupt"]).ended(0);
        output
            .with("interrupted (by signal) · ")
            .with("'s code \"input('name? ')\" ended");
        let output = nb(&world, ["run", &format!("{round} + 1")]).ended(0);
        assert_eq!(output.stdout, format!("{}\n", round + 1));
    }
}

#[test]
fn an_interrupt_says_what_it_ended_and_what_runs_now() {
    let world = world();
    let caught = "import os, time\nfor n in range(2):\n    try:\n        print('in', flush=True)\n        \
                  while True: time.sleep(0.01)\n    except KeyboardInterrupt:\n        \
                  while not os.path.exists(f'on{n}'): time.sleep(0.01)";
    let goes_on = |file: &str| {
        std::fs::write(world.project().join(file), "").expect("let it go on");
    };
    let first = detached(&world, caught);
    wait_for_output(&world, &first, "in");
    let second = detached(&world, GATE);
    let answer = nb(&world, ["interrupt", "--json"]).ended(0).json();
    assert_eq!(answer["goes_on"], true);
    assert_eq!(answer["stopped"], Value::Null);
    assert_eq!(answer["running"]["job"], *first);
    goes_on("on0");
    until("the second round", || {
        let stdout = nb(&world, ["wait", &first, "--all", "--timeout", "0.1"]).stdout;
        (stdout.matches("in").count() == 2).then_some(())
    });
    nb(&world, ["interrupt", &first])
        .ended(0)
        .with("still runs · next: nb wait");
    goes_on("on1");
    nb(&world, ["wait", &first]).ended(0);
    wait_for_output(&world, &second, "before");
    let answer = nb(&world, ["interrupt", "--json"]).ended(0).json();
    assert_eq!(answer["goes_on"], false);
    assert_eq!(answer["stopped"]["job"], *second);
    assert_eq!(answer["running"], Value::Null);
    // An idle kernel gets no signal.
    let log = || nb(&world, ["log", "--json"]).ended(0).json()["log"].clone();
    let before = log();
    nb(&world, ["interrupt"])
        .ended(0)
        .with("a.ipynb: nothing runs\n");
    let answer = nb(&world, ["interrupt", "--json"]).ended(0).json();
    assert_eq!(answer["interrupted"], false);
    assert_eq!(log(), before);
}

#[test]
fn an_interrupt_ends_a_job_that_is_about_to_begin() {
    let world = world();
    for _ in 0..4 {
        let id = detached(&world, GATE);
        let answer = nb(&world, ["interrupt", "--json"]).ended(0).json();
        assert_eq!(answer["interrupted"], true);
        nb(&world, ["wait", &id]).ended(130);
    }
}

#[test]
fn an_interrupt_that_costs_the_kernel_its_reply_ends_the_job_as_interrupted() {
    let without_reply = "import time\nsession = get_ipython().kernel.session\nsend = type(session).send\n\
        def without_reply(stream, message, *rest, **more):\n\
        \x20   if message != 'execute_reply': return send(session, stream, message, *rest, **more)\n\
        session.send = without_reply\nprint('before', flush=True)\n";
    let with_error = "while True: time.sleep(0.01)";
    // ipykernel publishes no error if the signal comes between its own steps.
    let without_error = "try:\n    while True: time.sleep(0.01)\n\
        except KeyboardInterrupt:\n    pass";
    // Each waits for the reply until `nb` gives it up, after ten seconds.
    std::thread::scope(|scope| {
        for waits in [without_error, with_error] {
            scope.spawn(move || {
                let world = world();
                let id = detached(&world, &format!("{without_reply}{waits}"));
                wait_for_output(&world, &id, "before");
                nb(&world, ["interrupt"]).ended(0);
                nb(&world, ["wait", &id]).ended(130);
            });
        }
    });
}

#[test]
fn whoever_asked_may_go() {
    let world = world();
    for (signal, round) in [("HUP", 1), ("KILL", 2)] {
        let _ = std::fs::remove_file(world.project().join("go"));
        let mut run = world.nb();
        run.args(["run", "--stream", &format!("round = {round}\n{GATE}")]);
        run.stdout(Stdio::null()).stderr(Stdio::null());
        let mut run = run.spawn().expect("run nb");
        let id = until("a job that runs", || {
            let job = last_job(&world);
            let is_new = job["cells"][0]["code"]
                .as_str()?
                .contains(&format!("round = {round}"));
            (is_new && job["state"] == "running").then(|| job["id"].as_str().map(str::to_owned))?
        });
        wait_for_output(&world, &id, "before");
        match signal {
            "KILL" => kill(run.id()),
            signal => {
                let mut command = Command::new("kill");
                command.args(["-s", signal, &run.id().to_string()]);
                output_of(&mut command).ended(0);
            }
        }
        run.wait().expect("it ends");
        open_the_gate(&world);
        let output = nb(&world, ["wait", &id, "--all"]).ended(0);
        assert_eq!(output.stdout, "before\nafter\n");
    }
}

#[test]
fn a_line_is_waited_for() {
    let world = world();
    let id = detached(
        &world,
        &format!("print('epoch 1')\n{GATE}\nprint('epoch 2: ok'); 1/0"),
    );
    let output = nb(&world, ["wait", "--until", "^before$"]).ended(0);
    output
        .with("matched: before")
        .with(&format!("job {id} goes on"));
    nb(&world, ["wait", "--until", "never", "--timeout", "0.1"]).ended(4);
    open_the_gate(&world);
    let output = nb(&world, ["wait", "--until", r"epoch (?<n>\d): ok"]).ended(0);
    assert!(output.stdout.starts_with("after\n"), "{output:?}");
    // The next command shows what follows the matched line; without a match it reports the job's own end.
    let answer = nb(&world, ["wait", "--until", "epoch", "--json"])
        .ended(3)
        .json();
    assert_eq!(answer["until"], json!({"regex": "epoch", "matched": null}));
    assert_eq!(answer["error"]["ename"], "ZeroDivisionError");
    detached(&world, "print('fine')");
    nb(&world, ["wait", "--until", "bad"])
        .ended(1)
        .with("no line of it matches bad");
    nb(&world, ["wait", "--until", "fine", "--all"])
        .ended(0)
        .with("matched: fine");
    nb(&world, ["wait", "--until", "("])
        .ended(2)
        .with("regex parse error");
}

#[test]
fn events_are_printed_as_they_happen() {
    let world = world();
    let output = nb(&world, ["run", "--events", "print(1); 1 / 0"]).ended(3);
    let events: Vec<Value> = output
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let kinds: Vec<_> = events
        .iter()
        .filter_map(|event| event["event"].as_str())
        .collect();
    let end = &kinds[kinds.len() - 4..];
    assert_eq!(end, ["output", "output", "cell", "end"], "{output:#?}");
    assert_eq!(kinds[0], "state");
    // The job's state comes before its outputs.
    assert!(kinds[..kinds.len() - 4].iter().all(|kind| *kind == "state"));
    let outputs: Vec<_> = events
        .iter()
        .filter(|event| event["event"] == "output")
        .collect();
    assert_eq!(outputs[0]["content"]["text"], "1\n");
    assert_eq!(outputs[1]["content"]["ename"], "ZeroDivisionError");
    let last = &events[events.len() - 1];
    assert_eq!(
        (&last["state"], &last["status"]),
        (&json!("done"), &json!("error"))
    );
    assert!(last.get("stdout").is_none(), "{last}");
    let output = nb(
        &world,
        ["run", "--stream", "for i in range(3000): print(i)"],
    )
    .ended(0);
    assert_eq!(output.stdout.lines().count(), 3000);
    nb(&world, ["run", "--stream", "--json", "1"]).ended(2);
}

#[test]
fn code_that_runs_too_long_ends() {
    let world = world();
    let output = nb(
        &world,
        ["run", "--max-time", "0.3", "import time; time.sleep(60)"],
    );
    output
        .ended(130)
        .with("it ran longer than 0.3 s, and was interrupted");
    nb(&world, ["run", "--max-time", "0", "--timeout", "0", "1"]).ended(0);
    nb(&world, ["run", "--max-time=-1", "1"]).ended(2);
    nb(&world, ["run", "--timeout=-1", "1"]).ended(2);
}

/// Returns a cell's outputs in the file.
fn outputs(world: &World, cell: usize) -> Vec<Value> {
    let text = std::fs::read(world.project().join("a.ipynb")).expect("read the notebook");
    let notebook: Value = serde_json::from_slice(&text).expect("JSON");
    notebook["cells"][cell]["outputs"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

fn text(output: &Value) -> String {
    let lines = output["text"].as_array().into_iter().flatten();
    lines.filter_map(Value::as_str).collect()
}

#[test]
fn of_endless_output_the_notebook_has_both_ends_and_the_job_all() {
    let world = world();
    let code = "for i in range(100_000): print('line', i)";
    nb(&world, ["insert", "a.ipynb", code]).ended(0);
    let words = [
        "exec",
        "a.ipynb",
        "0",
        "--max-output",
        "50k",
        "--timeout",
        "0",
    ];
    let output = nb(&world, words).ended(0);
    assert!(output.stdout.len() < 7000, "{}", output.stdout.len());
    assert!(output.stdout.starts_with("line 0\n") && output.stdout.ends_with("line 99999\n"));
    let left_out = output
        .stdout
        .lines()
        .find(|line| line.starts_with("‣ […"))
        .expect("a note");
    let shown = output.stdout.lines().count() - 1;
    assert!(
        left_out.contains(&format!("{} lines left out", 100_000 - shown)),
        "{left_out}"
    );
    let outputs = outputs(&world, 0);
    let [head, note, tail] = &outputs[..] else {
        panic!("{outputs:?}");
    };
    let (head, tail) = (text(head), text(tail));
    assert!(head.starts_with("line 0\n") && tail.ends_with("line 99999\n"));
    assert!((40_000..60_000).contains(&(head.len() + tail.len())));
    let id = last_job(&world)["id"].as_str().expect("an id").to_owned();
    let whole = format!("nb wait {id} --all --stream");
    assert!(text(note).contains(&whole), "{note}");
    let words: Vec<_> = whole.split(' ').skip(1).collect();
    let all = nb(&world, words).ended(0).stdout;
    let wanted: String = (0..100_000).map(|i| format!("line {i}\n")).collect();
    assert_eq!(all, wanted);
    nb(&world, ["exec", "a.ipynb", "0", "--max-output", "much"])
        .ended(2)
        .with("not an amount");
}

#[test]
fn what_is_no_text_is_kept() {
    let world = world();
    // The kernel sends the last character as a byte that is not UTF-8.
    let code = "import os, time\nprint(os.urandom(300_000).decode('latin-1'))\n\
        print('\\x00\\x1b[31m end \\udcff')";
    let answer = nb(&world, ["run", "--json", code]).ended(0).json();
    let text = answer["stdout"].as_str().expect("a text");
    assert!(
        text.ends_with(" end \u{fffd}\n"),
        "{:?}",
        text.get(text.len() - 20..)
    );
    nb(&world, ["wait", "--all", "--stream"])
        .ended(0)
        .with(" end ");
}
