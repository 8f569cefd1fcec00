//! Output whose reader has gone, and the help.

use std::process::Stdio;

use super::{nb, output_of};
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
fn arguments_that_make_no_sense_are_a_problem_in_json() {
    let world = World::new();
    for words in [
        &["cells", "--bogus", "--json"][..],
        &[
            "open", "t.ipynb", "--kernel", "a", "--python", "b", "--json",
        ],
        &["shutdown", "--json", "--idle", "soon"],
    ] {
        let problem = nb(&world, words).ended(2).json();
        let error = &problem["error"];
        assert_eq!(error["kind"], "usage", "{words:?}");
        assert_ne!(error["message"], "", "{words:?}");
        assert_ne!(error["hints"], serde_json::json!([]), "{words:?}");
    }
    nb(&world, ["servr", "--json"]).ended(2).json();
    nb(&world, ["cells", "--help", "--json"])
        .ended(0)
        .with("Usage: nb cells");
}

#[test]
fn the_help_of_a_part_of_a_command_is_shown() {
    let world = World::new();
    let help = |words: &[&str]| nb(&world, ["help"].iter().chain(words));
    help(&["agent", "install"])
        .ended(0)
        .with("nb agent install");
    help(&["server", "add"]).ended(0).with("nb server add");
    help(&["agent"]).ended(0).with("nb help COMMAND");
    help(&["server", "nonsense"])
        .ended(2)
        .with("there is no command \"server nonsense\"");
    nb(&world, ["open", "t.ipynb", "--no-kernel"]).ended(0);
    nb(&world, ["exec", "t.ipynb"])
        .ended(2)
        .with("no cell is named: an index like 3 or -1")
        .with("nb exec t.ipynb --all runs all cells");
}

#[test]
fn completions_are_a_script_that_bash_takes() {
    let world = World::new();
    let script = nb(&world, ["completions", "bash"]).ended(0).stdout;
    assert!(script.contains("complete -F _nb"), "{script}");
    let mut bash = super::shell(&world, "eval \"$SCRIPT\" && complete -p nb");
    output_of(bash.env("SCRIPT", script)).ended(0).with("_nb");
}

#[test]
fn an_agents_program_is_told_of_nb_and_the_agent_can_be_asked_first() {
    let world = World::new();
    let file = world.project().join(".mcp.json");
    nb(&world, ["agent", "install", "claude"])
        .ended(2)
        .with(".mcp.json: created")
        .with("nothing was written: --yes writes");
    assert!(!file.exists());
    let install = ["agent", "install", "claude", "codex", "--yes"];
    nb(&world, install).ended(0).with("4 files written");
    nb(&world, install).ended(0).with("nothing to change");
    assert!(
        std::fs::read_to_string(&file)
            .expect("read it")
            .contains("\"mcp\"")
    );
    nb(
        &world,
        ["agent", "install", "claude", "codex", "--remove", "--yes"],
    )
    .ended(0)
    .with("4 files written");
    nb(
        &world,
        ["agent", "install", "gemini", "--only", "mcp", "--yes"],
    )
    .ended(0)
    .with(".gemini/settings.json: created")
    .with("1 file written");
    nb(&world, ["agent", "install", "gemini", "--remove", "--yes"]).ended(0);
    let left = std::fs::read_dir(world.project()).expect("it is there");
    let left: Vec<_> = left.flatten().map(|it| it.file_name()).collect();
    assert!(left.iter().all(|name| name == ".nb"), "{left:?}");
    nb(&world, ["agent", "install", "clippy"])
        .ended(2)
        .with("claude, codex, copilot, cursor, gemini");
}
