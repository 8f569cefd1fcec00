//! The arguments of `bwrap`: namespaces of the kernel's own, in which only its room is mounted.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::room::{NETWORK_SETTINGS, Room, SETTINGS, SYSTEM};
use crate::kernel::paths::ProcessVariables;
use crate::kernel::trust;

/// Where this program is inside, read-only.
pub(super) const INNER_PROGRAM: &str = "/run/nb";

/// Returns the file of `bwrap`, not one that an environment on `PATH` has of a sandboxed kernel.
pub(super) fn program() -> Option<PathBuf> {
    trust::on_path("bwrap", &ProcessVariables)
}

/// Returns why `bwrap` cannot be used here; nothing where it can.
///
/// It is there and makes namespaces: AppArmor, sysctls and containers forbid that in many ways.
pub(super) fn unusable() -> Option<String> {
    let Some(program) = program() else {
        return Some("bwrap is not installed".to_owned());
    };
    let tried = Command::new(program)
        .args(["--unshare-all", "--unshare-user", "--cap-drop", "ALL"])
        .args(["--ro-bind", "/", "/", "--proc", "/proc", "true"])
        .stdin(Stdio::null())
        .output();
    match tried {
        Ok(tried) if tried.status.success() => None,
        Ok(tried) => {
            let said = String::from_utf8_lossy(&tried.stderr);
            let first = said.lines().next().unwrap_or("it failed without a word");
            Some(first.to_owned())
        }
        Err(error) => Some(format!("bwrap: {error}")),
    }
}

/// Returns the arguments that stand before the program to run inside.
///
/// `program` is this program's file.
pub(super) fn arguments(room: &Room, program: &Path) -> Vec<OsString> {
    let mut arguments = Arguments::default();
    arguments.words(&["--unshare-all", "--unshare-user", "--cap-drop", "ALL"]);
    if room.allow_net {
        arguments.words(&["--share-net"]);
    }
    for path in SYSTEM.map(Path::new) {
        match std::fs::read_link(path) {
            Ok(target) => arguments.symlink(&target, path),
            Err(_) if path.exists() => arguments.read(path),
            Err(_) => {}
        }
    }
    let net = NETWORK_SETTINGS.iter().filter(|_| room.allow_net);
    for path in SETTINGS.iter().chain(net) {
        arguments.try_read(Path::new(path));
    }
    arguments.words(&["--proc", "/proc", "--dev", "/dev"]);
    // On disk, not in memory: what is written to a temporary folder counts for nobody there.
    arguments.bind("--bind", &room.temporary(), Path::new("/tmp"));
    for path in &room.programs {
        arguments.read(path);
        if let Ok(real) = path.canonicalize() {
            arguments.read(&real);
        }
    }
    for path in &room.allow_read {
        arguments.read(path);
    }
    arguments.read(&room.workspace);
    for path in &room.allow_write {
        arguments.bind("--bind", path, path);
    }
    if room.may_read(&room.hidden) {
        arguments.words(&["--tmpfs"]);
        arguments.path(&room.hidden);
    }
    arguments.bind("--ro-bind", &room.connection_file, &room.connection_file);
    arguments.bind("--bind", &room.scratch, &room.scratch);
    arguments.bind("--bind", &room.sockets, &room.sockets);
    arguments.bind("--ro-bind", program, Path::new(INNER_PROGRAM));
    // What bwrap has made to mount upon is in memory and would be writable.
    if room.may_read(&room.hidden) {
        arguments.words(&["--remount-ro"]);
        arguments.path(&room.hidden);
    }
    arguments.words(&["--remount-ro", "/", "--chdir"]);
    arguments.path(&room.folder);
    arguments.words(&["--"]);
    arguments.list
}

#[derive(Default)]
struct Arguments {
    list: Vec<OsString>,
    readable: Vec<PathBuf>,
}

impl Arguments {
    fn words(&mut self, words: &[&str]) {
        self.list.extend(words.iter().map(OsString::from));
    }

    fn path(&mut self, path: &Path) {
        self.list.push(path.into());
    }

    fn bind(&mut self, how: &str, from: &Path, to: &Path) {
        self.words(&[how]);
        self.path(from);
        self.path(to);
    }

    /// Mounts what is not mounted already: inside a mount a path may lead through symlinks, on
    /// which nothing can be mounted.
    fn read(&mut self, path: &Path) {
        if !self.readable.iter().any(|known| path.starts_with(known)) {
            self.bind("--ro-bind", path, path);
            self.readable.push(path.to_owned());
        }
    }

    fn try_read(&mut self, path: &Path) {
        self.bind("--ro-bind-try", path, path);
    }

    fn symlink(&mut self, target: &Path, path: &Path) {
        self.words(&["--symlink"]);
        self.path(target);
        self.path(path);
        self.readable.push(path.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::super::room::tests::room;
    use super::*;

    fn line(room: &Room) -> String {
        let arguments = arguments(room, Path::new("/opt/nb"));
        let words: Vec<_> = arguments
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        words.join(" ")
    }

    #[test]
    fn only_the_room_is_mounted_and_what_is_hidden_stays_hidden() {
        let line = line(&room());
        assert!(
            line.starts_with("--unshare-all --unshare-user --cap-drop ALL --ro-bind /usr /usr")
        );
        for part in [
            "--ro-bind /w /w ",
            "--bind /w/out /w/out --tmpfs /w/.nb --ro-bind /w/.nb/connections/kernel-1.json",
            "--bind /w/.nb/scratch/a /w/.nb/scratch/a",
            "--bind /tmp/nb-1/1 /tmp/nb-1/1",
            "--ro-bind /data /data",
            "--remount-ro /w/.nb --remount-ro / --chdir /w/sub --",
        ] {
            assert!(line.contains(part), "no {part:?} in {line}");
        }
        for part in [
            "--share-net",
            "die-with-parent",
            " /home",
            " / /",
            "resolv.conf",
            "shadow",
        ] {
            assert!(!line.contains(part), "{part:?} in {line}");
        }
    }

    #[test]
    fn the_network_comes_with_its_settings_only_where_it_is_allowed() {
        let line = line(&Room {
            allow_net: true,
            ..room()
        });
        assert!(line.contains("--share-net") && line.contains("/etc/resolv.conf"));
    }
}
