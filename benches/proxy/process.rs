//! The processes that a bench starts, and their costs.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nb::wire::{ConnectionInfo, Ports, SigningKey, Transport};

/// A child process that does not outlive the bench.
pub struct Started(Child);

impl Started {
    pub fn start(command: &mut Command) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("start a process");
        Self(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Returns the processor time that the process's threads have used so far.
    pub fn cpu(&self) -> Duration {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("its threads");
        threads
            .filter_map(|thread| {
                // A thread that has ended meanwhile has used no more than a few microseconds.
                let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
                let nanoseconds = text.split(' ').next()?.parse().ok()?;
                Some(Duration::from_nanos(nanoseconds))
            })
            .sum()
    }

    /// Returns the process's peak memory, in KiB.
    pub fn peak_kib(&self) -> u64 {
        self.kib("status", "VmHWM:")
    }

    /// Returns the memory that the process has written, in KiB: these pages are not shared with another
    /// process, and cannot be read again from a file.
    pub fn private_kib(&self) -> u64 {
        self.kib("smaps_rollup", "Private_Dirty:")
    }

    /// Returns the process's proportional set size, in KiB: pages that several processes share count in
    /// part.
    pub fn pss_kib(&self) -> u64 {
        self.kib("smaps_rollup", "Pss:")
    }

    /// Returns a field of a file in /proc/PID, in KiB.
    fn kib(&self, file: &str, field: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", self.pid()));
        let text = text.expect("read it");
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with(field));
        let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        number.expect("a number")
    }

    /// Sends SIGTERM and returns how long the process took to end.
    pub fn terminate(&mut self) -> Duration {
        let start = Instant::now();
        let pid = rustix::process::Pid::from_raw(self.pid().cast_signed()).expect("a pid");
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

/// Reads a connection file.
pub fn read(file: &Path) -> ConnectionInfo {
    ConnectionInfo::parse(&std::fs::read(file).expect("read it")).expect("a connection file")
}

/// Returns a connection on Unix sockets whose paths begin with `begin`, with a fresh key.
pub fn on_unix(begin: &Path) -> ConnectionInfo {
    ConnectionInfo {
        transport: Transport::Ipc,
        ip: begin.display().to_string(),
        ports: Ports {
            shell: 1,
            iopub: 2,
            stdin: 3,
            control: 4,
            hb: 5,
        },
        ..free_tcp()
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
