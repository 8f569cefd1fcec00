//! Counts instructions with valgrind, and compares them with the recorded counts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::cases::Case;

/// The argument with which this program runs one case under valgrind.
pub const RUN: &str = "--run";

/// The share by which a count may rise: hash seeds, and with them collisions, differ in each run.
const TOLERANCE: f64 = 0.10;

/// A case is run for `FEW` rounds, and for `FEW + MORE`: the difference does not contain its start.
const FEW: usize = 8;
const MORE: usize = 8;

pub struct Guard {
    /// Why nothing is counted.
    without: Option<String>,
    /// Why nothing is compared.
    apart: Option<String>,
    known: BTreeMap<String, u64>,
    machine: String,
    counted: Vec<(&'static str, Count)>,
}

/// The instructions for one message.
#[derive(Clone, Copy)]
pub struct Count {
    pub now: Option<u64>,
    pub known: Option<u64>,
}

impl Count {
    /// Returns the change as a share of the known count.
    pub fn change(self) -> Option<f64> {
        let (now, known) = (self.now? as f64, self.known? as f64);
        Some(now / known - 1.0)
    }
}

impl Guard {
    /// Looks for valgrind and reads the recorded counts.
    pub fn begin() -> Self {
        let machine = machine();
        let text = std::fs::read_to_string(table()).unwrap_or_default();
        let of = text.lines().find_map(|line| line.strip_prefix("# of: "));
        let apart = of
            .filter(|of| *of != machine)
            .map(|of| format!("{} are of {of}; this is {machine}", table().display()));
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        let known = rows.filter_map(|line| {
            let (count, name) = line.trim_start().split_once("  ")?;
            Some((name.to_owned(), count.parse().ok()?))
        });
        Self {
            without: missing(),
            apart,
            known: known.collect(),
            machine,
            counted: Vec::new(),
        }
    }

    /// Counts a case's instructions.
    pub fn count(&mut self, case: &Case) -> Count {
        let now = self.without.is_none().then(|| {
            let extra = instructions(case.name, FEW + MORE) - instructions(case.name, FEW);
            extra / (MORE * case.messages()) as u64
        });
        let known = self.known.get(case.name).copied();
        let count = Count { now, known };
        self.counted.push((case.name, count));
        count
    }

    /// Prints the result of the comparison, or records the counts.
    pub fn end(self, write: bool) -> ExitCode {
        if let Some(why) = self.without {
            eprintln!("\nskipped, no instructions counted: {why}");
            return ExitCode::SUCCESS;
        }
        if write {
            return self.write();
        }
        if let Some(apart) = self.apart {
            eprintln!("\nskipped, not compared: {apart}");
            return ExitCode::SUCCESS;
        }
        let risen = |(_, count): &&(&str, Count)| count.change().is_none_or(|it| it > TOLERANCE);
        let risen: Vec<_> = self.counted.iter().filter(risen).collect();
        for (name, count) in &risen {
            match count.change() {
                Some(change) => eprintln!("{name}: {:.1} % more instructions", change * 100.0),
                None => eprintln!("{name}: not written down yet"),
            }
        }
        if !risen.is_empty() {
            eprintln!("Where that is meant, write the counts down: -- --write");
            return ExitCode::FAILURE;
        }
        println!("\nNo count has risen by more than {} %.", TOLERANCE * 100.0);
        ExitCode::SUCCESS
    }

    fn write(&self) -> ExitCode {
        let rows = self.counted.iter().filter_map(|(name, count)| {
            let count = count.now?;
            Some(format!("{count:>9}  {name}\n"))
        });
        let text = format!(
            "# Instructions of one message, by callgrind. `-- --write` writes this.\n# of: {}\n{}",
            self.machine,
            rows.collect::<String>()
        );
        match std::fs::write(table(), text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("cannot write {}: {error}", table().display());
                ExitCode::FAILURE
            }
        }
    }
}

fn table() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/counts.txt"))
}

/// Returns why valgrind cannot be used.
fn missing() -> Option<String> {
    let tried = Command::new("valgrind").arg("--version").output();
    match tried {
        Ok(tried) if tried.status.success() => None,
        _ => Some("there is no valgrind (apt-get install valgrind)".to_owned()),
    }
}

/// Returns what the counts depend on besides the source: the compilation target, the compiler, and the
/// instructions that libraries choose at run time.
fn machine() -> String {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(compiler).arg("--version").output();
    let version = version.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    #[cfg(target_arch = "x86_64")]
    let wide = if std::arch::is_x86_feature_detected!("avx2") {
        " with AVX2"
    } else {
        ""
    };
    #[cfg(not(target_arch = "x86_64"))]
    let wide = "";
    format!(
        "{}{wide}, {}",
        std::env::consts::ARCH,
        version.unwrap_or_default()
    )
}

/// Returns how many instructions this program takes to run a case.
fn instructions(name: &str, rounds: usize) -> u64 {
    let this = std::env::current_exe().expect("this program has a path");
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this)
        .args([RUN, name, &rounds.to_string()])
        .output()
        .expect("valgrind starts");
    let said = String::from_utf8_lossy(&ran.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected :"));
    let count = collected.and_then(|(_, count)| count.trim().parse().ok());
    count.unwrap_or_else(|| panic!("valgrind counted nothing: {said}"))
}
