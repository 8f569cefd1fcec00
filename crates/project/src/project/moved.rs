//! `moved.json`: the notebooks that `nb mv` has moved. Records of a notebook hold its key: events of the
//! journal, jobs, displays and front ends. They are not rewritten; their readers ask here for the key that
//! the notebook has now. A process that began before the move, like a recorder, writes under the new key as
//! soon as the old one has neither a file nor a session.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::beneath;
use super::event::Event;
use super::facts::FACTS;
use super::folder::{PRESENT, Project};
use super::state_folder::short_name;

/// How many moves are remembered; the oldest are dropped.
const MOVES_MAX: usize = 1000;

/// A move of a notebook within its project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Move {
    /// The key before.
    from: String,
    /// The key since then.
    to: String,
    /// When it was moved.
    at: Timestamp,
}

/// All moves of a project's notebooks, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moves(Vec<Move>);

impl Moves {
    /// Reads the moves of the project whose private folder this is; none if there is no record.
    pub(super) fn read(dir: &Path) -> Self {
        beneath::read_json(&file(dir), beneath::SMALL).unwrap_or_default()
    }

    /// Says whether no notebook was moved.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the key that a notebook has now which had this key then.
    pub fn since(&self, key: &str, then: Timestamp) -> String {
        let later = self.0.iter().filter(|it| it.at >= then);
        let now = later.fold(key, |key, it| if it.from == key { &it.to } else { key });
        now.to_owned()
    }

    /// Sets the keys that the notebooks of an event have now.
    pub(super) fn rename(&self, event: &mut Event) {
        if self.is_empty() {
            return;
        }
        event.session = self.since(&event.session, event.at);
        let notebook = event.notebook.as_ref();
        event.notebook = notebook.map(|key| self.since(key, event.at));
    }
}

impl Project {
    /// Returns the key that a notebook has now, for a process that learned its key before a move.
    pub fn current_key(&self, key: &str) -> String {
        let moves = Moves::read(self.dir());
        let last = moves.0.iter().rposition(|it| it.from == key);
        let Some(last) = last.filter(|_| !self.has_notebook(key)) else {
            return key.to_owned();
        };
        moves.since(key, moves.0[last].at)
    }

    /// Returns the path of a notebook whose path was `path` when its key was `key`.
    pub fn current_path(&self, path: &Path, key: &str) -> PathBuf {
        moved_path(path, key, &self.current_key(key))
    }

    fn has_notebook(&self, key: &str) -> bool {
        let is_file = self.notebook(key).try_exists().unwrap_or(true);
        is_file || self.state().is_ok_and(|it| it.sessions.contains_key(key))
    }

    /// Records that a notebook was moved, and moves its records: its session, ledger, log and exported
    /// outputs, and what each actor has seen of it. Called again after a crash, it does the rest.
    ///
    /// The caller holds the locks of the session and of the notebook, under both names.
    ///
    /// # Errors
    /// The move could not be recorded: the records are then under the old name, as after a crash.
    pub fn record_move(&self, from: &str, to: &str) -> io::Result<()> {
        let mut moves = Moves::read(self.dir());
        moves.0.push(Move {
            from: from.to_owned(),
            to: to.to_owned(),
            at: Timestamp::now(),
        });
        let extra = moves.0.len().saturating_sub(MOVES_MAX);
        moves.0.drain(..extra);
        beneath::replace(&file(self.dir()), &serde_json::to_vec(&moves)?)?;
        let (old_path, path) = (self.notebook(from), self.notebook(to));
        self.update(|state| {
            if let Some(mut session) = state.sessions.remove(from) {
                session.notebook.clone_from(&path);
                state.sessions.insert(to.to_owned(), session);
            }
            for session in state.sessions.values_mut() {
                session.follow_owner(from, to);
            }
            if state.notebook.as_ref() == Some(&old_path) {
                state.notebook = Some(path);
            }
        })
        .map_err(io::Error::other)?;
        // What was recorded under the old name until now is part of the history, too.
        if let Some(last) = moves.0.last_mut() {
            last.at = Timestamp::now();
        }
        beneath::write_json(&file(self.dir()), &moves)?;
        self.move_files(from, to);
        Ok(())
    }

    /// Moves the files whose names are made of the key. Without one of them, less is remembered.
    fn move_files(&self, from: &str, to: &str) {
        let (old, new) = (short_name(from), short_name(to));
        let mut pairs = vec![
            (self.kernel_log(from), self.kernel_log(to)),
            (
                self.dir().join(self.outputs_folder(from)),
                self.dir().join(self.outputs_folder(to)),
            ),
        ];
        for folder in ["notebooks", "seen", PRESENT, FACTS] {
            let folder = self.dir().join(folder);
            for path in beneath::paths(&folder) {
                let name = path.file_name().and_then(|name| name.to_str());
                let rest = name.and_then(|name| name.strip_prefix(&old));
                let rest = rest.filter(|it| it.starts_with('.') && !it.ends_with(".lock"));
                pairs.extend(rest.map(|rest| (path.clone(), folder.join(format!("{new}{rest}")))));
            }
        }
        for (old, new) in pairs {
            if let Err(error) = beneath::rename(&old, &new)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(%error, "{} cannot be moved", old.display());
            }
        }
    }
}

/// Returns the path of a notebook whose key has changed.
pub(super) fn moved_path(path: &Path, key: &str, now: &str) -> PathBuf {
    let depth = Path::new(key).components().count();
    match path.ancestors().nth(depth) {
        Some(root) if key != now && path.ends_with(key) => root.join(now),
        _ => path.to_owned(),
    }
}

fn file(dir: &Path) -> PathBuf {
    dir.join("moved.json")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::event::fixtures::{event, project};
    use super::super::{Backend, Session};
    use super::*;

    #[test]
    fn records_under_earlier_names_are_found_under_the_present_one() {
        let (_temp, project) = project();
        let asked = |id: &str, session: &str| {
            event(json!({ "session": session, "event": "requested", "msg_id": id }))
        };
        let ids = |key: &str| -> Vec<_> {
            let ids = project
                .events(key)
                .map(|it| it.msg_id().unwrap().to_owned());
            ids.collect()
        };
        project.record(&[asked("1", "a.ipynb")]);
        std::fs::write(project.notebook("b.ipynb"), "").unwrap();
        project.record_move("a.ipynb", "b.ipynb").unwrap();
        // A recorder that began before the move.
        project.record(&[asked("2", "a.ipynb")]);
        assert_eq!(ids("b.ipynb"), ["2", "1"]);
        assert_eq!(project.current_key("a.ipynb"), "b.ipynb");
        // Another notebook takes the old name.
        std::fs::write(project.notebook("a.ipynb"), "").unwrap();
        project.record(&[asked("3", "a.ipynb")]);
        assert_eq!(
            (ids("a.ipynb"), ids("b.ipynb").len()),
            (vec!["3".into()], 2)
        );
        std::fs::remove_file(project.notebook("a.ipynb")).unwrap();
        std::fs::rename(project.notebook("b.ipynb"), project.notebook("c.ipynb")).unwrap();
        project.record_move("b.ipynb", "c.ipynb").unwrap();
        assert_eq!(ids("c.ipynb"), ["2", "1"]);
    }

    #[test]
    fn a_session_moves_with_those_that_share_its_kernel() {
        let (_temp, project) = project();
        let paths = ["a.ipynb", "b.ipynb", "sub/c.ipynb"].map(|key| project.notebook(key));
        let sharing = Session {
            backend: Backend::shared_with("a.ipynb"),
            ..Session::local(paths[1].clone())
        };
        project
            .update(|state| {
                state.open("a.ipynb", Session::local(paths[0].clone()));
                state.sessions.insert("b.ipynb".to_owned(), sharing);
            })
            .unwrap();
        project.record_move("a.ipynb", "sub/c.ipynb").unwrap();
        let state = project.state().unwrap();
        assert_eq!(state.owner_key("b.ipynb"), "sub/c.ipynb");
        assert_eq!(state.sessions["sub/c.ipynb"].notebook, paths[2]);
        assert_eq!(state.notebook.as_ref(), Some(&paths[2]));
        assert!(!state.sessions.contains_key("a.ipynb"));
        let path = moved_path(&paths[2], "sub/c.ipynb", "d.ipynb");
        assert_eq!(path, project.notebook("d.ipynb"));
    }
}
