//! Ending kernels that nobody has used for some time.

use std::time::Duration;

use jiff::Timestamp;

use super::everywhere::{Kernels, Left, side_by_side};
use super::liveness::Liveness;
use super::open_error::OpenError;
use super::shutdown::shutdown_unless;
use super::status::{SessionStatus, status};
use crate::activity::company::whose;
use crate::kernel::process::plan::IdleReport;
use crate::kernel::process::{Process, Signal};
use crate::project::{Project, Status};

/// How long another `nb` may hold a session's lock.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a kernel whose project is gone may take to end.
const ENDS: Duration = Duration::from_secs(3);

/// Which kernels are to be ended.
#[derive(Clone, Debug)]
pub struct IdleOptions {
    /// Those that have been idle for at least this long.
    pub age: Duration,
    /// Also those that a front end has joined, and those whose projects are gone.
    pub force: bool,
    /// Only tell.
    pub dry_run: bool,
    /// Who asks.
    pub by: String,
}

/// What became of one kernel.
#[derive(Debug)]
pub struct IdleOutcome {
    /// Its project's folder.
    pub root: std::path::PathBuf,
    /// Its notebook, relative to that.
    pub notebook: String,
    /// Its process.
    pub pid: Option<u32>,
    /// Which of the session's kernels it is; unknown where its project is gone.
    pub generation: Option<u64>,
    /// Since when it is idle, where that is known.
    pub idle_since: Option<Timestamp>,
    /// Its memory.
    pub memory_bytes: Option<u64>,
    /// What was done.
    pub done: Done,
}

/// What was done to a kernel.
#[derive(Debug)]
pub enum Done {
    /// It was ended, or would have been.
    Ended,
    /// It goes on, and why.
    Kept(String),
    /// It could not be ended.
    Failed(OpenError),
}

/// The rule: why a kernel is not ended; none ends it. Nothing where none runs.
fn reason_to_keep(status: &SessionStatus, options: &IdleOptions, now: Timestamp) -> Option<String> {
    if !status.session.is_owned() {
        return Some("started by another program".to_owned());
    }
    match (&status.session.status, status.busy) {
        (Status::Starting | Status::Restarting, _) => return Some("it is starting".to_owned()),
        (_, Some(false)) => {}
        (_, Some(true)) => {
            let runs = status.running.as_ref().map(whose);
            return Some(format!(
                "busy: {}",
                runs.as_deref().unwrap_or("something runs")
            ));
        }
        (_, None) => return Some("it does not answer".to_owned()),
    }
    if !status.joined.is_empty() && !options.force {
        let who: Vec<_> = status
            .joined
            .iter()
            .map(|it| it.front_end.clone())
            .collect();
        return Some(format!("{} is joined", who.join(", ")));
    }
    let idle = status.idle_since.map(|since| now.duration_since(since));
    let idle = idle.and_then(|idle| Duration::try_from(idle).ok());
    // A clock that was set back, or a kernel of which nothing is known, counts as just used.
    (idle.unwrap_or_default() < options.age).then(|| "used lately".to_owned())
}

/// Returns how long nobody has used a session's kernel, which is to be ended after its time.
pub(crate) async fn look(project: &Project, key: &str) -> IdleReport {
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
    let unused = status.and_then(|status| unused(&status, Timestamp::now()));
    IdleReport { limit, unused }
}

/// Ends a session's kernel that nobody uses; says whether it did.
pub(crate) async fn end_unused(project: &Project, key: &str, look: IdleReport) -> bool {
    let (Some(age), Some(_)) = (look.limit, look.unused) else {
        return false;
    };
    let options = IdleOptions {
        age,
        force: false,
        dry_run: false,
        by: "nb".to_owned(),
    };
    let why = format!("nobody used it for {}", span(age));
    matches!(end(project, key, &options, Some(&why)).await, Ok(None))
}

/// Ends a session's kernel, unless the rule keeps it once the session's lock is held; returns why it
/// goes on then.
async fn end(
    project: &Project,
    key: &str,
    options: &IdleOptions,
    why: Option<&str>,
) -> Result<Option<String>, OpenError> {
    let keeps = async |session| {
        let status = status(project, key, session).await?;
        Ok(reason_to_keep(&status, options, Timestamp::now()))
    };
    let ended = shutdown_unless(project, key, &options.by, why, PATIENCE, keeps).await?;
    Ok(ended.err())
}

/// Shows a time that somebody chose: `2 h`, `90 min`.
pub fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds > 0 && seconds % 3600 == 0 => format!("{} h", seconds / 3600),
        seconds if seconds > 0 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// The rule: for how long nobody has used a kernel; none where it is in use.
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

/// Ends the kernels that the options mean, and tells of every one that runs.
pub async fn end_idle(kernels: Kernels, options: &IdleOptions) -> Vec<IdleOutcome> {
    let Kernels { found, left, .. } = kernels;
    let up = found
        .into_iter()
        .filter(|(_, status)| status.kernel_of.is_none())
        .filter(|(_, status)| status.liveness.is_up());
    let jobs: Vec<_> = up
        .map(|(project, status)| end_one(project, status, options.clone()))
        .collect();
    let mut outcomes = side_by_side(jobs).await;
    let left = left.into_iter().map(|left| end_left(left, options.clone()));
    outcomes.extend(side_by_side(left.collect::<Vec<_>>()).await);
    outcomes
}

async fn end_one(project: Project, status: SessionStatus, options: IdleOptions) -> IdleOutcome {
    let done = match reason_to_keep(&status, &options, Timestamp::now()) {
        Some(why) => Done::Kept(why),
        None if options.dry_run => Done::Ended,
        None => match end(&project, &status.key, &options, None).await {
            Ok(None) => Done::Ended,
            Ok(Some(why)) => Done::Kept(why),
            Err(error) => Done::Failed(error),
        },
    };
    IdleOutcome {
        root: project.root().to_owned(),
        notebook: status.key,
        pid: status.session.pid(),
        generation: Some(status.session.generation),
        idle_since: status.idle_since,
        memory_bytes: status.memory_bytes,
        done,
    }
}

/// Ends a process that leads its group by signals alone.
pub(super) async fn end_group(process: &Process) {
    let _ = process.signal_group(Signal::TERM);
    if !process.ended_within(ENDS).await {
        let _ = process.signal_group(Signal::KILL);
        process.ended_within(ENDS).await;
    }
}

/// Its key went with the project, so that nobody can ask it: it is ended by signals alone.
async fn end_left(left: Left, options: IdleOptions) -> IdleOutcome {
    let memory_bytes = left.process.memory_bytes();
    let done = if !options.force {
        let pid = left.process.pid;
        Done::Kept(format!(
            "its project is gone, whether it is busy is unknown; --force ends it, or: kill {pid}"
        ))
    } else {
        if !options.dry_run {
            end_group(&left.process).await;
        }
        Done::Ended
    };
    let notebook = left.kernel.notebook.strip_prefix(&left.root);
    IdleOutcome {
        notebook: notebook
            .unwrap_or(&left.kernel.notebook)
            .to_string_lossy()
            .into_owned(),
        root: left.root,
        pid: Some(left.process.pid),
        generation: None,
        idle_since: None,
        memory_bytes,
        done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::joined::Joined;
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
        // A kernel that does not answer just now.
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
        let look = IdleReport {
            limit: Some(Duration::from_secs(1)),
            unused: Some(Duration::from_secs(2)),
        };
        assert!(!end_unused(&project, "a.ipynb", look).await);
        let state = project.state().unwrap();
        assert_eq!(state.sessions["a.ipynb"].status, Status::Live);
        assert!(process.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn kept(status: &SessionStatus, age: u64, force: bool) -> Option<String> {
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
        assert_eq!(kept(&idle(60), 60, false), None);
        assert!(kept(&idle(59), 60, true).is_some());
        assert_eq!(kept(&idle(0), 0, false), None);
        // The clock was set back meanwhile.
        assert!(kept(&idle(-10), 1, false).is_some());
        let at = Timestamp::from_second(1000).unwrap();
        assert_eq!(unused(&idle(60), at), Some(Duration::from_secs(60)));
        assert_eq!(unused(&idle(-10), at), Some(Duration::ZERO));

        let mut busy = idle(60);
        busy.busy = Some(true);
        assert!(kept(&busy, 0, true).unwrap().starts_with("busy"));
        busy.busy = None;
        assert!(kept(&busy, 0, true).is_some());

        let mut joined = idle(60);
        joined.joined.push(Joined {
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
        assert_eq!(kept(&joined, 0, false).unwrap(), "VS Code is joined");
        assert_eq!(unused(&joined, at), None);
        assert_eq!(kept(&joined, 0, true), None);

        let mut attached = idle(60);
        attached.session.backend = Backend::attached(None);
        assert!(kept(&attached, 0, true).is_some());
        let mut starting = idle(60);
        starting.session.status = Status::Starting;
        assert!(kept(&starting, 0, true).is_some());
    }
}
