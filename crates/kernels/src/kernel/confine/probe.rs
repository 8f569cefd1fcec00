//! Probes that try every guarantee from inside a sandbox, run by the very process that then becomes the
//! kernel.
//!
//! A probe that succeeds does no harm: it opens files without changing them, and sends signal 0. The targets
//! outside ([`ProbeTargets`]) are made for the probes, so that a failure to reach them can only be due to the
//! sandbox.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::guarantee::Guarantee;
use super::view::FilesystemView;
use crate::kernel::process::Process;
use crate::project::Missing;

/// The targets outside a sandbox that a probe must fail to reach.
#[derive(Debug)]
pub(super) struct ProbeTargets {
    /// The addresses of the targets.
    pub(super) addresses: TargetAddresses,
    tcp: Option<TcpListener>,
    udp: Option<UdpSocket>,
    _abstract: UnixListener,
    _path: UnixListener,
    folder: PathBuf,
}

/// The addresses of the targets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TargetAddresses {
    tcp_port: Option<u16>,
    udp_port: Option<u16>,
    abstract_name: String,
    path_socket: PathBuf,
    file: PathBuf,
    process: Process,
}

impl ProbeTargets {
    /// Makes the targets. The caller removes `folder` afterwards; its path must be short.
    pub(super) fn make(folder: &Path) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let _ = std::fs::remove_dir_all(folder);
        std::fs::DirBuilder::new().mode(0o700).create(folder)?;
        let file = folder.join("f");
        std::fs::write(&file, "outside")?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
        let path_socket = folder.join("s");
        let abstract_name = format!("nb-{}", uuid::Uuid::new_v4().simple());
        let address = SocketAddr::from_abstract_name(&abstract_name)?;
        // On a machine without a network these cannot be made, and are not needed.
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok();
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok();
        udp.iter().try_for_each(|it| it.set_nonblocking(true))?;
        tcp.iter().try_for_each(|it| it.set_nonblocking(true))?;
        let tcp_address = tcp.as_ref().and_then(|it| it.local_addr().ok());
        let udp_address = udp.as_ref().and_then(|it| it.local_addr().ok());
        Ok(Self {
            addresses: TargetAddresses {
                tcp_port: tcp_address.map(|it| it.port()),
                udp_port: udp_address.map(|it| it.port()),
                abstract_name,
                path_socket: path_socket.clone(),
                file,
                process: Process::current(),
            },
            tcp,
            udp,
            _abstract: UnixListener::bind_addr(&address)?,
            _path: UnixListener::bind(&path_socket)?,
            folder: folder.to_owned(),
        })
    }

    /// Uses another process than this one as the target.
    pub(super) fn is_process(&mut self, pid: u32) {
        if let Some(process) = Process::of(pid) {
            self.addresses.process = process;
        }
    }

    /// Returns the missing guarantee if a message from inside has reached a target; called after all probes.
    pub(super) fn arrived(&self) -> Option<Missing> {
        let mut byte = [0];
        let tcp = self.tcp.iter().any(|it| it.accept().is_ok());
        let udp = self.udp.iter().any(|it| it.recv(&mut byte).is_ok());
        (tcp || udp).then(|| Missing {
            promise: Guarantee::Network.words().to_owned(),
            why: "what was sent from inside arrived outside".to_owned(),
        })
    }
}

impl Drop for ProbeTargets {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The guarantees that hold, and those that do not.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct ProbeResults {
    pub(super) kept: Vec<Guarantee>,
    pub(super) missing: Vec<Missing>,
}

/// Tries every guarantee of a view.
pub(super) fn try_all(view: &FilesystemView, addresses: &TargetAddresses) -> ProbeResults {
    let mut results = ProbeResults::default();
    for promise in Guarantee::of(view) {
        let found = match promise {
            Guarantee::Network => network(addresses),
            Guarantee::Sockets => sockets(addresses),
            Guarantee::Workspace => workspace(view),
            Guarantee::Files => files(view, addresses),
            Guarantee::Processes => processes(addresses),
            Guarantee::Privileges => privileges(view),
            Guarantee::Cpus => cpus(view.cpus),
            Guarantee::OwnFolders => usable(view),
        };
        match found {
            Ok(()) => results.kept.push(promise),
            Err(why) => results.missing.push(Missing {
                promise: promise.words().to_owned(),
                why,
            }),
        }
    }
    results
}

type Verdict = Result<(), String>;

/// Returns an error unless an attempt has failed.
fn fails<T, E>(tried: &Result<T, E>, problem: impl FnOnce() -> String) -> Verdict {
    match tried {
        Ok(_) => Err(problem()),
        Err(_) => Ok(()),
    }
}

fn network(addresses: &TargetAddresses) -> Verdict {
    if let Some(port) = addresses.tcp_port {
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let tried = TcpStream::connect_timeout(&address, Duration::from_secs(1));
        fails(&tried, || {
            "a TCP connection to this machine works".to_owned()
        })?;
    }
    if let (Some(port), Ok(socket)) = (
        addresses.udp_port,
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
    ) {
        // Whether it arrives is checked outside.
        let _ = socket.send_to(&[1], (Ipv4Addr::LOCALHOST, port));
    }
    use rustix::net::{AddressFamily, SocketType, socket};
    let families = [
        (AddressFamily::INET, SocketType::RAW),
        (AddressFamily::PACKET, SocketType::RAW),
        (AddressFamily::PACKET, SocketType::DGRAM),
    ];
    for (family, kind) in families {
        fails(&socket(family, kind, None), || {
            format!("a raw socket can be made (family {})", family.as_raw())
        })?;
    }
    Ok(())
}

fn sockets(addresses: &TargetAddresses) -> Verdict {
    let address = SocketAddr::from_abstract_name(&addresses.abstract_name);
    let tried = address.and_then(|address| UnixStream::connect_addr(&address));
    fails(&tried, || "abstract sockets outside are reached".to_owned())?;
    fails(&UnixStream::connect(&addresses.path_socket), || {
        "Unix sockets outside are reached by their path".to_owned()
    })
}

fn workspace(view: &FilesystemView) -> Verdict {
    fails(&make_file(&view.workspace, 0o600), || {
        "a file can be made in the workspace".to_owned()
    })?;
    let entries = std::fs::read_dir(&view.workspace)
        .map_err(|error| format!("the workspace cannot be read: {error}"))?;
    let files = entries.flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.is_file() && !view.may_write(path));
    for file in files.take(3) {
        unwritable(&file)?;
    }
    unwritable(&view.hidden.join("state.json"))?;
    unwritable(&view.connection_file)?;
    let mode = |mode| std::fs::Permissions::from_mode(mode);
    let file = &view.connection_file;
    // The result is ignored: the filters beside Landlock make the call succeed without effect.
    let _ = std::fs::set_permissions(file, mode(0o400));
    let now = std::fs::metadata(file).map(|found| found.permissions().mode() & 0o777);
    if now.is_ok_and(|now| now == 0o400) {
        let _ = std::fs::set_permissions(file, mode(0o600));
        return Err("the modes of files can be changed".to_owned());
    }
    Ok(())
}

/// Makes a file with a new name, which is removed on drop.
fn make_file(folder: &Path, mode: u32) -> io::Result<tempfile::NamedTempFile> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let mut named = tempfile::Builder::new();
    named
        .prefix(PROBE)
        .make_in(folder, |path| options.open(path))
}

/// The prefix of the names of files and folders that a probe makes.
const PROBE: &str = ".nb-probe-";

fn unwritable(file: &Path) -> Verdict {
    let shown = file.display();
    fails(&OpenOptions::new().append(true).open(file), || {
        format!("{shown} can be written")
    })?;
    if file.exists() {
        // A rename of a file to itself changes nothing, but must be refused all the same.
        fails(&std::fs::rename(file, file), || {
            format!("{shown} can be renamed")
        })?;
    }
    Ok(())
}

fn files(view: &FilesystemView, addresses: &TargetAddresses) -> Verdict {
    let no_file = [&addresses.file, Path::new("/etc/shadow")];
    for path in no_file {
        let tried = std::fs::File::open(path).and_then(|mut file| file.read(&mut [0]));
        fails(&tried, || format!("{} can be read", path.display()))?;
    }
    fails(
        &OpenOptions::new().append(true).open(&addresses.file),
        || format!("{} can be written", addresses.file.display()),
    )?;
    // Folders in the first one are mounted at the next start.
    let sockets = view.sockets.parent().into_iter();
    for folder in view.scratch.ancestors().take(2).chain(sockets) {
        fails(
            &tempfile::Builder::new().prefix(PROBE).tempdir_in(folder),
            || format!("{} can be written", folder.display()),
        )?;
    }
    let (home, other) = (view.inner_home(), view.scratch.join("other"));
    if std::fs::rename(&home, &other).is_ok() {
        let _ = std::fs::rename(&other, &home);
        return Err(format!("{} can be exchanged", home.display()));
    }
    for folder in view.hidden() {
        let file = folder.join("state.json");
        fails(&std::fs::File::open(&file), || {
            format!("{} can be read", file.display())
        })?;
    }
    let folders = [Some(Path::new("/root")), view.home.as_deref()];
    for path in folders.into_iter().flatten() {
        if view.may_read(path) {
            continue;
        }
        // In a namespace this folder may exist only as part of the workspace's path: then it contains nothing
        // else.
        let Ok(entries) = std::fs::read_dir(path) else {
            continue;
        };
        let mut inner = entries.flatten().map(|entry| entry.path());
        if let Some(strange) = inner.find(|inner| !leads_into_the_view(view, inner)) {
            return Err(format!("{} can be seen", strange.display()));
        }
    }
    for path in ["/etc", "/var/tmp", "/"].map(Path::new) {
        if !view.may_write(path) {
            fails(&make_file(path, 0o600), || {
                format!("a file can be made in {}", path.display())
            })?;
        }
    }
    Ok(())
}

fn leads_into_the_view(view: &FilesystemView, path: &Path) -> bool {
    let own = [
        &view.workspace,
        &view.scratch,
        &view.sockets,
        &view.connection_file,
    ];
    let all = own
        .into_iter()
        .chain(&view.programs)
        .chain(&view.allow_read);
    let mut all = all.chain(&view.allow_write);
    all.any(|part| part.starts_with(path) || path.starts_with(part))
}

fn processes(addresses: &TargetAddresses) -> Verdict {
    use rustix::process::{Pid, test_kill_process};
    let pid = addresses.process.pid;
    // In a separate namespace the same number may be another process.
    if addresses.process.is_alive() {
        return Err(format!("process {pid} outside can be looked at"));
    }
    let named = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let reached = named.is_some_and(|pid| test_kill_process(pid).is_ok());
    if reached && Process::of(pid).is_none() {
        return Err(format!("process {pid} outside can be signalled"));
    }
    use rustix::process::{Resource, Rlimit, prlimit, setpriority_process};
    let Some(named) = named.filter(|_| !reached) else {
        // In the sandbox this number belongs to another process, which is also inside.
        return Ok(());
    };
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    fails(&prlimit(Some(named), Resource::Core, none), || {
        format!("process {pid} outside can be limited")
    })?;
    fails(&setpriority_process(Some(named), 19), || {
        format!("process {pid} outside can be slowed down")
    })
}

fn privileges(view: &FilesystemView) -> Verdict {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let at = view.temporary();
    if mount("none", &at, "tmpfs", MountFlags::empty(), None).is_ok() {
        let _ = unmount(&at, UnmountFlags::DETACH);
        return Err("file systems can be mounted".to_owned());
    }
    for file in [
        "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger",
        "/proc/1/mem",
    ] {
        fails(&OpenOptions::new().write(true).open(file), || {
            format!("{file} can be written")
        })?;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !status.lines().any(|line| line == "Seccomp:\t2") {
        return Err("system calls are not filtered".to_owned());
    }
    fails(&make_file(&at, 0o4700), || {
        "files can be made that run as their owner".to_owned()
    })?;
    if !rustix::thread::no_new_privs().unwrap_or(false) {
        return Err("programs may gain privileges".to_owned());
    }
    let sets = rustix::thread::capabilities(None).map_err(|error| error.to_string())?;
    if !(sets.effective.is_empty() && sets.permitted.is_empty()) {
        return Err(format!("it has privileges: {:?}", sets.effective));
    }
    Ok(())
}

fn cpus(available: Option<usize>) -> Verdict {
    let Some(available) = available else {
        return Ok(());
    };
    let now = rustix::thread::sched_getaffinity(None).map_err(|error| error.to_string())?;
    let count = now.count() as usize;
    if count > available {
        return Err(format!("{count} processors can be used"));
    }
    fails(&rustix::thread::sched_setaffinity(None, &now), || {
        "processors can be chosen".to_owned()
    })
}

fn usable(view: &FilesystemView) -> Verdict {
    for folder in view.own_folders().iter().chain(&view.allow_write) {
        let tried = make_file(folder, 0o600).and_then(|mut file| {
            file.write_all(b"x")?;
            file.close()
        });
        tried.map_err(|error| format!("{} cannot be written: {error}", folder.display()))?;
    }
    let read = std::iter::once(&view.folder).chain(&view.allow_read);
    for folder in read {
        std::fs::read_dir(folder)
            .map_err(|error| format!("{} cannot be read: {error}", folder.display()))?;
    }
    std::fs::read(&view.connection_file)
        .map_err(|error| format!("{} cannot be read: {error}", view.connection_file.display()))?;
    Ok(())
}
