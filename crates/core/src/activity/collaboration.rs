//! Finds out whether JupyterLab may have a notebook open with the extension jupyter-collaboration.
//!
//! A Jupyter server with that extension keeps an open notebook in a room, to which the people's pages are connected.
//! When the file changes, the room takes the file's text in place of its own, and what a person types at that moment
//! is lost. Neither the file nor the room's store shows that a person types, so there is no safe moment to write.
//!
//! The server's session list shows a notebook whose page is connected to a kernel. A page without a kernel is not
//! found. If the user has no Jupyter server, this only lists a folder.

use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::jupyter_server::{ServerRecord, records};
use crate::kernel::process::Process;
use crate::kernel::spec::jupyter_paths::JupyterPaths;
use crate::kernel::variables::Variables;
use crate::project::session_name;

/// The time for which a store of rooms counts after its last change: it remains when the extension is removed.
const STORE_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// A Jupyter server of this user that has rooms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomServer {
    /// Its address, or its process where it has none.
    pub name: String,
    /// Whether its session list shows the notebook; otherwise the list could not be read.
    pub shows: bool,
}

impl fmt::Display for RoomServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match self.shows {
            true => write!(
                f,
                "JupyterLab has it open with jupyter-collaboration ({name})"
            ),
            false => write!(
                f,
                "JupyterLab may have it open with jupyter-collaboration ({name} does not list its sessions)"
            ),
        }
    }
}

/// Returns the server that may have a notebook open in a room. `notebook` is a real path.
pub fn room_of(notebook: &Path, variables: &dyn Variables) -> Option<RoomServer> {
    let mut servers = with_rooms(notebook, variables).into_iter();
    servers.find_map(|record| {
        let root = record.root_dir.canonicalize().ok()?;
        let sessions = record.sessions().ok();
        let is_notebook = |path: &str| {
            let spellings = session_name::spellings(Path::new(path)).into_iter();
            let mut real = spellings.filter_map(|path| root.join(path).canonicalize().ok());
            real.any(|path| path == notebook)
        };
        may_be_open(sessions.as_ref(), is_notebook).then(|| RoomServer {
            shows: sessions.is_some(),
            name: record.name(),
        })
    })
}

/// Returns the names of the servers that may have notebooks of a folder, or a notebook, open in rooms.
pub fn servers_of(folder: &Path, variables: &dyn Variables) -> Vec<String> {
    let servers = with_rooms(folder, variables);
    servers.iter().map(ServerRecord::name).collect()
}

/// Returns whether a notebook may be open in a page, by a server's session list; `None` is a list that could not be
/// read.
///
/// A session outlives its page: a session whose kernel has no connection belongs to no page.
fn may_be_open(sessions: Option<&Value>, is_notebook: impl Fn(&str) -> bool) -> bool {
    let Some(sessions) = sessions.and_then(Value::as_array) else {
        return true;
    };
    sessions.iter().any(|session| {
        let path = session["path"].as_str();
        let path = path.or_else(|| session["notebook"]["path"].as_str());
        let is_connected = session["kernel"]["connections"].as_u64() != Some(0);
        is_connected && path.is_some_and(&is_notebook)
    })
}

/// Returns the live servers at or above a path that have, or lately had, rooms.
fn with_rooms(path: &Path, variables: &dyn Variables) -> Vec<ServerRecord> {
    let Ok(paths) = JupyterPaths::new(variables) else {
        return Vec::new();
    };
    let mut servers = records(&paths.runtime_dir);
    let now = SystemTime::now();
    servers.retain(|server| {
        let root = server.root_dir.canonicalize();
        let is_above = root.is_ok_and(|root| path.starts_with(root));
        is_above && has_rooms(server, now)
    });
    servers
}

/// Returns whether the server has rooms, or had some lately.
fn has_rooms(server: &ServerRecord, now: SystemTime) -> bool {
    let folder = Process::of(server.pid).and_then(|process| process.working_folder());
    let mut folders = std::iter::once(&server.root_dir).chain(&folder);
    folders.any(|folder| {
        let store = std::fs::metadata(folder.join(".jupyter_ystore.db"));
        let changed = store.and_then(|found| found.modified());
        let is_recent = changed.is_ok_and(|at| {
            // A time in the future counts.
            now.duration_since(at).is_ok_and(|age| age < STORE_AGE) || at > now
        });
        is_recent || folder.join(".jupyter/collaboration_sessions.json").exists()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_session_shows_a_page_only_while_its_kernel_has_a_connection() {
        let session = |path: &str, connections: Value| json!({"path": path, "kernel": {"connections": connections}});
        let is_it = |path: &str| path == "a.ipynb";
        for (sessions, is_open) in [
            (json!([]), false),
            (json!([session("a.ipynb", json!(1))]), true),
            (json!([session("a.ipynb", json!(0))]), false),
            (json!([session("b.ipynb", json!(2))]), false),
            (
                json!([session("b.ipynb", json!(0)), session("a.ipynb", json!(2))]),
                true,
            ),
            // Older servers list no connections.
            (
                json!([{"notebook": {"path": "a.ipynb"}, "kernel": {}}]),
                true,
            ),
            (json!({"message": "Forbidden"}), true),
        ] {
            assert_eq!(may_be_open(Some(&sessions), is_it), is_open, "{sessions}");
        }
        assert!(may_be_open(None, is_it), "no answer");
    }

    /// A home with one server, which is this process, and a notebook below its root.
    struct Desk {
        temp: tempfile::TempDir,
        port: u16,
    }

    impl Desk {
        fn new(port: u16) -> Self {
            let temp = tempfile::tempdir().unwrap();
            let desk = Self { temp, port };
            for folder in ["runtime", "root/deep/.jupyter"] {
                std::fs::create_dir_all(desk.at(folder)).unwrap();
            }
            std::fs::write(desk.at("root/deep/a.ipynb"), "{}").unwrap();
            desk.record("jpserver-1.json", &json!({}));
            desk
        }

        fn at(&self, name: &str) -> PathBuf {
            self.temp.path().canonicalize().unwrap().join(name)
        }

        fn record(&self, name: &str, more: &Value) {
            let mut record = json!({
                "pid": std::process::id(), "root_dir": self.at("root/deep"), "hostname": "127.0.0.1",
                "port": self.port, "base_url": "/base/", "token": "secret", "secure": false,
                "sock": "", "url": "http://127.0.0.1:1/base/",
            });
            let fields = more.as_object().unwrap().clone();
            record.as_object_mut().unwrap().extend(fields);
            std::fs::write(self.at("runtime").join(name), record.to_string()).unwrap();
        }

        fn has_rooms(&self) {
            let mark = self.at("root/deep/.jupyter/collaboration_sessions.json");
            std::fs::write(mark, "{}").unwrap();
        }

        fn room(&self) -> Option<RoomServer> {
            let runtime = self.at("runtime");
            let home = self.at("home");
            let variables = HashMap::from([
                ("JUPYTER_RUNTIME_DIR", runtime.to_str().unwrap()),
                ("HOME", home.to_str().unwrap()),
            ]);
            room_of(&self.at("root/deep/a.ipynb"), &variables)
        }
    }

    /// Answers one request with this body; returns the port and, once joined, the request.
    fn server(answer: &str) -> (u16, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = answer.to_owned();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        (port, thread)
    }

    #[test]
    fn a_server_with_rooms_is_asked_for_its_sessions() {
        for (path, connections, is_open) in [
            ("a.ipynb", 1, true),
            ("RTC:a.ipynb", 1, true),
            ("a.ipynb", 0, false),
            ("b.ipynb", 1, false),
        ] {
            let body = json!([{"path": path, "kernel": {"connections": connections}}]);
            let (port, thread) = server(&format!("HTTP/1.1 200 OK\r\nX: y\r\n\r\n{body}"));
            let desk = Desk::new(port);
            desk.has_rooms();
            let room = desk.room();
            assert_eq!(room.is_some(), is_open, "{path} {connections}");
            assert!(room.is_none_or(|room| room.shows));
            let request = thread.join().unwrap();
            assert!(
                request.starts_with("GET /base/api/sessions HTTP/1.0\r\n"),
                "{request}"
            );
            assert!(request.contains("Authorization: token secret\r\n"));
        }
    }

    #[test]
    fn a_server_that_does_not_tell_its_sessions_may_have_the_notebook_open() {
        let (port, thread) = server("HTTP/1.1 403 Forbidden\r\n\r\n{}");
        let desk = Desk::new(port);
        desk.has_rooms();
        let room = desk.room().unwrap();
        assert!(!room.shows);
        assert!(room.to_string().contains("does not list its sessions"));
        thread.join().unwrap();
        // It listens no more; and these are not asked at all.
        assert!(desk.room().is_some());
        for more in [
            json!({"secure": true}),
            json!({"sock": "/x"}),
            json!({"token": "a\r\nb"}),
        ] {
            desk.record("jpserver-1.json", &more);
            assert!(desk.room().is_some(), "{more}");
        }
    }

    #[test]
    fn only_a_live_server_of_this_user_above_the_notebook_with_rooms_counts() {
        let desk = Desk::new(1);
        assert_eq!(desk.room(), None, "without rooms");
        let store = desk.at("root/deep/.jupyter_ystore.db");
        std::fs::write(&store, "").unwrap();
        assert!(desk.room().is_some(), "a store of today");
        let file = std::fs::File::options().append(true).open(&store).unwrap();
        file.set_modified(SystemTime::now() - 2 * STORE_AGE)
            .unwrap();
        assert_eq!(desk.room(), None, "a store of an earlier day");
        desk.has_rooms();
        assert!(desk.room().is_some());
        for more in [
            json!({"pid": 4_194_399}),
            json!({"root_dir": desk.at("runtime")}),
        ] {
            desk.record("jpserver-1.json", &more);
            assert_eq!(desk.room(), None, "{more}");
        }
        // A link, a folder, a long file and text that is no record.
        let runtime = desk.at("runtime");
        std::fs::remove_file(runtime.join("jpserver-1.json")).unwrap();
        desk.record("elsewhere.json", &json!({}));
        symlink("elsewhere.json", runtime.join("jpserver-2.json")).unwrap();
        std::fs::create_dir(runtime.join("jpserver-3.json")).unwrap();
        std::fs::write(runtime.join("jpserver-4.json"), "{").unwrap();
        desk.record("jpserver-5.json", &json!({"x": "x".repeat(1 << 16)}));
        assert_eq!(desk.room(), None);
    }
}
