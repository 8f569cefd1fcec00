//! The Jupyter servers of this user: the records that they keep while they run, and what they answer.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use serde::Deserialize;
use serde_json::Value;

use crate::kernel::process::Process;
use crate::kernel::spec::jupyter_paths::JupyterPaths;
use crate::kernel::variables::Variables;
use crate::project::session_name;

/// The line of `nb live --pages` that says that a page is connected to a kernel, or is again.
pub const PAGE_CONNECTED: &str = "connected";

/// The line that says that none has been for a while.
pub const PAGES_GONE: &str = "gone";

/// How many records of servers are read at most.
const MOST_SERVERS: usize = 64;

/// The largest record of a server, in bytes.
const LARGEST_RECORD: u64 = 64 << 10;

/// The largest session list, in bytes.
const LARGEST_ANSWER: u64 = 4 << 20;

/// How long a server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the notebook that the Jupyter server which launched this process calls by a path.
///
/// The server's pages know a notebook by its path below the server's root, with `/` between its parts and perhaps the
/// name of a drive before it.
pub fn notebook_of_server(path: &Path, variables: &dyn Variables) -> Option<PathBuf> {
    let spellings = session_name::spellings(path);
    if let Some(server) = launching_server(variables) {
        let mut files = spellings.iter().map(|path| server.root_dir.join(path));
        return files.find(|file| file.is_file());
    }
    // Its record cannot be read. The launch has named the notebook for which it was.
    let launched = PathBuf::from(variables.get("JPY_SESSION_NAME")?);
    let is_it = launched.is_absolute() && spellings.iter().any(|path| launched.ends_with(path));
    is_it.then_some(launched)
}

/// Says whether a Jupyter server has launched this process.
pub fn is_launched_by_server(variables: &dyn Variables) -> bool {
    launching_server(variables).is_some()
}

/// Asks the Jupyter server that launched this process how many pages and other clients are connected to one of its kernels.
///
/// # Errors
/// It has no record, does not answer, or not with that.
pub fn connections(kernel: &str, variables: &dyn Variables) -> io::Result<u64> {
    let server = launching_server(variables).ok_or(io::ErrorKind::NotFound)?;
    if !kernel
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let answer = server.get(&format!("api/kernels/{kernel}"))?;
    answer["connections"]
        .as_u64()
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn launching_server(variables: &dyn Variables) -> Option<ServerRecord> {
    let pid: u32 = variables.get("JPY_PARENT_PID")?.to_str()?.parse().ok()?;
    let paths = JupyterPaths::new(variables).ok()?;
    let mut servers = records(&paths.runtime_dir).into_iter();
    servers.find(|server| server.pid == pid)
}

/// Reads the records of this user's servers whose processes are alive.
pub(super) fn records(runtime_dir: &Path) -> Vec<ServerRecord> {
    let entries = std::fs::read_dir(runtime_dir).into_iter().flatten();
    let names = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("jpserver-") && name.ends_with(".json")
    });
    let records = names.take(MOST_SERVERS).filter_map(|entry| {
        let text = read_own(&entry.path()).ok()?;
        serde_json::from_slice::<ServerRecord>(&text).ok()
    });
    records
        .filter(|record| Process::of(record.pid).is_some())
        .collect()
}

/// Reads a regular file of this user; no link is followed.
fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let file = std::fs::File::options()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let found = file.metadata()?;
    let own = rustix::process::geteuid().as_raw();
    if !found.is_file() || found.uid() != own || found.len() > LARGEST_RECORD {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    file.take(LARGEST_RECORD).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What a Jupyter server writes about itself.
#[derive(Deserialize)]
pub(super) struct ServerRecord {
    pub(super) pid: u32,
    pub(super) root_dir: PathBuf,
    #[serde(default)]
    url: String,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    base_url: String,
    #[serde(default)]
    token: String,
    #[serde(default)]
    secure: bool,
    /// The Unix socket, if it listens on one.
    #[serde(default)]
    sock: String,
}

impl ServerRecord {
    pub(super) fn name(&self) -> String {
        // The address may be shown on a terminal.
        let is_plain = !self.url.is_empty() && self.url.bytes().all(|it| it.is_ascii_graphic());
        match is_plain {
            true => self.url.clone(),
            false => format!("process {}", self.pid),
        }
    }

    /// Asks the server for its sessions.
    pub(super) fn sessions(&self) -> io::Result<Value> {
        self.get("api/sessions")
    }

    fn get(&self, path: &str) -> io::Result<Value> {
        let head = [&self.hostname, &self.base_url, &self.token];
        let is_plain = |text: &&String| text.bytes().all(|byte| byte.is_ascii_graphic());
        if self.secure || !self.sock.is_empty() || !head.iter().all(is_plain) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let end = Instant::now() + ANSWER_TIMEOUT;
        let mut stream = self.connect()?;
        // An answer in HTTP/1.0 has no chunks, and ends with the connection.
        let request = format!(
            "GET {}{path} HTTP/1.0\r\nHost: localhost:{}\r\nAuthorization: token {}\r\nAccept: application/json\r\n\r\n",
            self.base_url, self.port, self.token
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        let mut part = [0; 16 << 10];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || answer.len() as u64 > LARGEST_ANSWER {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut part)? {
                0 => break,
                length => answer.extend_from_slice(&part[..length]),
            }
        }
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let body = memchr::memmem::find(&answer, b"\r\n\r\n").ok_or_else(invalid)? + 4;
        let status = answer.split(|byte| *byte == b' ').nth(1);
        if status != Some(b"200") {
            return Err(invalid());
        }
        serde_json::from_slice(&answer[body..]).map_err(|_| invalid())
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let host = match &*self.hostname {
            // It listens on all addresses.
            "" | "*" | "0.0.0.0" | "::" => "localhost",
            host => host,
        };
        let mut last = io::ErrorKind::AddrNotAvailable.into();
        let addresses: Vec<SocketAddr> = (host, self.port).to_socket_addrs()?.collect();
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_of_a_page_is_one_below_the_root_of_its_server() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("root");
        std::fs::create_dir_all(root.join("deep")).unwrap();
        std::fs::write(root.join("deep/a.ipynb"), "{}").unwrap();
        let pid = std::process::id();
        let record = json!({ "pid": pid, "root_dir": root });
        let of = |path: &str, variables: &[(&'static str, &str)]| {
            let folder = temp.path().to_str().unwrap();
            let mut all = HashMap::from([("JUPYTER_RUNTIME_DIR", folder), ("HOME", folder)]);
            all.extend(variables.iter().copied());
            notebook_of_server(Path::new(path), &all)
        };
        let pid = pid.to_string();
        let launched = root.join("deep/a.ipynb");
        let launch = [
            ("JPY_PARENT_PID", &*pid),
            ("JPY_SESSION_NAME", launched.to_str().unwrap()),
        ];
        let found = Some(launched.clone());
        assert_eq!(of("deep/a.ipynb", &launch), found);
        assert_eq!(of("other/a.ipynb", &launch), None);
        let file = temp.path().join("jpserver-1.json");
        std::fs::write(file, record.to_string()).unwrap();
        assert_eq!(of("deep/a.ipynb", &launch[..1]), found);
        assert_eq!(of("RTC:deep/a.ipynb", &launch[..1]), found);
        assert_eq!(of("deep/b.ipynb", &launch), None, "no such file");
        assert_eq!(of("deep/a.ipynb", &[]), None, "launched by no server");
    }
}
