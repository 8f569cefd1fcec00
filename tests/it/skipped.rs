//! Tests that this machine cannot run: each says what is missing, and the end of the run names it in one line.

use std::path::PathBuf;
use std::process::Command;

use crate::scope;

/// Notes that the running test, or a part of it, is skipped.
///
/// `install` is the Debian package of what is missing; empty if there is none.
pub fn note(missing: &str, install: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    eprintln!("skipped: {missing}");
    scope::at_end(&format!("{test}\t{missing}\t{install}"));
}

/// Says whether a program can be started; notes that the running test is skipped if it cannot.
pub fn has_program(program: &str, install: &str) -> bool {
    let has = Command::new(program).arg("--version").output().is_ok();
    if !has {
        note(&format!("{program} is not installed"), install);
    }
    has
}

/// Says whether there is bubblewrap; notes that the running test is skipped if there is not.
pub fn has_bubblewrap() -> bool {
    has_program("bwrap", "bubblewrap")
}

/// Returns this machine's Chromium: the one that `CHROMIUM` names, else the one on `PATH`.
pub fn chromium() -> Option<PathBuf> {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = named.or_else(|| {
        std::env::split_paths(&path)
            .flat_map(|folder| names.map(|name| folder.join(name)))
            .find(|program| program.is_file())
    });
    if found.is_none() {
        note("Chromium is not installed", "chromium");
    }
    found
}

/// Says whether a file system can be mounted here; notes that the running test is skipped if it cannot.
pub fn can_mount() -> bool {
    let mut mount = Command::new("unshare");
    mount.args(["-rm", "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"]);
    let can = mount.output().is_ok_and(|tried| tried.status.success());
    if !can {
        note("no file system can be mounted here", "");
    }
    can
}

/// A run in which nothing but this test is skipped; the next test starts it.
#[test]
#[ignore = "is skipped: another test starts it and reads what the end of its run prints"]
fn a_skipped_test() {
    note("a program is not installed", "one-package");
    assert!(!has_program("nb-test-no-such-program", "another-package"));
}

#[test]
fn the_end_of_a_run_names_what_was_skipped_and_how_to_install_it() {
    let own = std::env::current_exe().expect("this program");
    let log = tempfile::NamedTempFile::new().expect("make a file");
    let status = Command::new(own)
        .args(["--exact", "--ignored", "skipped::a_skipped_test"])
        .stderr(log.reopen().expect("open it"))
        .status();
    assert!(status.expect("start the run").success());
    let printed = crate::nb::until("the line", || {
        let text = std::fs::read_to_string(log.path()).ok()?;
        text.ends_with('\n').then_some(text)
    });
    let line = printed.lines().last().expect("a line");
    assert_eq!(
        line,
        "skipped on this machine: 1 test (a program is not installed; nb-test-no-such-program is not installed): \
         sudo apt-get install another-package one-package"
    );
}
