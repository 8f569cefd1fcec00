//! VS Code's Restart, recognised because the same session comes back just after its proxy has ended.
//!
//! VS Code sends no `shutdown_request`. It ends the proxy by SIGTERM, launches another and goes on with the
//! same `header.session`. Either the SIGTERM or the launch may come first, since VS Code searches for the old
//! process's children before it kills it. After a reload of the window or a change of the kernel, and in a
//! second window, the session is new or the launch comes from another process. So a proxy leaves a record,
//! and the next proxy compares it with its own launch. A record serves for one restart only.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::kernel::process::Process;
use crate::project::{Project, beneath};

/// How long after a proxy's end a launch may still be part of a restart.
const RESTART_WINDOW: Duration = Duration::from_secs(5);

/// How long a launch waits for the end of a proxy that serves the same session: VS Code needs at most a
/// second to find the old process's children.
pub(super) const PROXY_END_TIMEOUT: Duration = Duration::from_secs(3);

/// How often a waiting launch reads the records.
pub(super) const POLL: Duration = Duration::from_millis(10);

/// Records that are older are removed.
const RECORD_AGE_MAX: Duration = Duration::from_secs(60);

/// The version of the records' layout. Records with another one are ignored.
const VERSION: u64 = 1;

/// The record that a proxy leaves for the next one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    version: u64,
    /// The proxy that wrote the record.
    proxy: Process,
    /// The process of the proxy's front end.
    parent: Process,
    /// The session of its clients' messages.
    session: String,
    /// The notebook whose kernel it served.
    pub(super) key: String,
    /// The generation of the kernel that it served.
    pub(super) generation: u64,
    /// `None` while the proxy serves.
    left: Option<ProxyEnd>,
}

/// How a proxy was ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ProxyEnd {
    at: Timestamp,
    /// Whether a client had sent a shutdown_request: such a front end requests a restart by that message.
    shutdown_requested: bool,
}

/// A launch that may be a restart.
#[derive(Clone, Debug)]
pub(super) struct RestartCandidate {
    /// When this process was launched.
    pub(super) at: Timestamp,
    /// The process that launched it.
    pub(super) parent: Option<Process>,
    /// The session of its clients' messages.
    pub(super) session: String,
    /// Whether `JPY_PARENT_PID` is set: jupyter_client launches a kernel again when it has died.
    pub(super) by_jupyter: bool,
}

/// How one record judges a launch.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The launch is the second half of a restart.
    Restart,
    /// The last proxy still serves this session, and may end at any moment.
    Wait,
    /// The launch is an ordinary one; says why.
    NoRestart(&'static str),
}

/// How all records together judge a launch.
#[derive(Debug)]
pub(super) enum RestartMatch {
    /// The launch is a restart. The record is removed, so that no other launch finds it.
    Restart(Box<Record>),
    /// The records must be read again soon.
    Wait,
    /// The launch is an ordinary one; holds why each record does not match.
    Nothing(Vec<(String, &'static str)>),
}

impl Record {
    /// Judges a launch by this record. `alive` says whether a process lives.
    fn judge(&self, launch: &RestartCandidate, alive: impl Fn(&Process) -> bool) -> Verdict {
        if self.version != VERSION {
            return Verdict::NoRestart("another version of nb-proxy wrote it");
        }
        if launch.parent.as_ref() != Some(&self.parent) {
            return Verdict::NoRestart("another process launched it");
        }
        if self.session != launch.session {
            return Verdict::NoRestart("it is another session: a reload, or another notebook");
        }
        if launch.by_jupyter {
            return Verdict::NoRestart("JPY_PARENT_PID is set");
        }
        let Some(left) = &self.left else {
            return if alive(&self.proxy) {
                Verdict::Wait
            } else {
                Verdict::NoRestart("the proxy before was killed, not asked to end")
            };
        };
        if left.shutdown_requested {
            return Verdict::NoRestart("its front end had asked for a shutdown");
        }
        // If the proxy ended after this launch, the time does not matter.
        if launch.at.duration_since(left.at) > signed(RESTART_WINDOW) {
            return Verdict::NoRestart("the proxy before ended too long ago");
        }
        Verdict::Restart
    }

    /// Returns whether no launch can match the record any more.
    fn is_stale(&self, now: Timestamp, alive: impl Fn(&Process) -> bool) -> bool {
        match &self.left {
            Some(left) => {
                let age = now.duration_since(left.at);
                // If it ended in the future, the clock was set back, and its age is not known.
                age.is_negative() || age > signed(RECORD_AGE_MAX)
            }
            None => !alive(&self.proxy),
        }
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// This proxy's own record.
pub(super) struct OwnRecord {
    path: PathBuf,
    record: Record,
}

impl OwnRecord {
    /// Writes a record that this proxy serves a session.
    pub(super) fn serve(
        project: &Project,
        launch: &RestartCandidate,
        key: &str,
        generation: u64,
    ) -> io::Result<Option<Self>> {
        let Some(parent) = launch.parent.clone() else {
            return Ok(None);
        };
        let proxy = Process::current();
        let own = Self {
            path: folder(project).join(format!("{}.json", proxy.pid)),
            record: Record {
                version: VERSION,
                proxy,
                parent,
                session: launch.session.clone(),
                key: key.to_owned(),
                generation,
                left: None,
            },
        };
        project.make_folder(FOLDER)?;
        own.write()?;
        Ok(Some(own))
    }

    /// Records that this proxy was ended by a signal.
    pub(super) fn leave(mut self, generation: u64, shutdown_requested: bool) -> io::Result<()> {
        self.record.generation = generation;
        self.record.left = Some(ProxyEnd {
            at: Timestamp::now(),
            shutdown_requested,
        });
        self.write()
    }

    /// Removes the record: this proxy was not ended by its front end.
    pub(super) fn withdraw(self) {
        let _ = beneath::remove_file(&self.path);
    }

    fn write(&self) -> io::Result<()> {
        beneath::replace(&self.path, &serde_json::to_vec(&self.record)?)
    }
}

/// Finds the project's record that makes this launch a restart, and removes it, so that no other launch finds
/// it. Also removes old records.
pub(super) fn find_restart(project: &Project, launch: &RestartCandidate) -> RestartMatch {
    let mut wait = false;
    let mut rejected = Vec::new();
    let records = list(&folder(project));
    // No record can be later than this.
    let now = Timestamp::now();
    for (path, record) in records {
        if record.is_stale(now, Process::is_alive) {
            let _ = beneath::remove_file(&path);
            continue;
        }
        match record.judge(launch, Process::is_alive) {
            // Only the launch that succeeds in removing the file may use it.
            Verdict::Restart if beneath::remove_file(&path).is_ok() => {
                return RestartMatch::Restart(Box::new(record));
            }
            Verdict::Restart => {}
            Verdict::Wait => wait = true,
            // A proxy that still serves another notebook of the same window is no candidate.
            Verdict::NoRestart(reason) if record.left.is_some() => {
                rejected.push((record.key, reason));
            }
            Verdict::NoRestart(_) => {}
        }
    }
    if wait {
        RestartMatch::Wait
    } else {
        RestartMatch::Nothing(rejected)
    }
}

/// Leaves a note for the proxy that is launched next with this connection file.
pub(super) fn leave_note(project: &Project, connection_file: &Path, text: &str) -> io::Result<()> {
    project.make_folder(FOLDER)?;
    beneath::replace(&note_path(project, connection_file), text.as_bytes())
}

/// Removes and returns the note that was left for this connection file, unless it is old.
pub(super) fn take_note(project: &Project, connection_file: &Path) -> Option<String> {
    let path = note_path(project, connection_file);
    let age = beneath::metadata(&path).ok()?.modified().ok()?.elapsed();
    let text = beneath::read_text(&path, 1 << 20).ok()?;
    beneath::remove_file(&path).ok()?;
    (age.unwrap_or_default() < RECORD_AGE_MAX).then_some(text)
}

fn note_path(project: &Project, connection_file: &Path) -> PathBuf {
    let name = connection_file.file_name().unwrap_or_default();
    folder(project).join(name).with_extension("note")
}

fn list(folder: &Path) -> Vec<(PathBuf, Record)> {
    let read = |path: PathBuf| {
        let record = serde_json::from_slice(&beneath::read(&path, beneath::SMALL).ok()?).ok()?;
        Some((path, record))
    };
    // Read twice: a record that is being replaced at this moment may be missing from one listing of the
    // folder, and it would be the one that matters.
    let names: BTreeSet<_> = [(); 2]
        .into_iter()
        .flat_map(|()| beneath::list(folder))
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    names.into_iter().filter_map(read).collect()
}

/// The folder of the records within the project's folder.
const FOLDER: &str = "relaunch";

fn folder(project: &Project) -> PathBuf {
    project.dir().join(FOLDER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32) -> Process {
        Process {
            pid,
            start_time: 1,
            boot_id: "boot".into(),
        }
    }

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn record_at(seconds: i64) -> Record {
        Record {
            version: VERSION,
            proxy: process(10),
            parent: process(5),
            session: "s".into(),
            key: "t.ipynb".into(),
            generation: 1,
            left: Some(ProxyEnd {
                at: time(seconds),
                shutdown_requested: false,
            }),
        }
    }

    fn candidate_at(seconds: i64) -> RestartCandidate {
        RestartCandidate {
            at: time(seconds),
            parent: Some(process(5)),
            session: "s".into(),
            by_jupyter: false,
        }
    }

    fn alive(_: &Process) -> bool {
        true
    }

    #[test]
    fn the_same_session_from_the_same_process_is_a_restart() {
        for (left, launched) in [(0, 0), (0, 4), (0, 5), (1, 0)] {
            let verdict = record_at(left).judge(&candidate_at(launched), alive);
            assert_eq!(verdict, Verdict::Restart, "{left} {launched}");
        }
    }

    #[test]
    fn other_launches_are_no_restarts() {
        let launch = candidate_at(1);
        let rejected = |record: &Record, launch: &RestartCandidate| {
            matches!(record.judge(launch, alive), Verdict::NoRestart(_))
        };
        let record = record_at(0);
        assert!(rejected(&record, &candidate_at(6)), "too late");
        let reload = RestartCandidate {
            session: "t".into(),
            ..launch.clone()
        };
        assert!(rejected(&record, &reload));
        let window = RestartCandidate {
            parent: Some(process(6)),
            ..launch.clone()
        };
        assert!(rejected(&record, &window));
        let reused_pid = RestartCandidate {
            parent: Some(Process {
                start_time: 2,
                ..process(5)
            }),
            ..launch.clone()
        };
        assert!(rejected(&record, &reused_pid));
        let without_parent = RestartCandidate {
            parent: None,
            ..launch.clone()
        };
        assert!(rejected(&record, &without_parent));
        let jupyter = RestartCandidate {
            by_jupyter: true,
            ..launch.clone()
        };
        assert!(rejected(&record, &jupyter));
        let shut_down = Record {
            left: record.left.clone().map(|left| ProxyEnd {
                shutdown_requested: true,
                ..left
            }),
            ..record.clone()
        };
        assert!(rejected(&shut_down, &launch));
        let other = Record {
            version: VERSION + 1,
            ..record
        };
        assert!(rejected(&other, &launch));
    }

    #[test]
    fn a_record_whose_age_is_too_great_or_not_known_is_stale() {
        let is_stale = |left, now| record_at(left).is_stale(time(now), alive);
        assert!(!is_stale(0, 0) && !is_stale(0, 60) && is_stale(0, 61));
        // The clock was set back.
        assert!(is_stale(1, 0));
    }

    #[test]
    fn a_launch_may_come_before_the_end_of_the_proxy_that_it_replaces() {
        let serving = Record {
            left: None,
            ..record_at(0)
        };
        assert_eq!(serving.judge(&candidate_at(0), alive), Verdict::Wait);
        let killed = serving.judge(&candidate_at(0), |_| false);
        assert!(matches!(killed, Verdict::NoRestart(_)), "{killed:?}");
        let other = RestartCandidate {
            session: "t".into(),
            ..candidate_at(0)
        };
        assert!(matches!(
            serving.judge(&other, alive),
            Verdict::NoRestart(_)
        ));
    }

    fn project() -> (tempfile::TempDir, Project) {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join(".nb")).unwrap();
        let project = Project::of_state_file(&temp.path().join(".nb/state.json")).unwrap();
        (temp, project)
    }

    fn candidate_now(session: &str) -> RestartCandidate {
        RestartCandidate {
            at: Timestamp::now(),
            parent: Some(Process::current()),
            session: session.into(),
            by_jupyter: false,
        }
    }

    #[test]
    fn a_record_is_used_once() {
        let (_temp, project) = project();
        let launch = candidate_now("s");
        let own = OwnRecord::serve(&project, &launch, "t.ipynb", 3).unwrap();
        assert!(matches!(
            find_restart(&project, &launch),
            RestartMatch::Wait
        ));
        own.unwrap().leave(4, false).unwrap();

        let RestartMatch::Nothing(rejected) = find_restart(&project, &candidate_now("t")) else {
            panic!("another session's launch took it")
        };
        assert_eq!(rejected.len(), 1, "{rejected:?}");
        let RestartMatch::Restart(record) = find_restart(&project, &launch) else {
            panic!("no restart")
        };
        assert_eq!((&*record.key, record.generation), ("t.ipynb", 4));
        assert!(
            matches!(find_restart(&project, &launch), RestartMatch::Nothing(none) if none.is_empty())
        );
    }

    #[test]
    fn a_note_is_read_once_by_the_launch_with_its_connection_file() {
        let (_temp, project) = project();
        let [mine, other] = ["/r/kernel-1.json", "/r/kernel-2.json"].map(Path::new);
        leave_note(&project, mine, "not restarted").unwrap();
        assert_eq!(take_note(&project, other), None);
        assert_eq!(take_note(&project, mine).as_deref(), Some("not restarted"));
        assert_eq!(take_note(&project, mine), None);
    }

    #[test]
    fn stale_records_are_removed() {
        let (_temp, project) = project();
        let own = OwnRecord::serve(&project, &candidate_now("s"), "t.ipynb", 1).unwrap();
        let mut own = own.unwrap();
        let path = own.path.clone();
        own.record.left = Some(ProxyEnd {
            at: Timestamp::now() - RECORD_AGE_MAX - RESTART_WINDOW,
            shutdown_requested: false,
        });
        own.write().unwrap();
        assert!(matches!(
            find_restart(&project, &candidate_now("s")),
            RestartMatch::Nothing(_)
        ));
        assert!(!path.exists());
    }
}
