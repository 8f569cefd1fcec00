//! Eight tasks of an agent: how many calls they take, and how many bytes the agent has to read.
//!
//! `cargo bench --bench agents` prints one table and then the same as JSON. Each task of `tasks.txt` is a fixed list
//! of calls. It is done with the commands of `nb`, with the tools of `nb mcp`, and with nb-cli if `NB_CLI` names its
//! program. What counts is what the agent reads: stdout and stderr of commands, the text of tools' results. Words on
//! the command line select tasks.

#![allow(
    unreachable_pub,
    dead_code,
    reason = "a bench has no outside, and shares the tests' Python"
)]

#[path = "../../tests/it/made.rs"]
mod made;
#[path = "../../tests/it/python.rs"]
mod python;

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The ways of doing a task, with the width of their columns.
const WAYS: [&str; 3] = ["nb", "mcp", "nb-cli"];

fn main() {
    let args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let words: Vec<_> = args.collect();
    if words.iter().any(|word| word == "--list") {
        return; // asked by test runners
    }
    let folder = tempfile::tempdir().expect("make a folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/agents/run.py");
    let nb_cli = std::env::var("NB_CLI").unwrap_or_else(|_| "-".to_owned());
    let mut command = Command::new(python::with_libraries());
    command.arg(script).arg(folder.path().join("world"));
    command
        .args([env!("CARGO_BIN_EXE_nb"), &nb_cli])
        .args(words);
    let done = command.stdout(Stdio::piped()).output();
    let done = done.expect("run the interpreter");
    assert!(done.status.success(), "a task failed");
    let rows: Vec<Value> = serde_json::from_slice(&done.stdout).expect("a list of tasks");
    let title = |row: &Value| row["task"].as_str().unwrap_or_default().to_owned();
    print!("{:<48}", "calls / bytes");
    WAYS.iter().for_each(|way| print!("{way:>16}"));
    println!();
    for row in &rows {
        print!("{:<48}", title(row));
        for way in WAYS {
            let cost = &row[way];
            let text = match (cost["calls"].as_u64(), cost["bytes"].as_u64()) {
                (Some(calls), Some(bytes)) => format!("{calls} / {bytes}"),
                _ => "–".to_owned(),
            };
            print!("{text:>16}");
        }
        println!();
    }
    println!("\n{}", Value::from(rows));
}
