//! Many calls of each function of `api` from one process, as a server would make them: no thread, no descriptor
//! and no memory is left behind. This is a test binary of its own, since it counts what its
//! process uses.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nb::api::caller::{Caller, CallerSettings};
use nb::api::problem::{Problem, ProblemKind};
use nb::api::{self, CellRequest, CellsRequest, DiffBase, DiffRequest};
use nb::api::{
    EditAnswer, EditPolicy, EditRequest, EventsRequest, GcRequest, OutputForm, SearchRequest,
    SearchScope,
};
use nb::notebook::{CellSelector, Operation};
use nb::project::{Lock, Project, Session, Status};

/// How often each function is called after the calls of the warm-up. What grows with each call is seen in the threads and
/// descriptors of a few calls, and in the memory of many.
fn calls() -> usize {
    if is_thorough() { 1000 } else { 50 }
}

/// How many calls are made before anything is counted: threads and caches of the first calls stay, and a
/// notebook's ledger grows until it holds its last 256 edits, which each thread has in memory in turn.
fn warm_up() -> usize {
    if is_thorough() { 300 } else { 10 }
}

/// Returns whether `scripts/slow` runs this test.
fn is_thorough() -> bool {
    std::env::var_os("NB_TEST_ALL").is_some()
}

/// The number of threads that the runtime has for blocking work, and of those that exist anyway: the
/// process's first thread, and the test's.
const POOL: usize = 4;
const OTHERS: u64 = 2;

/// How much more memory may be in use after a thousand calls, in kB: 2 for each call.
const MEMORY_KB: u64 = 2048;

const NOTEBOOK: &str = r##"{
 "cells": [
  {"cell_type": "code", "execution_count": 1, "id": "3f2c9a1e", "metadata": {},
   "outputs": [{"name": "stdout", "output_type": "stream", "text": ["hello\n"]}],
   "source": ["print('hello')"]},
  {"cell_type": "markdown", "id": "77de0000", "metadata": {}, "source": ["# Title"]}
 ],
 "metadata": {},
 "nbformat": 4,
 "nbformat_minor": 5
}
"##;

#[test]
fn calls_leave_nothing_behind() {
    in_a_home_of_its_own("calls_leave_nothing_behind", call_all);
}

#[test]
fn what_waits_for_a_lock_leaves_its_callers_thread_to_others() {
    let name = "what_waits_for_a_lock_leaves_its_callers_thread_to_others";
    in_a_home_of_its_own(name, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            while_the_state_is_locked(async |caller| {
                let answer = api::status(caller).await?;
                assert_eq!(answer.sessions[0].state, "died");
                Ok(())
            })
            .await;
            while_the_state_is_locked(async |caller| {
                let answer = api::gc(caller, GcRequest::default()).await?;
                assert_eq!(answer.notes, [""; 0]);
                Ok(())
            })
            .await;
        });
    });
}

/// Makes a request that has to record a kernel's end, in a project whose state another task of this thread
/// has locked.
async fn while_the_state_is_locked(request: impl AsyncFnOnce(&Caller) -> Result<(), Problem>) {
    let folder = tempfile::tempdir().expect("make a folder");
    let notebook = folder.path().join("a.ipynb");
    std::fs::write(&notebook, NOTEBOOK).expect("write a notebook");
    let project = Project::for_notebook(&notebook).expect("a project");
    let mut session = Session::local(notebook);
    session.status = Status::Live;
    session.set_process(std::process::id(), 1, None);
    project
        .update(|state| state.sessions.insert("a.ipynb".to_owned(), session))
        .expect("record a session");
    Lock::set_timeout(Duration::from_secs(3));
    let lock = Lock::wait(&project.dir().join("state.lock")).expect("lock the state");
    let unlock = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(lock);
    };
    let caller = caller(folder.path());
    let (answer, ()) = tokio::join!(request(&caller), unlock);
    answer.expect("the lock was free in time");
}

/// Runs a test in a process with its own home folder.
fn in_a_home_of_its_own(name: &str, test: impl FnOnce()) {
    if std::env::var_os("NB_TEST_CALLS").is_some() {
        return test();
    }
    let home = tempfile::tempdir().expect("make a folder");
    let child = Command::new(std::env::current_exe().expect("the test's own program"))
        .args(["--exact", name, "--nocapture"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .env("NB_AS", "ada")
        .env("NB_TEST_CALLS", "1")
        .envs(std::env::var_os("NB_TEST_ALL").map(|all| ("NB_TEST_ALL", all)))
        .status();
    assert!(child.expect("run the test's own program").success());
}

/// The resources that a process uses.
#[derive(Debug)]
struct Usage {
    threads: u64,
    descriptors: usize,
    memory_kb: u64,
}

impl Usage {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").expect("the process's status");
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|word| word.parse().ok()).expect("a number")
        };
        let descriptors = std::fs::read_dir("/proc/self/fd").expect("its descriptors");
        Self {
            threads: number("Threads:"),
            descriptors: descriptors.count(),
            memory_kb: number("RssAnon:"),
        }
    }
}

fn call_all() {
    let folder = tempfile::tempdir().expect("make a folder");
    let notebook = folder.path().join("a.ipynb");
    std::fs::write(&notebook, NOTEBOOK).expect("write a notebook");
    // A thread touches the file once more after an edit within a second of another program's save.
    let saved = std::time::SystemTime::now() - Duration::from_secs(600);
    let file = std::fs::File::options().write(true).open(&notebook);
    let is_set = file.and_then(|file| file.set_modified(saved));
    is_set.expect("make it an older file");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(POOL)
        .build()
        .expect("a runtime");
    for name in [
        "cells",
        "cell",
        "search",
        "diff",
        "edit",
        "events",
        "save",
        "status",
        "meanwhile",
    ] {
        let mut before = None;
        for at in 0..warm_up() + calls() {
            if at == warm_up() {
                before = Some(Usage::now());
            }
            let caller = caller(folder.path());
            runtime.block_on(async {
                if let Err(problem) = call(&caller, name, &notebook, at).await {
                    panic!("{name}: {problem:?}");
                }
                let meanwhile = caller.meanwhile();
                caller.delivered(&meanwhile);
            });
        }
        let (before, after) = (before.expect("it was counted"), Usage::now());
        eprintln!("{name}: {before:?} -> {after:?}");
        assert!(after.threads <= POOL as u64 + OTHERS, "{name}");
        assert!(after.descriptors <= before.descriptors, "{name}");
        if is_thorough() {
            assert!(after.memory_kb <= before.memory_kb + MEMORY_KB, "{name}");
        }
    }
}

fn caller(folder: &Path) -> Caller {
    let settings = CallerSettings {
        notebook: Some(folder.join("a.ipynb")),
        name: Some("ada".to_owned()),
        on_terminal: false,
        working_dir: folder.to_owned(),
        command: "nb".to_owned(),
        progress: |_| {},
        gets_json: false,
        has_own_thread: false,
    };
    Caller::of(settings).expect("a caller")
}

async fn call(caller: &Caller, name: &str, notebook: &Path, at: usize) -> Result<(), Problem> {
    let first = || vec![CellSelector::Index(0)];
    match name {
        "cells" => {
            let answer = api::cells(caller, CellsRequest::default()).await?;
            assert_eq!(answer.cells.len(), 2);
        }
        "cell" => {
            let request = CellRequest {
                cells: first(),
                all: false,
                outputs: OutputForm::Previews(Some(100)),
            };
            api::cell(caller, request).await?;
        }
        "search" => {
            let request = SearchRequest {
                pattern: "hello".to_owned(),
                is_text: true,
                ignores_case: false,
                within: SearchScope::All,
                paths: vec![notebook.to_owned()],
                limit: None,
            };
            assert!(api::search(caller, request).await?.count > 0);
        }
        "diff" => {
            let request = DiffRequest {
                before: DiffBase::Until(notebook.to_owned()),
            };
            assert!(api::diff_notebooks(caller, request).await?.cells.is_empty());
        }
        "edit" => {
            edit(caller, at).await?;
        }
        "events" => {
            let mut events = api::events(caller, EventsRequest::default()).await?;
            let op = edit(caller, at + 1).await?.op;
            let event = events.next().await;
            assert_eq!(event.change().and_then(|change| change.op.clone()), op);
            assert_eq!(events.read(), None);
        }
        "save" => {
            api::save(caller).await?;
        }
        "status" => match api::status(caller).await {
            // The notebook has no kernel.
            Ok(_) => {}
            Err(problem) => assert_eq!(problem.kind, ProblemKind::NoKernel),
        },
        _ => caller.notice().await,
    }
    Ok(())
}

async fn edit(caller: &Caller, number: usize) -> Result<EditAnswer, Problem> {
    let operations =
        format!(r#"[{{"op": "edit", "cell": "3f2c9a1e", "source": "print('hello', {number})"}}]"#);
    let request = EditRequest {
        operations: Operation::read_list(&operations).expect("a list"),
        is_list: true,
        policy: EditPolicy {
            force: true,
            now: true,
        },
    };
    let answer = api::edit(caller, request).await?;
    assert!(answer.conflicts.is_empty());
    Ok(answer)
}
