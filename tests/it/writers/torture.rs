//! Four `nb` and an editor that writes in place, all at once on one notebook; some of them are killed.

use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{left, look, notebook};
use crate::python;
use crate::world::World;

/// How many edits each writer makes; `NB_TEST_EDITS=1000` is the long run, and `NB_TEST_SEED` varies it.
const EDITS: u64 = 12;

/// How long a command takes, roughly; some are killed within twice that time.
const USUAL: Duration = Duration::from_millis(60);

/// Writers that cannot take the notebook's lock, as in an agent's sandbox.
const SANDBOXED: [&str; 1] = ["four"];

/// An edit that its command reported as done.
#[derive(Debug)]
struct Edit {
    token: String,
    op: String,
}

#[derive(Debug, Default)]
struct Sum {
    done: Vec<Edit>,
    refused: usize,
    killed: usize,
    failed: Vec<String>,
}

/// A small random generator: a seed's run is the same on every machine, except for its timing.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Makes a state folder that has the user's projects, but in which no lock can be taken.
fn without_locks(world: &World) -> std::path::PathBuf {
    let root = world.project().join("..");
    let folders = root.join("home/.local/state/nb/folders");
    let state_home = root.join("read-only");
    std::fs::create_dir_all(&folders).expect("make the user's state folder");
    std::fs::create_dir_all(state_home.join("nb")).expect("make a state folder");
    std::fs::write(state_home.join("nb/locks"), "").expect("make a file");
    std::os::unix::fs::symlink(folders, state_home.join("nb/folders")).expect("make a link");
    state_home
}

/// Makes edits as one actor, one command for each.
fn edits(world: &World, name: &str, count: u64, mut chance: Chance) -> Sum {
    let mut sum = Sum::default();
    let sandboxed = SANDBOXED.contains(&name).then(|| without_locks(world));
    for number in 0..count {
        // A single word, which occurs nowhere else and is not a prefix of another token.
        let token = format!("tok_{name}_{number}_");
        let mut command = world.nb();
        command.env("NB_AS", name);
        if let Some(state_home) = &sandboxed {
            command.env("XDG_STATE_HOME", state_home);
        }
        match chance.below(10) {
            0..4 => command.args(["insert", "t.ipynb", &token, "--type", "raw"]),
            kind => {
                let cell = if kind < 7 { name } else { "shared" };
                let new = format!("{token}\n# end");
                command.args(["edit", "t.ipynb", "-c", cell, "--replace", "# end", &new])
            }
        };
        command.arg("--json");
        let dies = chance.below(7) == 0;
        let after = USUAL * 2 * u32::try_from(chance.below(100)).expect("it is small") / 100;
        match run(&mut command, dies.then_some(after)) {
            None => sum.killed += 1,
            Some((0, answer)) => {
                let op = answer["op"].as_str().unwrap_or_default().to_owned();
                sum.done.push(Edit { token, op });
            }
            // Another writer edited the shared cell meanwhile, or the same line.
            Some((5, _)) => sum.refused += 1,
            Some((code, answer)) => sum.failed.push(format!("{code}: {answer}")),
        }
    }
    sum
}

/// Runs a command to its end, or kills it; returns its exit code and its answer.
fn run(command: &mut Command, dies_after: Option<Duration>) -> Option<(i32, Value)> {
    let out = tempfile::tempfile().expect("make a file");
    let shared = out.try_clone().expect("share it");
    let command = command
        .stdin(Stdio::null())
        .stdout(shared)
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("start nb");
    if let Some(after) = dies_after {
        let end = Instant::now() + after;
        while Instant::now() < end {
            std::thread::yield_now();
        }
        let _ = child.kill();
    }
    let code = child.wait().expect("wait for nb").code()?;
    let mut text = String::new();
    let mut out = out;
    std::io::Seek::rewind(&mut out).expect("rewind");
    std::io::Read::read_to_string(&mut out, &mut text).expect("read");
    Some((
        code,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    ))
}

#[test]
fn nothing_is_lost_of_four_writers_and_an_editor_that_writes_in_place() {
    let count = number("NB_TEST_EDITS").unwrap_or(EDITS);
    let seed = number("NB_TEST_SEED").unwrap_or(4);
    let world = World::new();
    let project = world.project();
    let path = project.join("t.ipynb");
    let names = ["one", "two", "three", "four"];
    let cells = ["one", "two", "three", "four", "shared"].map(|id| (id, "# end"));
    std::fs::write(&path, notebook(&cells)).expect("write the notebook");

    let begun = Instant::now();
    let mut editor = world.command(python::interpreter());
    editor
        .arg(python::script("in_place.py"))
        .arg("--notebook")
        .arg(&path);
    editor.args(["--seed", &seed.to_string(), "--count", &count.to_string()]);
    let alone = project.with_file_name("alone");
    editor.arg("--alone").arg(&alone);
    let (sums, saved) = std::thread::scope(|scope| {
        let editor = scope.spawn(|| crate::world::succeed(&mut editor));
        let writers = names.iter().zip(1..).map(|(name, number): (_, u64)| {
            let chance = Chance((seed * 10 + number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let world = &world;
            scope.spawn(move || edits(world, name, count, chance))
        });
        let writers: Vec<_> = writers.collect();
        let sums = writers
            .into_iter()
            .map(|writer| writer.join().expect("a writer"));
        let sums: Vec<Sum> = sums.collect();
        std::fs::write(&alone, "").expect("write the file");
        (sums, editor.join().expect("the editor"))
    });
    look(&world);
    let took = begun.elapsed();

    let text = std::fs::read_to_string(&path).expect("read the notebook");
    let whole: Value = serde_json::from_str(&text).expect("it is JSON");
    assert!(whole["cells"].as_array().is_some());
    assert_eq!(left(&project), Vec::<String>::new());
    let overwritten = overwritten(&project);
    let absent: Vec<_> = saved
        .lines()
        .filter(|token| !text.contains(token))
        .collect();
    assert_eq!(absent, Vec::<&str>::new(), "the editor's own text is lost");
    assert_eq!(saved.lines().count() as u64, count);
    let done: Vec<_> = sums.iter().flat_map(|sum| &sum.done).collect();
    let missing: Vec<_> = done
        .iter()
        .filter(|edit| !text.contains(&edit.token))
        .collect();
    let lost: Vec<_> = missing
        .iter()
        .filter(|edit| !overwritten.contains(&edit.op))
        .collect();
    let counted = |count: fn(&Sum) -> usize| sums.iter().map(count).sum::<usize>();
    eprintln!(
        "seed {seed}, {took:?}: {} edits done, {} refused, {} killed; {} overwritten by the editor, all of them reported but {}; {} cells",
        done.len(),
        counted(|sum| sum.refused),
        counted(|sum| sum.killed),
        missing.len(),
        lost.len(),
        whole["cells"].as_array().map_or(0, Vec::len),
    );
    let failed: Vec<_> = sums.iter().flat_map(|sum| &sum.failed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(lost.is_empty(), "{lost:#?}");
}

/// Returns the edits that a save overwrote, according to the journal.
fn overwritten(project: &std::path::Path) -> HashSet<String> {
    let journal = std::fs::read_to_string(project.join(".nb/journal.jsonl")).unwrap_or_default();
    let entries = journal
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lists = entries.filter_map(|entry| entry["overwritten"].as_array().cloned());
    let ops = lists
        .flatten()
        .filter_map(|edit| edit["op"].as_str().map(str::to_owned));
    ops.collect()
}
