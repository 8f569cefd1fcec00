//! The files that a kernel in a sandbox sees and may change, and its variables. Does no I/O.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::kernel::environment::activate::VariableChanges;
use crate::kernel::environment::tools::SYSTEM;
use crate::kernel::variables::Variables;

/// The files that a kernel in a sandbox sees. All folders are real paths, without symlinks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilesystemView {
    /// The project's root: readable.
    pub workspace: PathBuf,
    /// The project's `.nb` folder, which holds other kernels' keys: never writable, and hidden where
    /// possible.
    pub hidden: PathBuf,
    /// The kernel's own connection file in `.nb`: readable.
    pub connection_file: PathBuf,
    /// The folder that holds only its sockets: writable.
    pub sockets: PathBuf,
    /// The folder that holds the kernel's home and its temporary files. It is not writable itself: the kernel
    /// could replace one of the two by a link, which would be mounted at the next start.
    pub scratch: PathBuf,
    /// The folders of the kernel's program and its libraries, as they are named; the paths may lead through
    /// symlinks: readable.
    pub programs: Vec<PathBuf>,
    /// Further folders that may be read.
    pub allow_read: Vec<PathBuf>,
    /// Further folders that may be written.
    pub allow_write: Vec<PathBuf>,
    /// Files in the writable folders that stay read-only, because other programs run or trust them.
    pub protected: Vec<PathBuf>,
    /// Sockets of other programs in the readable and writable folders: hidden where possible.
    pub covered: Vec<PathBuf>,
    /// The `.nb` folders of other projects in the readable folders: hidden like the project's own.
    pub others: Vec<PathBuf>,
    /// Whether the kernel may use the network.
    pub allow_net: bool,
    /// The number of processors that the kernel may use.
    pub cpus: Option<usize>,
    /// The user's real home.
    pub home: Option<PathBuf>,
    /// The kernel's working directory.
    pub folder: PathBuf,
}

impl FilesystemView {
    /// Returns the kernel's home.
    pub fn inner_home(&self) -> PathBuf {
        self.scratch.join("home")
    }

    /// Returns the folder of its temporary files.
    pub fn temporary(&self) -> PathBuf {
        self.scratch.join("tmp")
    }

    /// Returns the path under which the folder of its temporary files is mounted in separate namespaces: `/tmp`, for
    /// paths of sockets must be short.
    ///
    /// Landlock's rule for a folder applies to everything below, also to another mount. It is the only protection of
    /// named pipes, which can be written in a read-only mount. So a folder that may only be read is never below it.
    pub fn inner_temporary(&self) -> &'static Path {
        let tmp = Path::new("/tmp");
        let read = std::iter::once(&self.workspace).chain(&self.programs);
        let mut read = read.chain(&self.allow_read).chain(&self.protected);
        match read.any(|folder| folder.starts_with(tmp)) {
            true => Path::new("/run/tmp"),
            false => tmp,
        }
    }

    /// Returns the `.nb` folders, whose keys and journals no kernel must see.
    pub fn hidden(&self) -> impl Iterator<Item = &Path> {
        let others = self.others.iter().map(PathBuf::as_path);
        std::iter::once(self.hidden.as_path()).chain(others)
    }

    /// Returns the folders that belong to this kernel only.
    pub fn own_folders(&self) -> [PathBuf; 3] {
        [self.inner_home(), self.temporary(), self.sockets.clone()]
    }

    /// Returns whether the whole workspace may be written.
    pub fn writes_workspace(&self) -> bool {
        let mut allowed = self.allow_write.iter();
        allowed.any(|folder| self.workspace.starts_with(folder))
    }

    /// Returns whether a path lies in a writable folder.
    pub fn may_write(&self, path: &Path) -> bool {
        let own = self.own_folders();
        let mut all = own.iter().chain(&self.allow_write);
        all.any(|folder| path.starts_with(folder))
    }

    /// Returns whether a path lies in a readable folder.
    pub fn may_read(&self, path: &Path) -> bool {
        let named = std::iter::once(&self.workspace).chain(&self.programs);
        let mut named = named.chain(&self.allow_read);
        self.may_write(path)
            || named.any(|folder| path.starts_with(folder))
            || SYSTEM.iter().any(|folder| path.starts_with(folder))
    }
}

/// The system settings that programs read, listed one by one: otherwise a kernel of root could read
/// `/etc/shadow` and private keys.
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

/// Further settings that programs need in order to use the network.
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

/// Returns whether a variable always passes into a sandbox.
fn passes(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    PASSING.contains(&name.as_ref()) || name.starts_with("LC_")
}

/// The variables of this process that pass into a sandbox, and those that the kernel's environment sets.
pub struct PassedVariables<'a> {
    all: &'a dyn Variables,
    change: &'a VariableChanges,
}

impl<'a> PassedVariables<'a> {
    /// Selects from `all`, the variables after the change.
    pub fn new(all: &'a dyn Variables, change: &'a VariableChanges) -> Self {
        Self { all, change }
    }
}

impl Variables for PassedVariables<'_> {
    fn get(&self, name: &str) -> Option<OsString> {
        let known = OsStr::new(name);
        // The path of home reveals nothing of its content, and specs refer to it.
        let is_there = name == "HOME" || passes(known) || self.change.set.contains_key(known);
        is_there.then(|| self.all.get(name)).flatten()
    }
}

/// Variables and their values.
type Pairs = [(OsString, OsString)];

/// Returns the variables of a kernel in a sandbox: first the inherited language settings and search paths,
/// but none that hold tokens or name sockets; then those that its environment sets, and its own.
pub(super) fn variables(
    inherited: impl Iterator<Item = (OsString, OsString)>,
    (set, own): (&Pairs, &Pairs),
    view: &FilesystemView,
    temporary: &Path,
) -> Vec<(OsString, OsString)> {
    let mut all: Vec<_> = inherited.filter(|(name, _)| passes(name)).collect();
    all.extend(set.iter().cloned());
    with_own(all, own, view, temporary)
}

/// Adds the variables that every kernel in a sandbox has: its own, and those that name its folders.
pub(super) fn with_own(
    mut set: Vec<(OsString, OsString)>,
    own: &Pairs,
    view: &FilesystemView,
    temporary: &Path,
) -> Vec<(OsString, OsString)> {
    set.extend(own.iter().cloned());
    let home = view.inner_home();
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

    pub(crate) fn view() -> FilesystemView {
        FilesystemView {
            workspace: "/w".into(),
            hidden: "/w/.nb".into(),
            connection_file: "/w/.nb/connections/kernel-1.json".into(),
            sockets: "/tmp/nb-1/1".into(),
            scratch: "/s/a".into(),
            programs: vec!["/opt/env".into()],
            allow_read: vec!["/data".into()],
            allow_write: vec!["/w/out".into()],
            protected: Vec::new(),
            covered: Vec::new(),
            others: Vec::new(),
            allow_net: false,
            cpus: None,
            home: Some("/home/u".into()),
            folder: "/w/sub".into(),
        }
    }

    #[test]
    fn only_the_allowed_folders_may_be_written_and_read() {
        let view = view();
        for path in ["/w/out/a", "/s/a/home/x", "/tmp/nb-1/1/k-1"] {
            assert!(view.may_write(Path::new(path)), "{path}");
        }
        for path in ["/w/a.ipynb", "/w/.nb/state.json", "/data/x", "/w/outer"] {
            assert!(!view.may_write(Path::new(path)), "{path}");
        }
        for path in ["/w/a.ipynb", "/data/x", "/opt/env/lib", "/usr/bin/env"] {
            assert!(view.may_read(Path::new(path)), "{path}");
        }
        for path in ["/home/u/.ssh", "/etc/shadow", "/opt/environment"] {
            assert!(!view.may_read(Path::new(path)), "{path}");
        }
        assert!(!view.writes_workspace());
    }

    #[test]
    fn what_may_only_be_read_is_never_below_the_folder_of_temporary_files() {
        assert_eq!(view().inner_temporary(), Path::new("/tmp"));
        let folders = |change: fn(&mut FilesystemView)| {
            let mut view = view();
            change(&mut view);
            view.inner_temporary()
        };
        for changed in [
            folders(|it| it.workspace = "/tmp/w".into()),
            folders(|it| it.programs.push("/tmp/env".into())),
            folders(|it| it.allow_read.push("/tmp/data".into())),
        ] {
            assert_eq!(changed, Path::new("/run/tmp"));
        }
        let allow_write = |it: &mut FilesystemView| it.allow_write.push("/tmp/out".into());
        assert_eq!(folders(allow_write), Path::new("/tmp"));
    }

    #[test]
    fn no_token_passes_and_the_homes_are_the_scratch_folders() {
        let variables_before = [
            ("PATH", "/usr/bin"),
            ("LC_ALL", "C"),
            ("SSH_AUTH_SOCK", "/run/agent"),
            ("API_KEY", "secret"),
            ("HOME", "/home/u"),
            ("XDG_RUNTIME_DIR", "/run/user/1"),
        ];
        let variables_before =
            variables_before.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let own = [("NB_KERNEL".into(), "1".into())];
        let view = view();
        let set = variables(
            variables_before.into_iter(),
            (&[], &own),
            &view,
            Path::new("/tmp"),
        );
        let names: Vec<_> = set.iter().map(|(name, _)| name.to_string_lossy()).collect();
        for name in ["PATH", "LC_ALL", "NB_KERNEL", "MPLCONFIGDIR", "TMPDIR"] {
            assert!(names.contains(&name.into()), "{name}");
        }
        for name in ["SSH_AUTH_SOCK", "API_KEY", "XDG_RUNTIME_DIR"] {
            assert!(!names.contains(&name.into()), "{name}");
        }
        let homes: Vec<_> = set.iter().filter(|(name, _)| name == "HOME").collect();
        assert_eq!(homes, [&("HOME".into(), "/s/a/home".into())]);
    }

    #[test]
    fn a_spec_in_the_folder_names_no_variable_that_would_not_pass() {
        use crate::kernel::spec::environment;
        let variables_before =
            std::collections::HashMap::from([("API_KEY", "secret"), ("LANG", "C")]);
        let change = VariableChanges {
            set: [("CONDA_PREFIX".into(), "/env".into())].into(),
            ..VariableChanges::default()
        };
        let text = r#"{"name":"x","display_name":"x","argv":[],"language":"x",
            "env":{"A":"${API_KEY}","B":"$LANG","C":"${CONDA_PREFIX}/x"}}"#;
        let spec = serde_json::from_str(text).unwrap();
        let after = change.of(&variables_before);
        let set = environment(&spec, &PassedVariables::new(&after, &change));
        let set: Vec<_> = set
            .iter()
            .map(|(_, value)| value.to_string_lossy())
            .collect();
        assert_eq!(set, ["${API_KEY}", "C", "/env/x"]);
    }
}
