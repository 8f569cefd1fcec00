//! The path of a person who has never seen `nb`: from the README's first command to a variable that VS Code and an
//! agent share.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::world::{World, finish, succeed};
use crate::{node, python};

/// How many commands the person and the agent may type.
const COMMANDS: usize = 6;

/// A shell of a person with an empty home, who counts what is typed.
struct Stranger {
    world: World,
    typed: Vec<String>,
}

impl Stranger {
    /// Runs a command line as this actor; returns whether it succeeded, and all that it printed.
    fn types(&mut self, actor: &str, line: &str) -> (bool, String) {
        self.typed.push(line.to_owned());
        let mut command = self.world.command(Path::new("bash"));
        command.args(["--noprofile", "--norc", "-c", line]);
        command.env("PATH", self.path()).env("NB_AS", actor);
        let (status, out, err) = finish(&mut command);
        let output = out + &err;
        eprintln!("$ {line}\n{output}");
        (status.success(), output)
    }

    /// Runs a cell in a window of VS Code.
    fn runs_in_vscode(&self, notebook: &str, code: &str, output: &str) {
        let mut command = self.world.node("vscode_cell.js").expect("there is npm");
        let (status, out, err) = finish(command.args([notebook, code, output]));
        assert!(status.success(), "{out}\n{err}");
    }

    /// Returns this machine's `PATH`, behind the folder into which cargo installs and the person's Python.
    fn path(&self) -> OsString {
        let path = std::env::var_os("PATH").expect("there is a PATH");
        let own = [".cargo/bin", "python/bin"].map(|folder| self.home().join(folder));
        let all = own
            .into_iter()
            .chain(std::env::split_paths(&path).filter(|folder| !holds_nb(folder)));
        std::env::join_paths(all).expect("they were joined before")
    }

    /// Makes the person's Python, which has pip alone. This machine's own is not used: `--install` would
    /// install into it.
    fn has_a_python(&self) {
        let python = self.home().join("python");
        succeed(Command::new("cp").arg("-R").arg(python::bare()).arg(python));
    }

    fn home(&self) -> PathBuf {
        let project = self.world.project();
        project.parent().expect("the world's folder").join("home")
    }
}

fn holds_nb(folder: &Path) -> bool {
    folder.join("nb").exists()
}

/// Returns the lines of the README's first block of commands with their outputs.
fn first_block() -> Vec<&'static str> {
    let mut lines = include_str!("../../README.md").lines();
    lines.find(|line| *line == "```console");
    lines.take_while(|line| *line != "```").collect()
}

#[test]
fn from_the_first_command_to_a_shared_variable_takes_six_commands() {
    if node::modules().is_none() {
        return;
    }
    let mut stranger = Stranger {
        world: World::new(),
        typed: Vec::new(),
    };
    stranger.has_a_python();
    let start = Instant::now();

    // The first command, whose compilation is not part of this: the programs are built already.
    let install = "cargo install --path .";
    assert!(include_str!("../../README.md").contains(&format!("## Install\n\n`{install}`")));
    stranger.typed.push(install.to_owned());
    let bin = stranger.home().join(".cargo/bin");
    std::fs::create_dir_all(&bin).expect("make the folder");
    for (name, built) in [
        ("nb", env!("CARGO_BIN_EXE_nb")),
        ("nb-proxy", env!("CARGO_BIN_EXE_nb-proxy")),
    ] {
        std::os::unix::fs::symlink(built, bin.join(name)).expect("install it");
    }

    // The second one. The Python has no ipykernel, so that it says what to type.
    let open = first_block()[0];
    let open = open.strip_prefix("$ ").expect("a command").to_owned();
    let (opened, output) = stranger.types("human", &open);
    let hint = format!("hint: {open} --install runs that");
    assert!(!opened && output.contains(&hint), "{output}");
    let (opened, output) = stranger.types("human", &format!("{open} --install"));
    assert!(opened, "{output}");
    stranger.runs_in_vscode("analysis.ipynb", "found = 41\nprint(found)", "41\n");

    // An agent uses the person's variable in the notebook, and the person sees the agent's.
    let cell = "answer = found + 1; print(answer)";
    let (inserted, output) =
        stranger.types("claude", &format!("nb insert analysis.ipynb '{cell}'"));
    assert!(inserted, "{output}");
    let (ran, output) = stranger.types("claude", "nb exec analysis.ipynb 0");
    assert!(ran && output.contains("42"), "{output}");
    stranger.runs_in_vscode("analysis.ipynb", "print(found, answer)", "41 42\n");
    let notebook = std::fs::read_to_string(stranger.world.project().join("analysis.ipynb"));
    assert!(notebook.expect("it is there").contains("\"42\\n\""));

    let took = start.elapsed();
    let (ended, output) = stranger.types("human", "nb shutdown analysis.ipynb");
    assert!(ended, "{output}");
    let count = stranger.typed.len();
    println!(
        "a shared variable after {} commands and {:.1} s",
        count - 1,
        took.as_secs_f64()
    );
    assert!(count <= COMMANDS, "{count} commands: {:#?}", stranger.typed);
}
