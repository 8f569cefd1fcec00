//! Consent: the work of other actors that an action on a kernel would end.
//!
//! The rule is a pure function of known facts; [`facts`] finds these out, with one request to the
//! kernel at most.

use jiff::Timestamp;

use super::liveness::liveness;
use super::server_connection;
use super::status::{busy, is_on_its_way};
use crate::activity::actor::Actor;
use crate::activity::labels::cell_with_actor;
use crate::activity::participants::{joined_to, retain_waiting};
use crate::project::event::{Present, RunningExecution};
use crate::project::jobs::{Job, JobState};
use crate::project::{Project, Session, Status};

/// An action on a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelAction {
    /// Ends the running cell.
    Interrupt,
    /// Ends the running cell, and the variables.
    Restart,
    /// Ends the running cell, and the variables.
    Shutdown,
}

/// The known work of others on a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// The running cell.
    pub runs: Option<RunningWork>,
    /// The requests that the kernel has not begun to run, in words, with their actors.
    pub queued: Vec<QueuedRequest>,
    /// The joined humans whose code ran on this kernel.
    pub made_by: Vec<String>,
}

/// The code that a kernel runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningWork {
    /// The actor who asked for it.
    pub by: String,
    /// Its description for a reader, with its actor.
    pub description: String,
    /// When it began, if known.
    pub since: Option<Timestamp>,
}

/// A request that a kernel has not begun to run.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedRequest {
    /// The actor who asked for it.
    pub by: String,
    /// Its description for a reader, with its actor.
    pub description: String,
}

/// A reason against an action.
#[derive(Clone, Debug, PartialEq)]
pub enum Objection {
    /// It would end another actor's cell.
    EndsCell(RunningWork),
    /// It would remove these requests of others from the queue; in words.
    DropsQueued(Vec<String>),
    /// It would delete the variables of these joined humans.
    WipesVariables(Vec<String>),
}

/// Returns which work of others an action of `actor` would end.
pub fn objections(action: KernelAction, actor: &str, facts: &Facts) -> Vec<Objection> {
    let actor = Actor::from(actor);
    let others = |name: &str| !actor.is_same(&name.into());
    let mut found = Vec::new();
    if let Some(running) = facts.runs.as_ref().filter(|it| others(&it.by)) {
        found.push(Objection::EndsCell(running.clone()));
    }
    if action == KernelAction::Interrupt {
        return found;
    }
    let queued = facts.queued.iter().filter(|it| others(&it.by));
    let queued: Vec<_> = queued.map(|it| it.description.clone()).collect();
    if !queued.is_empty() {
        found.push(Objection::DropsQueued(queued));
    }
    let made_by = facts.made_by.iter().filter(|name| others(name));
    let made_by: Vec<_> = made_by.cloned().collect();
    if !made_by.is_empty() {
        found.push(Objection::WipesVariables(made_by));
    }
    found
}

/// Finds out whose work an action of `actor` may end.
///
/// It does not matter whether the actor's own cell still runs. So the kernel is asked only if the
/// journal has a request of another actor, or none.
pub async fn facts(project: &Project, key: &str, session: &Session, actor: &str) -> Facts {
    // A kernel that is being started runs no cell and does not answer.
    let is_up = session.status == Status::Live && liveness(session).await.is_up();
    if !is_up {
        return Facts::default();
    }
    // Before the journal: a recorder records a request there, then notes in its job that it is
    // sent.
    let mut unsent = unsent(project, key);
    let mut present = project.present(key, session.generation);
    let actor = Actor::from(actor);
    let is_own = |cell: &RunningExecution| actor.is_same(&Actor::parse(cell.by.as_deref()));
    let runs_own = |present: &Present| present.running.as_ref().is_some_and(is_own);
    let is_busy = match runs_own(&present) && present.queued.iter().all(is_own) {
        true => None,
        false => busy(session).await,
    };
    // The kernel cannot be asked, and goes on with what it ran.
    let is_lost = server_connection::lost(session).is_some();
    let may_be_busy = is_busy == Some(true) || is_lost;
    if is_busy == Some(true) && present.running.is_none() {
        // What keeps it busy may have begun after the journal was read.
        present = project.present(key, session.generation);
    }
    unsent.retain(|cell| {
        let mut sent = present.running.iter().chain(&present.queued);
        sent.all(|it| it.job != cell.job)
    });
    let runs_own = runs_own(&present);
    let mut queued = present.queued;
    let runs = match (present.running, is_busy) {
        (Some(_), _) if runs_own => None,
        (Some(cell), _) if may_be_busy => Some(RunningWork {
            by: Actor::parse(cell.by.as_deref()).name(),
            description: cell_with_actor(&cell),
            since: Some(cell.since),
        }),
        // A client without a proxy, a request that is not a cell, or a kernel that hangs.
        (None, Some(true)) => Some(RunningWork {
            by: Actor::Unknown.name(),
            description: "what keeps it busy, which the journal does not know".to_owned(),
            since: None,
        }),
        // The kernel has not begun to run it, or no client saw its end.
        (Some(cell), _) => {
            queued.insert(0, cell);
            None
        }
        (None, _) => None,
    };
    queued.retain(|cell| may_be_busy || is_on_its_way(cell));
    queued.extend(unsent);
    let joined = joined_to(project, key);
    retain_waiting(&mut present.waiting, &joined);
    queued.extend(present.waiting);
    let queued = queued.iter().map(|cell| QueuedRequest {
        by: Actor::parse(cell.by.as_deref()).name(),
        description: cell_with_actor(cell),
    });
    let joined: Vec<_> = joined.into_iter().map(|joined| joined.by()).collect();
    let made_by = if joined.is_empty() {
        Vec::new()
    } else {
        let authors = project.authors(key, session.generation);
        authors
            .into_iter()
            .filter(|author| joined.contains(author))
            .collect()
    };
    Facts {
        runs,
        queued: queued.collect(),
        made_by,
    }
}

/// Returns the next unsent cell of each job of a session whose recorder runs or is about to start.
pub(super) fn unsent(project: &Project, key: &str) -> Vec<RunningExecution> {
    let next_cell = |job: Job| {
        let mut cells = job.cells.into_iter();
        let next = cells.find(|cell| cell.status.is_none())?;
        next.msg_id.is_none().then_some(RunningExecution {
            notebook: job.notebook,
            msg_id: String::new(),
            by: Some(job.by),
            cell: next.cell,
            code: Some(next.code),
            job: Some(job.id),
            store_history: true,
            since: job.asked_at,
            prompt: None,
        })
    };
    let jobs = project.open_jobs().into_iter().filter_map(|folder| {
        let job = folder.read().ok()?;
        if job.session != key || job.state == JobState::Done {
            return None;
        }
        let cell = next_cell(job)?;
        (folder.has_recorder() || is_on_its_way(&cell)).then_some(cell)
    });
    jobs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(runs: Option<&str>, made_by: &[&str]) -> Facts {
        Facts {
            runs: runs.map(|by| RunningWork {
                by: by.to_owned(),
                description: format!("{by}'s cell"),
                since: None,
            }),
            queued: Vec::new(),
            made_by: made_by.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[tokio::test]
    async fn a_request_of_a_person_that_has_only_just_been_queued_is_others_work() {
        use crate::kernel::process::Process;
        use crate::project::event::{CellEnd, Event, EventKind, ExecutionEnd, ExecutionStart};
        use crate::project::jobs::JobCell;
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.ipynb");
        let project = Project::for_notebook(&path).unwrap();
        let mut session = Session::local(path);
        session.status = Status::Live;
        let process = Process::current();
        session.set_process(process.pid, process.start_time, None);
        session.connection_file = home.path().join("none.json");
        let count = async |action| {
            let facts = super::facts(&project, "a.ipynb", &session, "claude").await;
            objections(action, "claude", &facts).len()
        };
        let all = [
            KernelAction::Restart,
            KernelAction::Shutdown,
            KernelAction::Interrupt,
        ];
        let counts = async || {
            [
                count(all[0]).await,
                count(all[1]).await,
                count(all[2]).await,
            ]
        };
        assert_eq!(counts().await, [0, 0, 0]);
        // The recorder of this job has not sent its cell yet.
        let mut job = Job::new(&project, "a.ipynb", "a.ipynb".to_owned(), "human");
        job.cells.push(JobCell::new(None, "train()".to_owned()));
        let folder = project.make_job(&mut job).unwrap();
        assert_eq!(counts().await, [1, 1, 0]);
        // It has sent it, and its job does not say so yet.
        let sent = ExecutionStart {
            job: Some(job.id.clone()),
            ..ExecutionStart::new("0")
        };
        project.record(&[Event {
            generation: Some(session.generation),
            by: Some("human".to_owned()),
            ..Event::now("a.ipynb", EventKind::Requested(sent))
        }]);
        let known = super::facts(&project, "a.ipynb", &session, "claude").await;
        assert_eq!(known.queued.len(), 1, "{known:?}");
        let done = ExecutionEnd::new("0", CellEnd::Ok, None);
        project.record(&[Event {
            generation: Some(session.generation),
            ..Event::now("a.ipynb", EventKind::Done(done))
        }]);
        job.state = JobState::Done;
        folder.write(&job).unwrap();
        assert_eq!(counts().await, [0, 0, 0]);
        // A request queued behind the agent's own cell.
        let asked = |id: &str, by: &str| Event {
            generation: Some(session.generation),
            by: Some(by.to_owned()),
            ..Event::now("a.ipynb", EventKind::Requested(ExecutionStart::new(id)))
        };
        project.record(&[asked("1", "claude"), asked("2", "claude")]);
        assert_eq!(counts().await, [0, 0, 0]);
        project.record(&[asked("3", "human (VS Code)")]);
        assert_eq!(counts().await, [1, 1, 0]);
    }

    #[test]
    fn only_others_work_is_asked_about() {
        let human = "human (VS Code)";
        let count = |action, actor, facts: &Facts| objections(action, actor, facts).len();
        for action in [
            KernelAction::Interrupt,
            KernelAction::Restart,
            KernelAction::Shutdown,
        ] {
            assert_eq!(count(action, "claude", &facts(None, &[])), 0);
            assert_eq!(count(action, "claude", &facts(Some("claude"), &[])), 0);
            assert_eq!(count(action, "claude", &facts(Some("codex"), &[])), 1);
            assert_eq!(count(action, "claude", &facts(Some(human), &[])), 1);
            assert_eq!(count(action, "human", &facts(Some(human), &[human])), 0);
        }
        let made = facts(None, &[human, "human (JupyterLab)"]);
        assert_eq!(count(KernelAction::Interrupt, "claude", &made), 0);
        assert_eq!(count(KernelAction::Restart, "claude", &made), 1);
        assert_eq!(count(KernelAction::Shutdown, "claude", &made), 1);
        let both = objections(
            KernelAction::Restart,
            "claude",
            &facts(Some(human), &[human]),
        );
        assert!(
            matches!(&both[..], [Objection::EndsCell(_), Objection::WipesVariables(actors)] if *actors == [human])
        );
    }
}
