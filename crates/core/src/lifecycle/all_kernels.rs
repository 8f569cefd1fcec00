//! The status of all kernels of a project, or of all the user's projects, requested concurrently.

use std::path::PathBuf;
use std::rc::Rc;

use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use super::liveness::{is_in_use, recorded_liveness};
use super::status::{self, SessionStatus};
use crate::kernel::process::Process;
use crate::project::registry::{self, KnownKernel, KnownProject};
use crate::project::{Project, Session, StateError};

/// How many kernels are asked at once: a busy one replies late, and an idle one has to do some
/// work.
const CONCURRENCY: usize = 8;

/// The kernels of all the user's projects.
#[derive(Debug, Default)]
pub struct Kernels {
    /// Each notebook that has a session, with its project.
    pub sessions: Vec<(Project, SessionStatus)>,
    /// Kernels of projects that were deleted, even if the project was made again.
    pub unreachable: Vec<UnreachableKernel>,
    /// Projects whose state is not usable, and why.
    pub unreadable: Vec<(PathBuf, StateError)>,
}

/// A running kernel, or a bridge to one, of which no project knows: no client can connect to it any more.
#[derive(Clone, Debug)]
pub struct UnreachableKernel {
    /// The former folder of its project.
    pub root: PathBuf,
    /// The `state.json` that knew it.
    pub state_file: PathBuf,
    /// Its entry in the registry.
    pub kernel: KnownKernel,
    /// Its process, identified by its start time.
    pub process: Process,
}

impl UnreachableKernel {
    /// Returns the folder `.nb` of the kernel under its present name, if it was renamed: the kernel's log there is open.
    pub fn renamed_dir(&self) -> Option<PathBuf> {
        let logs = self.process.open_files();
        let mut logs = logs.filter(|file| file.extension().is_some_and(|it| it == "log"));
        logs.find_map(|log| {
            let kernels = log.parent().filter(|it| it.ends_with("kernels"))?;
            let dir = kernels.parent()?;
            dir.join("state.json").is_file().then(|| dir.to_owned())
        })
    }

    /// Returns whether the project's folder is still there, under the name that it had or with a renamed `.nb`: the
    /// kernel can be used again as soon as `.nb` is back.
    pub fn may_come_back(&self) -> bool {
        self.root.is_dir() || self.renamed_dir().is_some()
    }
}

/// Returns the status of all sessions of a project; those that share a kernel have the same.
///
/// # Errors
/// `state.json` cannot be used.
pub async fn of_project(project: &Project) -> Result<Vec<SessionStatus>, StateError> {
    let statuses = run_concurrently(status_requests(project)?).await;
    let statuses = statuses.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(with_sharers(project, statuses))
}

/// Returns the kernels of all the user's projects. Projects that were removed and have no running
/// kernel are removed from the registry.
pub async fn all_kernels() -> Kernels {
    let mut kernels = Kernels::default();
    let mut all = Vec::new();
    let mut projects = Vec::new();
    registry::known().iter().for_each(remember_moved);
    for known in registry::known() {
        let Some(project) = known.project() else {
            let unreachable = unreachable_kernels(&known);
            if unreachable.is_empty() {
                registry::forget(&known);
            }
            kernels.unreachable.extend(unreachable);
            continue;
        };
        match status_requests(&project) {
            Ok(status_requests) => {
                // Its folder may have been deleted and made again.
                kernels.unreachable.extend(unreachable_kernels(&known));
                projects.extend(std::iter::repeat_n(project, status_requests.len()));
                all.extend(status_requests);
            }
            Err(error) => kernels.unreadable.push((known.root, error)),
        }
    }
    for (project, status) in projects.into_iter().zip(run_concurrently(all).await) {
        match status {
            Ok(status) => kernels.sessions.push((project, status)),
            Err(error) => kernels.unreadable.push((project.root().to_owned(), error)),
        }
    }
    // A kernel that a project knows is not left over; the project may have been moved.
    let sessions = &kernels.sessions;
    kernels.unreachable.retain(|unreachable| {
        let same = |(_, status): &(_, SessionStatus)| {
            Process::recorded(&status.session).as_ref() == Some(&unreachable.process)
        };
        !sessions.iter().any(same)
    });
    kernels
}

/// Returns the notebooks of all the user's projects whose kernel runs on this server, with whether the kernel was idle
/// when something last happened.
pub fn on_server(server: &str) -> Vec<ServerNotebook> {
    let projects = registry::known().into_iter();
    let projects = projects.filter_map(|known| known.project());
    let mut notebooks = Vec::new();
    for project in projects {
        for (key, session) in project.state().unwrap_or_default().all() {
            let is_there = session.as_remote().is_some_and(|it| it.server == server);
            let liveness = recorded_liveness(&session);
            if is_there && is_in_use(&session.status, &liveness) {
                let running = project.present(&key, session.generation).running;
                notebooks.push(ServerNotebook {
                    notebook: session.notebook,
                    is_idle: running.is_none(),
                });
            }
        }
    }
    notebooks
}

/// A notebook whose kernel runs on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerNotebook {
    /// Its path.
    pub notebook: PathBuf,
    /// Whether no cell of it is known to run.
    pub is_idle: bool,
}

type StatusRequest = std::pin::Pin<Box<dyn Future<Output = Result<SessionStatus, StateError>>>>;

/// Returns one future for each kernel of a project, which requests its status.
fn status_requests(project: &Project) -> Result<Vec<StatusRequest>, StateError> {
    let state = project.state()?;
    let sessions = state.all().into_iter();
    let owners = sessions.filter(|(key, _)| state.shared_with(key).is_none());
    Ok(owners
        .map(|(key, session)| {
            let project = project.clone();
            let request = async move { status::status(&project, &key, session).await };
            Box::pin(request) as StatusRequest
        })
        .collect())
}

/// Adds the notebooks that use another's kernel, each after its owner.
fn with_sharers(project: &Project, owners: Vec<SessionStatus>) -> Vec<SessionStatus> {
    let state = project.state().unwrap_or_default();
    let mut all = Vec::new();
    for owner in owners {
        let sharers = owner.shared_by.iter().filter_map(|key| {
            Some(SessionStatus {
                key: key.clone(),
                session: state.session(key)?,
                kernel_of: Some(owner.key.clone()),
                ..owner.clone()
            })
        });
        all.push(owner.clone());
        all.extend(sharers);
    }
    all
}

fn unreachable_kernels(known: &KnownProject) -> Vec<UnreachableKernel> {
    let unreachable = known.kernels.values().map(|kernel| UnreachableKernel {
        root: known.root.clone(),
        state_file: known.state_file.clone(),
        kernel: kernel.clone(),
        process: process(kernel),
    });
    unreachable
        .filter(|unreachable| unreachable.process.is_alive())
        .collect()
}

/// Remembers the new folders of a project that was moved while a kernel ran, as that kernel's open log tells them.
fn remember_moved(known: &KnownProject) {
    let state = known.project().and_then(|project| project.state().ok());
    let runs =
        |session: &Session, process: &Process| Process::recorded(session).as_ref() == Some(process);
    let is_known = |process: &Process| {
        let state = state.as_ref();
        state.is_some_and(|state| state.sessions.values().any(|it| runs(it, process)))
    };
    for unreachable in unreachable_kernels(known) {
        let process = unreachable.process;
        if is_known(&process) {
            continue;
        }
        let logs = process.open_files();
        let logs = logs.filter(|file| file.extension().is_some_and(|ending| ending == "log"));
        for project in logs.filter_map(|log| Project::find(&log)) {
            let sessions = project.state().map(|state| state.sessions);
            let sessions = sessions.unwrap_or_default();
            if sessions.values().any(|it| runs(it, &process)) {
                for (key, session) in &sessions {
                    project.remember(key, session, still_runs);
                }
                break;
            }
        }
    }
}

fn process(kernel: &KnownKernel) -> Process {
    Process {
        pid: kernel.pid,
        start_time: kernel.start_time,
        boot_id: kernel.boot_id.clone(),
    }
}

/// Says whether a kernel in the registry runs.
pub(super) fn still_runs(kernel: &KnownKernel) -> bool {
    process(kernel).is_alive()
}

/// Runs futures concurrently, a limited number at a time; returns their results in order.
pub(super) async fn run_concurrently<T: 'static>(
    jobs: impl IntoIterator<Item = impl Future<Output = T> + 'static>,
) -> Vec<T> {
    let permits = Rc::new(Semaphore::new(CONCURRENCY));
    let local = LocalSet::new();
    let tasks: Vec<_> = jobs
        .into_iter()
        .map(|job| {
            let permits = permits.clone();
            local.spawn_local(async move {
                let _permit = permits.acquire().await;
                job.await
            })
        })
        .collect();
    let results = async {
        let mut results = Vec::new();
        for task in tasks {
            match task.await {
                Ok(it) => results.push(it),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
        results
    };
    local.run_until(results).await
}
