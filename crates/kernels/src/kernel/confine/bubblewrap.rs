//! The arguments of `bwrap`: it makes separate namespaces for the kernel, in which only its view is mounted.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::view::{FilesystemView, NETWORK_SETTINGS, SETTINGS};
use crate::kernel::environment::tools::SYSTEM;
use crate::kernel::environment::trust;
use crate::kernel::variables::ProcessVariables;

/// The path of this program inside the sandbox, read-only.
pub(super) const INNER_PROGRAM: &str = "/run/nb";

/// Returns the program `bwrap`, unless it lies in an environment that a sandboxed kernel may have written.
pub(super) fn program() -> Option<PathBuf> {
    trust::on_path("bwrap", &ProcessVariables)
}

/// Returns why `bwrap` cannot be used here; `None` if it can. The function runs `bwrap`, because AppArmor,
/// sysctls and containers forbid namespaces in many ways.
pub(super) fn unusable() -> Option<String> {
    let Some(program) = program() else {
        return Some("bwrap is not installed".to_owned());
    };
    let output = Command::new(program)
        .args(["--unshare-all", "--unshare-user", "--cap-drop", "ALL"])
        .args(["--ro-bind", "/", "/", "--proc", "/proc", "true"])
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let first = text.lines().next().unwrap_or("it failed without a message");
            Some(first.to_owned())
        }
        Err(error) => Some(format!("bwrap: {error}")),
    }
}

/// The features of this machine's `bwrap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BwrapFeatures {
    /// Whether it can mount descriptors.
    pub(super) descriptors: bool,
    /// Whether it applies filters for system calls to all processes that it makes.
    pub(super) filters: bool,
}

/// Runs `bwrap --help` to find out its features.
pub(super) fn features(program: &Path) -> io::Result<BwrapFeatures> {
    let output = Command::new(program)
        .arg("--help")
        .stdin(Stdio::null())
        .output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    Ok(BwrapFeatures {
        descriptors: text.contains("--ro-bind-fd"),
        filters: text.contains("--add-seccomp-fd"),
    })
}

/// Opens a path to mount, which must not lead through a link.
///
/// A kernel that may write a folder may replace an entry of it by a link. The folders above a kernel's own
/// folders are not writable; this check protects the other folders that were named.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    let links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), links)
        .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}

/// The arguments of `bwrap`, and the descriptors to which they refer.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) list: Vec<OsString>,
    opened: Vec<OwnedFd>,
    readable: Vec<PathBuf>,
}

/// Opens a path to mount; returns `None` if the path itself is passed to `bwrap`.
type Opener<'a> = dyn Fn(&Path) -> io::Result<Option<OwnedFd>> + 'a;

/// Returns the arguments before the program to run inside.
///
/// `program` is this program's file.
pub(super) fn arguments(
    view: &FilesystemView,
    program: &Path,
    filters: Vec<OwnedFd>,
    opener: &Opener<'_>,
) -> io::Result<Arguments> {
    let mut arguments = Arguments::default();
    arguments.words(&["--unshare-all", "--unshare-user", "--cap-drop", "ALL"]);
    if rustix::process::geteuid().is_root() {
        // No program inside must believe that it or its user is root.
        arguments.words(&["--uid", ORDINARY_USER, "--gid", ORDINARY_USER]);
    }
    if view.allow_net {
        arguments.words(&["--share-net"]);
    }
    for filter in filters {
        arguments.words(&["--add-seccomp-fd"]);
        arguments.descriptor(filter)?;
    }
    for path in SYSTEM.map(Path::new) {
        match std::fs::read_link(path) {
            Ok(target) => arguments.symlink(&target, path),
            Err(_) if path.exists() => {
                arguments.bind("--ro-bind", path, path);
                arguments.readable.push(path.to_owned());
            }
            Err(_) => {}
        }
    }
    let net = NETWORK_SETTINGS.iter().filter(|_| view.allow_net);
    for path in SETTINGS.iter().chain(net) {
        arguments.bind("--ro-bind-try", path.as_ref(), path.as_ref());
    }
    // Root's processes, and all processes in a namespace that root made, may write settings below /proc/sys
    // even without privileges. A read-only /proc also prevents writes to other processes' memory.
    arguments.words(&["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]);
    let home = view.inner_home();
    let temporary = view.temporary();
    // On disk: in memory it would not count towards any limit.
    arguments.mount("--bind", &temporary, view.inner_temporary(), opener)?;
    for path in &view.programs {
        // Mounted at the given path, which may lead through links, and at the real one.
        let Ok(real) = path.canonicalize() else {
            continue;
        };
        arguments.read(&real, path, opener)?;
        arguments.read(&real, &real, opener)?;
    }
    for path in &view.allow_read {
        arguments.read(path, path, opener)?;
    }
    arguments.read(&view.workspace, &view.workspace, opener)?;
    for path in &view.allow_write {
        arguments.mount("--bind", path, path, opener)?;
    }
    for path in &view.protected {
        arguments.mount("--ro-bind", path, path, opener)?;
    }
    for path in &view.covered {
        arguments.mount("--ro-bind", Path::new("/dev/null"), path, opener)?;
    }
    let hidden: Vec<_> = view.hidden().filter(|path| view.may_read(path)).collect();
    for path in &hidden {
        arguments.option("--tmpfs", path);
    }
    // Hides the neighbours of the kernel's own folders; nothing can be created there.
    let parents = [&view.scratch, &view.sockets].map(|it| it.parent().unwrap_or(it));
    for parent in parents {
        arguments.option("--tmpfs", parent);
    }
    let connection = &view.connection_file;
    arguments.mount("--ro-bind", connection, connection, opener)?;
    for path in [&home, &temporary, &view.sockets] {
        arguments.mount("--bind", path, path, opener)?;
    }
    arguments.mount("--ro-bind", program, Path::new(INNER_PROGRAM), opener)?;
    // The mount points that bwrap makes are in memory and would be writable.
    for path in hidden.into_iter().chain(parents) {
        arguments.option("--remount-ro", path);
    }
    arguments.option("--remount-ro", Path::new("/"));
    arguments.option("--chdir", &view.folder);
    arguments.words(&["--"]);
    Ok(arguments)
}

/// The user id inside, where it would otherwise be root's.
const ORDINARY_USER: &str = "1000";

impl Arguments {
    fn words(&mut self, words: &[&str]) {
        self.list.extend(words.iter().map(OsString::from));
    }

    fn option(&mut self, word: &str, path: &Path) {
        self.list.extend([word.into(), path.into()]);
    }

    fn bind(&mut self, option: &str, from: &Path, to: &Path) {
        self.option(option, from);
        self.list.push(to.into());
    }

    /// Passes a descriptor to `bwrap`, which closes it before it runs a program inside.
    fn descriptor(&mut self, opened: OwnedFd) -> io::Result<()> {
        rustix::io::fcntl_setfd(&opened, rustix::io::FdFlags::empty())?;
        self.words(&[&opened.as_raw_fd().to_string()]);
        self.opened.push(opened);
        Ok(())
    }

    fn mount(
        &mut self,
        option: &str,
        from: &Path,
        to: &Path,
        opener: &Opener<'_>,
    ) -> io::Result<()> {
        match opener(from)? {
            Some(opened) => {
                self.words(&[&format!("{option}-fd")]);
                self.descriptor(opened)?;
                self.list.push(to.into());
            }
            None => self.bind(option, from, to),
        }
        Ok(())
    }

    /// Mounts a path unless it lies in an existing mount: there it may lead through symlinks, on which
    /// nothing can be mounted.
    fn read(&mut self, from: &Path, to: &Path, opener: &Opener<'_>) -> io::Result<()> {
        if !self.readable.iter().any(|known| to.starts_with(known)) {
            self.mount("--ro-bind", from, to, opener)?;
            self.readable.push(to.to_owned());
        }
        Ok(())
    }

    fn symlink(&mut self, target: &Path, path: &Path) {
        self.bind("--symlink", target, path);
        self.readable.push(path.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::view;
    use super::*;

    fn line(view: &FilesystemView) -> String {
        let made = arguments(view, Path::new("/opt/nb"), Vec::new(), &|_| Ok(None)).unwrap();
        let words: Vec<_> = made
            .list
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        words.join(" ")
    }

    #[test]
    fn only_the_room_is_mounted_and_what_is_hidden_stays_hidden() {
        let line = line(&view());
        assert!(line.starts_with("--unshare-all --unshare-user --cap-drop ALL "));
        for part in [
            "--ro-bind /w /w ",
            "--bind /w/out /w/out --tmpfs /w/.nb --tmpfs /s --tmpfs /tmp/nb-1 --ro-bind /w/.nb/connections/kernel-1.json",
            "--ro-bind /usr /usr",
            "--proc /proc --remount-ro /proc",
            "--bind /s/a/tmp /tmp ",
            "--bind /s/a/home /s/a/home ",
            "--bind /tmp/nb-1/1 /tmp/nb-1/1",
            "--ro-bind /data /data",
            "--remount-ro /w/.nb --remount-ro /s --remount-ro /tmp/nb-1 --remount-ro / --chdir /w/sub --",
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
            " /s/a ",
        ] {
            assert!(!line.contains(part), "{part:?} in {line}");
        }
    }

    #[test]
    fn a_path_through_a_link_is_not_mounted() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("scratch/home/inner")).unwrap();
        std::fs::create_dir(root.join("ada")).unwrap();
        open(&root.join("scratch/home/inner")).unwrap();
        std::os::unix::fs::symlink(root.join("scratch"), root.join("above")).unwrap();
        std::os::unix::fs::symlink(root.join("ada"), root.join("scratch/tmp")).unwrap();
        for path in ["above/home/inner", "above/home", "above", "scratch/tmp"] {
            assert!(open(&root.join(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn the_network_comes_with_its_settings_only_where_it_is_allowed() {
        let line = line(&FilesystemView {
            allow_net: true,
            ..view()
        });
        assert!(line.contains("--share-net") && line.contains("/etc/resolv.conf"));
    }
}
