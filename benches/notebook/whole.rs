//! Whole programs: `nb`, `nb-cli` (whose program is also named `nb`), and scripts that use nbformat.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::programs::{Program, compare, head};
use crate::python;

/// How often each program is run: those that take a few milliseconds more often.
const QUICK: usize = 60;
const SLOW: usize = 15;

/// Makes the same edit as the programs, with nbformat.
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

/// Prints a table of the times for listing and editing, from start to end of each program.
pub fn rows(folder: &Path, small: &str, large: &str) -> Vec<Value> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("write a notebook");
        path.display().to_string()
    };
    let own = env!("CARGO_BIN_EXE_nb");
    let interpreter = python::interpreter();
    let python = interpreter.display().to_string();
    let other = installed();
    if other.is_none() {
        println!("nb-cli is not installed: NB_CLI names its program");
    }
    let world = |command: &mut Command| {
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if name_text.starts_with("NB_") || name_text.starts_with("XDG_") {
                command.env_remove(&name);
            }
        }
        command
            .current_dir(folder)
            .env("HOME", folder)
            .env("NB_AS", "bench");
    };
    head();
    let file = write("list.ipynb", small);
    let listed = Program::new("nb cells", &[own, "cells", &file]);
    let mut programs = vec![listed];
    if let Some(other) = &other {
        let words = [other, "read", &file, "--no-output"];
        programs.push(Program::new("nb-cli read --no-output", &words));
        programs.push(Program::new("nb-cli read", &words[..3]));
    }
    let quick = compare("list 1,000 cells", QUICK, interpreter, world, &programs);
    programs.truncate(1);
    programs.push(Program::new("nbformat", &[&python, "-c", LIST, &file]));
    let beside_python = compare("the same", SLOW, interpreter, world, &programs);
    // Each program has its own file, since each writes in its own style.
    let [ours, theirs, pythons] = ["a.ipynb", "b.ipynb", "c.ipynb"].map(|name| write(name, large));
    let edit = [own, "edit", &ours, "50", "x = {run}"];
    let mut programs = vec![Program::new("nb edit", &edit)];
    if let Some(other) = &other {
        let at = ["--cell-index", "50", "--source", "x = {run}"];
        let words = [&[other, "cell", "update", &theirs], &at[..]].concat();
        programs.push(Program::new("nb-cli cell update", &words));
    }
    let edited = compare("one edit in 48 MB", SLOW, interpreter, world, &programs);
    // A separate comparison, as above: while another program runs for two seconds, a virtual machine may
    // return the first one's memory to its host, which slows down the next run.
    programs.truncate(1);
    let words = [&python, "-c", NBFORMAT, &pythons, "50", "x = {run}"];
    programs.push(Program::new("nbformat", &words));
    let edited_beside_python = compare("the same", SLOW, interpreter, world, &programs);
    vec![quick, beside_python, edited, edited_beside_python]
}

/// Returns the path of nb-cli's program, if `NB_CLI` names one.
fn installed() -> Option<String> {
    let path = PathBuf::from(std::env::var_os("NB_CLI")?);
    path.is_file().then(|| path.display().to_string())
}
