//! Ends kernels that have not been used for some time.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::all_kernels::{Kernels, UnreachableKernel, run_concurrently};
use super::consent::unsent;
use super::liveness::Liveness;
use super::open_error::OpenError;
use super::server_connection;
use super::server_kernel::ServerKernels;
use super::shutdown::shutdown_unless;
use super::start::end_group;
use super::status::{SessionStatus, status};
use crate::activity::labels::cell_with_actor;
use crate::kernel::process::plan::IdleReport;
use crate::project::{Project, Status};
use crate::task::causes::with_causes;

/// How long another `nb` may hold a session's lock.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The choice of kernels to end.
#[derive(Clone, Debug)]
pub struct IdleOptions {
    /// Kernels that have been idle for at least this long.
    pub age: Duration,
    /// Whether to end kernels that a front end has joined too, and those whose projects were
    /// removed.
    pub force: bool,
    /// Whether to report only.
    pub dry_run: bool,
    /// The actor who asks.
    pub by: String,
}

/// What became of one kernel.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IdleKernel {
    /// Its project's folder.
    pub project: PathBuf,
    /// Its notebook, relative to that.
    pub notebook: String,
    /// Its process.
    pub kernel_pid: Option<u32>,
    /// Which of the session's kernels it is; unknown if its project's `.nb` was removed or renamed.
    pub kernel_generation: Option<u64>,
    /// Since when it is idle, where that is known.
    pub idle_since: Option<Timestamp>,
    /// Its memory.
    pub memory_bytes: Option<u64>,
    /// What was done.
    pub done: IdleResult,
    /// Why it goes on.
    pub why: Option<String>,
}

/// What was done to an idle kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum IdleResult {
    /// It was ended, or would have been.
    Ended,
    /// It goes on.
    Kept,
    /// It could not be ended.
    Failed,
}

/// Returns why a running kernel is not ended; `None` if it is to be ended. This is the rule.
fn reason_to_keep(status: &SessionStatus, options: &IdleOptions, now: Timestamp) -> Option<String> {
    if !status.session.is_owned() {
        return Some("started by another program".to_owned());
    }
    match (&status.session.status, status.busy) {
        (Status::Starting | Status::Restarting, _) => return Some("it is starting".to_owned()),
        (_, Some(is_busy)) => {
            // A cell that the idle kernel has not received yet counts as running.
            let runs = status.running.as_ref().map(cell_with_actor);
            if let Some(runs) = runs.or_else(|| is_busy.then(|| "something runs".to_owned())) {
                return Some(format!("busy: {runs}"));
            }
        }
        (_, None) => {
            let lost = server_connection::lost(&status.session);
            return Some(lost.map_or("it does not answer".to_owned(), |lost| lost.to_string()));
        }
    }
    if !status.joined.is_empty() && !options.force {
        let names = status.joined.iter().map(|it| it.front_end.clone());
        let names: Vec<_> = names.collect();
        return Some(format!("{} is joined", names.join(", ")));
    }
    let idle = status.idle_since.map(|since| now.duration_since(since));
    let idle = idle.and_then(|idle| Duration::try_from(idle).ok());
    // A clock that was set back, or a kernel whose last use is not known, counts as just used.
    (idle.unwrap_or_default() < options.age).then(|| "used lately".to_owned())
}

/// Returns why a job keeps a session's kernel: its recorder has not sent the next cell yet.
fn job_to_keep_for(project: &Project, key: &str) -> Option<String> {
    let cell = unsent(project, key).into_iter().next()?;
    Some(format!("requested: {}", cell_with_actor(&cell)))
}

/// Returns why a running kernel is not ended now, by its status or by a job; `None` if it is to be ended.
fn reason_to_keep_now(
    project: &Project,
    status: &SessionStatus,
    options: &IdleOptions,
) -> Option<String> {
    reason_to_keep(status, options, Timestamp::now())
        .or_else(|| job_to_keep_for(project, &status.key))
}

/// Returns for how long a session's kernel has been unused, and its limit.
pub async fn idle_report(project: &Project, key: &str) -> IdleReport {
    let state = project.state().ok();
    let session = state.and_then(|state| state.sessions.get(key).cloned());
    let Some(session) = session else {
        return IdleReport::default();
    };
    let limit = session.settings.idle_timeout.map(Duration::from_secs);
    let status = match limit {
        Some(_) => status(project, key, session).await.ok(),
        None => None,
    };
    let unused = status
        .filter(|_| job_to_keep_for(project, key).is_none())
        .and_then(|status| unused(&status, Timestamp::now()));
    IdleReport { limit, unused }
}

/// Ends a session's unused kernel; returns whether it did.
pub async fn end_unused(
    servers: &impl ServerKernels,
    project: &Project,
    key: &str,
    report: IdleReport,
) -> bool {
    let (Some(age), Some(_)) = (report.limit, report.unused) else {
        return false;
    };
    let options = IdleOptions {
        age,
        force: false,
        dry_run: false,
        by: "nb".to_owned(),
    };
    let why = format!("nobody used it for {}", span(age));
    matches!(
        end(servers, project, key, &options, Some(&why)).await,
        Ok(None)
    )
}

/// Ends a session's kernel, unless the rule says otherwise once the session's lock is held; returns
/// the reason then.
async fn end(
    servers: &impl ServerKernels,
    project: &Project,
    key: &str,
    options: &IdleOptions,
    why: Option<&str>,
) -> Result<Option<String>, OpenError> {
    let keeps = async |session| {
        let status = status(project, key, session).await?;
        Ok(reason_to_keep_now(project, &status, options))
    };
    let ended = shutdown_unless(servers, project, key, &options.by, why, TIMEOUT, keeps).await?;
    Ok(ended.err())
}

/// Formats a duration that a user chose: `2 h`, `90 min`.
pub fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds > 0 && seconds % 3600 == 0 => format!("{} h", seconds / 3600),
        seconds if seconds > 0 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// Returns for how long a kernel has been unused; `None` if it is in use.
fn unused(status: &SessionStatus, now: Timestamp) -> Option<Duration> {
    let options = IdleOptions {
        age: Duration::ZERO,
        force: false,
        dry_run: true,
        by: String::new(),
    };
    if !matches!(status.liveness, Liveness::Own(_))
        || reason_to_keep(status, &options, now).is_some()
    {
        return None;
    }
    let unused = Duration::try_from(now.duration_since(status.idle_since?));
    Some(unused.unwrap_or_default())
}

/// Ends the kernels that the options select, and reports all kernels that run.
pub async fn end_idle(
    servers: &'static impl ServerKernels,
    kernels: Kernels,
    options: &IdleOptions,
) -> Vec<IdleKernel> {
    let Kernels {
        sessions,
        unreachable,
        ..
    } = kernels;
    let up = sessions
        .into_iter()
        .filter(|(_, status)| status.kernel_of.is_none())
        .filter(|(_, status)| status.liveness.is_up());
    let jobs: Vec<_> = up
        .map(|(project, status)| end_one(servers, project, status, options.clone()))
        .collect();
    let mut outcomes = run_concurrently(jobs).await;
    let unreachable = unreachable
        .into_iter()
        .map(|kernel| end_unreachable(kernel, options.clone()));
    outcomes.extend(run_concurrently(unreachable.collect::<Vec<_>>()).await);
    outcomes
}

async fn end_one(
    servers: &impl ServerKernels,
    project: Project,
    status: SessionStatus,
    options: IdleOptions,
) -> IdleKernel {
    let outcome = match reason_to_keep_now(&project, &status, &options) {
        None if !options.dry_run => end(servers, &project, &status.key, &options, None).await,
        outcome => Ok(outcome),
    };
    let (done, why) = match outcome {
        Ok(None) => (IdleResult::Ended, None),
        Ok(why) => (IdleResult::Kept, why),
        Err(error) => (IdleResult::Failed, Some(with_causes(&error))),
    };
    IdleKernel {
        project: project.root().to_owned(),
        notebook: status.key,
        kernel_pid: status.session.pid(),
        kernel_generation: Some(status.session.generation),
        idle_since: status.idle_since,
        memory_bytes: status.memory_bytes,
        done,
        why,
    }
}

/// Ends a kernel whose `.nb` was removed or renamed, by signals alone: the key for messages to it is not where it
/// was.
async fn end_unreachable(kernel: UnreachableKernel, options: IdleOptions) -> IdleKernel {
    let memory_bytes = kernel.process.memory_bytes();
    let pid = kernel.process.pid;
    if options.force && !options.dry_run {
        end_group(&kernel.process).await;
    }
    let why = format!(
        "its .nb was removed or renamed, so whether it is busy is unknown; --force ends it, or: kill {pid}"
    );
    let (done, why) = match options.force {
        true => (IdleResult::Ended, None),
        false => (IdleResult::Kept, Some(why)),
    };
    let notebook = kernel.kernel.notebook.strip_prefix(&kernel.root);
    let notebook = notebook.unwrap_or(&kernel.kernel.notebook);
    IdleKernel {
        notebook: notebook.to_string_lossy().into_owned(),
        project: kernel.root,
        kernel_pid: Some(pid),
        kernel_generation: None,
        idle_since: None,
        memory_bytes,
        done,
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::process::Process;
    use crate::lifecycle::server_kernel::NoServers;
    use crate::project::event::RunningExecution;
    use crate::project::jobs::{Job, JobCell, JobState};
    use crate::project::joined::JoinedFrontEnd;
    use crate::project::{Backend, Session};

    fn idle(seconds: i64) -> SessionStatus {
        SessionStatus {
            key: "a.ipynb".to_owned(),
            session: Session {
                status: Status::Live,
                ..Session::local("/p/a.ipynb".into())
            },
            kernel_of: None,
            liveness: Liveness::Own(Process::current()),
            busy: Some(false),
            running: None,
            waiting: Vec::new(),
            idle_since: Some(Timestamp::from_second(1000 - seconds).unwrap()),
            memory_bytes: None,
            joined: Vec::new(),
            shared_by: Vec::new(),
            abandoned: false,
        }
    }

    #[tokio::test]
    async fn what_was_used_since_it_was_looked_at_is_not_ended() {
        use std::os::unix::process::CommandExt as _;
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.ipynb");
        let project = Project::for_notebook(&path).unwrap();
        // A kernel that does not answer at the moment.
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .process_group(0)
            .spawn()
            .unwrap();
        let process = Process::of(child.id()).unwrap();
        let mut session = Session::local(path.clone());
        session.status = Status::Live;
        session.set_process(process.pid, process.start_time, None);
        session.connection_file = home.path().join("none.json");
        project
            .update(|state| state.sessions.insert("a.ipynb".to_owned(), session))
            .unwrap();
        let report = IdleReport {
            limit: Some(Duration::from_secs(1)),
            unused: Some(Duration::from_secs(2)),
        };
        assert!(!end_unused(&NoServers, &project, "a.ipynb", report).await);
        let state = project.state().unwrap();
        assert_eq!(state.sessions["a.ipynb"].status, Status::Live);
        assert!(process.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_kernel_for_which_a_job_was_only_just_requested_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&home.path().join("a.ipynb")).unwrap();
        assert_eq!(job_to_keep_for(&project, "a.ipynb"), None);
        let mut job = Job::new(&project, "a.ipynb", "a.ipynb".to_owned(), "ada");
        job.cells.push(JobCell::new(None, "train()".to_owned()));
        let folder = project.make_job(&mut job).unwrap();
        let reason = job_to_keep_for(&project, "a.ipynb").unwrap();
        assert!(reason.starts_with("requested: "), "{reason}");
        assert_eq!(job_to_keep_for(&project, "b.ipynb"), None);
        job.state = JobState::Done;
        folder.write(&job).unwrap();
        assert_eq!(job_to_keep_for(&project, "a.ipynb"), None);
    }

    fn reason(status: &SessionStatus, age: u64, force: bool) -> Option<String> {
        let options = IdleOptions {
            age: Duration::from_secs(age),
            force,
            dry_run: false,
            by: "ada".to_owned(),
        };
        reason_to_keep(status, &options, Timestamp::from_second(1000).unwrap())
    }

    #[test]
    fn what_is_in_use_is_kept() {
        assert_eq!(reason(&idle(60), 60, false), None);
        assert!(reason(&idle(59), 60, true).is_some());
        assert_eq!(reason(&idle(0), 0, false), None);
        // The clock was set back since.
        assert!(reason(&idle(-10), 1, false).is_some());
        let at = Timestamp::from_second(1000).unwrap();
        assert_eq!(unused(&idle(60), at), Some(Duration::from_secs(60)));
        assert_eq!(unused(&idle(-10), at), Some(Duration::ZERO));

        let mut busy = idle(60);
        busy.busy = Some(true);
        assert!(reason(&busy, 0, true).unwrap().starts_with("busy"));
        busy.busy = None;
        assert!(reason(&busy, 0, true).is_some());

        let mut sent = idle(60);
        sent.running = Some(RunningExecution {
            notebook: "a.ipynb".to_owned(),
            msg_id: "1".to_owned(),
            by: Some("ada".to_owned()),
            cell: None,
            code: Some("train()".to_owned()),
            job: None,
            store_history: true,
            since: at,
            prompt: None,
        });
        assert!(reason(&sent, 0, true).unwrap().starts_with("busy"));
        assert_eq!(unused(&sent, at), None);

        let mut joined = idle(60);
        joined.joined.push(JoinedFrontEnd {
            pid: 1,
            start_time: 1,
            boot_id: String::new(),
            pid_namespace: String::new(),
            session: None,
            front_end: "VS Code".to_owned(),
            since: Timestamp::now(),
            clients: 1,
            counters: None,
            other: serde_json::Map::new(),
        });
        assert_eq!(reason(&joined, 0, false).unwrap(), "VS Code is joined");
        assert_eq!(unused(&joined, at), None);
        assert_eq!(reason(&joined, 0, true), None);

        let mut attached = idle(60);
        attached.session.backend = Backend::attached(None);
        assert!(reason(&attached, 0, true).is_some());
        let mut starting = idle(60);
        starting.session.status = Status::Starting;
        assert!(reason(&starting, 0, true).is_some());
    }
}
