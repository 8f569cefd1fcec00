//! Saves of which each system call in turn fails, or is the one at which the process is killed: one call in three, and the
//! first of each name, in `cargo test`.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::strace::{Run, Strace};
use super::{left, look, notebook};
use crate::world::{World, is_thorough};

/// The command whose save is disturbed.
const EDIT: [&str; 7] = [
    "edit", "t.ipynb", "aaaa", "newer", "--force", "--as", "writer",
];

/// Calls about memory, threads, time, signals and users, whose errors are not a disk's. Also `close`, as
/// the standard library treats a failing `close` of a folder as its own bug.
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

/// Of so many calls `cargo test` disturbs one.
const STEP: usize = 3;

struct Save<'a> {
    world: &'a World,
    strace: Strace<'a>,
    old: String,
    new: String,
}

/// A system call: its name, and its number among the calls with that name.
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
        // The first command creates the project's folder, which then exists for the others.
        look(world);
        save
    }

    fn path(&self) -> std::path::PathBuf {
        self.world.project().join("t.ipynb")
    }

    fn begin(&self) {
        std::fs::write(self.path(), &self.old).expect("write the notebook");
        // After a recent save each edit would wait half a second, to touch the file once more.
        let file = std::fs::File::open(self.path()).expect("open the notebook");
        let earlier = SystemTime::now() - Duration::from_secs(60);
        file.set_modified(earlier).expect("set its time");
        // The lock files have the sizes that an edit avoids: that of the run before would be among them.
        let home = self.world.project().join("../home");
        let _ = std::fs::remove_dir_all(home.join(".local/state/nb/locks"));
    }

    /// Returns the calls from taking the lock to the end; of the search through /proc only the first.
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
        // The process opens the folder, then removes the base in it.
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
        // Among them is the call that moves the new text into the notebook's place.
        assert!(
            calls
                .iter()
                .any(|(name, _)| name == "renameat2" || name == "linkat"),
            "{calls:?}"
        );
        calls
    }

    /// Disturbs one call; returns whether the call was reached, and the run of the command.
    fn disturb(&self, (name, nth): &Call, fault: &str) -> (bool, Run) {
        self.begin();
        let run = self
            .strace
            .inject(&EDIT, name, &format!("{fault}:when={nth}"));
        let reached = match fault.starts_with("signal") {
            true => run.code.is_none(),
            false => {
                let mut calls = run.calls.iter();
                calls.any(|call| call.starts_with(name) && call.contains("(INJECTED)"))
            }
        };
        let text = self.text();
        let context = format!("{name} {nth} {fault}: {run:#?}\n{text}");
        assert!(
            text == self.old || text == self.new,
            "neither old nor new: {context}"
        );
        assert!(!run.stderr.contains("panicked"), "{context}");
        match run.code {
            Some(0) => assert_eq!(text, self.new, "{context}"),
            Some(_) => assert_eq!(text, self.old, "{context}"),
            None => {}
        }
        // The next command finds the same text and removes what was left.
        look(self.world);
        assert_eq!(self.text(), text, "{context}");
        let left = left(Path::new(&self.world.project()));
        assert!(left.is_empty(), "left: {left:?} {context}");
        (reached, run)
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).expect("the notebook is there")
    }

    /// Disturbs every call that is not left out, or of these the first of each name and one in `step`. Checks that nearly
    /// all are reached. Returns the messages of the commands.
    fn all(&self, fault: &str, leaves_out: &[&str], step: usize) -> Vec<String> {
        let step = if is_thorough() { 1 } else { step };
        let mut names = HashSet::new();
        let calls = self.calls();
        let calls = calls
            .into_iter()
            .filter(|(name, _)| !leaves_out.contains(&name.as_str()))
            .enumerate()
            .filter(|(at, (name, _))| names.insert(name.clone()) || at % step == 0)
            .map(|(_, call)| call);
        let (mut messages, mut missed) = (Vec::new(), Vec::new());
        for call in calls {
            match self.disturb(&call, fault) {
                (true, run) => messages.push(format!("{} {}: {}", call.0, call.1, run.stderr)),
                (false, _) => missed.push(call),
            }
        }
        let reached = messages.len();
        eprintln!("{fault}: {reached} calls, not reached {missed:?}");
        // The calls vary a little with what else runs on the machine.
        assert!(
            reached * step >= 40 && missed.len() * 10 <= reached,
            "{reached}, not {missed:?}"
        );
        messages
    }
}

#[test]
fn a_save_that_is_killed_at_any_call_leaves_the_old_text_or_the_new() {
    let world = World::new();
    if let Some(save) = Save::new(&world) {
        save.all("signal=SIGKILL", &[], STEP);
    }
}

#[test]
fn a_save_without_an_exchange_that_is_killed_or_fails_leaves_the_old_text_or_the_new() {
    let world = World::new();
    if let Some(strace) = Strace::find(&world) {
        let save = Save::under(&world, strace.without_exchange());
        // Of two injections for a call, strace uses the last.
        let renameat2 = [&NO_FILE[..], &["renameat2"]].concat();
        save.all("signal=SIGKILL", &["renameat2"], STEP);
        save.all("error=EIO", &renameat2, STEP);
    }
}

#[test]
fn a_save_whose_disk_fails_at_any_call_leaves_the_old_text_or_the_new() {
    let world = World::new();
    if let Some(save) = Save::new(&world) {
        save.all("error=EIO", &NO_FILE, STEP);
    }
}

#[test]
fn a_full_disk_is_reported_with_its_free_space() {
    let world = World::new();
    let Some(save) = Save::new(&world) else {
        return;
    };
    let mut messages = save.all("error=ENOSPC", &NO_FILE, 1);
    // The same for a user's quota.
    for (name, nth) in save.calls() {
        if name == "write" {
            messages.push(save.disturb(&(name, nth), "error=EDQUOT").1.stderr);
        }
    }
    let words = "cannot write t.ipynb: it needs 287 bytes beside it and ";
    let full: Vec<_> = messages
        .iter()
        .filter(|message| message.contains(words))
        .collect();
    // When the file is created, when it is written, and when it is synced.
    assert!(full.len() >= 4, "{messages:#?}");
    for message in full {
        assert!(
            message.contains("B are free on its file system"),
            "{message}"
        );
        assert!(message.contains("make room"), "{message}");
    }
}
