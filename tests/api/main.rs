//! A thousand calls of each function of `api` from one process, as a server would make them: no thread, no
//! descriptor and no memory is left behind. By itself, since it counts what its process has.

use std::path::Path;
use std::process::Command;

use nb::api::caller::{Caller, Given};
use nb::api::problem::Problem;
use nb::api::{self, CellRequest, CellsRequest, DiffBase, DiffRequest, EditPolicy, EditRequest};
use nb::api::{OutputForm, SaveRequest, SearchRequest, SearchScope, StatusRequest};
use nb::notebook::{CellSelector, Operation};

/// How often each function is called.
const CALLS: usize = 1000;

/// How often before anything is counted: threads and caches of the first calls stay.
const WARM_UP: usize = 20;

/// How many threads the runtime has for work that blocks; and those that are there anyhow: the process's
/// first, and the test's.
const POOL: usize = 4;
const OTHERS: u64 = 2;

/// How much more memory may be in use after them, in kB: 4 a call.
const MEMORY_KB: u64 = 4096;

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
fn a_thousand_calls_leave_nothing_behind() {
    if std::env::var_os("NB_TEST_CALLS").is_some() {
        return call_all();
    }
    // In a process with a home of its own.
    let home = tempfile::tempdir().expect("make a folder");
    let child = Command::new(std::env::current_exe().expect("the test's own program"))
        .args([
            "--exact",
            "a_thousand_calls_leave_nothing_behind",
            "--nocapture",
        ])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .env("NB_AS", "ada")
        .env("NB_TEST_CALLS", "1")
        .status();
    assert!(child.expect("run the test's own program").success());
}

/// What a process has.
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
        "save",
        "status",
        "meanwhile",
    ] {
        let mut before = None;
        for at in 0..WARM_UP + CALLS {
            if at == WARM_UP {
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
        assert!(after.memory_kb <= before.memory_kb + MEMORY_KB, "{name}");
    }
}

fn caller(folder: &Path) -> Caller {
    let given = Given {
        in_words: None,
        notebook: Some(folder.join("a.ipynb")),
        name: Some("ada".to_owned()),
        on_terminal: false,
        here: folder.to_owned(),
        command: "nb".to_owned(),
        tell: |_| {},
    };
    Caller::of(given).expect("a caller")
}

async fn call(caller: &Caller, name: &str, notebook: &Path, at: usize) -> Result<(), Problem> {
    let first = || vec![CellSelector::index(0)];
    match name {
        "cells" => {
            let answer = api::cells(caller, CellsRequest::default()).await?;
            assert_eq!(answer.cells.len(), 2);
        }
        "cell" => {
            let request = CellRequest {
                notebook: None,
                cells: first(),
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
                notebook: None,
                before: DiffBase::Until(notebook.to_owned()),
            };
            assert!(api::diff_notebooks(caller, request).await?.cells.is_empty());
        }
        "edit" => {
            let operations = format!(
                r#"[{{"op": "edit", "cell": "3f2c9a1e", "source": "print('hello', {at})"}}]"#
            );
            let request = EditRequest {
                notebook: None,
                operations: Operation::read_list(&operations).expect("a list"),
                is_list: true,
                policy: EditPolicy {
                    force: true,
                    now: true,
                },
            };
            let answer = api::edit(caller, request).await?;
            assert!(answer.conflicts.is_empty());
        }
        "save" => {
            api::save(caller, SaveRequest::default()).await?;
        }
        "status" => match api::status(caller, StatusRequest::default()).await {
            // The notebook has no kernel.
            Ok(_) => {}
            Err(problem) => assert_eq!(problem.kind.as_str(), "no-kernel"),
        },
        _ => caller.notice().await,
    }
    Ok(())
}
