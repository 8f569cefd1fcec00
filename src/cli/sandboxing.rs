//! The sandbox on the command line: what is asked for, and what is told of it.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::fault::Fault;
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::sandbox::{Confinement, checked};
use crate::project::{Demand, Mechanism, Sandbox};

/// How a sandbox is made.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum How {
    /// Every promise is kept, or the kernel is not started
    Strict,
    /// What cannot be promised here is told, and the kernel starts all the same
    BestEffort,
    /// As strict, by bubblewrap's namespaces only
    Bubblewrap,
    /// As strict, by Landlock's rules only
    Landlock,
}

/// The options of `nb open` that make a sandbox.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sandbox")]
pub(super) struct Sandboxing {
    /// Start the kernel in a sandbox: no network, the workspace read-only
    ///
    /// The kernel sees the project's folder and its own programs, and nothing else of your files;
    /// it writes only its scratch folder, which is its HOME and TMPDIR; it reaches no network, no
    /// other program's sockets and no other process. People and agents use it like any other, and
    /// it stays in the sandbox over restarts. Bubblewrap makes it where it works, Landlock
    /// elsewhere. Every promise is tried from inside before the kernel begins, and it is not
    /// started where one does not hold. Not promised: that it uses no processor time, disk space
    /// or, without --memory, memory; that it learns nothing from how long things take; what it
    /// prints is shown to you as any kernel's output.
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, require_equals = true,
          default_missing_value = "strict", conflicts_with_all = ["install", "attach", "kernel_of", "no_kernel"])]
    sandbox: Option<How>,
    /// Start a kernel that was in a sandbox before in none
    #[arg(long, conflicts_with_all = ["sandbox", "attach", "kernel_of", "no_kernel"])]
    no_sandbox: bool,
    /// Let the sandboxed kernel write this folder too
    #[arg(long, value_name = "DIR", requires = "sandbox")]
    allow_write: Vec<PathBuf>,
    /// Let the sandboxed kernel read this folder too
    #[arg(long, value_name = "DIR", requires = "sandbox")]
    allow_read: Vec<PathBuf>,
    /// Let the sandboxed kernel use the network
    #[arg(long, requires = "sandbox")]
    allow_net: bool,
    /// Give the sandboxed kernel this many processors
    #[arg(long, value_name = "N", requires = "sandbox", value_parser = cpus)]
    cpus: Option<usize>,
    /// Interrupt each cell of the sandboxed kernel that nb runs after this long
    ///
    /// One that runs on is ended 5 s later, with the kernel and its variables.
    #[arg(long, value_name = "SECONDS", requires = "sandbox", value_parser = seconds)]
    max_time: Option<f64>,
    /// Keep the scratch folder when the kernel is shut down
    #[arg(long, requires = "sandbox")]
    keep_scratch: bool,
}

fn cpus(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("give a whole number, at least 1".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds > 0.0 => Ok(seconds),
        _ => Err("give seconds, more than 0".to_owned()),
    }
}

impl Sandboxing {
    /// Returns what is meant, with real paths.
    pub(super) fn meant(&self) -> Result<Confinement, Fault> {
        let Some(how) = self.sandbox else {
            return Ok(match self.no_sandbox {
                true => Confinement::Free,
                false => Confinement::AsBefore,
            });
        };
        let sandbox = Sandbox {
            demand: match how {
                How::BestEffort => Demand::BestEffort,
                _ => Demand::Strict,
            },
            only: match how {
                How::Bubblewrap => Some(Mechanism::Bubblewrap),
                How::Landlock => Some(Mechanism::Landlock),
                How::Strict | How::BestEffort => None,
            },
            allow_read: self.allow_read.clone(),
            allow_write: self.allow_write.clone(),
            allow_net: self.allow_net,
            cpus: self.cpus,
            max_time_s: self.max_time,
            keep_scratch: self.keep_scratch,
            ..Sandbox::default()
        };
        let sandbox = checked(sandbox).map_err(OpenError::from)?;
        Ok(Confinement::In(Box::new(sandbox)))
    }
}

/// Tells of a sandbox in a line; paths in `root` are told as they are named there.
pub(super) fn text(sandbox: &Sandbox, root: &Path) -> String {
    let shown = |path: &Path| {
        let inner = path.strip_prefix(root).unwrap_or(path);
        match inner.as_os_str().is_empty() {
            // The whole project.
            true => ".".to_owned(),
            false => inner.display().to_string(),
        }
    };
    let mut parts = Vec::new();
    match &sandbox.reached {
        Some(reached) if reached.missing.is_empty() => parts.push(format!(
            "{}, tried from inside: {}",
            reached.mechanism.as_str(),
            told(&reached.kept)
        )),
        Some(reached) => parts.push(format!(
            "{}, best effort: {}; NOT kept: {}",
            reached.mechanism.as_str(),
            told(&reached.kept),
            reached
                .missing
                .iter()
                .map(|missing| format!("{} ({})", missing.promise, missing.why))
                .collect::<Vec<_>>()
                .join(", ")
        )),
        None => parts.push("not entered yet".to_owned()),
    }
    let mechanism = sandbox.reached.as_ref().map(|reached| reached.mechanism);
    if mechanism == Some(Mechanism::Landlock) {
        // No rule of Landlock's can part them.
        parts.push("shared with the outside: /dev/shm, your terminals".to_owned());
    }
    if sandbox.allow_net {
        parts.push("network allowed".to_owned());
    }
    let lists = [
        ("may write", &sandbox.allow_write),
        ("may read", &sandbox.allow_read),
    ];
    for (words, paths) in lists.into_iter().filter(|(_, paths)| !paths.is_empty()) {
        let all: Vec<_> = paths.iter().map(|path| shown(path)).collect();
        parts.push(format!("{words} {}", all.join(", ")));
    }
    parts.extend(sandbox.cpus.map(|count| match count {
        1 => "1 processor".to_owned(),
        _ => format!("{count} processors"),
    }));
    let time = sandbox.max_time_s;
    parts.extend(time.map(|seconds| format!("{seconds} s a cell")));
    parts.push(format!("scratch {}", shown(&sandbox.scratch)));
    format!("sandbox: {}", parts.join(" · "))
}

/// What a reader wants to know of what was kept: that its own folders can be used is no promise.
fn told(kept: &[String]) -> String {
    let own = crate::kernel::confine::guarantee::Guarantee::OwnFolders.words();
    let all: Vec<_> = kept
        .iter()
        .map(String::as_str)
        .filter(|it| *it != own)
        .collect();
    all.join(", ")
}

/// Returns it as a program reads it.
pub(super) fn object(sandbox: &Sandbox) -> Value {
    let reached = sandbox.reached.as_ref();
    json!({
        "mechanism": reached.map(|reached| reached.mechanism.as_str()),
        "demand": sandbox.demand,
        "kept": reached.map(|reached| &reached.kept),
        "missing": reached.map(|reached| &reached.missing),
        "allow_read": sandbox.allow_read,
        "allow_write": sandbox.allow_write,
        "allow_net": sandbox.allow_net,
        "cpus": sandbox.cpus,
        "max_time_s": sandbox.max_time_s,
        "scratch": sandbox.scratch,
        "keep_scratch": sandbox.keep_scratch,
    })
}
