//! A kernel's connection file and the files beside it: its sockets, its pid file and the link by which other
//! Jupyter clients find it.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use zeroize::Zeroizing;

use super::identity::{Process, Signal};
use super::plan::{PidRecord, ProcessEnd};
use crate::kernel::confine::{container, outcome};
use crate::kernel::foreign_file;
use crate::kernel::spec;
use crate::kernel::spec::jupyter_paths::JupyterPaths;
use crate::kernel::variables::Variables;
use crate::project::{Project, RealSpec, beneath, pid_namespace, remove_tree};
use crate::wire::{self, ConnectionFileError, ConnectionInfo, Ports, SigningKey, Transport};

/// Why a connection file could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// It could not be read.
    #[error("cannot read the connection file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Its content is wrong.
    #[error("cannot use the connection file {}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem with the content.
        source: ConnectionFileError,
    },
    /// It could not be made.
    #[error("cannot make the connection file {}", path.display())]
    Make {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// There is no private folder with a short enough path.
    #[error(
        "no private folder for Unix sockets has a short enough path; start the kernel with --transport tcp"
    )]
    NoSocketFolder,
}

/// Reads a connection file.
pub fn read(path: &Path) -> Result<ConnectionInfo, ConnectionError> {
    let bytes = foreign_file::read_within(path, FILE_BYTES_MAX).map_err(|source| {
        ConnectionError::Read {
            path: path.to_owned(),
            source,
        }
    })?;
    let bytes = Zeroizing::new(bytes);
    ConnectionInfo::parse(&bytes).map_err(|source| ConnectionError::Content {
        path: path.to_owned(),
        source,
    })
}

/// The maximum length of a connection file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The files of one kernel that `nb` starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFiles {
    connection_file: PathBuf,
}

impl KernelFiles {
    /// Returns the files of a new kernel, with unused names. Makes only their folder.
    pub fn fresh(project: &Project) -> io::Result<Self> {
        let folder = project.make_folder("connections")?;
        let id = uuid::Uuid::new_v4().simple().to_string();
        Ok(Self {
            connection_file: folder.join(format!("kernel-{}.json", &id[..ID])),
        })
    }

    /// Returns the files of the kernel that has this connection file.
    pub fn of(connection_file: &Path) -> Self {
        Self {
            connection_file: connection_file.to_owned(),
        }
    }

    /// Returns the connection file's path.
    pub fn connection_file(&self) -> &Path {
        &self.connection_file
    }

    /// Returns whether the kernel has not yet written its ports into the connection file: they are 0.
    pub fn is_open(&self) -> bool {
        let bytes = beneath::read(&self.connection_file, FILE_BYTES_MAX).unwrap_or_default();
        let fields = serde_json::from_slice::<serde_json::Value>(&bytes);
        fields.is_ok_and(|fields| {
            let mut channels = ["shell", "iopub", "stdin", "control", "hb"].iter();
            channels.any(|channel| fields[format!("{channel}_port")] == 0)
        })
    }

    /// Returns the path of the file that records the process; it is written before the kernel's first
    /// instruction.
    pub fn pid_file(&self) -> PathBuf {
        self.connection_file.with_extension("pid")
    }

    /// Returns the process that was last started on this connection file.
    pub fn process(&self) -> Option<Process> {
        self.recorded().map(|recorded| recorded.process)
    }

    /// Returns the path of the file that says how the process ended.
    pub fn end_file(&self) -> PathBuf {
        self.connection_file.with_extension("end")
    }

    /// Returns the path of the file with the outcome of a start in a sandbox.
    pub fn outcome_file(&self) -> PathBuf {
        self.connection_file.with_extension("sandbox")
    }

    /// Returns the path of the file in which the bridge of a kernel on a server reports about its connection.
    pub fn report_file(&self) -> PathBuf {
        self.connection_file.with_extension("remote")
    }

    /// Returns how this process ended, if its supervisor has recorded that.
    pub fn end_of(&self, process: &Process) -> Option<ProcessEnd> {
        let end: ProcessEnd =
            serde_json::from_slice(&beneath::read(&self.end_file(), FILE_BYTES_MAX).ok()?).ok()?;
        (end.process == *process).then_some(end)
    }

    /// Returns the supervisor of this process.
    pub fn supervisor_of(&self, process: &Process) -> Option<Process> {
        let recorded = self.recorded()?;
        recorded.supervisor.filter(|_| recorded.process == *process)
    }

    /// Returns whether the process was started in another container: its pid has no meaning here.
    pub fn is_of_elsewhere(&self) -> bool {
        self.recorded().is_some_and(|recorded| {
            let namespace = recorded.pid_namespace;
            !namespace.is_empty() && namespace != pid_namespace()
        })
    }

    fn recorded(&self) -> Option<PidRecord> {
        serde_json::from_slice(&beneath::read(&self.pid_file(), FILE_BYTES_MAX).ok()?).ok()
    }

    /// Makes the connection file, with a new key and free ports; it must not exist.
    ///
    /// For a kernel that chooses its own TCP ports the file has zeros, see [`spec::chooses_ports`]. `apart`
    /// puts Unix sockets into a separate folder, so that a sandboxed kernel sees this folder and not other
    /// kernels' sockets.
    pub fn create(
        &self,
        transport: Transport,
        apart: bool,
        spec: &RealSpec,
        variables: &dyn Variables,
    ) -> Result<ConnectionInfo, ConnectionError> {
        let cannot_make = |source| ConnectionError::Make {
            path: self.connection_file.clone(),
            source,
        };
        let is_ipc = apart || transport == Transport::Ipc;
        let mut info = on_tcp(is_ipc || spec::chooses_ports(spec)).map_err(cannot_make)?;
        info.kernel_name = Some(spec.name.clone());
        if is_ipc {
            info.transport = Transport::Ipc;
            info.ip = self.socket_prefix(apart, variables)?;
            // The number is the suffix of a path.
            info.ports = ports([1, 2, 3, 4, 5]);
        }
        self.write(&info).map_err(cannot_make)?;
        self.link(variables);
        Ok(info)
    }

    /// Returns the kernel's files and sockets that exist.
    pub fn existing(&self, variables: &dyn Variables) -> Vec<PathBuf> {
        let mut all = vec![
            self.connection_file.clone(),
            self.pid_file(),
            self.end_file(),
            self.outcome_file(),
            self.report_file(),
            container::record(&self.connection_file),
        ];
        all.extend(self.sockets(variables));
        all.retain(|path| path.symlink_metadata().is_ok());
        all
    }

    /// Removes the files of a kernel that has ended. A missing file is not an error.
    ///
    /// If a killed process had begun a start that is still under way, the start is called off, or its process
    /// ended.
    ///
    /// Only files that `nb` made are removed. A `state.json` may name any file, and a connection file any
    /// socket: so the name must have the form of `nb`'s names, in a folder that `nb` made, and the names of
    /// all other files are derived from it.
    pub fn remove(&self, variables: &dyn Variables) {
        if !self.is_ours() {
            return;
        }
        self.remove_sockets(variables);
        if let Some(id) = self.id().filter(|id| !id.is_empty()) {
            // Only a kernel in a sandbox or a container has these.
            for folder in socket_folders(variables) {
                for name in [id.clone(), format!("{id}.out"), format!("{id}.program")] {
                    let _ = remove_tree(&folder.join(name));
                }
            }
        }
        outcome::end_leftovers(&self.outcome_file());
        container::remove(&self.connection_file);
        let _ = beneath::remove_file(&self.outcome_file());
        let _ = beneath::remove_file(&self.report_file());
        if let Some(link) = self.link_path(variables)
            && std::fs::read_link(&link).is_ok_and(|target| target == self.connection_file)
        {
            let _ = std::fs::remove_file(link);
        }
        // Removed after the files to which it leads: after a crash in between it still leads to the rest.
        let _ = beneath::remove_file(&self.connection_file);
        if let Some(process) = self.process() {
            let _ = process.signal_group(Signal::KILL);
        }
        let _ = beneath::remove_file(&self.pid_file());
        let _ = beneath::remove_file(&self.end_file());
    }

    /// Returns whether `nb` made these files, according to their name and the owner of the folder.
    pub fn is_ours(&self) -> bool {
        let folder = self.connection_file.parent();
        let named = self
            .id()
            .is_some_and(|id| id.len() == ID && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        named && folder.is_some_and(Project::made_connections)
    }

    /// Returns the paths that the kernel's Unix sockets may have.
    fn sockets(&self, variables: &dyn Variables) -> Vec<PathBuf> {
        let Some(id) = self.id().filter(|_| self.is_ours()) else {
            return Vec::new();
        };
        let folders = socket_folders(variables).into_iter();
        let prefixes = folders.flat_map(|dir| [dir.join(&id), dir.join(&id).join("k")]);
        let sockets = prefixes.flat_map(|prefix| {
            (1..=5).map(move |port| {
                let mut path = prefix.clone().into_os_string();
                path.push(format!("-{port}"));
                PathBuf::from(path)
            })
        });
        sockets.collect()
    }

    /// Returns whether the kernel has bound a Unix socket where its connection file says.
    pub fn has_socket(&self, variables: &dyn Variables) -> bool {
        let exists = |path: &PathBuf| path.symlink_metadata().is_ok();
        self.sockets(variables).iter().any(exists)
    }

    /// Removes the kernel's Unix sockets.
    pub fn remove_sockets(&self, variables: &dyn Variables) {
        for path in self.sockets(variables) {
            let is_socket = |found: std::fs::Metadata| found.file_type().is_socket();
            if path.symlink_metadata().is_ok_and(is_socket) {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    fn write(&self, info: &ConnectionInfo) -> io::Result<()> {
        if let Some(folder) = self.connection_file.parent() {
            // The folder may have been removed in the meantime.
            beneath::make_subfolder(folder)?;
        }
        let mut file = beneath::create(&self.connection_file)?;
        file.write_all(info.to_json().as_bytes())
    }

    /// Makes a link by which `jupyter console --existing` and other clients find the file.
    ///
    /// This is a convenience: without it, the full path still works.
    fn link(&self, variables: &dyn Variables) {
        let Some(link) = self.link_path(variables) else {
            return;
        };
        let Some(folder) = link.parent() else { return };
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder);
        if made.is_ok() {
            // Links of kernels whose end was not noticed.
            for link in links_to_nothing(folder) {
                let _ = std::fs::remove_file(link);
            }
            let _ = std::os::unix::fs::symlink(&self.connection_file, link);
        }
    }

    fn link_path(&self, variables: &dyn Variables) -> Option<PathBuf> {
        let id = self.id()?;
        let paths = JupyterPaths::new(variables).ok()?;
        Some(paths.runtime_dir.join(format!("{LINK_PREFIX}{id}.json")))
    }

    /// Returns the id in all file names of this kernel; `None` if another program chose the connection file's
    /// name.
    fn id(&self) -> Option<String> {
        let name = self.connection_file.file_stem()?.to_string_lossy();
        Some(name.strip_prefix("kernel-")?.to_owned())
    }

    /// Returns the prefix of the sockets' paths.
    fn socket_prefix(
        &self,
        apart: bool,
        variables: &dyn Variables,
    ) -> Result<String, ConnectionError> {
        let mut id = self.id().ok_or(ConnectionError::NoSocketFolder)?;
        if apart {
            id.push_str("/k");
        }
        let folder = socket_folder(variables).map_err(|_| ConnectionError::NoSocketFolder)?;
        let prefix = folder.join(&id).into_os_string().into_string();
        prefix.map_err(|_| ConnectionError::NoSocketFolder)
    }
}

/// The length of the id in the names of a kernel's files.
const ID: usize = 12;

/// The prefix of the links in Jupyter's runtime folder: clients search for `kernel-*.json`.
const LINK_PREFIX: &str = "kernel-nb-";

fn ports([shell, iopub, stdin, control, hb]: [u16; 5]) -> Ports {
    Ports {
        shell,
        iopub,
        stdin,
        control,
        hb,
    }
}

/// Returns the folders that may hold sockets, best first.
///
/// `XDG_RUNTIME_DIR` is not among them: systemd removes it at the last logout, while the kernel still runs.
fn socket_folders(variables: &dyn Variables) -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let home = variables.path("HOME");
    let cache = variables
        .path("XDG_CACHE_HOME")
        .or_else(|| home.map(|home| home.join(".cache")));
    let mut folders = vec![PathBuf::from(format!("/tmp/nb-{user}"))];
    folders.extend(cache.map(|cache| cache.join("nb/s")));
    folders
}

/// Returns the folder for the next kernel's sockets; if there is none, returns the folders that were tried
/// with their errors.
pub fn socket_folder(variables: &dyn Variables) -> Result<PathBuf, Vec<(PathBuf, io::Error)>> {
    let mut tried = Vec::new();
    for folder in socket_folders(variables) {
        // As long as the longest path of a socket in it.
        let longest = folder.join("000000000000/k-65535");
        let done = match longest.as_os_str().len() {
            length if length > wire::SOCKET_PATH_MAX => Err(io::Error::other(
                "the paths of sockets in it would be too long",
            )),
            _ => private_folder(&folder),
        };
        match done {
            Ok(()) => return Ok(folder),
            Err(error) => tried.push((folder, error)),
        }
    }
    Err(tried)
}

/// Returns the paths at which the `nb live` with this pid may listen for other commands of this user, in folders that only
/// this user can enter.
pub fn live_sockets(pid: u32, variables: &dyn Variables) -> impl Iterator<Item = PathBuf> {
    let folders = socket_folders(variables).into_iter();
    folders
        .filter(|folder| folder.is_dir() && private_folder(folder).is_ok())
        .map(move |folder| folder.join(format!("live-{pid}")))
}

/// Makes a folder that only this user can enter, or checks that an existing one is such a folder.
///
/// In `/tmp` another user may have made it before, as a link or as their own folder.
fn private_folder(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let found = std::fs::symlink_metadata(folder)?;
    let own = found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && own && found.mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(io::Error::other("it is not a private folder of this user"))
    }
}

/// Returns a TCP connection with a new key of 244 random bits and ports that were free a moment ago, so that
/// another program may still take one; with `open`, without ports.
pub fn on_tcp(open: bool) -> io::Result<ConnectionInfo> {
    let mut free = [0; 5];
    if !open {
        let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        // All are held until all are found, since two could be the same otherwise.
        let listeners: Vec<_> = (0..5).map(bind).collect::<io::Result<_>>()?;
        for (port, listener) in free.iter_mut().zip(&listeners) {
            *port = listener.local_addr()?.port();
        }
    }
    let random = [(); 2].map(|()| uuid::Uuid::new_v4().simple().to_string());
    let key = Zeroizing::new(Zeroizing::new(random).concat());
    Ok(ConnectionInfo {
        transport: Transport::Tcp,
        ip: Ipv4Addr::LOCALHOST.to_string(),
        ports: ports(free),
        key: SigningKey::new(key.as_bytes()),
        kernel_name: None,
    })
}

/// Returns `nb`'s links in Jupyter's runtime folder whose targets are missing.
pub fn stale_links(variables: &dyn Variables) -> Vec<PathBuf> {
    let paths = JupyterPaths::new(variables);
    paths.map_or_else(|_| Vec::new(), |it| links_to_nothing(&it.runtime_dir))
}

fn links_to_nothing(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let links = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(LINK_PREFIX))
        .map(|entry| entry.path());
    links
        .filter(|path| path.is_symlink() && !path.exists())
        .collect()
}

/// Returns the sockets in the user's socket folders on which no process listens. Those of a sandboxed kernel
/// are in a separate folder.
pub fn stale_sockets(variables: &dyn Variables) -> Vec<PathBuf> {
    let folders = socket_folders(variables).into_iter();
    let own = folders.filter(|folder| folder.is_dir() && private_folder(folder).is_ok());
    let entries = own.flat_map(|folder| walkdir::WalkDir::new(folder).max_depth(2));
    let sockets = entries.flatten().filter(|entry| {
        let modified = entry
            .metadata()
            .ok()
            .and_then(|found| found.modified().ok());
        let age = modified.and_then(|at| at.elapsed().ok());
        // A socket is bound a moment before its kernel listens.
        entry.file_type().is_socket() && age.is_some_and(|age| age > JUST_MADE)
    });
    sockets
        .map(walkdir::DirEntry::into_path)
        .filter(|path| nobody_listens(path))
        .collect()
}

/// Removes the empty socket folders of sandboxed kernels.
pub fn remove_empty_folders(sockets: &[PathBuf], variables: &dyn Variables) {
    let kept = socket_folders(variables);
    let folders = sockets.iter().filter_map(|socket| socket.parent());
    for folder in folders.filter(|folder| !kept.iter().any(|kept| kept == folder)) {
        let _ = std::fs::remove_file(folder.join(container::COPY));
        // This fails for a folder that is not empty.
        let _ = std::fs::remove_dir(folder);
    }
}

/// How long a kernel may take from binding a socket to listening on it.
const JUST_MADE: Duration = Duration::from_secs(5);

/// Returns whether the system refuses a connection. A busy kernel's system queues it instead.
fn nobody_listens(path: &Path) -> bool {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
    let tried = || {
        let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        // Non-blocking: a full queue is an answer, too.
        rustix::io::ioctl_fionbio(&socket, true)?;
        connect(&socket, &SocketAddrUnix::new(path)?)
    };
    tried() == Err(rustix::io::Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn project(temp: &tempfile::TempDir) -> Project {
        Project::for_notebook(&temp.path().join("a.ipynb")).unwrap()
    }

    fn bash() -> RealSpec {
        let spec = serde_json::json!({ "name": "bash", "argv": ["python", "-m", "bash_kernel"] });
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn a_kernel_that_can_chooses_its_own_ports() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str())]);
        let mut spec = bash();
        for (module, chooses) in [("bash_kernel", false), ("ipykernel_launcher", true)] {
            spec.argv[2] = module.to_owned();
            let files = KernelFiles::fresh(&project(&temp)).unwrap();
            let info = files
                .create(Transport::Tcp, false, &spec, &variables)
                .unwrap();
            assert_eq!(info.ports.shell == 0, chooses, "{module}");
            assert_eq!(files.is_open(), chooses, "{module}");
            // No client may connect before the kernel has chosen its ports.
            assert_eq!(read(files.connection_file()).is_err(), chooses, "{module}");
            files.remove(&variables);
        }
    }

    #[test]
    fn a_connection_file_is_private_unique_and_found_by_other_clients() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str())]);
        let files = KernelFiles::fresh(&project(&temp)).unwrap();
        let info = files
            .create(Transport::Tcp, false, &bash(), &variables)
            .unwrap();
        assert!(info.key.signs());
        let mode = std::fs::metadata(files.connection_file())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(
            files
                .create(Transport::Tcp, false, &bash(), &variables)
                .is_err()
        );
        let runtime = JupyterPaths::new(&variables).unwrap().runtime_dir;
        let links = || std::fs::read_dir(&runtime).unwrap().count();
        assert_eq!(links(), 1);
        files.remove(&variables);
        files.remove(&variables);
        assert_eq!(links(), 0);
        assert!(!files.connection_file().exists());
    }

    #[test]
    fn files_of_other_programs_are_not_removed() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str())]);
        let theirs = temp.path().canonicalize().unwrap().join("theirs");
        std::fs::create_dir_all(theirs.join("connections")).unwrap();
        let project = project(&temp);
        let own = project.make_folder("connections").unwrap();
        // A user's own file, a file with a name like nb's, and a foreign file in nb's folder.
        for path in [
            theirs.join("thesis.txt"),
            theirs.join("connections/kernel-0123456789ab.json"),
            own.join("kernel-mine.json"),
        ] {
            let beside = path.with_extension("pid");
            std::fs::write(&path, "text").unwrap();
            std::fs::write(&beside, "text").unwrap();
            let files = KernelFiles::of(&path);
            assert!(!files.is_ours(), "{}", path.display());
            files.remove(&variables);
            assert!(path.exists() && beside.exists(), "{}", path.display());
        }
        // The paths of sockets are derived from the file's name, not from its content.
        let files = KernelFiles::fresh(&project).unwrap();
        let victim = theirs.join("mail-1");
        std::fs::write(&victim, "text").unwrap();
        let prefix = theirs.join("mail");
        let text = serde_json::json!({
            "transport": "ipc", "ip": prefix, "key": "k", "shell_port": 1, "iopub_port": 2,
            "stdin_port": 3, "control_port": 4, "hb_port": 5,
        });
        std::fs::write(files.connection_file(), text.to_string()).unwrap();
        assert!(!files.existing(&variables).contains(&victim));
        files.remove_sockets(&variables);
        files.remove(&variables);
        assert!(victim.exists() && !files.connection_file().exists());
    }

    #[test]
    fn sockets_are_in_a_private_folder() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str())]);
        let files = KernelFiles::fresh(&project(&temp)).unwrap();
        let info = files
            .create(Transport::Ipc, false, &bash(), &variables)
            .unwrap();
        let folder = Path::new(&info.ip).parent().unwrap();
        let mode = std::fs::metadata(folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        files.remove(&variables);
    }

    #[test]
    fn a_socket_without_a_listener_is_stale() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("s-1");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(!nobody_listens(&path));
        drop(listener);
        assert!(nobody_listens(&path));
        std::fs::remove_file(&path).unwrap();
        assert!(!nobody_listens(&path), "there is nothing to remove");
    }

    #[test]
    fn a_folder_that_others_can_enter_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let open = temp.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(private_folder(&open).is_err());
        let link = temp.path().join("link");
        std::os::unix::fs::symlink(temp.path(), &link).unwrap();
        assert!(private_folder(&link).is_err());
        assert!(private_folder(&temp.path().join("a/b")).is_ok());
    }
}
