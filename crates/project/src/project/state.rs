//! `state.json`: which notebook has which kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::beneath;
use super::host::Relation;
use super::root::DIR;
use super::save::Durability;
use super::session::{Session, Status};

/// The newest `version` of `state.json` that this program understands.
const VERSION: u64 = 2;

/// The content of `state.json`.
///
/// The three fields before `sessions` repeat the session that was opened last, for readers that do
/// not know sessions. A file with only these three fields is enough to reach a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The layout's version.
    #[serde(default = "current_version")]
    pub version: u64,
    /// The notebook that was opened last.
    #[serde(default)]
    pub notebook: Option<PathBuf>,
    /// Its kernel's connection file.
    #[serde(default)]
    pub connection_file: Option<PathBuf>,
    /// Its kernel's process.
    #[serde(default)]
    pub kernel_pid: Option<u32>,
    /// Every session by its notebook's key, see [`super::Project::key`].
    #[serde(default)]
    pub sessions: BTreeMap<String, Session>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Why `state.json` could not be used. The text names the file and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The content is not valid. The file is left as it is.
    #[error(
        "{} is damaged and was left as it is: {cause}; move it away (mv {0} {0}.damaged) and open the notebook again",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault and its position. Not a `source()`: the message names the remedy after it.
        cause: serde_json::Error,
    },
    /// A version of `nb` with another format wrote it.
    #[error(
        "{} has version {version}, this nb knows {VERSION}: use the nb that wrote it, or move its folder away and open the notebook again",
        path.display()
    )]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u64,
    },
    /// It could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The fields that show the version. Only `nb` writes `sessions`.
#[derive(Deserialize)]
struct Head {
    version: Option<u64>,
    #[serde(default)]
    sessions: Option<IgnoredAny>,
}

impl Head {
    /// Returns the version if it is another than this program's. Other programs write three keys without sessions.
    fn other_version(&self) -> Option<u64> {
        let version = self.version?;
        let is_other = version > VERSION || version < VERSION && self.sessions.is_some();
        is_other.then_some(version)
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            version: VERSION,
            notebook: None,
            connection_file: None,
            kernel_pid: None,
            sessions: BTreeMap::new(),
            other: Map::new(),
        }
    }
}

impl State {
    /// Reads a `state.json`; a missing file is an empty state.
    pub fn read(path: &Path) -> Result<Self, StateError> {
        let bytes = match beneath::read(path, beneath::SMALL) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => {
                return Err(StateError::Read {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        Self::parse(&bytes, path)
    }

    fn parse(bytes: &[u8], path: &Path) -> Result<Self, StateError> {
        let damaged = |cause| StateError::Damaged {
            path: path.to_owned(),
            cause,
        };
        let head: Head = serde_json::from_slice(bytes).map_err(damaged)?;
        let path = path.to_owned();
        // The version is checked first: the content of another version is not damage.
        if let Some(version) = head.other_version() {
            return Err(StateError::OtherVersion { path, version });
        }
        let mut state: Self = serde_json::from_slice(bytes).map_err(damaged)?;
        state.follow_moved(path.parent().unwrap_or(&path));
        Ok(state)
    }

    /// Corrects the paths of a project that was moved or renamed as a whole while a kernel ran: the recorded connection
    /// file is missing, and a private file of this user with its name is in the folder `dir`, which was read.
    fn follow_moved(&mut self, dir: &Path) {
        let moved = self.sessions.values().filter_map(|session| {
            let before = session.connection_file.parent()?.parent()?;
            let now = connection_file_in(dir, &session.connection_file)?;
            let is_moved = before != dir
                && dir.ends_with(DIR)
                && before.ends_with(DIR)
                && session.relation() != Relation::OtherHost
                && session.connection_file.symlink_metadata().is_err()
                && is_private(&now);
            is_moved.then(|| before.to_owned())
        });
        let moved: BTreeSet<_> = moved.collect();
        for before in moved {
            let (Some(old_root), Some(root)) = (before.parent(), dir.parent()) else {
                continue;
            };
            let follow = |path: &mut PathBuf| {
                if let Ok(name) = path.strip_prefix(old_root) {
                    *path = root.join(name);
                }
            };
            self.notebook.iter_mut().for_each(follow);
            self.connection_file.iter_mut().for_each(follow);
            for session in self.sessions.values_mut() {
                follow(&mut session.notebook);
                follow(&mut session.connection_file);
            }
        }
    }

    /// Fails if a version of `nb` with another format wrote a `state.json`; not if it is damaged or missing.
    pub(super) fn check_version(path: &Path) -> Result<(), StateError> {
        let head = beneath::read(path, beneath::SMALL).ok();
        let head = head.and_then(|bytes| serde_json::from_slice::<Head>(&bytes).ok());
        match head.and_then(|head| head.other_version()) {
            None => Ok(()),
            Some(version) => Err(StateError::OtherVersion {
                path: path.to_owned(),
                version,
            }),
        }
    }

    pub(super) fn write(&self, path: &Path, durability: Durability) -> Result<(), StateError> {
        // Fails if a path is not UTF-8, which JSON cannot hold.
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from);
        text.and_then(|mut text| {
            text.push(b'\n');
            beneath::replace_as(path, &text, durability)
        })
        .map_err(|source| StateError::Write {
            path: path.to_owned(),
            source,
        })
    }

    /// Returns the key of the session whose kernel a notebook uses: its own session, or the one
    /// whose kernel it shares.
    ///
    /// A stopped notebook no longer uses a shared kernel. If an owner has no session, the last
    /// notebook before it counts as the owner. If sharing is circular, the result is `key` itself.
    pub fn owner_key(&self, key: &str) -> String {
        self.follow(key, |session| session.status != Status::Stopped)
    }

    /// Returns the key of the session whose kernel a notebook will use when it is opened. Like
    /// [`State::owner_key`], but a stopped notebook still counts as sharing.
    pub fn partner(&self, key: &str) -> String {
        self.follow(key, |_| true)
    }

    fn follow(&self, key: &str, shares: impl Fn(&Session) -> bool) -> String {
        let mut seen = vec![key];
        let mut at = key;
        while let Some(session) = self.sessions.get(at).filter(|session| shares(session))
            && let Some(next) = session.shared_with()
            && self.sessions.contains_key(next)
        {
            if seen.contains(&next) {
                return key.to_owned();
            }
            seen.push(next);
            at = next;
        }
        at.to_owned()
    }

    /// Returns the key of the session whose kernel a notebook shares now.
    pub fn shared_with(&self, key: &str) -> Option<String> {
        Some(self.owner_key(key)).filter(|owner| owner != key)
    }

    /// Returns the session of the kernel that a notebook uses: the one of [`State::owner_key`],
    /// with the path of the given notebook.
    pub fn session(&self, key: &str) -> Option<Session> {
        let session = self.sessions.get(key)?;
        let owner = self.owner_key(key);
        let kernel = self.sessions.get(&owner)?;
        Some(Session {
            notebook: session.notebook.clone(),
            ..kernel.clone()
        })
    }

    /// Returns the keys of the notebooks that share the kernel of this session now.
    pub fn sharers(&self, owner: &str) -> Vec<String> {
        let shares = |key: &&String| *key != owner && self.owner_key(key) == owner;
        self.sessions.keys().filter(shares).cloned().collect()
    }

    /// Returns the sessions of all notebooks with their keys, as [`State::session`] does. The
    /// top-level fields count as a session if no session has their connection file.
    pub fn all(&self) -> Vec<(String, Session)> {
        let mut all: Vec<_> = self
            .sessions
            .keys()
            .filter_map(|key| Some((key.clone(), self.session(key)?)))
            .collect();
        if let Some(bare) = self.bare() {
            all.push((bare.notebook.to_string_lossy().into_owned(), bare));
        }
        all
    }

    /// Returns the session that was opened last.
    pub fn last_opened(&self) -> Option<Session> {
        self.bare().or_else(|| {
            let file = self.connection_file.as_ref()?;
            let mut on_it: Vec<_> = self.sessions.keys().collect();
            on_it.retain(|key| {
                self.session(key)
                    .is_some_and(|session| session.connection_file == *file)
            });
            // Several notebooks may share one kernel; the path shows which one was opened.
            let named = |key: &&&String| {
                let session = self.sessions.get(key.as_str());
                session.is_some_and(|session| Some(&session.notebook) == self.notebook.as_ref())
            };
            let last = on_it.iter().find(named).or(on_it.first())?;
            self.session(last)
        })
    }

    /// Stores a session, and makes it the one that was opened last.
    pub fn open(&mut self, key: &str, session: Session) {
        self.mirror(&session);
        self.sessions.insert(key.to_owned(), session);
    }

    /// Copies this session into the top-level fields.
    pub fn mirror(&mut self, session: &Session) {
        self.notebook = Some(session.notebook.clone());
        self.connection_file = Some(session.connection_file.clone());
        self.kernel_pid = session.pid();
    }

    /// Says whether the top-level fields name a kernel of which there is no session: another program
    /// wrote them.
    pub(super) fn names_no_session(&self) -> bool {
        self.bare().is_some()
    }

    /// Returns a session from the top-level fields, if no session has their connection file.
    fn bare(&self) -> Option<Session> {
        let file = self.connection_file.as_ref()?;
        if self
            .sessions
            .values()
            .any(|session| session.connection_file == *file)
        {
            return None;
        }
        let notebook = self.notebook.clone().unwrap_or_default();
        Some(Session::attached(notebook, file.clone(), self.kernel_pid))
    }
}

/// Returns the path that a connection file of a project has in the project's private folder.
fn connection_file_in(dir: &Path, recorded: &Path) -> Option<PathBuf> {
    let folder = recorded.parent()?.file_name()?;
    if folder != "connections" {
        return None;
    }
    Some(dir.join(folder).join(recorded.file_name()?))
}

/// Says whether a path is a file of this user's that no other user may read. No part of it may be a link.
fn is_private(path: &Path) -> bool {
    let metadata = beneath::open(path).and_then(|file| file.metadata());
    metadata.is_ok_and(|it| it.mode() & 0o077 == 0)
}

fn current_version() -> u64 {
    VERSION
}

#[cfg(test)]
mod tests {
    use super::super::session::{Backend, InterruptMode};
    use super::*;

    fn parse(text: &str) -> Result<State, StateError> {
        State::parse(text.as_bytes(), Path::new("/p/.nb/state.json"))
    }

    #[test]
    fn the_three_fields_are_enough() {
        let state =
            parse(r#"{"notebook":"/p/a.ipynb","connection_file":"/p/k.json","kernel_pid":41}"#)
                .unwrap();
        let session = state.last_opened().unwrap();
        assert_eq!(session.connection_file, Path::new("/p/k.json"));
        assert_eq!((session.pid(), session.process()), (Some(41), None));
        assert_eq!(session.status, Status::Live);
        assert_eq!(session.interrupt_mode(), InterruptMode::Message);
        assert_eq!(state.all().len(), 1);
    }

    #[test]
    fn unknown_fields_are_kept_on_every_level() {
        let text = r#"{"version":2,"notebook":null,"connection_file":null,"kernel_pid":null,
            "sessions":{"a.ipynb":{"notebook":"/p/a.ipynb","connection_file":"/p/k.json",
                "kernelspec":{"name":"python3","argv":["python"],"metadata":{"debugger":true}},
                "backend":{"kind":"local","cpu":3,
                    "host":{"name":"h","boot_id":"b","pid_namespace":"n","vm":7}},
                "ended":{"at":"2026-01-02T03:04:05Z","reason":"killed","generation":2,"signal":9},
                "status":"frozen","settings":{"confinement":{"sandbox":{"kind":"bwrap"}}}}},
            "theme":["dark"]}"#;
        let written = serde_json::to_value(parse(text).unwrap()).unwrap();
        assert_eq!(written["theme"][0], "dark");
        let session = &written["sessions"]["a.ipynb"];
        assert_eq!(
            session["settings"]["confinement"]["sandbox"]["kind"],
            "bwrap"
        );
        assert_eq!(session["status"], "frozen");
        assert_eq!(session["backend"]["host"]["vm"], 7);
        assert_eq!(session["backend"]["cpu"], 3);
        assert_eq!(session["ended"]["signal"], 9);
        assert_eq!(session["kernelspec"]["metadata"]["debugger"], true);
    }

    #[test]
    fn a_backend_of_a_later_version_is_kept_and_a_damaged_one_is_not_taken_for_it() {
        let session = |backend: &str| {
            format!(
                r#"{{"sessions":{{"a":{{"notebook":"/p/a","connection_file":"/p/k.json",
                    "status":"live","backend":{backend}}}}}}}"#
            )
        };
        let state = parse(&session(r#"{"kind":"elsewhere","url":"https://hub"}"#)).unwrap();
        let later = &state.sessions["a"];
        assert!(matches!(later.backend, Backend::Unknown(_)), "{later:?}");
        assert_eq!(later.relation(), super::super::Relation::OtherHost);
        assert!(!later.is_owned() && later.pid().is_none());
        let written = serde_json::to_value(&state).unwrap();
        let backend = &written["sessions"]["a"]["backend"];
        assert_eq!(backend["url"], "https://hub");
        assert_eq!(backend["kind"], "elsewhere");
        for damaged in [
            "{}",
            r#"{"kind":7}"#,
            r#"{"kind":"local"}"#,
            r#"{"kind":"local","host":{},"process":41}"#,
            r#"{"kind":"shared-with"}"#,
            r#"{"kind":"remote","server":"gpu"}"#,
        ] {
            let error = parse(&session(damaged)).unwrap_err();
            assert!(matches!(error, StateError::Damaged { .. }), "{damaged}");
        }
        for (text, owner) in [
            (r#"{"kind":"local","host":{}}"#, None),
            (r#"{"kind":"attached","host":{}}"#, None),
            (r#"{"kind":"shared-with","owner":"b"}"#, Some("b")),
            (
                r#"{"kind":"remote","server":"gpu","kernel_id":"1","websocket_session":"2","owned":true,"host":{}}"#,
                None,
            ),
        ] {
            let state = parse(&session(text)).unwrap();
            assert_eq!(state.sessions["a"].shared_with(), owner);
            let again = serde_json::to_string(&state).unwrap();
            assert_eq!(parse(&again).unwrap(), state);
        }
    }

    #[test]
    fn a_damaged_file_is_named_with_its_remedy_and_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        let project = super::super::Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        for damaged in ["", "{\"sessions\":", "[]", "{\"sessions\":{\"a\":3}}"] {
            std::fs::write(project.state_file(), damaged).unwrap();
            let error = project
                .update(|state| state.kernel_pid = Some(1))
                .unwrap_err();
            let text = error.to_string();
            assert!(text.contains("state.json is damaged"), "{text}");
            assert!(text.contains("state.json.damaged"), "{text}");
            assert!(
                std::error::Error::source(&error).is_none(),
                "it is told twice"
            );
            assert_eq!(
                std::fs::read_to_string(project.state_file()).unwrap(),
                damaged
            );
        }
    }

    #[test]
    fn an_older_file_is_not_damaged_and_three_keys_have_no_version() {
        let error = parse(r#"{"version":1,"sessions":{}}"#).unwrap_err();
        let is_named = matches!(error, StateError::OtherVersion { version: 1, .. });
        assert!(is_named, "{error}");
        let three = r#"{"version":1,"notebook":"/p/a.ipynb","connection_file":"/p/k.json","kernel_pid":41}"#;
        assert_eq!(parse(three).unwrap().all().len(), 1);
    }

    #[test]
    fn a_project_that_was_moved_keeps_its_kernels_and_follows_no_link() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let temp = tempfile::tempdir().unwrap();
        let [old, new] = ["p", "q"].map(|name| temp.path().join(name));
        let folder = new.join(".nb/connections");
        std::fs::create_dir_all(&folder).unwrap();
        let mut state = State::default();
        for name in ["a", "b"] {
            let mut session = Session::local(old.join(format!("{name}.ipynb")));
            session.connection_file = old.join(format!(".nb/connections/kernel-{name}.json"));
            state.open(&format!("{name}.ipynb"), session);
        }
        let dir = new.join(".nb");
        let moved = || {
            let mut moved = state.clone();
            moved.follow_moved(&dir);
            moved
        };
        assert_eq!(moved(), state, "the files are in no place");
        let file = folder.join("kernel-a.json");
        std::fs::write(folder.join("other"), "{}").unwrap();
        std::fs::set_permissions(folder.join("other"), PermissionsExt::from_mode(0o600)).unwrap();
        symlink("other", &file).unwrap();
        assert_eq!(moved(), state, "it is a link");
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, "{}").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(moved(), state, "others may read it");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let now = moved();
        assert_eq!(now.sessions["a.ipynb"].connection_file, file);
        assert_eq!(now.sessions["a.ipynb"].notebook, new.join("a.ipynb"));
        // The other notebook's kernel has ended; the notebook was moved all the same.
        assert_eq!(now.notebook, Some(new.join("b.ipynb")));
        std::fs::create_dir_all(old.join(".nb/connections")).unwrap();
        std::fs::write(old.join(".nb/connections/kernel-a.json"), "{}").unwrap();
        assert_eq!(moved(), state, "the recorded file is still there");
    }

    #[test]
    fn a_newer_file_is_not_damaged() {
        let error = parse(r#"{"version":3,"sessions":[]}"#).unwrap_err();
        assert!(
            matches!(error, StateError::OtherVersion { version: 3, .. }),
            "{error}"
        );
    }

    #[test]
    fn top_level_fields_that_name_no_session_are_one_of_their_own() {
        let mut state = State::default();
        state.open(
            "a.ipynb",
            Session::attached("/p/a.ipynb".into(), "/p/a.json".into(), Some(1)),
        );
        assert_eq!(state.all().len(), 1);
        state.connection_file = Some("/p/other.json".into());
        assert_eq!(state.all().len(), 2);
        assert_eq!(
            state.last_opened().unwrap().connection_file,
            Path::new("/p/other.json")
        );
    }

    /// Makes a state of notebooks that share kernels with others; the connection file of `a` is
    /// `/p/a.json`.
    fn sharing(sessions: &[(&str, Option<&str>)]) -> State {
        let mut state = State::default();
        for (key, kernel_of) in sessions {
            let paths = [format!("/p/{key}"), format!("/p/{key}.json")].map(PathBuf::from);
            let [notebook, file] = paths;
            let mut session = Session::attached(notebook, file, Some(7));
            if let Some(owner) = kernel_of {
                session.backend = Backend::shared_with(owner);
            }
            state.sessions.insert((*key).to_owned(), session);
        }
        state
    }

    #[test]
    fn a_notebook_that_shares_uses_its_owners_kernel_until_it_lets_go() {
        let mut state = sharing(&[("a", None), ("b", Some("a")), ("c", Some("b"))]);
        assert_eq!(state.owner_key("a"), "a");
        assert_eq!(state.owner_key("c"), "a");
        assert_eq!(state.owner_key("unknown"), "unknown");
        let session = state.session("c").unwrap();
        assert_eq!(session.notebook, Path::new("/p/c"));
        assert_eq!(session.connection_file, Path::new("/p/a.json"));
        assert_eq!(state.shared_with("c").as_deref(), Some("a"));
        assert_eq!(state.shared_with("a"), None);
        assert_eq!(state.sharers("a"), ["b", "c"]);
        assert!(state.sharers("b").is_empty());
        state.mirror(&session);
        assert_eq!(state.last_opened().unwrap().notebook, Path::new("/p/c"));

        state.sessions.get_mut("b").unwrap().status = Status::Stopped;
        assert_eq!(state.owner_key("c"), "b");
        assert_eq!(state.partner("c"), "a");
        let let_go = state.session("b").unwrap();
        assert_eq!(let_go.status, Status::Stopped);
        assert_eq!(let_go.connection_file, Path::new("/p/b.json"));
        assert_eq!(state.shared_with("b"), None);
    }

    #[test]
    fn sharing_that_leads_nowhere_or_in_a_circle_is_none() {
        let state = sharing(&[("a", Some("gone")), ("b", Some("a")), ("c", Some("c"))]);
        assert_eq!(state.owner_key("b"), "a");
        assert_eq!(state.owner_key("c"), "c");
        let state = sharing(&[("a", Some("b")), ("b", Some("a")), ("c", Some("a"))]);
        for key in ["a", "b", "c"] {
            assert_eq!(state.owner_key(key), key);
            let file = PathBuf::from(format!("/p/{key}.json"));
            assert_eq!(state.session(key).unwrap().connection_file, file);
        }
    }
}
