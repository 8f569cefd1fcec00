//! A project with one kernel in it, and the ways to it.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use nb::wire::{Channel, ConnectionInfo, Endpoint, Transport};

use super::process::{Started, free_tcp, on_unix};
use super::way::{Way, beside};

/// A project folder with one kernel in it, as `state.json` names it.
pub struct World {
    folder: tempfile::TempDir,
    kernel_file: PathBuf,
    kernel: ConnectionInfo,
    _process: Started,
}

/// The kernel of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelKind {
    /// A kernel that does nothing, on this project's ROUTER and an iopub that drops nothing.
    Fake,
    /// A kernel that does nothing, on libzmq, with a client on libzmq.
    Libzmq,
    Ipykernel,
}

impl World {
    /// Starts a kernel and writes a `state.json` with the three keys that the proxy needs.
    pub async fn start(kind: KernelKind, transport: Transport) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let dot_nb = folder.path().join(".nb");
        std::fs::create_dir(&dot_nb).expect("make .nb");
        let file = dot_nb.join("kernel.json");
        let kernel = match transport {
            Transport::Tcp => free_tcp(),
            Transport::Ipc => on_unix(&folder.path().join("kernel")),
        };
        std::fs::write(&file, kernel.to_json().as_bytes()).expect("write the connection file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, mode).expect("keep it private");
        let mut command = match kind {
            KernelKind::Fake => {
                let mut command = Command::new(std::env::current_exe().expect("this program"));
                command.arg("--fake-kernel").arg(&file);
                command
            }
            KernelKind::Libzmq => {
                let mut command = Command::new(super::python::interpreter());
                command.arg(beside("libzmq.py")).arg("kernel").arg(&file);
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
            "kernel_pid": process.pid(),
        });
        std::fs::write(dot_nb.join("state.json"), state.to_string()).expect("write state.json");
        wait_for_port(&kernel).await;
        Self {
            folder,
            kernel_file: file,
            kernel,
            _process: process,
        }
    }

    /// Starts the program between, as a front end launches its kernel; nothing for the direct way.
    ///
    /// It runs for only one turn, since a proxy reads its kernel's iopub even without clients.
    pub fn launch(&self, way: Way) -> Reached {
        if way == Way::Direct {
            return Reached {
                between: None,
                info: self.kernel.clone(),
                file: self.kernel_file.clone(),
            };
        }
        let mut info = free_tcp();
        if !way.signs() {
            info.key = self.kernel.key.clone();
        }
        let name = format!("front-{}.json", info.ports.shell);
        let file = self.folder.path().join(name);
        std::fs::write(&file, info.to_json().as_bytes()).expect("write the connection file");
        let mut command = way.program();
        if way == Way::Proxy {
            command
                .arg("-f")
                .arg(&file)
                .current_dir(self.folder.path())
                .env_remove("NB_STATE")
                .env_remove("NB_NOTEBOOK");
        } else {
            command.arg(&file).arg(&self.kernel_file);
        }
        Reached {
            between: Some(Started::start(&mut command)),
            info,
            file,
        }
    }

    /// Launches as [`World::launch`] does, and waits until the program listens.
    pub async fn reach(&self, way: Way) -> Reached {
        let reached = self.launch(way);
        wait_for_port(&reached.info).await;
        reached
    }
}

/// The kernel, as the client reaches it.
pub struct Reached {
    pub between: Option<Started>,
    pub info: ConnectionInfo,
    pub file: PathBuf,
}

impl Reached {
    /// Returns the processor time of the program between.
    pub fn cpu(&self) -> Duration {
        self.between.as_ref().map_or(Duration::ZERO, Started::cpu)
    }

    /// Returns the peak memory of the program between, in KiB.
    pub fn peak_kib(&self) -> u64 {
        let between = self.between.as_ref();
        between.map_or(0, |process| process.peak_kib())
    }
}

/// Waits until the ports accept connections; dials every millisecond.
pub async fn wait_for_port(info: &ConnectionInfo) {
    for channel in [Channel::Iopub, Channel::Shell] {
        loop {
            let is_there = match info.endpoint(channel) {
                Endpoint::Tcp(address) => tokio::net::TcpStream::connect(address).await.is_ok(),
                Endpoint::Unix(path) => tokio::net::UnixStream::connect(path).await.is_ok(),
            };
            if is_there {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
