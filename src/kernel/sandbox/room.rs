//! What a kernel in a sandbox sees, and what of it it may change. Pure but for looking at paths.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The kernel's room. All folders are real paths, without symlinks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Room {
    /// The project's root: readable.
    pub workspace: PathBuf,
    /// The project's `.nb` folder: other kernels' keys lie there, so it is hidden where that is
    /// possible and never writable.
    pub hidden: PathBuf,
    /// The kernel's own connection file in it: readable.
    pub connection_file: PathBuf,
    /// The folder of its sockets alone: writable.
    pub sockets: PathBuf,
    /// The folder of its home and its temporary files: writable.
    pub scratch: PathBuf,
    /// Where the kernel's program and its libraries lie: readable. As they are named, which may
    /// be through symlinks.
    pub programs: Vec<PathBuf>,
    /// What else it may read.
    pub allow_read: Vec<PathBuf>,
    /// What else it may write.
    pub allow_write: Vec<PathBuf>,
    /// Whether it may use the network.
    pub allow_net: bool,
    /// How many processors it may use.
    pub cpus: Option<usize>,
    /// The user's real home.
    pub home: Option<PathBuf>,
    /// The folder that the kernel works in.
    pub folder: PathBuf,
}

impl Room {
    /// Returns the kernel's home.
    pub fn inner_home(&self) -> PathBuf {
        self.scratch.join("home")
    }

    /// Returns the folder of its temporary files.
    pub fn temporary(&self) -> PathBuf {
        self.scratch.join("tmp")
    }

    /// Says whether the whole workspace may be written.
    pub fn writes_workspace(&self) -> bool {
        let mut allowed = self.allow_write.iter();
        allowed.any(|folder| self.workspace.starts_with(folder))
    }

    /// Says whether a path lies in what may be written.
    pub fn may_write(&self, path: &Path) -> bool {
        let own = [&self.scratch, &self.sockets];
        let mut all = own.into_iter().chain(&self.allow_write);
        all.any(|folder| path.starts_with(folder))
    }

    /// Says whether a path lies in what may be read.
    pub fn may_read(&self, path: &Path) -> bool {
        let named = std::iter::once(&self.workspace).chain(&self.programs);
        let mut named = named.chain(&self.allow_read);
        self.may_write(path)
            || named.any(|folder| path.starts_with(folder))
            || SYSTEM.iter().any(|folder| path.starts_with(folder))
    }
}

/// Where every system keeps its programs; nobody's own files are there.
pub(super) const SYSTEM: [&str; 9] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
];

/// What programs read of the system's settings. Named one by one: a kernel of root would read the
/// rest, as `/etc/shadow` and private keys.
pub(super) const SETTINGS: [&str; 25] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/locale.conf",
    "/etc/mime.types",
    "/etc/magic",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/openssl.cnf",
    "/etc/bash.bashrc",
    "/etc/profile",
    "/etc/R",
    "/etc/java",
    "/etc/octave",
    "/etc/matplotlibrc",
    "/sys/devices/system",
];

/// What else programs read where they may use the network.
pub(super) const NETWORK_SETTINGS: [&str; 8] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates",
];

/// Returns the folders that a program needs: its environment, that environment's own, and where
/// its symlinks lead.
///
/// `bin/python` of an environment made by `venv` is a symlink to the base Python, and `pyvenv.cfg`
/// names the folder that the base's libraries are found from.
pub fn programs(program: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut at = program.to_owned();
    // As long as the system follows symlinks.
    for _ in 0..40 {
        add_prefix(&mut found, &at, home);
        let Ok(target) = std::fs::read_link(&at) else {
            break;
        };
        at = at.parent().unwrap_or(Path::new("/")).join(target);
    }
    if let Ok(real) = program.canonicalize() {
        add_prefix(&mut found, &real, home);
    }
    found
}

fn add_prefix(found: &mut Vec<PathBuf>, program: &Path, home: Option<&Path>) {
    let Some(bin) = program.parent() else { return };
    let prefix = bin
        .parent()
        .filter(|_| bin.ends_with("bin") || bin.ends_with("Scripts"));
    let wanted = match prefix.filter(|prefix| is_environment(prefix, home)) {
        Some(prefix) => prefix.to_owned(),
        None => bin.to_owned(),
    };
    // A program that lies in home itself, or at the root, takes nothing beside it along.
    let whole = home.is_some_and(|home| home.starts_with(&wanted)) || wanted.parent().is_none();
    let wanted = if whole { program.to_owned() } else { wanted };
    if found.contains(&wanted) {
        return;
    }
    let settings = std::fs::read_to_string(wanted.join("pyvenv.cfg")).unwrap_or_default();
    found.push(wanted);
    let base = settings
        .lines()
        .filter_map(|line| line.split_once('='))
        .find(|(name, _)| name.trim() == "home")
        .map(|(_, value)| PathBuf::from(value.trim()));
    if let Some(base) = base.filter(|base| base.is_absolute()) {
        for name in ["python", "python3"] {
            if base.join(name).exists() {
                add_prefix(found, &base.join(name), home);
                if let Ok(real) = base.join(name).canonicalize() {
                    add_prefix(found, &real, home);
                }
            }
        }
    }
}

/// Says whether a folder is an environment and not only a folder that has a `bin`, as `~/.local`.
fn is_environment(prefix: &Path, home: Option<&Path>) -> bool {
    let in_home = home.is_some_and(|home| prefix.starts_with(home));
    if !in_home {
        return true;
    }
    let has = |name: &str| prefix.join(name).exists();
    let local = home.is_some_and(|home| prefix == home.join(".local"));
    let python = || {
        let lib = std::fs::read_dir(prefix.join("lib"));
        let mut names = lib.into_iter().flatten().flatten();
        names.any(|entry| entry.file_name().to_string_lossy().starts_with("python"))
    };
    !local && (has("pyvenv.cfg") || has("conda-meta") || has("lib/R") || python())
}

/// Returns the variables that a kernel in a sandbox gets: those that say how to speak and where
/// programs are, not those that hold tokens or name sockets; then the kernel's own.
pub(super) fn variables(
    inherited: impl Iterator<Item = (OsString, OsString)>,
    own: &[(OsString, OsString)],
    room: &Room,
    temporary: &Path,
) -> Vec<(OsString, OsString)> {
    let passes = |name: &OsString| {
        let name = name.to_string_lossy();
        PASSING.contains(&name.as_ref()) || name.starts_with("LC_")
    };
    let mut set: Vec<_> = inherited.filter(|(name, _)| passes(name)).collect();
    set.extend(own.iter().cloned());
    let home = room.inner_home();
    let folders = [
        ("HOME", home.clone()),
        ("TMPDIR", temporary.to_owned()),
        ("IPYTHONDIR", home.join(".ipython")),
        ("MPLCONFIGDIR", home.join(".config/matplotlib")),
        ("XDG_CACHE_HOME", home.join(".cache")),
        ("XDG_CONFIG_HOME", home.join(".config")),
        ("XDG_DATA_HOME", home.join(".local/share")),
        ("XDG_STATE_HOME", home.join(".local/state")),
    ];
    let folders = folders.map(|(name, path)| (name.into(), path.into_os_string()));
    set.retain(|(name, _)| !folders.iter().any(|(own, _)| own == name));
    set.extend(folders);
    set
}

/// Variables that pass into a sandbox.
const PASSING: [&str; 16] = [
    "PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "COLORTERM",
    "USER",
    "LOGNAME",
    "SHELL",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "OMP_NUM_THREADS",
    "LD_LIBRARY_PATH",
    "R_HOME",
];

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn room() -> Room {
        Room {
            workspace: "/w".into(),
            hidden: "/w/.nb".into(),
            connection_file: "/w/.nb/connections/kernel-1.json".into(),
            sockets: "/tmp/nb-1/1".into(),
            scratch: "/w/.nb/scratch/a".into(),
            programs: vec!["/opt/env".into()],
            allow_read: vec!["/data".into()],
            allow_write: vec!["/w/out".into()],
            allow_net: false,
            cpus: None,
            home: Some("/home/u".into()),
            folder: "/w/sub".into(),
        }
    }

    #[test]
    fn what_may_be_written_and_read_is_what_was_said() {
        let room = room();
        for path in ["/w/out/a", "/w/.nb/scratch/a/home/x", "/tmp/nb-1/1/k-1"] {
            assert!(room.may_write(Path::new(path)), "{path}");
        }
        for path in ["/w/a.ipynb", "/w/.nb/state.json", "/data/x", "/w/outer"] {
            assert!(!room.may_write(Path::new(path)), "{path}");
        }
        for path in ["/w/a.ipynb", "/data/x", "/opt/env/lib", "/usr/bin/env"] {
            assert!(room.may_read(Path::new(path)), "{path}");
        }
        for path in ["/home/u/.ssh", "/etc/shadow", "/opt/environment"] {
            assert!(!room.may_read(Path::new(path)), "{path}");
        }
        assert!(!room.writes_workspace());
    }

    #[test]
    fn an_environment_comes_with_the_python_that_it_was_made_from() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap();
        let base = home.join("pythons/3.14");
        let env = home.join("p/.venv");
        for folder in [
            base.join("bin"),
            base.join("lib/python3.14"),
            env.join("bin"),
        ] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(base.join("bin/python3.14"), "").unwrap();
        std::os::unix::fs::symlink("python3.14", base.join("bin/python3")).unwrap();
        std::os::unix::fs::symlink(base.join("bin/python3"), env.join("bin/python")).unwrap();
        let settings = format!("home = {}\n", base.join("bin").display());
        std::fs::write(env.join("pyvenv.cfg"), settings).unwrap();
        let found = programs(&env.join("bin/python"), Some(&home));
        assert_eq!(found, [env, base]);
    }

    #[test]
    fn a_program_in_home_takes_nothing_of_home_along() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap();
        for folder in ["bin", ".local/bin", ".local/lib/python3.11", "lib/python3"] {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        for program in ["bin/deno", ".local/bin/deno", "deno"] {
            std::fs::write(home.join(program), "").unwrap();
        }
        let of = |name: &str| programs(&home.join(name), Some(&home));
        // Home looks like an environment here; it is none.
        assert_eq!(of("bin/deno"), [home.join("bin/deno")]);
        assert_eq!(of(".local/bin/deno"), [home.join(".local/bin")]);
        assert_eq!(of("deno"), [home.join("deno")]);
    }

    #[test]
    fn no_token_passes_and_the_homes_are_the_scratch_folders() {
        let given = [
            ("PATH", "/usr/bin"),
            ("LC_ALL", "C"),
            ("SSH_AUTH_SOCK", "/run/agent"),
            ("API_KEY", "secret"),
            ("HOME", "/home/u"),
            ("XDG_RUNTIME_DIR", "/run/user/1"),
        ];
        let given = given.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let own = [("NB_KERNEL".into(), "1".into())];
        let room = room();
        let set = variables(given.into_iter(), &own, &room, Path::new("/tmp"));
        let names: Vec<_> = set.iter().map(|(name, _)| name.to_string_lossy()).collect();
        for name in ["PATH", "LC_ALL", "NB_KERNEL", "MPLCONFIGDIR", "TMPDIR"] {
            assert!(names.contains(&name.into()), "{name}");
        }
        for name in ["SSH_AUTH_SOCK", "API_KEY", "XDG_RUNTIME_DIR"] {
            assert!(!names.contains(&name.into()), "{name}");
        }
        let homes: Vec<_> = set.iter().filter(|(name, _)| name == "HOME").collect();
        assert_eq!(homes, [&("HOME".into(), "/w/.nb/scratch/a/home".into())]);
    }
}
