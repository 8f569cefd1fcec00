//! Who acts: an agent on a pseudo-terminal, and the settings of the notebook's project.

use std::process::Command;

use super::{Output, nb, open, output_of};
use crate::python;
use crate::world::World;

/// Runs `nb` on a pseudo-terminal; stdout is what it prints there.
pub(super) fn on_a_terminal(world: &World, mark: Option<&str>, words: &[&str]) -> Output {
    answering(world, mark, "", words)
}

/// Like [`on_a_terminal`], with a line that answers the questions which end with `[y/N] `.
pub(super) fn answering(world: &World, mark: Option<&str>, answer: &str, words: &[&str]) -> Output {
    let nb = world.nb();
    let mut command = Command::new(python::interpreter());
    let script = "import os, pty, sys\n\
                  def read(terminal):\n    \
                  chunk = os.read(terminal, 65536)\n    \
                  if b'[y/N] ' in chunk: os.write(terminal, sys.argv[1].encode() + b'\\n')\n    \
                  return chunk\n\
                  status = pty.spawn(sys.argv[2:], read)\n\
                  sys.exit(os.waitstatus_to_exitcode(status))";
    command.args(["-c", script, answer]).arg(nb.get_program());
    command.args(words).current_dir(world.project());
    for (name, value) in nb.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("TERM", "xterm");
    if let Some(mark) = mark {
        command.env(mark, "1");
    }
    output_of(&mut command)
}

/// The characters of the progress line's spinner.
const SPINNER: [char; 4] = ['⠁', '⠙', '⠚', '⠤'];

#[test]
fn an_agent_on_a_terminal_is_no_person() {
    let world = World::new();
    open(&world, "t.ipynb");
    for mark in ["CLAUDECODE", "CODEX_SANDBOX"] {
        let long = "import time; time.sleep(1.2)";
        let output = on_a_terminal(&world, Some(mark), &["run", "--timeout", "20", long]);
        let output = output.ended(0).with("ok, no output, ");
        assert!(!output.stdout.contains(SPINNER), "{output:?}");
        // Nobody is there to answer.
        let asked = on_a_terminal(&world, Some(mark), &["run", "input('name? ')"]);
        asked.ended(7).with("nb reply");
        nb(&world, ["interrupt", "--force"]).ended(0);
    }
    let long = "import time; time.sleep(1.2)";
    let output = on_a_terminal(&world, None, &["run", "--timeout", "20", long]).ended(0);
    assert!(output.stdout.contains(SPINNER), "{output:?}");
}

#[test]
fn a_name_that_would_begin_a_line_is_refused() {
    let world = World::new();
    nb(&world, ["doctor", "--as", "ada\n2026-01-01 00:00  bo"])
        .ended(2)
        .with("it has control characters");
    output_of(world.nb().arg("doctor").env("NB_AS", "a\u{1b}[2K"))
        .ended(2)
        .with("NB_AS");
}

#[test]
fn settings_are_those_of_the_notebooks_project_wherever_the_command_is_typed() {
    let world = World::new();
    std::fs::create_dir(world.project().join("other")).expect("make a folder");
    let here = world.project().join(".nb/config.toml");
    let settings = world.project().join("other/.nb/config.toml");
    open(&world, "other/t.ipynb");
    open(&world, "t.ipynb");
    std::fs::write(here, "as = \"name-of-here\"\n").expect("write settings");
    std::fs::write(settings, "as = \"name-of-there\"\n").expect("write settings");
    for words in [
        &["insert", "other/t.ipynb", "-s", "1"][..],
        &["insert", "-n", "other/t.ipynb", "-s", "2"],
        &["run", "other/t.ipynb", "3"],
        &["exec", "other/t.ipynb", "0"],
    ] {
        nb(&world, words).ended(0);
    }
    let journal = world.project().join("other/.nb/journal.jsonl");
    let journal = std::fs::read_to_string(journal).expect("read the journal");
    assert_eq!(journal.matches("name-of-here").count(), 0, "{journal}");
    assert!(journal.matches("name-of-there").count() > 3, "{journal}");
    nb(&world, ["insert", "-n", "t.ipynb", "-s", "1"]).ended(0);
    nb(&world, ["shutdown", "other/t.ipynb"]).ended(0);
    let journal = world.project().join(".nb/journal.jsonl");
    let journal = std::fs::read_to_string(journal).expect("read the journal");
    assert!(journal.contains("name-of-here"), "{journal}");
}
