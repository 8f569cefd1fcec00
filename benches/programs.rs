//! Compares whole programs: they run alternately, and a table has the medians.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// A program of a comparison.
#[derive(Debug, Default, serde::Serialize)]
pub struct Program {
    #[serde(skip)]
    name: String,
    run: Vec<String>,
    before: Vec<Vec<String>>,
    after: Vec<Vec<String>>,
}

impl Program {
    /// Makes a program that is run with these words; `{run}` in them is the number of the run.
    pub fn new(name: &str, run: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            run: words(run),
            ..Self::default()
        }
    }

    /// Adds a command that is run before each run and not counted.
    pub fn before(mut self, command: &[&str]) -> Self {
        self.before.push(words(command));
        self
    }

    /// Adds a command that is run after each run and not counted.
    pub fn after(mut self, command: &[&str]) -> Self {
        self.after.push(words(command));
        self
    }
}

/// Prints the head of the table.
pub fn head() {
    println!(
        "{:<44}{:>12}{:>7}{:>12}{:>7}{:>9}{:>7}",
        "", "wall", "ratio", "CPU", "ratio", "peak MB", "ratio"
    );
}

/// Runs the programs alternately and prints a row for each: its costs, and the ratio of the first one's
/// costs to them. Returns the same as JSON. `python` runs the programs, in an environment that `world`
/// prepares.
pub fn compare(
    title: &str,
    runs: usize,
    python: &Path,
    world: impl FnOnce(&mut Command),
    programs: &[Program],
) -> Value {
    let asked = json!({"runs": runs, "programs": programs});
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/programs.py");
    let mut command = Command::new(python);
    command.arg(script);
    world(&mut command);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("run the interpreter");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin
        .write_all(asked.to_string().as_bytes())
        .expect("write the commands");
    drop(stdin);
    let done = child.wait_with_output().expect("wait for the interpreter");
    assert!(done.status.success(), "{title}: a program failed");
    let taken: Vec<[f64; 3]> = serde_json::from_slice(&done.stdout).expect("lists of numbers");
    println!("{title} (medians of {runs})");
    let ours = taken.first().copied().unwrap_or_default();
    let rows = programs.iter().zip(&taken).enumerate();
    let rows = rows.map(|(number, (program, theirs))| {
        let [wall, cpu, peak] = [0, 1, 2].map(|at| match number {
            0 => String::new(),
            _ => format!("{:.2}", ours[at] / theirs[at]),
        });
        let [seconds, cpu_seconds, kilobytes] = *theirs;
        println!(
            "  {:<42}{:>9.1} ms{wall:>7}{:>9.1} ms{cpu:>7}{:>9.0}{peak:>7}",
            program.name,
            seconds * 1e3,
            cpu_seconds * 1e3,
            kilobytes / 1024.0,
        );
        json!({"name": program.name, "wall_s": seconds, "cpu_s": cpu_seconds, "peak_kb": kilobytes})
    });
    let rows: Vec<_> = rows.collect();
    json!({"what": title, "runs": runs, "programs": rows})
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
