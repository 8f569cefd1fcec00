//! `nb verify`: a notebook in a fresh kernel beside its own one.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::exec::notebook;
use super::{Output, home, kill, nb, output_of, until};
use crate::python;
use crate::world::{World, is_thorough, succeed};

/// What a command may leave behind.
const NOTHING: &[PathBuf] = &[];

/// Runs `nb verify --json` with the tests' Python.
fn verify(world: &World, words: &[&str]) -> Output {
    output_of(verifying(world, words).arg("--json"))
}

fn verifying(world: &World, words: &[&str]) -> Command {
    let mut command = world.nb();
    command
        .args(["verify", "--python"])
        .arg(python::interpreter());
    command.args(words);
    command
}

/// Returns the verdicts on the cells of the first notebook of an answer.
fn verdicts(answer: &Value) -> Vec<&str> {
    let cells = answer["notebooks"][0]["cells"].as_array().expect("a list");
    cells
        .iter()
        .map(|cell| cell["verdict"].as_str().expect("a word"))
        .collect()
}

/// Returns what an answer says of one cell of the first notebook, by its position among the code cells.
fn verified(answer: &Value, cell: usize) -> &Value {
    &answer["notebooks"][0]["cells"][cell]
}

fn why(answer: &Value, cell: usize) -> String {
    let why = verified(answer, cell)["why"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let texts = why
        .iter()
        .map(|it| it["text"].as_str().expect("a text").to_owned());
    texts.collect::<Vec<_>>().join("; ")
}

/// A code cell that shows an output on stdout.
fn shows(source: &str, text: &str) -> Value {
    let output = json!({"output_type": "stream", "name": "stdout", "text": text});
    ran(source, &json!([output]), &[])
}

/// A code cell that ran.
fn ran(source: &str, outputs: &Value, tags: &[&str]) -> Value {
    json!({"cell_type": "code", "source": source, "outputs": outputs, "execution_count": 1,
           "metadata": {"tags": tags}})
}

/// Writes a notebook into the project.
fn write(world: &World, name: &str, cells: &[Value]) -> PathBuf {
    let notebook = json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4});
    let path = world.project().join(name);
    std::fs::write(&path, notebook.to_string()).expect("write a notebook");
    path
}

/// Returns what lies in the folders of temporary projects.
fn left_behind(world: &World) -> Vec<PathBuf> {
    let state = home(world).join(".local/state/nb");
    let entries = |folder: &str| {
        let entries = std::fs::read_dir(state.join(folder))
            .into_iter()
            .flatten()
            .flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let mut left = entries("projects");
    left.retain(|path| path.to_string_lossy().contains("temporary-"));
    left.extend(entries("temporary"));
    left
}

#[test]
fn the_live_kernel_and_all_files_stay_as_they_are() {
    let world = notebook(&["x = 20", "print(x + 1)", "x"]);
    nb(&world, ["exec", "a.ipynb", "--all"]).ended(0);
    nb(&world, ["run", "-n", "a.ipynb", "live = 41"]).ended(0);
    let folder = world.project();
    // What a command says to each actor once is not a change.
    nb(&world, ["vars", "a.ipynb"]).ended(0);
    let files = || {
        let names = ["a.ipynb", ".nb/state.json", ".nb/journal.jsonl"];
        names.map(|name| std::fs::read(folder.join(name)).expect("read a file"))
    };
    let vars = || nb(&world, ["vars", "a.ipynb", "--json"]).ended(0).json()["variables"].clone();
    let (before, variables) = (files(), vars());
    let output = nb(&world, ["verify", "a.ipynb"]).ended(0);
    assert!(
        output
            .stdout
            .starts_with("a.ipynb: all of 3 cells give what they show · "),
        "{output:?}"
    );
    assert_eq!(output.stdout.lines().count(), 1);
    assert!(
        output.stderr.contains("a.ipynb: 3 cells in a fresh kernel"),
        "{output:?}"
    );
    assert_eq!((files(), vars()), (before, variables));
    nb(&world, ["run", "-n", "a.ipynb", "live + 1"])
        .ended(0)
        .with("42");
    assert_eq!(left_behind(&world), NOTHING);
}

#[test]
fn each_cell_has_its_verdict() {
    let world = World::new();
    let png = |byte: char| {
        json!([{"output_type": "display_data", "metadata": {}, "data": {
        "text/plain": "<IPython.core.display.Image object>", "image/png": format!("iVBORw0KGgo{byte}")}}])
    };
    let picture = "from IPython.display import Image, display\nimport base64\n\
        display(Image(data=base64.b64decode('iVBORw0KGgoA'), format='png'))";
    let never_run = json!({"cell_type": "code", "source": "print('new')", "outputs": [],
                           "execution_count": null, "metadata": {}});
    let two_outputs = json!([
        {"output_type": "stream", "name": "stdout", "text": "1\n"},
        {"output_type": "execute_result", "execution_count": 1, "metadata": {},
         "data": {"text/plain": "'three'"}},
    ]);
    let error = json!([{"output_type": "error", "ename": "ZeroDivisionError",
                        "evalue": "division by zero", "traceback": ["old"]}]);
    write(
        &world,
        "v.ipynb",
        &[
            shows("print('same')", "same\n"),
            shows("print('a')\nprint('b')", "a\nc\n"),
            shows("quiet = 1", "it printed\n"),
            shows("import time; print(time.time_ns())", "1\n"),
            // One output differs each time, and the other is compared.
            ran("print(time.time_ns()); 'two'", &two_outputs, &[]),
            ran(picture, &png('A'), &[]),
            ran(picture, &png('B'), &[]),
            never_run,
            ran("print('any')", &json!([]), &["nb-any-output"]),
            ran("raise SystemExit", &json!([]), &["nb-skip"]),
            ran("1 / 0", &error, &["raises-exception"]),
            json!({"cell_type": "markdown", "source": "# text", "metadata": {}}),
            ran("input('name? ')", &json!([]), &[]),
            shows("print('after')", "after\n"),
        ],
    );
    let answer = verify(&world, &["v.ipynb"]).ended(3).json();
    let expected = [
        "same",
        "differs",
        "nothing_now",
        "not_comparable",
        "differs",
        "same",
        "differs",
        "not_comparable",
        "not_comparable",
        "skipped",
        "same",
        "fails",
        "not_run",
    ];
    assert_eq!(verdicts(&answer), expected, "{answer:#}");
    let difference = &verified(&answer, 1)["difference"];
    assert_eq!(
        difference["lines"],
        json!([{"removed": "c"}, {"added": "b"}])
    );
    assert_eq!(
        verified(&answer, 6)["difference"]["forms"],
        json!(["image/png"])
    );
    let error = &verified(&answer, 11)["error"];
    assert_eq!(error["ename"], "StdinNotImplementedError", "{error}");
    assert_eq!(
        (
            &answer["notebooks"][0]["verdict"],
            &answer["notebooks"][0]["runs"]
        ),
        (&json!("failed"), &json!(2))
    );
    let text = output_of(&mut verifying(&world, &["v.ipynb"])).ended(3);
    for line in [
        "another image (image/png)",
        "quiet = 1: prints nothing now",
        "-c\n+b\n",
        "3 · ",
        "does not support input requests",
        "1 not run",
    ] {
        assert!(text.stdout.contains(line), "no {line:?} in {}", text.stdout);
    }
}

#[test]
fn a_difference_has_a_reason() {
    let world = notebook(&[
        "import os\ndf = [1]",
        "base = 1",
        "print(base)",
        "l = []",
        "l.append(1)",
        "print(l)",
        "print(open('data.txt').read())",
    ]);
    std::fs::write(world.project().join("data.txt"), "old").expect("write a file");
    nb(&world, ["exec", "a.ipynb", "--all"]).ended(0);
    nb(&world, ["exec", "a.ipynb", "4", "5"]).ended(0);
    nb(&world, ["edit", "a.ipynb", "1", "-s", "base = 2"]).ended(0);
    std::fs::write(world.project().join("data.txt"), "new").expect("write a file");
    let answer = verify(&world, &["a.ipynb"]).ended(8).json();
    let expected = [
        "same", "same", "differs", "same", "same", "differs", "differs",
    ];
    assert_eq!(verdicts(&answer), expected, "{answer:#}");
    assert!(
        why(&answer, 2).ends_with(" above was edited")
            && why(&answer, 2).starts_with("ran before "),
        "{answer:#}"
    );
    assert!(
        why(&answer, 5).contains("above was run 2 times, and changes what it reads"),
        "{answer:#}"
    );
    let file = "reads the file data.txt, which has changed since it ran";
    assert_eq!(why(&answer, 6), file, "{answer:#}");
    // What no other tool says: the name of a cell that is gone.
    nb(&world, ["insert", "a.ipynb", "-x", "-s", "print(df)"]).ended(0);
    nb(&world, ["run", "-n", "a.ipynb", "other = 5"]).ended(0);
    nb(&world, ["rm", "a.ipynb", "0"]).ended(0);
    let answer = verify(&world, &["a.ipynb"]).ended(3).json();
    assert_eq!(verdicts(&answer).last(), Some(&"fails"));
    assert_eq!(
        why(&answer, 6),
        "reads df, which a deleted cell made",
        "{answer:#}"
    );
    nb(&world, ["edit", "a.ipynb", "6", "-x", "-s", "print(other)"]).ended(0);
    let text = output_of(&mut verifying(&world, &["a.ipynb"])).ended(3);
    text.with("why: reads other, which code outside the notebook made")
        .with("NameError");
}

#[test]
fn cells_that_ran_in_another_order_are_named() {
    let world = World::new();
    let mut first = shows(
        "try:\n    print(n)\nexcept NameError:\n    print('none')",
        "1\n",
    );
    first["execution_count"] = 2.into();
    let mut second = ran("n = 1", &json!([]), &[]);
    second["execution_count"] = 1.into();
    let mut third = shows("print('x')", "y\n");
    third["execution_count"] = 1.into();
    write(&world, "o.ipynb", &[first, second, third]);
    let answer = verify(&world, &["o.ipynb"]).ended(8).json();
    assert_eq!(verdicts(&answer), ["differs", "same", "differs"]);
    assert!(
        why(&answer, 2).contains("ran as In[1], before In[2] of"),
        "{answer:#}"
    );
}

#[test]
fn a_cell_writes_into_the_copy_and_what_it_changes_outside_is_named() {
    let world = World::new();
    let folder = world.project();
    std::fs::write(folder.join("in.txt"), "text").expect("write a file");
    let large = std::fs::File::create(folder.join("large.bin")).expect("make a file");
    large.set_len(11 << 20).expect("make it large");
    let here = format!("{}\n", folder.canonicalize().expect("a folder").display());
    let cells = [
        shows("import os; print(os.getcwd())", &here),
        shows("print(open('in.txt').read())", "text\n"),
        ran(
            "open('out.txt', 'w').write('1');\nos.remove('in.txt'); os.remove('w.ipynb')",
            &json!([]),
            &[],
        ),
        ran(
            "open('large.bin', 'r+b').write(b'changed');",
            &json!([]),
            &[],
        ),
    ];
    let notebook = write(&world, "w.ipynb", &cells);
    let answer = verify(&world, &["w.ipynb"]).ended(0).json();
    assert_eq!(verdicts(&answer), ["same"; 4], "{answer:#}");
    assert!(folder.join("in.txt").exists() && notebook.exists());
    assert!(!folder.join("out.txt").exists());
    let note = verified(&answer, 3)["notes"][0]
        .as_str()
        .unwrap_or_default();
    assert!(
        note.contains("large.bin changed while it ran"),
        "{answer:#}"
    );
    assert_eq!(
        std::fs::read(folder.join("large.bin")).expect("read it")[..7],
        *b"changed"
    );
    output_of(&mut verifying(&world, &["w.ipynb"]))
        .ended(0)
        .with("large.bin changed while it ran");
    // Where it lies.
    write(&world, "w.ipynb", &cells[..1]);
    let made = ran("open('out.txt', 'w').write('1');", &json!([]), &[]);
    write(&world, "p.ipynb", &[made]);
    verify(&world, &["p.ipynb", "--in-place"]).ended(0);
    assert!(folder.join("out.txt").exists());
}

#[test]
fn what_does_not_end_or_ends_the_kernel_fails() {
    let world = World::new();
    write(
        &world,
        "1.ipynb",
        &[ran("while True: pass", &json!([]), &[])],
    );
    write(
        &world,
        "2.ipynb",
        &[ran("import os; os.kill(os.getpid(), 9)", &json!([]), &[])],
    );
    write(
        &world,
        "3.ipynb",
        &[ran("import no_such_package", &json!([]), &[])],
    );
    let lines = "0123456789abcdef\n".repeat(400_000);
    let prints = format!("print('{}')", "0123456789abcdef\\n' * 400_000 + '");
    write(&world, "4.ipynb", &[shows(&prints, &format!("{lines}\n"))]);
    std::fs::write(world.project().join("5.ipynb"), "<<<<<<< HEAD\n{}").expect("write a file");
    let answer = verify(
        &world,
        &[
            "1.ipynb",
            "2.ipynb",
            "3.ipynb",
            "4.ipynb",
            "5.ipynb",
            "--max-time",
            "2",
        ],
    );
    let answer = answer.ended(3).json();
    let verified = |notebook: usize| &answer["notebooks"][notebook]["cells"][0];
    for (notebook, error) in [
        (0, "KeyboardInterrupt"),
        (1, "KernelDied"),
        (2, "ModuleNotFoundError"),
    ] {
        let cell = verified(notebook);
        assert_eq!(
            (&cell["verdict"], &cell["error"]["ename"]),
            (&json!("fails"), &json!(error))
        );
    }
    assert_eq!(
        verified(0)["notes"][0],
        "it ran longer than 2 s, and was interrupted"
    );
    assert_eq!(
        verified(3)["verdict"],
        "same",
        "{}",
        answer["notebooks"][3]["cells"][0]
    );
    let conflict = answer["notebooks"][4]["error"]["message"]
        .as_str()
        .unwrap_or_default();
    assert!(
        conflict.contains("cannot read"),
        "{}",
        answer["notebooks"][4]
    );
    // Without a kernel there is no verdict.
    nb(&world, ["verify", "1.ipynb", "--python", "/nowhere/python"])
        .ended(1)
        .with("/nowhere/python");
    nb(&world, ["verify", "5.ipynb"]).ended(1).with("5.ipynb");
    nb(&world, ["verify", "none.ipynb"])
        .ended(1)
        .with("none.ipynb");
    assert_eq!(left_behind(&world), NOTHING);
}

#[test]
fn a_sandbox_holds_for_the_fresh_kernel_and_the_live_one_keeps_its_own() {
    let world = World::new();
    let tries = "try:\n    open('out.txt', 'w')\n    print('written')\nexcept OSError:\n    print('refused')";
    write(&world, "s.ipynb", &[shows(tries, "refused\n")]);
    let answer = verify(&world, &["s.ipynb"]).ended(8).json();
    assert_eq!(verdicts(&answer), ["differs"]);
    // Nothing of the kernel is trusted outside of a sandbox because the command has none.
    if crate::skipped::has_bubblewrap() {
        verify(&world, &["s.ipynb", "--sandbox"]).ended(0);
        let mut open = world.nb();
        open.args(["open", "s.ipynb", "--sandbox", "--python"])
            .arg(python::interpreter());
        output_of(&mut open).ended(0);
        let keeps = "import os; open(os.path.expanduser('~/mine'), 'w').write('mine')";
        nb(&world, ["run", "-n", "s.ipynb", keeps]).ended(0);
        // As the notebook's own kernel.
        verify(&world, &["s.ipynb"]).ended(0);
        let reads = "print(open(os.path.expanduser('~/mine')).read())";
        nb(&world, ["run", "-n", "s.ipynb", reads])
            .ended(0)
            .with("mine");
        nb(&world, ["shutdown", "s.ipynb"]).ended(0);
    }
    let scratch = home(&world).join(".local/state/nb/scratch");
    let left = std::fs::read_dir(scratch).into_iter().flatten().count();
    assert_eq!((left, left_behind(&world).len()), (0, 0));
}

/// Begins to verify a notebook whose second cell waits for ever, and waits until that cell runs.
fn begin(world: &World) -> (Child, u32) {
    let begun = world.temporary().join("begun");
    let waits = format!(
        "import os, time\nopen({:?}, 'w').write(str(os.getpid()))\nwhile True: time.sleep(0.1)",
        begun.display().to_string()
    );
    write(
        world,
        "k.ipynb",
        &[
            shows("print('first')", "another\n"),
            ran(&waits, &json!([]), &[]),
        ],
    );
    let mut command = verifying(world, &["k.ipynb"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("start nb");
    let kernel = until("the cell runs", || {
        std::fs::read_to_string(&begun).ok()?.parse().ok()
    });
    (child, kernel)
}

#[test]
fn a_killed_command_leaves_no_kernel_and_the_next_command_removes_its_folder() {
    let world = World::new();
    let (mut child, kernel) = begin(&world);
    assert!(PathBuf::from(format!("/proc/{kernel}")).exists());
    kill(child.id());
    let _ = child.wait();
    let killed = Instant::now();
    until("the kernel has ended", || {
        super::has_ended(kernel).then_some(())
    });
    assert!(
        killed.elapsed() < Duration::from_secs(5),
        "{:?}",
        killed.elapsed()
    );
    assert_eq!(left_behind(&world).len(), 2);
    nb(&world, ["status"]);
    assert_eq!(left_behind(&world), NOTHING);
}

#[test]
fn ctrl_c_ends_the_fresh_kernel_and_prints_what_is_known() {
    let world = World::new();
    let (child, kernel) = begin(&world);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("interrupt it");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        stdout.contains("-another\n+first\n") && stdout.contains("1 not run"),
        "{stdout}"
    );
    until("the kernel has ended", || {
        super::has_ended(kernel).then_some(())
    });
    assert_eq!(left_behind(&world), NOTHING);
}

#[test]
fn each_changed_source_is_found() {
    let world = World::new();
    // Each cell shows what its source printed before one character of the source was changed.
    let count: u32 = match std::env::var_os("NB_TEST_ALL") {
        Some(_) => 1000,
        None => 200,
    };
    let cells = (0..count).map(|at| {
        let text = format!("{:08x}", at.wrapping_mul(2_654_435_761));
        let mut changed = text.clone().into_bytes();
        let place = (at as usize * 7) % changed.len();
        changed[place] = if changed[place] == b'7' { b'8' } else { b'7' };
        let changed = String::from_utf8(changed).expect("ASCII");
        let source = match at % 4 {
            0 => format!("print('{changed}')"),
            1 => format!("import sys; print('{changed}', file=sys.stderr)"),
            2 => format!("'{changed}'"),
            _ => format!("display({{'text/html': '<b>{changed}</b>'}}, raw=True)"),
        };
        let output = match at % 4 {
            0 => json!({"output_type": "stream", "name": "stdout", "text": text + "\n"}),
            1 => json!({"output_type": "stream", "name": "stderr", "text": text + "\n"}),
            2 => json!({"output_type": "execute_result", "execution_count": 1, "metadata": {},
                        "data": {"text/plain": format!("'{text}'")}}),
            _ => json!({"output_type": "display_data", "metadata": {},
                        "data": {"text/html": format!("<b>{text}</b>")}}),
        };
        ran(&source, &json!([output]), &[])
    });
    write(&world, "m.ipynb", &cells.collect::<Vec<_>>());
    let answer = verify(&world, &["m.ipynb"]).ended(8).json();
    assert_eq!(verdicts(&answer), vec!["differs"; count as usize]);
}

#[test]
fn another_language_is_compared_too() {
    let world = World::new();
    let spec = home(&world).join("jupyter/kernels/own-bash");
    std::fs::create_dir_all(&spec).expect("make a folder");
    let argv = json!([
        python::with_languages(),
        "-m",
        "bash_kernel",
        "-f",
        "{connection_file}"
    ]);
    let text = json!({"argv": argv, "display_name": "Bash", "language": "bash"});
    std::fs::write(spec.join("kernel.json"), text.to_string()).expect("write a kernelspec");
    write(
        &world,
        "b.ipynb",
        &[shows("echo one", "one\n"), shows("echo two", "three\n")],
    );
    let words = ["verify", "b.ipynb", "--kernel", "own-bash", "--json"];
    let answer = nb(&world, words).ended(8).json();
    assert_eq!(verdicts(&answer), ["same", "differs"]);
}

/// Runs notebooks twice with nbclient, and compares its verdicts with those of `nb verify`.
fn assert_agrees(world: &World, interpreter: &std::path::Path, folder: &str) -> String {
    let path = world.project().join(folder);
    let mut command = world.nb();
    command
        .args(["verify", folder, "--json", "--max-time", "120", "--python"])
        .arg(interpreter);
    let output = output_of(&mut command);
    assert!(matches!(output.code, Some(0 | 3 | 8)), "{output:#?}");
    let answers = world.temporary().join("answers.json");
    std::fs::write(&answers, &output.stdout).expect("write the answer");
    let mut expected = world.command(interpreter);
    expected
        .arg(python::script("verify.py"))
        .arg(&path)
        .arg(&answers);
    succeed(&mut expected)
}

#[test]
fn verdicts_agree_with_restart_and_run_all_of_nbclient() {
    let world = World::new();
    let folder = world.project().join("corpus");
    std::fs::create_dir(&folder).expect("make a folder");
    let mut make = world.command(python::interpreter());
    make.arg(python::script("like_nbclient.py"))
        .arg("make")
        .arg(&folder);
    succeed(&mut make);
    if !is_thorough() {
        // The one with the most kinds of outputs; all in `scripts/slow verify`.
        for other in ["errors.ipynb", "text.ipynb"] {
            std::fs::remove_file(folder.join(other)).expect("leave a notebook out");
        }
    }
    let mut run = world.command(python::interpreter());
    run.arg(python::script("like_nbclient.py"))
        .arg("run")
        .arg(&folder);
    succeed(&mut run);
    eprintln!("{}", assert_agrees(&world, python::interpreter(), "corpus"));
}

/// How many of the real notebooks are run.
const REAL: usize = 60;

#[test]
#[ignore = "three kernels for each of sixty notebooks take half an hour"]
fn verdicts_on_real_notebooks_agree_with_restart_and_run_all_of_nbclient() {
    let world = World::new();
    let interpreter = python::interpreter();
    let folder = world.project().join("real");
    std::fs::create_dir(&folder).expect("make a folder");
    let mut choose = world.command(interpreter);
    choose.arg(python::script("verify.py")).arg("choose");
    choose
        .arg(crate::notebooks::jupyters_own())
        .arg(&folder)
        .arg(REAL.to_string());
    eprintln!("{}", succeed(&mut choose));
    eprintln!("{}", assert_agrees(&world, interpreter, "real"));
}
