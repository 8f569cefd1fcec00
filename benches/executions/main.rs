//! The cost of running code through `nb`, compared with a bare client and with other programs that run
//! notebooks.
//!
//! `cargo bench --bench executions` prints one table and then the same as JSON. On a warm kernel, `nb run`
//! and `nb exec` alternate with this program as a bare client: it connects, sends the same requests to the
//! same kernel, waits for each reply and its idle, and writes nothing. On a cold start, `nb` opens a
//! notebook and runs all of it; nb-cli (if `NB_CLI` names its program), nbclient and papermill run a copy
//! each. The table also shows how long the kernel alone takes to start and answer: no program can be
//! faster. A second table says how much of `nb open` is the kernel's own time; the argument `opening`
//! prints only that one.

#![allow(
    unreachable_pub,
    dead_code,
    reason = "a bench has no outside, and shares the tests' Python"
)]

mod bare;
#[path = "../proxy/client.rs"]
mod client;
#[path = "../../tests/it/made.rs"]
mod made;
mod opening;
#[path = "../proxy/process.rs"]
mod process;
#[path = "../programs.rs"]
mod programs;
#[path = "../../tests/it/python.rs"]
mod python;

use std::path::{Path, PathBuf};
use std::process::Command;

use programs::{Program, compare, head};
use serde_json::{Value, json};

/// How often each program is run: fast ones more often.
const QUICK: usize = 40;
const SLOW: usize = 9;

/// How many cells the notebook on the warm kernel has.
const CELLS: usize = 100;

/// The data folder with the user's kernelspecs, in the bench's own home.
const DATA: &str = "home/.local/share/jupyter";

/// The other programs that run notebooks.
const OTHERS: &str = "ipykernel==7.4.0\nnbclient==0.11.0\npapermill==2.7.0\n";

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    match (args.next().as_deref(), args.next(), args.next()) {
        (Some("--bare"), Some(project), Some(notebook)) => bare::run(&project, &notebook),
        (Some("--start"), Some(python), _) => bare::start(&python),
        (Some(opening::KERNEL), Some(moments), Some(python)) => {
            opening::kernel(&moments, &python, args);
        }
        (Some("--list"), ..) => {} // asked by test runners
        (Some("opening"), ..) => {
            let table = opening::table(&World::new(), env!("CARGO_BIN_EXE_nb"));
            println!("\n{table}");
        }
        _ => table(),
    }
}

fn table() {
    let world = World::new();
    let own = env!("CARGO_BIN_EXE_nb");
    let this = std::env::current_exe().expect("this program's path");
    let this = this.display().to_string();
    let project = world.project.display().to_string();
    let environment = |command: &mut Command| world.prepare(command);
    let run = |title: &str, runs, programs: &[Program]| {
        compare(title, runs, python::interpreter(), environment, programs)
    };
    head();

    let one = world.notebook("one.ipynb", &["1+1".to_owned()]);
    world.succeed(own, &["open", &one]);
    let bare = [&*this, "--bare", &project, &one];
    let warm = run(
        "nb run 1+1, warm kernel",
        QUICK,
        &[
            Program::new("nb run", &[own, "run", "-n", &one, "1+1"]),
            Program::new("bare client", &bare),
        ],
    );
    world.succeed(own, &["shutdown", &one]);

    let cells: Vec<_> = (0..CELLS)
        .map(|cell| format!("x = {cell}\nx + 1"))
        .collect();
    let many = world.notebook("many.ipynb", &cells);
    world.succeed(own, &["open", &many]);
    let bare = [&*this, "--bare", &project, &many];
    let hundred = run(
        "100 small cells, warm kernel",
        SLOW,
        &[
            Program::new("nb exec --all", &[own, "exec", &many, "--all"]),
            Program::new("bare client", &bare),
        ],
    );
    world.succeed(own, &["shutdown", &many]);

    let cells = [
        "import json",
        "x = 1",
        "x + 1",
        "print('a line')",
        "json.dumps({'x': x})",
    ];
    let cells = cells.map(str::to_owned);
    let [ours, theirs, jupyters, papers] = ["ours", "theirs", "jupyters", "papers"]
        .map(|name| world.notebook(&format!("{name}.ipynb"), &cells));
    let both = format!("'{own}' open {ours} && '{own}' exec {ours} --all");
    let mut programs = vec![
        Program::new("nb open, nb exec --all", &["sh", "-c", &both])
            .after(&[own, "shutdown", &ours]),
    ];
    if let Some(other) = installed() {
        programs.push(Program::new(
            "nb-cli execute",
            &[&other, "execute", &theirs],
        ));
    }
    let jupyter = world.others.join("jupyter-execute").display().to_string();
    programs.push(Program::new(
        "nbclient",
        &[&jupyter, "--inplace", &jupyters],
    ));
    let papermill = world.others.join("papermill").display().to_string();
    let words = [&*papermill, "--no-progress-bar", &papers, "out.ipynb"];
    programs.push(Program::new("papermill", &words));
    let words = [&*this, "--start", &world.python];
    programs.push(Program::new("the kernel alone, until it answers", &words));
    let cold = run("5 cells, cold start", SLOW, &programs);
    let open = opening::table(&World::new(), own);
    println!("\n{}", json!([warm, hundred, cold, open]));
}

/// A home and a project for the bench.
struct World {
    root: tempfile::TempDir,
    project: PathBuf,
    /// The interpreter of the kernels.
    python: String,
    /// The folder of the other programs.
    others: PathBuf,
}

impl World {
    fn new() -> Self {
        let environment = made::once("bench-python", &[OTHERS], |home| {
            let wanted = home.join("requirements.txt");
            std::fs::write(&wanted, OTHERS).expect("write the requirements");
            made::run(Command::new("python3").args(["-m", "venv"]).arg(home));
            let mut pip = Command::new(home.join("bin/python"));
            pip.args(["-m", "pip", "install", "--quiet", "-r"]);
            made::run(pip.arg(&wanted));
        });
        let root = tempfile::tempdir().expect("make a folder");
        let project = root.path().join("project");
        let python = environment.join("bin/python").display().to_string();
        // nb-cli looks here too; it does not use JUPYTER_DATA_DIR.
        std::fs::create_dir_all(&project).expect("make a folder");
        let world = Self {
            root,
            project,
            python,
            others: environment.join("bin"),
        };
        let launcher = ["-m", "ipykernel_launcher", "-f", "{connection_file}"];
        world.spec(&[&[&*world.python], &launcher[..]].concat());
        world
    }

    /// Sets the command that starts the notebooks' kernel.
    fn spec(&self, argv: &[&str]) {
        let folder = self.root.path().join(DATA).join("kernels/python3");
        std::fs::create_dir_all(&folder).expect("make a folder");
        let spec = json!({ "argv": argv, "display_name": "Python 3", "language": "python" });
        std::fs::write(folder.join("kernel.json"), spec.to_string()).expect("write a spec");
    }

    /// Writes a notebook of code cells, and returns its name.
    fn notebook(&self, name: &str, sources: &[String]) -> String {
        let cells = sources.iter().enumerate().map(|(number, source)| {
            json!({
                "cell_type": "code", "id": format!("cell-{number}"), "metadata": {},
                "execution_count": null, "outputs": [], "source": source,
            })
        });
        let cells: Vec<Value> = cells.collect();
        let spec = json!({"name": "python3", "display_name": "Python 3", "language": "python"});
        let notebook = json!({
            "cells": cells, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5,
        });
        std::fs::write(self.project.join(name), notebook.to_string()).expect("write a notebook");
        name.to_owned()
    }

    /// Makes a command run in this world, without its user's own settings.
    fn prepare(&self, command: &mut Command) {
        let own = ["NB_", "JUPYTER", "JPY_", "IPYTHON", "XDG_", "PYTHON"];
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if own.iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        let home = self.root.path().join("home");
        command
            .current_dir(&self.project)
            .env("HOME", &home)
            .env("JUPYTER_DATA_DIR", self.root.path().join(DATA))
            .env("JUPYTER_RUNTIME_DIR", home.join("runtime"))
            .env("IPYTHONDIR", home.join("ipython"))
            .env("NB_AS", "bench");
    }

    fn succeed(&self, program: &str, words: &[&str]) {
        let mut command = Command::new(program);
        self.prepare(&mut command);
        let done = command.args(words).output().expect("run a program");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            done.status.success(),
            "{words:?} ended with {}: {said}",
            done.status
        );
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Ends the kernels also after a panic of the bench.
        let mut command = Command::new(env!("CARGO_BIN_EXE_nb"));
        self.prepare(&mut command);
        let _ = command
            .args(["shutdown", "--idle", "0s", "--force"])
            .output();
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Returns the path of nb-cli's program, if `NB_CLI` names one.
fn installed() -> Option<String> {
    let path = PathBuf::from(std::env::var_os("NB_CLI")?);
    Path::is_file(&path).then(|| path.display().to_string())
}
