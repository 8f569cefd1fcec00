//! Whole programs: `nb` beside `nb-cli` (its name is `nb` too) and a script that uses nbformat.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::python;

const RUNS: usize = 11;

/// The same edit as the programs', with nbformat.
const NBFORMAT: &str = "
import sys, nbformat
notebook = nbformat.read(sys.argv[1], 4)
notebook.cells[int(sys.argv[2])].source = sys.argv[3]
nbformat.write(notebook, sys.argv[1])
";

/// Lists the cells with nbformat.
const LIST: &str = "
import sys, nbformat
for index, cell in enumerate(nbformat.read(sys.argv[1], 4).cells):
    print(index, cell.id, cell.cell_type, cell.get('execution_count'), cell.source.split('\\n')[0], len(cell.get('outputs', [])))
";

/// Prints a table of what listing and editing takes, from start to end of each program.
pub fn rows(folder: &Path, small: &str, large: &str) {
    println!(
        "\n{:<34}{:>10}{:>10}{:>8}{:>9}{:>8}",
        "programs", "nb", "other", "ratio", "peak MB", "ratio"
    );
    let other = installed();
    if other.is_none() {
        println!("nb-cli is not installed: NB_CLI names it");
    }
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("write a notebook");
        path.display().to_string()
    };
    let python = python::interpreter().display().to_string();
    let own = env!("CARGO_BIN_EXE_nb").to_owned();
    let name = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let file = write("list.ipynb", small);
    let mut commands: Vec<(&str, Vec<String>)> = vec![
        ("list 1,000 cells", name(&[&own, "cells", &file])),
        ("nbformat", name(&[&python, "-c", LIST, &file])),
    ];
    if let Some(other) = &other {
        commands.push(("nb-cli read", name(&[other, "read", &file])));
        commands.push((
            "nb-cli read --no-output",
            name(&[other, "read", &file, "--no-output"]),
        ));
    }
    print(folder, &commands);
    // Each has a file of its own: they write them in styles of their own.
    let files = ["a.ipynb", "b.ipynb", "c.ipynb"].map(|name| write(name, large));
    let mut commands: Vec<(&str, Vec<String>)> = vec![
        (
            "one edit in 48 MB",
            name(&[&own, "edit", &files[0], "50", "x = {run}"]),
        ),
        (
            "nbformat",
            name(&[&python, "-c", NBFORMAT, &files[1], "50", "x = {run}"]),
        ),
    ];
    if let Some(other) = &other {
        let words = [
            "cell",
            "update",
            &files[2],
            "--cell-index",
            "50",
            "--source",
            "x = {run}",
        ];
        let words = [&[other.as_str()], &words[..]].concat();
        commands.push(("nb-cli cell update", name(&words)));
    }
    print(folder, &commands);
}

/// Runs the commands in turns, and prints a row for each but the first, with the first beside it.
fn print(folder: &Path, commands: &[(&str, Vec<String>)]) {
    let words: Vec<_> = commands.iter().map(|(_, words)| words).collect();
    let asked = json!({"runs": RUNS, "commands": words});
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/notebook/programs.py");
    let mut child = Command::new(python::interpreter())
        .arg(script)
        .current_dir(folder)
        .env("HOME", folder)
        .env("NB_AS", "bench")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("run the interpreter");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin
        .write_all(asked.to_string().as_bytes())
        .expect("write the commands");
    drop(stdin);
    let done = child.wait_with_output().expect("wait for the interpreter");
    assert!(done.status.success(), "a program failed");
    let taken: Vec<(f64, f64)> = serde_json::from_slice(&done.stdout).expect("pairs of numbers");
    let Some((seconds, peak)) = taken.first() else {
        return;
    };
    let title = commands.first().map_or("", |(title, _)| title);
    for ((name, _), (other, other_peak)) in commands.iter().zip(&taken).skip(1) {
        println!(
            "{:<34}{:>7.1} ms{:>7.1} ms{:>8.3}{:>9}{:>8.3}",
            format!("{title}: {name}"),
            seconds * 1e3,
            other * 1e3,
            seconds / other,
            format!("{:.0}/{:.0}", peak / 1024.0, other_peak / 1024.0),
            peak / other_peak,
        );
    }
}

/// Returns the path of nb-cli's program, where `NB_CLI` names one.
fn installed() -> Option<String> {
    let path = PathBuf::from(std::env::var_os("NB_CLI")?);
    path.is_file().then(|| path.display().to_string())
}
