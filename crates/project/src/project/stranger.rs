//! Kernels that another program has recorded in a `state.json` with three keys. Others beside them are passed over.
//!
//! Such a record is used to connect to the kernel and for nothing else: no process in it is
//! signalled, no file deleted, no command run. It counts only if the connection file is a private
//! file of this user and its addresses are on this machine.

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde_json::{Map, Value};

use super::beneath;
use super::state::State;

/// The keys of a connection file for the ports of its kernel.
const PORTS: [&str; 5] = [
    "shell_port",
    "iopub_port",
    "stdin_port",
    "control_port",
    "hb_port",
];

/// The largest such file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A kernel that another program has recorded.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kernel {
    notebook: PathBuf,
    connection_file: PathBuf,
    pid: Option<u32>,
}

impl Kernel {
    /// Writes the kernel into the fields of a state for the kernel that was opened last.
    pub(super) fn enter(self, state: &mut State) {
        state.notebook = Some(self.notebook);
        state.connection_file = Some(self.connection_file);
        state.kernel_pid = self.pid;
    }
}

/// Returns the kernel that the `state.json` in a stranger's folder records.
pub(super) fn kernel(dir: &Path) -> Option<Kernel> {
    let text = beneath::read(&dir.join("state.json"), FILE_BYTES_MAX).ok()?;
    let fields: Map<String, Value> = serde_json::from_slice(&text).ok()?;
    // Of other keys nothing is read; with sessions it is another user's or another machine's `nb`.
    if fields.contains_key("sessions") {
        return None;
    }
    let path = |key: &str| Some(PathBuf::from(fields.get(key)?.as_str()?));
    let root = dir.parent().unwrap_or(dir);
    let kernel = Kernel {
        notebook: root.join(path("notebook")?),
        connection_file: path("connection_file").filter(|path| path.is_absolute())?,
        pid: fields
            .get("kernel_pid")
            .and_then(Value::as_u64)
            .and_then(|pid| pid.try_into().ok()),
    };
    is_private_and_local(&kernel.connection_file).then_some(kernel)
}

/// Says whether `nb` may connect to the kernel that the top-level fields name.
pub(super) fn may_be_used(state: &State) -> bool {
    let file = state.connection_file.as_deref();
    file.is_none_or(is_private_and_local)
}

/// Says whether a connection file is a private file of this user with addresses on this machine.
/// True for a missing file, through which nothing can connect.
fn is_private_and_local(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        Err(error) => return io::Error::from(error).kind() == io::ErrorKind::NotFound,
    };
    let Ok(found) = file.metadata() else {
        return false;
    };
    let is_private = found.is_file() && is_own(&found) && found.mode() & 0o077 == 0;
    if !is_private {
        return false;
    }
    let text = beneath::read_from(&file, FILE_BYTES_MAX).unwrap_or_default();
    // Nothing can connect through a damaged file; the code that uses it reports the damage.
    let Ok(fields) = serde_json::from_slice::<Map<String, Value>>(&text) else {
        return true;
    };
    let word = |key: &str| fields.get(key).and_then(Value::as_str);
    let ip = word("ip").unwrap_or("127.0.0.1");
    match word("transport") {
        Some("ipc") => {
            let ports = PORTS.map(|key| fields.get(key).and_then(Value::as_u64));
            let mut sockets = ports.iter().flatten().map(|port| format!("{ip}-{port}"));
            sockets.all(|path| is_own_socket(Path::new(&path)))
        }
        _ => is_loopback(ip),
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Says whether a path is a socket of this user. True if nothing exists there.
fn is_own_socket(path: &Path) -> bool {
    match std::fs::symlink_metadata(path) {
        Ok(found) => found.file_type().is_socket() && is_own(&found),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn is_own(found: &std::fs::Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use serde_json::json;

    use super::*;

    fn private(path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    }

    struct Place {
        _temp: tempfile::TempDir,
        root: PathBuf,
        dir: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let root = temp.path().canonicalize().unwrap();
            let dir = root.join(".nb");
            std::fs::create_dir(&dir).unwrap();
            Self {
                root,
                dir,
                _temp: temp,
            }
        }

        fn connection(&self, fields: &Value) -> PathBuf {
            let path = self.root.join("kernel.json");
            private(&path, &fields.to_string());
            path
        }

        fn state(&self, fields: &Value) -> Option<Kernel> {
            std::fs::write(self.dir.join("state.json"), fields.to_string()).unwrap();
            kernel(&self.dir)
        }

        fn names(&self, connection_file: &Path) -> bool {
            let keys =
                json!({"notebook": "t.ipynb", "connection_file": connection_file, "kernel_pid": 7});
            self.state(&keys).is_some()
        }
    }

    #[test]
    fn three_keys_and_a_private_file_of_this_machine_are_a_kernel() {
        let place = Place::new();
        let good = place.connection(&json!({"transport": "tcp", "ip": "127.0.0.1"}));
        let keys = json!({"notebook": "t.ipynb", "connection_file": good, "kernel_pid": 7});
        let found = place.state(&keys).unwrap();
        assert_eq!(found.notebook, place.root.join("t.ipynb"));
        assert_eq!(found.pid, Some(7));
        let mut more = keys;
        more["written_by"] = json!("another program");
        assert_eq!(
            place.state(&more),
            Some(found),
            "other keys are passed over"
        );
        more["sessions"] = json!({});
        assert_eq!(place.state(&more), None, "only nb has sessions");
        for ip in ["127.3.2.1", "::1", "localhost"] {
            assert!(place.names(&place.connection(&json!({"transport": "tcp", "ip": ip}))));
        }
    }

    #[test]
    fn another_machine_or_another_users_file_is_none() {
        let place = Place::new();
        for ip in [
            "10.0.0.1",
            "0.0.0.0",
            "evil.example",
            "127.0.0.1.evil.example",
            "*",
        ] {
            let file = place.connection(&json!({"transport": "tcp", "ip": ip}));
            assert!(!place.names(&file), "{ip}");
        }
        let file = place.connection(&json!({"transport": "tcp", "ip": "127.0.0.1"}));
        let link = place.root.join("link.json");
        symlink(&file, &link).unwrap();
        assert!(!place.names(&link));
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(!place.names(&file), "others may read it");
        assert!(!place.names(Path::new("/dev/zero")));
        let fifo = place.root.join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        assert!(!place.names(&fifo));
        // A regular file in the place of a Unix socket.
        let prefix = place.root.join("k");
        std::fs::write(place.root.join("k-1"), "").unwrap();
        let ipc = json!({"transport": "ipc", "ip": prefix, "shell_port": 1});
        assert!(!place.names(&place.connection(&ipc)));
        std::fs::remove_file(place.root.join("k-1")).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(place.root.join("k-1")).unwrap();
        assert!(place.names(&place.connection(&ipc)));
    }

    #[test]
    fn a_link_is_no_state() {
        let place = Place::new();
        let good = place.connection(&json!({"transport": "tcp", "ip": "127.0.0.1"}));
        let keys = json!({"notebook": "t.ipynb", "connection_file": good, "kernel_pid": 7});
        std::fs::write(place.root.join("state.json"), keys.to_string()).unwrap();
        symlink("../state.json", place.dir.join("state.json")).unwrap();
        assert_eq!(kernel(&place.dir), None);
    }
}
