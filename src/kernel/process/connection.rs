//! A kernel's connection file and the files beside it: its sockets, its pid file and the link by
//! which other Jupyter clients find it.

use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use zeroize::Zeroizing;

use super::identity::{Process, Signal};
use super::plan::{PidRecord, ProcessEnd};
use crate::kernel::confine::{container, outcome};
use crate::kernel::spec;
use crate::kernel::spec::jupyter_paths::JupyterPaths;
use crate::kernel::variables::Variables;
use crate::project::{Project, RealSpec, Transport, beneath, pid_namespace, remove_tree};
use crate::wire::{self, ConnectionFileError, ConnectionInfo, Ports, SigningKey};

/// Why a connection file could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// It could not be read.
    #[error("cannot read the connection file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its content is wrong.
    #[error("cannot use the connection file {}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ConnectionFileError,
    },
    /// It could not be made.
    #[error("cannot make the connection file {}", path.display())]
    Make {
        /// The file.
        path: PathBuf,
        /// What the system said.
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
    let bytes = read_bytes(path).map_err(|source| ConnectionError::Read {
        path: path.to_owned(),
        source,
    })?;
    let bytes = Zeroizing::new(bytes);
    ConnectionInfo::parse(&bytes).map_err(|source| ConnectionError::Content {
        path: path.to_owned(),
        source,
    })
}

/// Reads a file that may be another program's: it is not waited for, and not read without end.
fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    beneath::read_from(&file, MOST)
}

/// No connection file is larger.
const MOST: u64 = 1 << 20;

/// The files of one kernel that `nb` starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFiles {
    connection_file: PathBuf,
}

impl KernelFiles {
    /// Returns the files of a new kernel, under unused names. Makes only the folder.
    pub fn fresh(project: &Project) -> io::Result<Self> {
        let folder = project.make_folder("connections")?;
        let id = uuid::Uuid::new_v4().simple().to_string();
        Ok(Self {
            connection_file: folder.join(format!("kernel-{}.json", &id[..ID])),
        })
    }

    /// Returns the files of the kernel with this connection file.
    pub fn of(connection_file: &Path) -> Self {
        Self {
            connection_file: connection_file.to_owned(),
        }
    }

    /// Returns the connection file's path.
    pub fn connection_file(&self) -> &Path {
        &self.connection_file
    }

    /// Says whether the kernel has yet to write its ports into the connection file: they are 0.
    pub fn is_open(&self) -> bool {
        let bytes = beneath::read(&self.connection_file, MOST).unwrap_or_default();
        let fields = serde_json::from_slice::<serde_json::Value>(&bytes);
        fields.is_ok_and(|fields| {
            let mut channels = ["shell", "iopub", "stdin", "control", "hb"].iter();
            channels.any(|channel| fields[format!("{channel}_port")] == 0)
        })
    }

    /// Returns the path of the file that names the process from before its first instruction.
    pub fn pid_file(&self) -> PathBuf {
        self.connection_file.with_extension("pid")
    }

    /// Returns the process that was last started on this connection file.
    pub fn process(&self) -> Option<Process> {
        self.recorded().map(|recorded| recorded.process)
    }

    /// Returns the path of the file that tells how the process ended.
    pub fn end_file(&self) -> PathBuf {
        self.connection_file.with_extension("end")
    }

    /// Returns the path of the file that tells what became of a start in a sandbox.
    pub fn outcome_file(&self) -> PathBuf {
        self.connection_file.with_extension("sandbox")
    }

    /// Returns how this process ended, where its supervisor has written that down.
    pub fn end_of(&self, process: &Process) -> Option<ProcessEnd> {
        let end: ProcessEnd =
            serde_json::from_slice(&beneath::read(&self.end_file(), MOST).ok()?).ok()?;
        (end.process == *process).then_some(end)
    }

    /// Returns the supervisor of this process.
    pub fn supervisor_of(&self, process: &Process) -> Option<Process> {
        let recorded = self.recorded()?;
        recorded.supervisor.filter(|_| recorded.process == *process)
    }

    /// Says whether the process was started in another container: its pid means nothing here.
    pub fn is_of_elsewhere(&self) -> bool {
        self.recorded().is_some_and(|recorded| {
            let namespace = recorded.pid_namespace;
            !namespace.is_empty() && namespace != pid_namespace()
        })
    }

    fn recorded(&self) -> Option<PidRecord> {
        serde_json::from_slice(&beneath::read(&self.pid_file(), MOST).ok()?).ok()
    }

    /// Makes the connection file, with a new key and free ports; it must not exist.
    ///
    /// A kernel that chooses its own TCP ports finds zeros there, see [`spec::chooses_ports`].
    pub fn create(
        &self,
        transport: Transport,
        spec: &RealSpec,
        variables: &dyn Variables,
    ) -> Result<ConnectionInfo, ConnectionError> {
        self.create_with(transport, false, spec, variables)
    }

    /// As [`KernelFiles::create`], with Unix sockets in a folder that holds nothing else: in a
    /// sandbox the kernel sees that folder, and not other kernels' sockets.
    pub fn create_apart(
        &self,
        spec: &RealSpec,
        variables: &dyn Variables,
    ) -> Result<ConnectionInfo, ConnectionError> {
        self.create_with(Transport::Ipc, true, spec, variables)
    }

    fn create_with(
        &self,
        transport: Transport,
        apart: bool,
        spec: &RealSpec,
        variables: &dyn Variables,
    ) -> Result<ConnectionInfo, ConnectionError> {
        let (ip, ports, transport) = match transport {
            Transport::Ipc => (
                self.socket_prefix(apart, variables)?,
                // Only the end of a path.
                ports([1, 2, 3, 4, 5]),
                wire::Transport::Ipc,
            ),
            Transport::Tcp if spec::chooses_ports(spec) => (
                Ipv4Addr::LOCALHOST.to_string(),
                ports([0; 5]),
                wire::Transport::Tcp,
            ),
            Transport::Tcp => {
                let ports = free_ports().map_err(|source| self.cannot_make(source))?;
                (Ipv4Addr::LOCALHOST.to_string(), ports, wire::Transport::Tcp)
            }
        };
        let info = ConnectionInfo {
            transport,
            ip,
            ports,
            key: SigningKey::new(new_key().as_bytes()),
            kernel_name: Some(spec.name.clone()),
        };
        self.write(&info)
            .map_err(|source| self.cannot_make(source))?;
        self.link(variables);
        Ok(info)
    }

    /// Returns those of the kernel's files and sockets that are there.
    pub fn existing(&self, variables: &dyn Variables) -> Vec<PathBuf> {
        let mut all = vec![
            self.connection_file.clone(),
            self.pid_file(),
            self.end_file(),
            self.outcome_file(),
            container::record(&self.connection_file),
        ];
        all.extend(self.sockets(variables));
        all.retain(|path| path.symlink_metadata().is_ok());
        all
    }

    /// Removes what belongs to a kernel that has ended. What is not there is no error.
    ///
    /// A start may still be under way whose starter was killed: it is called off, or its process ended.
    ///
    /// Only what `nb` made is removed. A `state.json` may name any file, and a connection file any
    /// socket: so the name must be one that `nb` gives, in a folder that `nb` made, and the names of
    /// all the rest come from that.
    pub fn remove(&self, variables: &dyn Variables) {
        if !self.is_ours() {
            return;
        }
        self.remove_sockets(variables);
        if let Some(id) = self.id().filter(|id| !id.is_empty()) {
            // Only a kernel in a sandbox or in a container has them.
            for folder in socket_folders(variables) {
                for name in [id.clone(), format!("{id}.out"), format!("{id}.program")] {
                    let _ = remove_tree(&folder.join(name));
                }
            }
        }
        outcome::end_leftovers(&self.outcome_file());
        container::remove(&self.connection_file);
        let _ = beneath::remove_file(&self.outcome_file());
        if let Some(link) = self.link_path(variables)
            && std::fs::read_link(&link).is_ok_and(|target| target == self.connection_file)
        {
            let _ = std::fs::remove_file(link);
        }
        // After the files that it leads to: after a crash in between it still leads to the rest.
        let _ = beneath::remove_file(&self.connection_file);
        if let Some(process) = self.process() {
            let _ = process.signal_group(Signal::KILL);
        }
        let _ = beneath::remove_file(&self.pid_file());
        let _ = beneath::remove_file(&self.end_file());
    }

    /// Says whether `nb` made these files: by their name, and by whose the folder is.
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
            // The folder may have been removed meanwhile.
            beneath::make_folder(folder)?;
        }
        let mut file = beneath::create(&self.connection_file)?;
        file.write_all(info.to_json().as_bytes())
    }

    /// Lets `jupyter console --existing` and other clients find the file where they look.
    ///
    /// A convenience: where it cannot be made, the full path still works.
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
            sweep_links(folder);
            let _ = std::os::unix::fs::symlink(&self.connection_file, link);
        }
    }

    fn link_path(&self, variables: &dyn Variables) -> Option<PathBuf> {
        let id = self.id()?;
        let paths = JupyterPaths::new(variables).ok()?;
        Some(paths.runtime_dir.join(format!("{LINK_PREFIX}{id}.json")))
    }

    /// Returns what is in all names that belong to this kernel; none where another program chose
    /// the connection file's name.
    fn id(&self) -> Option<String> {
        let name = self.connection_file.file_stem()?.to_string_lossy();
        Some(name.strip_prefix("kernel-")?.to_owned())
    }

    /// Returns how the paths of the sockets begin.
    fn socket_prefix(
        &self,
        apart: bool,
        variables: &dyn Variables,
    ) -> Result<String, ConnectionError> {
        let mut id = self.id().ok_or(ConnectionError::NoSocketFolder)?;
        if apart {
            id.push_str("/k");
        }
        socket_folders(variables)
            .into_iter()
            .filter(|folder| private_folder(folder).is_ok())
            .filter_map(|folder| folder.join(&id).into_os_string().into_string().ok())
            .find(|prefix| prefix.len() + "-65535".len() <= wire::SOCKET_PATH_MAX)
            .ok_or(ConnectionError::NoSocketFolder)
    }

    fn cannot_make(&self, source: io::Error) -> ConnectionError {
        ConnectionError::Make {
            path: self.connection_file.clone(),
            source,
        }
    }
}

/// How long the id in the names of a kernel's files is.
const ID: usize = 12;

/// How the links in Jupyter's runtime folder are called: `kernel-*.json` is what clients look for.
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

/// Where sockets may lie, best first.
///
/// Not in `XDG_RUNTIME_DIR`: systemd removes it at the last logout while the kernel lives on.
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

/// Returns the folder in which the sockets of the next kernel would lie; where there is none, what
/// is wrong with each that was tried.
pub fn socket_folder(variables: &dyn Variables) -> Result<PathBuf, Vec<(PathBuf, io::Error)>> {
    let mut tried = Vec::new();
    for folder in socket_folders(variables) {
        // As long as the longest name in it.
        let longest = folder.join("000000000000-65535");
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

/// Makes a folder that only this user can enter, or checks that it is one.
///
/// In `/tmp` anybody may have made it first, as a link or as theirs.
fn private_folder(folder: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new()
        .recursive(false)
        .mode(0o700)
        .create(folder)
    {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = std::fs::symlink_metadata(folder)?;
    let own = found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && own && found.mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(io::Error::other("it is not a private folder of this user"))
    }
}

/// Returns five ports that were free a moment ago; another program may still take one of them.
fn free_ports() -> io::Result<Ports> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // All are held until all are found, or two could be the same.
    let listeners: Vec<_> = (0..5).map(bind).collect::<io::Result<_>>()?;
    let mut free = [0; 5];
    for (port, listener) in free.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports(free))
}

/// Returns a key of 244 random bits.
fn new_key() -> Zeroizing<String> {
    let (one, other) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    Zeroizing::new(format!("{}{}", one.simple(), other.simple()))
}

/// Removes the links of kernels that ended unnoticed.
fn sweep_links(folder: &Path) {
    for link in links_to_nothing(folder) {
        let _ = std::fs::remove_file(link);
    }
}

/// Returns `nb`'s links in Jupyter's runtime folder whose target is gone.
pub fn stale_links(variables: &dyn Variables) -> Vec<PathBuf> {
    JupyterPaths::new(variables)
        .map(|paths| links_to_nothing(&paths.runtime_dir))
        .unwrap_or_default()
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

/// Returns the sockets in the user's folders for them on which nobody listens. Those of a sandboxed
/// kernel are in a folder of their own there.
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
        // A socket is bound before its kernel listens.
        entry.file_type().is_socket() && age.is_some_and(|age| age > JUST_MADE)
    });
    sockets
        .map(walkdir::DirEntry::into_path)
        .filter(|path| nobody_listens(path))
        .collect()
}

/// Removes the folders of sandboxed kernels' sockets that are empty.
pub fn remove_empty_folders(sockets: &[PathBuf], variables: &dyn Variables) {
    let kept = socket_folders(variables);
    let folders = sockets.iter().filter_map(|socket| socket.parent());
    for folder in folders.filter(|folder| !kept.iter().any(|kept| kept == folder)) {
        let _ = std::fs::remove_file(folder.join(container::COPY));
        // One that is not empty stays.
        let _ = std::fs::remove_dir(folder);
    }
}

/// How long a kernel may take between making a socket and listening on it.
const JUST_MADE: Duration = Duration::from_secs(5);

/// Says whether the system refuses a connection. A busy kernel's is queued instead.
fn nobody_listens(path: &Path) -> bool {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
    let tried = || {
        let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        // Without waiting: a full queue is an answer too.
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
            let info = files.create(Transport::Tcp, &spec, &variables).unwrap();
            assert_eq!(info.ports.shell == 0, chooses, "{module}");
            assert_eq!(files.is_open(), chooses, "{module}");
            // Nobody may connect before there is something to connect to.
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
        let info = files.create(Transport::Tcp, &bash(), &variables).unwrap();
        assert!(info.key.signs());
        let mode = std::fs::metadata(files.connection_file())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(files.create(Transport::Tcp, &bash(), &variables).is_err());
        let runtime = JupyterPaths::new(&variables).unwrap().runtime_dir;
        let links = || std::fs::read_dir(&runtime).unwrap().count();
        assert_eq!(links(), 1);
        files.remove(&variables);
        files.remove(&variables);
        assert_eq!(links(), 0);
        assert!(!files.connection_file().exists());
    }

    #[test]
    fn what_nb_did_not_make_is_not_removed() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str())]);
        let theirs = temp.path().canonicalize().unwrap().join("theirs");
        std::fs::create_dir_all(theirs.join("connections")).unwrap();
        let project = project(&temp);
        let own = project.make_folder("connections").unwrap();
        // A file of the user's own, one that is called as nb's are, and one in nb's folder that is not.
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
        // Sockets are those that its own name says, not what its content names.
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
    fn sockets_lie_where_nobody_else_can_reach_them() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str())]);
        let files = KernelFiles::fresh(&project(&temp)).unwrap();
        let info = files.create(Transport::Ipc, &bash(), &variables).unwrap();
        let folder = Path::new(&info.ip).parent().unwrap();
        let mode = std::fs::metadata(folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        files.remove(&variables);
    }

    #[test]
    fn a_socket_is_stale_when_nobody_listens() {
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
