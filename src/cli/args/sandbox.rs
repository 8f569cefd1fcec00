//! The sandbox on the command line.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::api::RequestedConfinement;
use crate::project::{Mechanism, Sandbox, Strictness};

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

/// The options that make a sandbox.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct Sandboxing {
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
          default_missing_value = "strict")]
    sandbox: Option<How>,
    /// Start a kernel that was in a sandbox before in none
    #[arg(long, conflicts_with = "sandbox")]
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
}

/// The options for the sandbox of a kernel that goes on after the command.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct LastingSandbox {
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

/// Parses a time limit in seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds > 0.0 => Ok(seconds),
        _ => Err("give seconds, more than 0".to_owned()),
    }
}

impl Sandboxing {
    /// Returns the requested confinement of the kernel.
    pub(crate) fn requested_confinement(self, lasting: &LastingSandbox) -> RequestedConfinement {
        let Some(how) = self.sandbox else {
            return match self.no_sandbox {
                true => RequestedConfinement::Free,
                false => RequestedConfinement::AsBefore,
            };
        };
        RequestedConfinement::Sandbox(Box::new(Sandbox {
            demand: match how {
                How::BestEffort => Strictness::BestEffort,
                _ => Strictness::Strict,
            },
            only: match how {
                How::Bubblewrap => Some(Mechanism::Bubblewrap),
                How::Landlock => Some(Mechanism::Landlock),
                How::Strict | How::BestEffort => None,
            },
            allow_read: self.allow_read,
            allow_write: self.allow_write,
            allow_net: self.allow_net,
            cpus: self.cpus,
            max_time_s: lasting.max_time,
            keep_scratch: lasting.keep_scratch,
            ..Sandbox::default()
        }))
    }
}
