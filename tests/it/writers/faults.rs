//! A save that fails, or is killed, at each of its system calls in turn.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::strace::{Run, Strace};
use super::{left, look, notebook};
use crate::world::World;

/// The command whose save is disturbed.
const EDIT: [&str; 7] = [
    "edit", "t.ipynb", "aaaa", "newer", "--force", "--as", "writer",
];

/// Memory, threads, time, signals and whose a process is: an error there is none of a disk's. And the standard library
/// takes a failing `close` of a folder for a bug of its own.
const NO_FILE: [&str; 16] = [
    "close",
    "brk",
    "mmap",
    "munmap",
    "mprotect",
    "futex",
    "getrandom",
    "rt_sigaction",
    "rt_sigprocmask",
    "sigaltstack",
    "clock_gettime",
    "gettid",
    "getpid",
    "geteuid",
    "madvise",
    "sched_yield",
];

struct Save<'a> {
    world: &'a World,
    strace: Strace<'a>,
    old: String,
    new: String,
}

/// A system call: its name, and which of that name it is.
type Call = (String, usize);

impl<'a> Save<'a> {
    fn new(world: &'a World) -> Option<Self> {
        Some(Self::under(world, Strace::find(world)?))
    }

    fn under(world: &'a World, strace: Strace<'a>) -> Self {
        let save = Self {
            world,
            strace,
            old: notebook(&[("aaaa", "old"), ("bbbb", "other")]),
            new: notebook(&[("aaaa", "newer"), ("bbbb", "other")]),
        };
        save.begin();
        // The first command makes the project's folder, which others have made already.
        look(world);
        save
    }

    fn path(&self) -> std::path::PathBuf {
        self.world.project().join("t.ipynb")
    }

    fn begin(&self) {
        std::fs::write(self.path(), &self.old).expect("write the notebook");
        // A save just before would have each edit wait half a second, to touch the file once more.
        let file = std::fs::File::open(self.path()).expect("open the notebook");
        let earlier = SystemTime::now() - Duration::from_secs(60);
        file.set_modified(earlier).expect("set its time");
    }

    /// Returns the calls from the lock to the end; with the look through /proc only its first.
    fn calls(&self) -> Vec<Call> {
        self.begin();
        let run = self.strace.trace(&EDIT);
        assert_eq!(run.code, Some(0), "{run:#?}");
        let begins = run
            .calls
            .iter()
            .position(|call| call.contains("/nb/locks/"));
        let begins = begins.expect("it takes the lock");
        let ends = run
            .calls
            .iter()
            .rposition(|call| call.contains("/.nb/unfinished\""));
        // It opens the folder, then removes the base in it.
        let ends = ends.expect("it removes the base") + 1;
        let mut count: HashMap<&str, usize> = HashMap::new();
        let mut calls = Vec::new();
        let mut looks = false;
        for (at, call) in run.calls.iter().enumerate() {
            let Some((name, rest)) = call.split_once('(') else {
                continue;
            };
            let nth = count.entry(name).or_default();
            *nth += 1;
            let looked = looks;
            looks = (looks || rest.contains("\"/proc\"")) && !rest.contains(".nb-");
            if at >= begins && at <= ends && !(looks && looked) {
                calls.push((name.to_owned(), *nth));
            }
        }
        // The new text takes the notebook's place among them.
        assert!(
            calls
                .iter()
                .any(|(name, _)| name == "renameat2" || name == "linkat"),
            "{calls:?}"
        );
        calls
    }

    /// Disturbs one call; returns whether that was reached, and what came of the command.
    fn disturb(&self, (name, nth): &Call, what: &str) -> (bool, Run) {
        self.begin();
        let run = self
            .strace
            .inject(&EDIT, name, &format!("{what}:when={nth}"));
        let reached = match what.starts_with("signal") {
            true => run.code.is_none(),
            false => {
                let mut calls = run.calls.iter();
                calls.any(|call| call.starts_with(name) && call.contains("(INJECTED)"))
            }
        };
        let text = self.text();
        let told = format!("{name} {nth} {what}: {run:#?}\n{text}");
        assert!(
            text == self.old || text == self.new,
            "neither old nor new: {told}"
        );
        assert!(!run.err.contains("panicked"), "{told}");
        match run.code {
            Some(0) => assert_eq!(text, self.new, "{told}"),
            Some(_) => assert_eq!(text, self.old, "{told}"),
            None => {}
        }
        // The next command finds the same text and clears away what was left.
        look(self.world);
        assert_eq!(self.text(), text, "{told}");
        let left = left(Path::new(&self.world.project()));
        assert!(left.is_empty(), "left: {left:?} {told}");
        (reached, run)
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).expect("the notebook is there")
    }

    /// Disturbs every call that is not left out; requires that nearly all are reached. Returns what
    /// the commands told.
    fn all(&self, what: &str, leaves_out: &[&str]) -> Vec<String> {
        let calls = self.calls();
        let calls = calls
            .into_iter()
            .filter(|(name, _)| !leaves_out.contains(&name.as_str()));
        let (mut told, mut missed) = (Vec::new(), Vec::new());
        for call in calls {
            match self.disturb(&call, what) {
                (true, run) => told.push(format!("{} {}: {}", call.0, call.1, run.err)),
                (false, _) => missed.push(call),
            }
        }
        let reached = told.len();
        eprintln!("{what}: {reached} calls, not reached {missed:?}");
        // Which calls there are varies a little with what else runs on the machine.
        assert!(
            reached >= 40 && missed.len() * 10 <= reached,
            "{reached}, not {missed:?}"
        );
        told
    }
}

#[test]
fn a_save_that_is_killed_at_any_call_leaves_the_old_text_or_the_new() {
    let world = World::new();
    if let Some(save) = Save::new(&world) {
        save.all("signal=SIGKILL", &[]);
    }
}

#[test]
fn a_save_without_an_exchange_that_is_killed_or_fails_leaves_the_old_text_or_the_new() {
    let world = World::new();
    if let Some(strace) = Strace::find(&world) {
        let save = Save::under(&world, strace.without_exchange());
        // The last of two injections counts.
        let renameat2 = [&NO_FILE[..], &["renameat2"]].concat();
        save.all("signal=SIGKILL", &["renameat2"]);
        save.all("error=EIO", &renameat2);
    }
}

#[test]
fn a_save_whose_disk_fails_at_any_call_leaves_the_old_text_or_the_new() {
    let world = World::new();
    if let Some(save) = Save::new(&world) {
        save.all("error=EIO", &NO_FILE);
    }
}

#[test]
fn a_full_disk_is_told_with_its_space() {
    let world = World::new();
    let Some(save) = Save::new(&world) else {
        return;
    };
    let mut told = save.all("error=ENOSPC", &NO_FILE);
    // The same of a user's share of it.
    for (name, nth) in save.calls() {
        if name == "write" {
            told.push(save.disturb(&(name, nth), "error=EDQUOT").1.err);
        }
    }
    let words = "cannot write t.ipynb: it needs 287 bytes beside it and ";
    let full: Vec<_> = told.iter().filter(|said| said.contains(words)).collect();
    // At the making of the file, its writing, and when it goes to the disk.
    assert!(full.len() >= 4, "{told:#?}");
    for said in full {
        assert!(said.contains("B are free on its file system"), "{said}");
        assert!(said.contains("make room"), "{said}");
    }
}
