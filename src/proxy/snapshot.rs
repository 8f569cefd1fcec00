//! The present state of a target's kernel, from `state.json` and the kernel's process.

use std::path::Path;

use anyhow::Context;
use bytes::Bytes;

use super::messages;
use super::target::{LiveKernel, Target, read_connection};
use crate::kernel::environment::python;
use crate::kernel::process::Process;
use crate::lifecycle::liveness::{Liveness, recorded_liveness};
use crate::lifecycle::target::{may_be_started, only_or_last_opened, recorded};
use crate::project::jobs::{Job, JobState};
use crate::project::{Ended, InterruptMode, Project, Session, State, StateError, Status};
use crate::route::{Ending, Interrupt};

/// The state of the target's kernel.
pub(super) enum KernelState {
    /// Its process runs, or may run.
    Live(Box<LiveKernel>),
    /// `nb` is starting it, or restarting it after this end.
    Awaited(Option<Ended>),
    /// It exited unexpectedly, in this way if that is known; another kernel may be started.
    Died(Option<Ended>),
    /// There is no kernel, and only its user may start one.
    None(Ending),
}

/// The state in `state.json` and of the kernel's process at one moment.
pub(super) struct Snapshot {
    pub(super) kernel: KernelState,
    /// Whether `state.json` has the session.
    pub(super) is_recorded: bool,
    /// Whether a kernel may be started here for the session: it may not if another program started its
    /// kernel, or if another host has it.
    pub(super) may_start: bool,
    /// The kernel's last `kernel_info_reply` in this session.
    pub(super) info: Option<Bytes>,
    /// The record of a kernel whose end is not recorded yet, with its key.
    pub(super) unrecorded_end: Option<(String, Session)>,
}

impl Target {
    /// Reads the present state of the session and its kernel.
    ///
    /// # Errors
    /// When `state.json` or the kernel's connection file cannot be used.
    pub(super) fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let (key, state) = self.current_key_and_state()?;
        let Some(session) = recorded(&state, &self.project, &key) else {
            return Ok(Snapshot {
                kernel: KernelState::None(messages::no_kernel(self)),
                is_recorded: false,
                may_start: true,
                info: None,
                unrecorded_end: None,
            });
        };
        let mut is_unrecorded_end = false;
        let kernel = match session.status {
            Status::Starting => KernelState::Awaited(None),
            Status::Restarting => KernelState::Awaited(session.ended.clone()),
            Status::Stopped => KernelState::None(messages::stopped(self)),
            Status::Died => self.died(&session),
            Status::Live | Status::Other(_) => match recorded_liveness(&session) {
                Liveness::Disconnected => self.live(&state, &key, &session, None)?,
                // A bridge that ends is replaced on the same sockets, and its kernel goes on.
                Liveness::Own(_) if session.as_remote().is_some() => {
                    self.live(&state, &key, &session, None)?
                }
                Liveness::Own(process) => self.live(&state, &key, &session, Some(process))?,
                Liveness::Foreign => self.live(&state, &key, &session, None)?,
                Liveness::OutOfReach => KernelState::None(messages::out_of_reach(self, &session)),
                Liveness::Dead => {
                    is_unrecorded_end = session.status == Status::Live;
                    self.died(&session)
                }
            },
        };
        Ok(Snapshot {
            kernel,
            is_recorded: true,
            may_start: may_be_started(&session),
            info: info(&session),
            unrecorded_end: is_unrecorded_end.then(|| (state.owner_key(&key), session)),
        })
    }

    /// Returns the notebook's key and the project's state, both from before a move of the notebook or both from
    /// after it.
    pub(super) fn current_key_and_state(&self) -> Result<(String, State), StateError> {
        let mut key = self.current_key();
        loop {
            let state = self.project.state()?;
            match self.current_key() {
                same if same == key => return Ok((key, state)),
                moved => key = moved,
            }
        }
    }

    fn live(
        &self,
        state: &State,
        key: &str,
        session: &Session,
        process: Option<Process>,
    ) -> anyhow::Result<KernelState> {
        let path = &session.connection_file;
        let connection =
            read_connection(path).with_context(|| format!("the kernel of {}", self.key))?;
        let interrupt = match session.interrupt_mode() {
            InterruptMode::Signal => Interrupt::Signal,
            _ => Interrupt::Message,
        };
        Ok(KernelState::Live(Box::new(LiveKernel {
            owner: state.owner_key(key),
            connection_file: path.clone(),
            connection,
            process,
            generation: session.generation,
            interrupt,
            info: info(session),
            widgets: widgets(state, session),
            handed_over: self.handed_over(),
            previous_end: session.ended.clone(),
            is_disconnected: recorded_liveness(session) == Liveness::Disconnected,
        })))
    }

    fn died(&self, session: &Session) -> KernelState {
        let ended = session.ended.clone();
        if session.is_owned() {
            KernelState::Died(ended)
        } else {
            KernelState::None(messages::died(self, ended.as_ref()))
        }
    }

    /// Returns the job for cells of the notebook that still ran when their front end ended its proxy.
    fn handed_over(&self) -> Option<Job> {
        let folders = self.project.open_jobs();
        let mut jobs = folders.iter().filter_map(|folder| folder.read().ok());
        let key = self.current_key();
        jobs.find(|job| {
            let front_end = job.front_end.as_ref();
            let may_return = front_end.is_some_and(|it| it.may_return);
            job.notebook == key && may_return && job.state != JobState::Done
        })
    }

    /// Returns whether a start or restart was begun and no process is left to finish it.
    pub(super) fn is_abandoned(&self) -> bool {
        let lock = self.project.try_lock_session(&self.owner());
        // Read again while the lock is held: its last holder may just have finished.
        let is_awaited = || {
            self.snapshot()
                .is_ok_and(|it| matches!(it.kernel, KernelState::Awaited(_)))
        };
        matches!(lock, Ok(Some(_))) && is_awaited()
    }
}

/// Returns the answers for clients that connect before the notebook is known: the kernel_info and the
/// ipywidgets version of a kernel of this language in this project.
pub(super) fn default_answers(folder: &Path, language: &str) -> Option<(Bytes, Option<String>)> {
    let project = Project::find(folder)?;
    let state = project.state().ok()?;
    let session = recorded(&state, &project, &only_or_last_opened(&state)?)?;
    let kernel_language = session.kernel_info.as_ref()?["language_info"]["name"].as_str()?;
    if !kernel_language.eq_ignore_ascii_case(language) {
        return None;
    }
    Some((info(&session)?, widgets(&state, &session)))
}

/// Returns the version of ipywidgets that a session's kernel most likely has: the last version that a kernel
/// of the session reported, the version of another session of the project, or the one installed in its
/// environment.
fn widgets(state: &State, session: &Session) -> Option<String> {
    let in_environment = || {
        let program = session.kernelspec.as_ref()?.argv.first()?;
        python::package_version(Path::new(program), "ipywidgets")
    };
    let recorded_version = |session: &Session| session.ipywidgets.clone();
    recorded_version(session)
        .or_else(|| state.sessions.values().find_map(recorded_version))
        .or_else(in_environment)
}

fn info(session: &Session) -> Option<Bytes> {
    let content = serde_json::to_vec(session.kernel_info.as_ref()?).ok()?;
    Some(content.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_of_three_fields_belongs_to_the_notebook_by_absolute_or_relative_path() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().canonicalize().unwrap();
        let notebook = folder.join("sub/t.ipynb");
        let project = Project::for_notebook(&folder.join("a.ipynb")).unwrap();
        std::fs::create_dir(folder.join("sub")).unwrap();
        let connection = folder.join("kernel.json");
        let fields = json!({
            "transport": "tcp", "ip": "127.0.0.1", "key": "k", "signature_scheme": "hmac-sha256",
            "shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5,
        });
        std::fs::write(&connection, fields.to_string()).unwrap();
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&connection, permissions).unwrap();
        for path in [notebook.to_str().unwrap(), "sub/t.ipynb"] {
            let state = json!({
                "notebook": path,
                "connection_file": connection,
                "kernel_pid": std::process::id(),
            });
            std::fs::write(project.state_file(), state.to_string()).unwrap();
            let by_name = Target::of_notebook(&notebook, false).unwrap();
            assert!(
                matches!(by_name.snapshot().unwrap().kernel, KernelState::Live(_)),
                "{path}"
            );
            let by_folder = Target::of_folder(&folder).unwrap();
            assert_eq!(by_folder, by_name, "{path}");
            assert_eq!(by_name.shareable_notebook(), None, "{path}");
        }
    }
}
