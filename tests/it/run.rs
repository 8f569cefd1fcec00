//! `execution::run` against a real ipykernel: the result of scratch code, and what is left behind.

use std::cell::RefCell;
use std::path::PathBuf;

use nb::client::{Execute, ExecutionEvent as ClientEvent};
use nb::execution::run::{
    ExecutionEvent, FinishedRun, OutputMessage, Prompt, RunError, RunObserver, RunOptions, Runner,
};
use nb::project::event::{CellEnd, EventKind};
use nb::project::{Project, Session};
use nb::wire::{Channel, Transport};
use tokio::sync::Notify;

use crate::client::{Kernel, TIMEOUT, run as block_on};

/// An observer that records everything, answers from a list, and interrupts on request.
#[derive(Default)]
struct Listener {
    answers: RefCell<Vec<&'static str>>,
    asked: RefCell<Vec<String>>,
    /// All text that was printed.
    printed: RefCell<String>,
    /// The errors that were raised.
    raised: RefCell<Vec<String>>,
    /// The text at which to interrupt, when it is printed or asked.
    interrupts_at: Option<&'static str>,
    interrupt: Notify,
    activity: Notify,
}

impl RunObserver for Listener {
    fn on_event(&self, event: &ExecutionEvent) {
        let text = match (event, event.output()) {
            (_, Some(OutputMessage::Stream(stream))) => {
                self.printed.borrow_mut().push_str(&stream.text);
                stream.text
            }
            (_, Some(OutputMessage::Error(error))) => {
                return self.raised.borrow_mut().push(error.ename);
            }
            (ExecutionEvent::Prompt(prompt), _) => prompt.prompt.clone(),
            _ => return,
        };
        self.activity.notify_one();
        if self.interrupts_at.is_some_and(|at| text.contains(at)) {
            self.interrupt.notify_one();
        }
    }

    async fn answer(&self, prompt: Prompt) -> Option<String> {
        self.asked.borrow_mut().push(prompt.prompt);
        if self.interrupts_at.is_some() {
            std::future::pending::<()>().await;
        }
        self.answers.borrow_mut().pop().map(str::to_owned)
    }

    async fn interrupted(&self) {
        self.interrupt.notified().await;
    }
}

/// A project whose notebook has a kernel.
struct World {
    kernel: Kernel,
    project: Project,
    session: Session,
    folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let kernel = Kernel::start(Transport::Ipc);
        // `run` needs a kernel that is up.
        let mut first = kernel.client().await;
        first
            .kernel_info(Channel::Shell, TIMEOUT)
            .await
            .expect("it comes up");
        let folder = tempfile::tempdir().expect("make a folder");
        let project =
            Project::for_notebook(&folder.path().join("a.ipynb")).expect("make a project");
        let session = Session {
            generation: 3,
            ..Session::attached(folder.path().join("a.ipynb"), kernel.file.clone(), None)
        };
        Self {
            kernel,
            project,
            session,
            folder,
        }
    }

    async fn run_with(&self, code: &str, listener: &Listener) -> Result<FinishedRun, RunError> {
        let key = "a.ipynb";
        let mut runner =
            Runner::join(&self.project, key, &self.session, "tests", Some(TIMEOUT)).await?;
        let options = RunOptions {
            code: code.to_owned(),
            cell: None,
            goes_on: false,
            may_ask: true,
        };
        let ran = runner.run(&options, listener).await;
        runner.leave().await;
        ran
    }

    /// Runs code, and returns its result and what it printed.
    async fn run(&self, code: &str) -> (FinishedRun, String) {
        let listener = Listener::default();
        let ran = self.run_with(code, &listener).await;
        (ran.expect("the kernel is there"), listener.printed.take())
    }

    /// Returns the outcome of each event of an execution; `None` for its beginning.
    fn journal(&self) -> Vec<Option<CellEnd>> {
        let events = self.project.all_events().into_iter();
        let statuses = events.map(|event| match event.kind {
            EventKind::Requested(_) => None,
            EventKind::Done(end) => Some(end.status),
            other => panic!("{other:?}"),
        });
        statuses.collect()
    }
}

#[test]
fn the_outcome_is_reported_and_journalled() {
    block_on(async {
        let world = World::new().await;
        let (ran, printed) = world.run("print('a'); 6 * 7").await;
        assert_eq!((ran.status, printed.as_str()), (CellEnd::Ok, "a\n"));
        assert_eq!(ran.execution_count, Some(1));
        let listener = Listener::default();
        let ran = world.run_with("1 / 0", &listener).await;
        assert_eq!(ran.expect("the kernel is there").status, CellEnd::Error);
        assert_eq!(*listener.raised.borrow(), ["ZeroDivisionError"]);

        assert_eq!(
            world.journal(),
            [None, Some(CellEnd::Ok), None, Some(CellEnd::Error)]
        );
    });
}

#[test]
fn behind_anothers_cell_nothing_is_sent() {
    block_on(async {
        let world = World::new().await;
        let mut other = world.kernel.client().await;
        let request = Execute::new("print('busy', flush=True)\nwhile True: pass");
        let mut execution = other.start(&request).await.expect("it is there");
        while !matches!(execution.next().await, Some(ClientEvent::Iopub(_))) {}
        // The user's interrupt while waiting must not affect the other client.
        let impatient = Listener::default();
        impatient.interrupt.notify_one();
        let ran = world
            .run_with("y = 1", &impatient)
            .await
            .expect("the kernel is there");
        assert_eq!(ran.status, CellEnd::Interrupted);
        assert_eq!(world.journal(), []);
        assert!(execution.outcome().is_none());
        execution.interrupt();
        while execution.next().await.is_some() {}
        assert_eq!(world.run("print('y' in dir())").await.1, "False\n");
    });
}

#[test]
fn a_question_is_put_to_the_observer() {
    block_on(async {
        let world = World::new().await;
        let listener = Listener::default();
        *listener.answers.borrow_mut() = vec!["second", "first "];
        let ran = world
            .run_with("print(input('name? ') + input('again? '))", &listener)
            .await
            .expect("the kernel is there");
        assert_eq!(ran.status, CellEnd::Ok);
        assert_eq!(*listener.printed.borrow(), "first second\n");
        assert_eq!(*listener.asked.borrow(), ["name? ", "again? "]);
        // Nobody answers, which is the end of the input.
        let ran = world.run("input()").await.0;
        assert_eq!(ran.status, CellEnd::Error);
    });
}

#[test]
fn an_interrupt_ends_the_code_even_while_it_asks() {
    block_on(async {
        let world = World::new().await;
        for (code, at) in [
            // Printed by another thread: a signal in the middle of ipykernel's own flush may be lost.
            (
                "import threading, time\n\
                 threading.Timer(0.1, print, ['asleep']).start()\n\
                 time.sleep(600)",
                "asleep",
            ),
            ("input('waiting? ')", "waiting"),
        ] {
            let listener = Listener {
                interrupts_at: Some(at),
                ..Listener::default()
            };
            let ran = world
                .run_with(code, &listener)
                .await
                .expect("the kernel is there");
            assert_eq!(ran.status, CellEnd::Interrupted, "{code}: {ran:?}");
        }
        assert_eq!(world.run("print('alive')").await.1, "alive\n");
    });
}

#[test]
fn a_kernel_that_dies_is_told_apart_from_an_error() {
    block_on(async {
        let world = World::new().await;
        let code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)";
        let ran = world.run(code).await.0;
        assert_eq!(ran.status, CellEnd::KernelDied);
        let after = world
            .run_with("1", &Listener::default())
            .await
            .expect_err("it is dead");
        assert!(!after.is_sandboxed(), "{after}");
    });
}

#[test]
fn a_missing_or_damaged_connection_file_is_named() {
    block_on(async {
        let mut world = World::new().await;
        let file: PathBuf = world.folder.path().join("gone.json");
        world.session.connection_file = file.clone();
        for content in [None, Some("{"), Some("{}")] {
            if let Some(content) = content {
                std::fs::write(&file, content).expect("write the file");
            }
            let error = world
                .run_with("1", &Listener::default())
                .await
                .expect_err("no kernel can be reached by it");
            assert!(error.to_string().contains("gone.json"), "{error}");
        }
    });
}

#[test]
fn a_client_does_not_need_to_be_the_first_one() {
    block_on(async {
        let world = World::new().await;
        let (one, two) = tokio::join!(world.run("print(1)"), world.run("print(2)"));
        assert_eq!((one.1.as_str(), two.1.as_str()), ("1\n", "2\n"));
        let counts = [one.0.execution_count, two.0.execution_count];
        assert!(
            counts == [Some(1), Some(2)] || counts == [Some(2), Some(1)],
            "{counts:?}"
        );
    });
}

/// A project in a separate home, with commands of `nb` in it.
struct CommandLine {
    folder: tempfile::TempDir,
}

impl CommandLine {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("make a folder");
        std::fs::create_dir(folder.path().join(".nb")).expect("make a project");
        let line = Self { folder };
        let python = crate::python::interpreter().to_string_lossy().into_owned();
        let (code, output) = line.nb(&["open", "a.ipynb", "--no-serve", "--python", &python], "");
        assert_eq!(code, Some(0), "{output:?}");
        line
    }

    /// Runs `nb`; returns its exit code, stdout and stderr.
    fn nb(&self, arguments: &[&str], stdin: &str) -> (Option<i32>, [String; 2]) {
        use std::io::Write;
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_nb"));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("NB_") || text.starts_with("JUPYTER_") || text.starts_with("XDG_") {
                command.env_remove(&name);
            }
        }
        let mut running = command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("start nb");
        running
            .stdin
            .take()
            .expect("it is piped")
            .write_all(stdin.as_bytes())
            .expect("write the code");
        let output = running.wait_with_output().expect("it ends");
        let streams = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8(bytes).expect("nb writes UTF-8"));
        (output.status.code(), streams)
    }
}

impl Drop for CommandLine {
    fn drop(&mut self) {
        self.nb(&["shutdown", "a.ipynb"], "");
    }
}

#[test]
fn the_command_says_by_its_exit_code_how_it_went() {
    let line = CommandLine::new();
    let (code, [out, err]) = line.nb(&["run", "print('a'); 6 * 7"], "");
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "a\n42\n", ""));
    let (code, [out, _]) = line.nb(&["run", "a.ipynb", "-"], "x = 1\nprint('stdin')");
    assert_eq!((code, out.as_str()), (Some(0), "stdin\n"));

    let (code, [out, err]) = line.nb(&["run", "print('before'); 1 / 0"], "");
    assert_eq!((code, out.as_str()), (Some(3), "before\n"));
    assert!(err.contains("ZeroDivisionError: division by zero"), "{err}");
    assert!(!err.contains('\u{1b}'), "colours off a terminal: {err:?}");

    let (code, [_, err]) = line.nb(&["run", "input('name? ')"], "");
    assert_eq!(code, Some(7));
    assert!(
        err.contains("asks: name? ") && err.contains("nb reply"),
        "{err}"
    );
    let (code, [_, err]) = line.nb(&["interrupt"], "");
    assert_eq!(code, Some(0), "{err}");

    let (code, [_, err]) = line.nb(&["run", "print(1)", "print(2)"], "");
    assert_eq!(code, Some(2), "{err}");
    let (code, [_, err]) = line.nb(&["run", "b.ipynb", "1"], "");
    assert_eq!(code, Some(6), "{err}");
    assert!(err.contains("nb open"), "{err}");

    let long = "print('here', flush=True); import time; time.sleep(600)";
    let (code, [out, err]) = line.nb(&["run", "--timeout", "2", long], "");
    assert_eq!((code, out.as_str()), (Some(4), "here\n"), "{err}");
    assert!(err.contains("nb interrupt"), "{err}");
    let (code, [_, err]) = line.nb(&["run", "--timeout", "1", "y = 1"], "");
    assert_eq!(code, Some(4), "{err}");
    assert!(err.contains("still waiting after 1 s behind "), "{err}");
    let (_, [queued, _]) = line.nb(&["jobs", "--json"], "");
    let jobs: serde_json::Value = serde_json::from_str(&queued).expect("one object");
    let queued = jobs["jobs"]
        .as_array()
        .and_then(|jobs| jobs.last())
        .expect("a job");
    assert_eq!(queued["state"], "queued");
    let queued = queued["id"].as_str().expect("its id");
    let (code, [_, err]) = line.nb(&["interrupt", queued], "");
    assert_eq!(code, Some(0), "{err}");
    let (code, [_, err]) = line.nb(&["wait", queued], "");
    assert_eq!(code, Some(130), "{err}");
    assert!(err.contains("withdrawn"), "{err}");
    let (code, [_, err]) = line.nb(&["interrupt"], "");
    assert_eq!(code, Some(0), "{err}");
    let (code, [out, err]) = line.nb(&["run", "print('y' in dir())"], "");
    assert_eq!((code, out.as_str()), (Some(0), "False\n"), "{err}");

    let (code, [_, err]) = line.nb(&["run", "import os; os.kill(os.getpid(), 9)"], "");
    assert_eq!(code, Some(6), "{err}");
    assert!(
        err.contains("was killed") && err.contains("SIGKILL") && err.contains("nb open"),
        "{err}"
    );
    let (code, [_, err]) = line.nb(&["run", "1"], "");
    assert_eq!(code, Some(6), "{err}");
}

#[test]
fn the_command_prints_bounded_text_or_one_json_object() {
    let line = CommandLine::new();
    let (_, [out, _]) = line.nb(&["run", "for i in range(5000): print('line', i)"], "");
    assert!(out.len() < 6200, "{}", out.len());
    assert!(out.starts_with("line 0\n") && out.ends_with("line 4999\n"));
    assert!(out.contains("[… 4980 similar lines; nb wait "), "{out}");
    let (_, [out, _]) = line.nb(
        &["run", "--stream", "for i in range(5000): print('line', i)"],
        "",
    );
    assert_eq!(out.lines().count(), 5000);

    let (code, [out, _]) = line.nb(&["run", "--json", "print('a'); 1 / 0"], "");
    assert_eq!(code, Some(3));
    let json: serde_json::Value = serde_json::from_str(&out).expect("one object");
    assert_eq!(json["status"], "error");
    assert_eq!(json["stdout"], "a\n");
    assert_eq!(json["error"]["ename"], "ZeroDivisionError");
    assert_eq!(json["kernel_generation"], 1);
    assert!(json["timing"]["duration_ms"].is_number() && json["execution_count"].is_number());

    line.nb(&["restart"], "");
    let (_, [out, _]) = line.nb(&["run", "--json", "1"], "");
    let json: serde_json::Value = serde_json::from_str(&out).expect("one object");
    assert_eq!(json["kernel_generation"], 2, "the variables are gone");
    assert_eq!(json["display_data"][0]["data"]["text/plain"], "1");
}
