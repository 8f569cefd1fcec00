//! Runs `nb` under strace, which makes chosen system calls fail or kills the process at them.

use std::path::PathBuf;
use std::process::Command;

use crate::world::{World, finish};

/// The variable that disables the tests that need strace.
const WITHOUT: &str = "NB_TEST_WITHOUT_STRACE";

pub struct Strace<'a> {
    world: &'a World,
    log: PathBuf,
    /// Whether the file system is to seem unable to exchange two files.
    without_exchange: bool,
}

/// A run of `nb` under strace.
#[derive(Debug)]
pub struct Run {
    /// The exit code; `None` if the process was killed.
    pub code: Option<i32>,
    pub stderr: String,
    /// The system calls of its main thread, in order.
    pub calls: Vec<String>,
}

impl<'a> Strace<'a> {
    /// Returns strace; `None` if the tests are to do without it.
    ///
    /// # Panics
    /// Strace is not installed, or may not trace, as in some containers.
    pub fn find(world: &'a World) -> Option<Self> {
        if std::env::var_os(WITHOUT).is_some() {
            crate::skipped::note(&format!("{WITHOUT} is set"), "");
            return None;
        }
        let works = Command::new("strace")
            .args(["-o", "/dev/null", "true"])
            .output();
        let message = match &works {
            Ok(out) => String::from_utf8_lossy(&out.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        assert!(
            works.is_ok_and(|out| out.status.success()),
            "strace cannot trace here ({message}): install it, let this container trace, or set {WITHOUT}=1 to do without these tests"
        );
        let log = world.project().with_file_name("strace.log");
        let without_exchange = false;
        Some(Self {
            world,
            log,
            without_exchange,
        })
    }

    /// Returns the same for a file system that cannot exchange two files.
    pub fn without_exchange(self) -> Self {
        let without_exchange = true;
        Self {
            without_exchange,
            ..self
        }
    }

    /// Runs `nb` and records its system calls.
    pub fn trace(&self, words: &[&str]) -> Run {
        self.run(words, &[])
    }

    /// Runs `nb` with an injection into a system call, in strace's notation: `error=EIO:when=2`.
    pub fn inject(&self, words: &[&str], call: &str, fault: &str) -> Run {
        let (trace, inject) = (
            format!("trace={call},renameat2"),
            format!("inject={call}:{fault}"),
        );
        let mut options = vec!["-e", &trace, "-e", &inject];
        // This is faster, as other calls do not stop the process, but it cannot send signals.
        if fault.starts_with("error") {
            options.push("--seccomp-bpf");
        }
        self.run(words, &options)
    }

    fn run(&self, words: &[&str], options: &[&str]) -> Run {
        let nb = self.world.nb();
        let mut command = self.world.command("strace".as_ref());
        command
            .args(["-f", "-s", "16", "-o"])
            .arg(&self.log)
            .args(options);
        if self.without_exchange {
            command.args(["-e", "inject=renameat2:error=EINVAL"]);
        }
        command.arg(nb.get_program()).args(words);
        let (status, _, stderr) = finish(&mut command);
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let main = log
            .split_ascii_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned();
        let calls = log.lines().filter_map(|line| line.strip_prefix(&main));
        let calls = calls.map(|line| line.trim().to_owned()).collect();
        Run {
            code: status.code(),
            stderr,
            calls,
        }
    }
}
