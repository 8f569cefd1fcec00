//! The processes that a bench starts, and what they cost.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nb::wire::{ConnectionInfo, Ports, SigningKey, Transport};

/// A child that does not outlive the bench.
pub struct Started(pub Child);

impl Started {
    pub fn start(command: &mut Command) -> Self {
        Self(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .expect("start a process"),
        )
    }

    /// Returns the processor time used so far.
    pub fn cpu(&self) -> Duration {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.0.id()))
            .expect("read schedstat");
        Duration::from_nanos(
            text.split(' ')
                .next()
                .and_then(|first| first.parse().ok())
                .expect("nanoseconds"),
        )
    }

    /// Returns a field of /proc/PID/status, in KiB.
    pub fn memory_kib(&self, field: &str) -> u64 {
        let text =
            std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("read status");
        let line = text
            .lines()
            .find(|line| line.starts_with(field))
            .expect("the field is there");
        line.split_whitespace()
            .nth(1)
            .and_then(|number| number.parse().ok())
            .expect("a number")
    }

    /// Sends SIGTERM and returns how long the end took.
    pub fn terminate(&mut self) -> Duration {
        let start = Instant::now();
        let pid = rustix::process::Pid::from_raw(self.0.id().cast_signed()).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signal it");
        self.0.wait().expect("wait for it");
        start.elapsed()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A project folder with one kernel in it, as `state.json` names it.
pub struct World {
    pub folder: tempfile::TempDir,
    pub kernel_file: PathBuf,
    pub kernel: ConnectionInfo,
    pub process: Started,
}

/// Which kernel a world has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KernelKind {
    Fake,
    Libzmq,
    Ipykernel,
}

/// How the client reaches the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Direct,
    Pump,
    Proxy,
}

impl Way {
    /// All three, in the table's order.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Pump, Self::Proxy];
}

impl World {
    /// Prepares one way for one turn: what stands between is there for that turn alone, since a
    /// proxy reads its kernel's iopub whether or not somebody listens.
    pub async fn go(&self, way: Way) -> (Option<Started>, ConnectionInfo) {
        let (between, info) = match way {
            Way::Direct => return (None, self.kernel.clone()),
            Way::Pump => self.pump(),
            Way::Proxy => {
                let (proxy, front, _) = self.launch();
                (proxy, front)
            }
        };
        wait_for_port(&info).await;
        (Some(between), info)
    }

    /// Starts a kernel over TCP and writes the three keys that are enough for the proxy.
    pub async fn start(kind: KernelKind) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let dot_nb = folder.path().join(".nb");
        std::fs::create_dir(&dot_nb).expect("make .nb");
        let file = dot_nb.join("kernel.json");
        let kernel = free_tcp();
        std::fs::write(&file, kernel.to_json().as_bytes()).expect("write the connection file");
        let mut command = match kind {
            KernelKind::Fake => {
                let mut command = Command::new(std::env::current_exe().expect("this program"));
                command.arg("--fake-kernel").arg(&file);
                command
            }
            KernelKind::Libzmq => {
                let mut command = Command::new(super::python::interpreter());
                command.arg(libzmq()).arg("kernel").arg(&file);
                command
            }
            KernelKind::Ipykernel => {
                let mut command = Command::new(super::python::interpreter());
                command
                    .args(["-m", "ipykernel_launcher", "-f"])
                    .arg(&file)
                    .stderr(Stdio::null());
                command
            }
        };
        let process = Started::start(&mut command);
        let state = serde_json::json!({
            "version": 1,
            "notebook": folder.path().join("bench.ipynb"),
            "connection_file": file,
            "kernel_pid": process.0.id(),
        });
        std::fs::write(dot_nb.join("state.json"), state.to_string()).expect("write state.json");
        wait_for_port(&kernel).await;
        Self {
            folder,
            kernel_file: file,
            kernel,
            process,
        }
    }

    /// Starts a byte pump in the proxy's place: the floor.
    pub fn pump(&self) -> (Started, ConnectionInfo) {
        let front = free_tcp();
        let file = self.pump_file();
        std::fs::write(
            &file,
            ConnectionInfo {
                key: self.kernel.key.clone(),
                ..front.clone()
            }
            .to_json(),
        )
        .expect("write");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg("--byte-pump").arg(&file).arg(&self.kernel_file);
        (
            Started::start(&mut command),
            ConnectionInfo {
                key: self.kernel.key.clone(),
                ..front
            },
        )
    }

    /// Where a byte pump's connection file is.
    pub fn pump_file(&self) -> PathBuf {
        self.folder.path().join("pump.json")
    }

    /// Launches the proxy as a front end does, with a connection file of its own.
    pub fn launch(&self) -> (Started, ConnectionInfo, PathBuf) {
        let front = free_tcp();
        let file = self
            .folder
            .path()
            .join(format!("front-{}.json", front.ports.shell));
        std::fs::write(&file, front.to_json().as_bytes()).expect("write the connection file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_nb-proxy"));
        command
            .arg("-f")
            .arg(&file)
            .current_dir(self.folder.path())
            .env_remove("NB_STATE")
            .env_remove("NB_NOTEBOOK");
        (Started::start(&mut command), front, file)
    }
}

/// Returns the script with libzmq's kernel and client.
pub fn libzmq() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/proxy/libzmq.py")
}

/// Waits until somebody listens on the shell port; dials every millisecond.
pub async fn wait_for_port(info: &ConnectionInfo) {
    let address = format!("{}:{}", info.ip, info.ports.shell);
    while tokio::net::TcpStream::connect(&address).await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns a connection on TCP ports that were free a moment ago, with a fresh key.
pub fn free_tcp() -> ConnectionInfo {
    let sockets =
        [(); 5].map(|()| std::net::TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let [shell, iopub, stdin, control, hb] = sockets
        .each_ref()
        .map(|socket| socket.local_addr().expect("an address").port());
    ConnectionInfo {
        transport: Transport::Tcp,
        ip: "127.0.0.1".into(),
        ports: Ports {
            shell,
            iopub,
            stdin,
            control,
            hb,
        },
        key: SigningKey::new(uuid::Uuid::new_v4().to_string().as_bytes()),
        kernel_name: None,
    }
}

/// Reads a connection file.
pub fn read(file: &Path) -> ConnectionInfo {
    ConnectionInfo::parse(&std::fs::read(file).expect("read it")).expect("a connection file")
}
