//! Output whose reader has gone, and the help.

use std::process::Stdio;

use super::{nb, say};
use crate::world::World;

#[test]
fn a_closed_pipe_is_a_quiet_end() {
    let world = World::new();
    nb(&world, ["open", "t.ipynb", "--no-kernel"]).ended(0);
    for words in [
        "status",
        "--help",
        "completions bash",
        "serve",
        "serve --json",
        "log t.ipynb",
        "unserve",
    ] {
        let mut command = world.nb();
        let (reader, writer) = std::io::pipe().expect("make a pipe");
        let second = writer.try_clone().expect("share the pipe");
        drop(reader);
        let child = command
            .args(words.split(' '))
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(second)
            .status()
            .expect("start nb");
        assert!(matches!(child.code(), Some(0 | 1)), "nb {words}: {child}");
    }
}

#[test]
fn completions_are_a_script_that_bash_takes() {
    let world = World::new();
    let script = nb(&world, ["completions", "bash"]).ended(0).out;
    assert!(script.contains("complete -F _nb"), "{script}");
    let mut bash = super::shell(&world, "eval \"$SCRIPT\" && complete -p nb");
    say(bash.env("SCRIPT", script)).ended(0).with("_nb");
}

#[test]
fn the_help_is_one_screen() {
    let world = World::new();
    let mut command = world.nb();
    let help = say(command.arg("--help").env_remove("COLUMNS"))
        .ended(0)
        .out;
    insta::assert_snapshot!(help, @r#"
    People and AI agents on one live Jupyter kernel and one notebook

    `nb open analysis.ipynb` keeps a kernel alive for the notebook; `nb run` uses it from the command
    line, and VS Code and JupyterLab join it by choosing the kernel "nb shared kernel".

    Usage: nb [OPTIONS] <COMMAND>

    Commands:
      open      Open a notebook: create it if needed, and keep a kernel alive for it
      status    Show the kernels of this project, who is joined, and whether front ends find them
      shutdown  End the kernel for good; `nb open` starts another
      cells     List the cells, one line each
      cell      Show cells: their source and their outputs
      insert    Insert a cell: at the end, or where you say
      edit      Edit a cell: the whole text, a part of it, its type or its metadata
      rm        Remove cells
      search    Find text in the cells of notebooks
      undo      Take an edit back: your last one, or the one that OP names
      exec      Run cells in the notebook's kernel, their outputs in the notebook
      run       Run code on the notebook's kernel, outside the notebook
      wait      Follow a job to its end, and print what it says
      help      Show help: of a command, of `all` commands, or for an `agent`

    Options:
      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Options of every command:
      -n, --notebook <NOTEBOOK>
              The notebook that the command means; without it, the only open one [env: NB_NOTEBOOK]

          --as <NAME>
              Act under this name [env: NB_AS]

    nb help all lists all commands, nb help COMMAND tells more of one, with examples.
    nb help agent tells an AI agent how to work with nb.

    Exit codes: 0 done · 1 nb failed · 2 usage · 3 the code raised · 4 still running (no failure) ·
    5 conflict or refused · 6 no kernel, or it died · 7 the code asks (no failure) · 130 interrupted

    A command means the notebook that is named first, else -n, else NB_NOTEBOOK, else the only one
    that is open in the project at or above the working directory.
    "#);
}
