//! Starts the kernel of a session whose lock is held: launches it, waits for it and records it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::all_kernels::still_runs;
use super::death;
use super::liveness::{refusal, sandboxed};
use super::open_error::OpenError;
use super::ready::{NotReady, ready, ready_anywhere, wait_for_ports};
use super::sandbox::{self as sandbox_of, confine, contain};
use super::target::recorded;
use super::witness;
use crate::client::Client;
use crate::kernel::confine::sandbox;
use crate::kernel::environment::trust;
use crate::kernel::process::connection::{self, KernelFiles};
use crate::kernel::process::detach::PreforkedProcess;
use crate::kernel::process::launch;
use crate::kernel::process::plan::Supervision;
use crate::kernel::process::{Process, Signal};
use crate::kernel::spec::quirks;
use crate::kernel::variables::ProcessVariables;
use crate::project::{
    Backend, KernelSettings, Lock, Project, RealSpec, Relation, ResourceLimits, Session, State,
    Status, beneath,
};
use crate::task::causes::with_causes;
use crate::task::{self, Task};
use crate::wire::Transport;

/// How often to start a kernel on TCP, with new ports each time, if another program takes one of
/// its ports.
const PORT_TRIES: usize = 3;

/// How long a kernel may take until it binds the first of its Unix sockets.
const FIRST_SOCKET: Duration = Duration::from_secs(5);

/// How many of the last lines of a kernel's log are shown when it cannot start.
const LINES: usize = 12;

/// The pause between two attempts to take the lock.
const LOCK_POLL: Duration = Duration::from_millis(15);

/// The kernel that a session is to get.
pub(super) struct KernelPlan {
    pub(super) spec: RealSpec,
    pub(super) transport: Transport,
    pub(super) settings: KernelSettings,
    /// Whether no person has chosen it; see [`Session::unchosen`].
    pub(super) unchosen: bool,
}

/// A session whose lock is held.
pub(super) struct LockedSession<'a> {
    pub(super) project: &'a Project,
    pub(super) key: &'a str,
    pub(super) variables: ProcessVariables,
    /// Preforked processes for the next start.
    preforked: Mutex<Option<PreforkedProcess>>,
    /// What the last start omitted from the kernel's environment, and why.
    problem: Mutex<Option<String>>,
    /// What concerns a kernel that ends with the process that starts it.
    fresh: Option<FreshStart>,
    _lock: Lock,
}

/// What the start of a kernel has that ends with the process that starts it. It says nothing of what its cells change.
#[derive(Clone, Debug)]
pub(super) struct FreshStart {
    /// That process.
    pub(super) owner: Process,
    /// The variables that the user's settings give the kernels of the notebook's own project.
    pub(super) kernel_env: BTreeMap<String, String>,
}

impl<'a> LockedSession<'a> {
    /// Waits for the session's lock. While it is held no other process starts, restarts or ends the
    /// kernel.
    pub(super) async fn wait(
        project: &'a Project,
        key: &'a str,
        timeout: Duration,
    ) -> Result<Self, OpenError> {
        // A program that can write `state.json` decides what is run, and in which sandbox.
        trust::check("the project's memory", &project.state_file())?;
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            let lock = project
                .try_lock_session(key)
                .map_err(|source| OpenError::Lock {
                    dir: project.dir().to_owned(),
                    source,
                })?;
            if let Some(lock) = lock {
                return Ok(Self {
                    project,
                    key,
                    variables: ProcessVariables,
                    preforked: Mutex::default(),
                    problem: Mutex::default(),
                    fresh: None,
                    _lock: lock,
                });
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(OpenError::Busy { after: timeout });
            }
            tokio::time::sleep(LOCK_POLL).await;
        }
    }

    /// Sets the preforked processes for the next start.
    pub(super) fn set_preforked(&self, preforked: Option<PreforkedProcess>) {
        *self
            .preforked
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = preforked;
    }

    /// Makes the next start one of a kernel that ends with this process.
    pub(super) fn set_fresh(&mut self, fresh: FreshStart) {
        self.fresh = Some(fresh);
    }

    /// Returns what the last start omitted from the kernel's environment, and why.
    pub(super) fn problem(&self) -> Option<String> {
        let problem = self.problem.lock();
        problem.unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the present record of the session.
    pub(super) fn session(&self) -> Result<Option<Session>, OpenError> {
        Ok(recorded(&self.project.state()?, self.project, self.key))
    }

    /// Says whether the session has a record of its own, and is not only named in the top-level
    /// fields.
    pub(super) fn has_record(&self) -> Result<bool, OpenError> {
        Ok(self.project.state()?.sessions.contains_key(self.key))
    }

    /// Changes the session's record.
    pub(super) fn record(&self, change: impl FnOnce(&mut Session)) -> Result<(), OpenError> {
        self.project.update(|state| {
            if let Some(session) = state.sessions.get_mut(self.key) {
                change(session);
            }
        })?;
        Ok(())
    }

    /// Changes the project's state without waiting for the disk, while the start continues: a power
    /// cut that loses the change ends the kernel too.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T, OpenError> {
        let answer = self.project.update_unsynced(change)?;
        let project = self.project.clone();
        // Only the exit of this process waits for this.
        drop(tokio::task::spawn_blocking(move || {
            if let Err(error) = project.sync() {
                tracing::warn!(%error, "the project's state could not be synced");
            }
        }));
        Ok(answer)
    }

    /// Starts a kernel on new connection files. `before` is the session's record, if it has one.
    pub(super) async fn start(
        &self,
        notebook: &Path,
        before: Option<Session>,
        plan: KernelPlan,
        timeout: Duration,
    ) -> Result<Session, OpenError> {
        let KernelPlan {
            spec,
            transport,
            settings,
            unchosen,
        } = plan;
        // The files of a kernel on another host or in another container are not removed.
        if let Some(before) = &before
            && before.is_owned()
            && before.relation() != Relation::OtherHost
        {
            KernelFiles::of(&before.connection_file).remove(&self.variables);
        }
        let old_file = before.as_ref().map(|before| before.connection_file.clone());
        let files = KernelFiles::fresh(self.project).map_err(|source| OpenError::Lock {
            dir: self.project.dir().to_owned(),
            source,
        })?;
        let is_confined = !settings.confinement.is_none();
        let before = before.unwrap_or_else(|| Session::local(notebook.to_owned()));
        let process = before.process();
        let process = process.filter(|_| before.relation() == Relation::Here);
        // A kernel counts as a generation even if its process is not known here.
        let is_counted = before.is_attached() || before.process() != process;
        // Recorded before the file exists: after a crash there is no connection file without a
        // session.
        let session = Session {
            notebook: notebook.to_owned(),
            connection_file: files.connection_file().to_owned(),
            backend: Backend::local(process),
            status: Status::Starting,
            generation: before.generation + u64::from(is_counted),
            kernelspec: Some(spec.clone()),
            transport,
            settings,
            unchosen,
            ..before
        };
        self.update(|state| replace(state, self.key, session, old_file.as_deref()))?;
        self.create(&files, is_confined, transport, &spec)?;
        self.run(&files, &spec, transport, timeout).await
    }

    /// Makes the connection file of a kernel that is about to be started.
    pub(super) fn create(
        &self,
        files: &KernelFiles,
        sandboxed: bool,
        transport: Transport,
        spec: &RealSpec,
    ) -> Result<(), OpenError> {
        let result = files.create(transport, sandboxed, spec, &self.variables);
        result.map(drop).or_else(|error| {
            self.record_failure(files, &with_causes(&error))?;
            Err(error.into())
        })
    }

    /// Starts the kernel on an existing connection file and waits until it is ready. A kernel that binds no Unix socket
    /// is started again on TCP.
    pub(super) async fn run(
        &self,
        files: &KernelFiles,
        spec: &RealSpec,
        mut transport: Transport,
        timeout: Duration,
    ) -> Result<Session, OpenError> {
        let mut is_on_tcp_instead = false;
        for attempt in 1.. {
            let started = self.launch(files, spec).await;
            let (process, log_start) = match started {
                Ok(started) => started,
                Err(error) => {
                    self.record_failure(files, &with_causes(&error))?;
                    return Err(error);
                }
            };
            let ready = tokio::select! {
                ready = self.wait_until_ready(files, &process, timeout) => Some(ready),
                () = self.no_socket(files, spec, transport) => None,
            };
            let Some(ready) = ready else {
                end_group(&process).await;
                self.wait_for_supervisor(&process).await;
                files.remove(&self.variables);
                transport = Transport::Tcp;
                self.record(|session| session.transport = transport)?;
                self.create(files, false, transport, spec)?;
                is_on_tcp_instead = true;
                continue;
            };
            if is_on_tcp_instead {
                let name = &spec.display_name;
                let text = format!(
                    "{name} bound no Unix socket within {FIRST_SOCKET:?}: it was started again on TCP"
                );
                *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
            }
            match ready {
                Err(OpenError::Died { log, .. }) => {
                    self.wait_for_supervisor(&process).await;
                    let lines = launch::last_lines(&log, log_start, LINES);
                    let address_in_use = lines.iter().any(|line| says_address_in_use(line));
                    let end = death::end_of(files, &process);
                    files.remove(&self.variables);
                    if transport == Transport::Tcp && address_in_use && attempt < PORT_TRIES {
                        self.create(files, false, transport, spec)?;
                        continue;
                    }
                    let how = end.map(|end| death::reason(end.exit, end.memory_bytes));
                    let session = self.session()?;
                    let error = OpenError::Died {
                        argv: spec.argv.clone(),
                        how: how.clone(),
                        limit: session.and_then(|session| session.settings.limits.memory_bytes),
                        log,
                        lines,
                    };
                    let how = how.unwrap_or_else(|| "its process ended".to_owned());
                    self.record_failure(files, &how)?;
                    return Err(error);
                }
                Err(OpenError::SandboxedStart { reason, .. }) => {
                    let log = self.log();
                    let lines = launch::last_lines(&log, log_start, LINES);
                    let error = OpenError::SandboxedStart { reason, lines };
                    self.record_failure(files, &error.to_string())?;
                    return Err(error);
                }
                outcome => return outcome,
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Returns once a kernel of this machine has had time to bind a Unix socket and has bound none; never for a kernel that
    /// may not use TCP, or is known to bind them.
    async fn no_socket(&self, files: &KernelFiles, spec: &RealSpec, transport: Transport) {
        let session = self.session().ok().flatten();
        let is_free =
            session.is_some_and(|it| it.as_remote().is_none() && it.confinement().is_none());
        if transport == Transport::Ipc && is_free && !quirks::binds_unix_sockets(spec) {
            tokio::time::sleep(FIRST_SOCKET).await;
            if !files.is_open() && !files.has_socket(&self.variables) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Starts the bridge of a kernel on a server, on an existing connection file, and waits until the kernel answers.
    pub(super) async fn run_bridge(
        &self,
        files: &KernelFiles,
        timeout: Duration,
    ) -> Result<Session, OpenError> {
        // What the last bridge reported does not concern this one.
        let _ = beneath::remove_file(&files.report_file());
        let mut session = self
            .run(files, &RealSpec::named(""), Transport::Ipc, timeout)
            .await;
        if let Err(OpenError::Slow { log, last_line, .. }) = &mut session {
            *last_line = launch::last_lines(log, 0, 1).pop();
        }
        session
    }

    /// Starts the bridge of a kernel that goes on meanwhile, and waits until clients can connect to the bridge. Whether the
    /// server answers does not matter.
    pub(super) async fn relaunch_bridge(
        &self,
        files: &KernelFiles,
        timeout: Duration,
    ) -> Result<Session, OpenError> {
        let (process, _) = self.launch(files, &RealSpec::named("")).await?;
        let info = connection::read(files.connection_file())?;
        let connecting = Client::connect_when_up(&info, "nb", timeout);
        tokio::select! {
            connected = connecting => drop(connected.map_err(|source| OpenError::Unreachable {
                pid: process.pid,
                source,
            })?),
            () = process.death() => {
                let log = self.log();
                return Err(OpenError::Died {
                    argv: Vec::new(),
                    how: None,
                    limit: None,
                    lines: launch::last_lines(&log, 0, 1),
                    log,
                });
            }
        }
        self.record(|session| session.set_process(process.pid, process.start_time, None))?;
        let session = self
            .session()?
            .ok_or_else(|| OpenError::Internal("the session's record has vanished".to_owned()))?;
        self.project.remember(self.key, &session, still_runs);
        Ok(session)
    }

    async fn launch(
        &self,
        files: &KernelFiles,
        spec: &RealSpec,
    ) -> Result<(Process, u64), OpenError> {
        let notebook = self.project.notebook(self.key);
        let settings = self.session()?.map(|session| session.settings);
        let settings = settings.unwrap_or_default();
        let confinement = &settings.confinement;
        let unused = |ends| Task::Unused {
            state_file: self.project.state_file(),
            key: self.key.to_owned(),
            ends,
        };
        let mut start = launch::KernelStart {
            spec: spec.clone(),
            files: files.clone(),
            folder: notebook.parent().unwrap_or(self.project.root()).to_owned(),
            log: self.log(),
            more: match &self.fresh {
                Some(fresh) => fresh.kernel_env.clone(),
                None => self.project.settings()?.kernel_env,
            },
            limits: settings.limits,
            supervision: Supervision {
                end_file: files.end_file(),
                after: task::arguments(&Task::Ended {
                    state_file: self.project.state_file(),
                    key: self.key.to_owned(),
                    connection_file: files.connection_file().to_owned(),
                })?,
                idle_check: task::arguments(&unused(false))?,
                end_unused: task::arguments(&unused(true))?,
                first_idle_check: settings.idle_timeout.map(Duration::from_secs),
                container: None,
                ends_all: confinement.sandbox().is_some(),
                owner: self.fresh.as_ref().map(|fresh| fresh.owner.clone()),
            },
            confined: None,
            contained: None,
            bridge: None,
        };
        if self.session()?.is_some_and(|it| it.as_remote().is_some()) {
            // They are those of a kernel of this machine.
            start.limits = ResourceLimits::default();
            start.bridge = Some(task::arguments(&Task::Bridge {
                state_file: self.project.state_file(),
                key: self.key.to_owned(),
                connection_file: files.connection_file().to_owned(),
            })?);
        }
        if let Some(container) = confinement.container() {
            let contained = contain(self.project, container, files)?;
            start.supervision.container = Some(contained.named().clone());
            start.contained = Some(contained);
        }
        let sandbox = confinement.sandbox().cloned().map(|sandbox| {
            sandbox_of::renew(self.project, self.key, files, sandbox, |fresh| {
                let fresh = fresh.to_owned();
                self.record(|session| {
                    if let Some(sandbox) = session.sandbox_mut() {
                        sandbox.scratch = fresh;
                    }
                })
                .map(drop)
            })
        });
        let sandbox = sandbox.transpose()?;
        let (project, key) = (self.project.clone(), self.key.to_owned());
        let preforked = std::mem::take(
            &mut *self
                .preforked
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let task = tokio::task::spawn_blocking(move || {
            let log_start = launch::begin_log(&start.log).unwrap_or_default();
            if let Some(sandbox) = &sandbox {
                start.confined = Some(confine(&project, &key, sandbox, &start)?);
            }
            let launched = launch::launch(&start, preforked, &ProcessVariables)?;
            Ok((launched, log_start))
        });
        let launched = task.await;
        let launched: Result<_, OpenError> =
            launched.map_err(|error| OpenError::Internal(error.to_string()))?;
        let (launched, log_start) = launched?;
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = launched.problem;
        Ok((launched.process, log_start))
    }

    /// Waits until a kernel that was started is ready, and records it as live.
    ///
    /// Also used for a kernel whose starter was killed before it did this.
    pub(super) async fn wait_until_ready(
        &self,
        files: &KernelFiles,
        process: &Process,
        timeout: Duration,
    ) -> Result<Session, OpenError> {
        let deadline = tokio::time::Instant::now() + timeout;
        let sandboxed = self.session()?.is_some_and(|it| it.sandbox().is_some());
        let (process, reached) = match sandboxed {
            true => {
                let (started, files) = (process.clone(), files.clone());
                let entering =
                    tokio::task::spawn_blocking(move || sandbox::entered(&started, &files));
                let sandbox_entry = entering
                    .await
                    .map_err(|error| OpenError::Internal(error.to_string()))?;
                let (process, reached) = sandbox_entry?;
                (process, Some(reached))
            }
            false => (process.clone(), None),
        };
        let process = &process;
        let mut is_witnessed = false;
        let ready = match wait_for_ports(files, process, timeout).await {
            Ok(()) => {
                let info = connection::read(files.connection_file())?;
                let remaining = || deadline.saturating_duration_since(tokio::time::Instant::now());
                if self.session()?.is_some_and(|it| it.as_remote().is_some()) {
                    ready_anywhere(&info, process, remaining()).await
                } else {
                    let reply = ready(&info, process, remaining()).await;
                    if let Ok(kernel_info) = &reply
                        && self.fresh.is_none()
                        && self.project.settings()?.reactive
                    {
                        is_witnessed = witness::begin(&info, kernel_info, remaining()).await;
                    }
                    reply
                }
            }
            Err(not_ready) => Err(not_ready),
        };
        let reply = match ready {
            Ok(reply) => reply,
            Err(NotReady::Died) => {
                return Err(OpenError::Died {
                    argv: Vec::new(),
                    how: None,
                    limit: None,
                    log: self.log(),
                    lines: Vec::new(),
                });
            }
            Err(NotReady::Slow) => {
                return Err(OpenError::Slow {
                    pid: process.pid,
                    after: timeout,
                    log: self.log(),
                    last_line: None,
                });
            }
            Err(NotReady::Unreachable(source)) => {
                return Err(OpenError::Unreachable {
                    pid: process.pid,
                    source,
                });
            }
        };
        let log_bytes = beneath::metadata(&self.log()).map(|log| log.len());
        let live = self.update(|state| {
            let session = state.sessions.get_mut(self.key)?;
            // A bridge that is started anew leads to the same kernel.
            let is_new = Process::recorded(session).as_ref() != Some(process);
            if is_new && session.as_remote().is_none() {
                // The first kernel of a session is generation 1.
                session.generation += u64::from(session.process().is_some());
                session.started_at = Some(Timestamp::now());
                // Before it is live, so that no client runs a cell without it.
                let generation = is_witnessed.then_some(session.generation);
                if let Err(error) = self.project.begin_facts(self.key, generation) {
                    tracing::warn!(%error, "what cells change will not be known");
                }
            }
            session.set_process(process.pid, process.start_time, log_bytes.ok());
            session.status = Status::Live;
            session.kernel_info = Some(reply);
            if let Some(sandbox) = session.sandbox_mut() {
                sandbox.reached = reached;
            }
            let session = session.clone();
            state.mirror(&session);
            Some(session)
        })?;
        live.ok_or_else(|| OpenError::Internal("the session's record has vanished".to_owned()))
    }

    /// Ends a kernel for good; its process gets the time `grace` to end without a signal.
    pub(super) async fn end(&self, process: &Process, grace: Duration) {
        if !process.ended_within(grace).await {
            end_group(process).await;
        }
        self.wait_for_supervisor(process).await;
    }

    /// Waits until the supervisor of an ended process has ended too, and with it the processes that
    /// were left in the process's group.
    async fn wait_for_supervisor(&self, process: &Process) {
        let session = self.session().ok().flatten();
        let files = session.map(|session| KernelFiles::of(&session.connection_file));
        if let Some(supervisor) = files.and_then(|files| files.supervisor_of(process)) {
            supervisor.ended_within(SUPERVISOR_GRACE).await;
        }
    }

    /// Records that the kernel could not be started.
    pub(super) fn record_failure(
        &self,
        files: &KernelFiles,
        reason: &str,
    ) -> Result<(), OpenError> {
        files.remove(&self.variables);
        self.record(|session| {
            let mut ended = session.ends_now(reason, None);
            death::mark_at_start(&mut ended);
            session.status = Status::Died;
            session.ended = Some(ended);
        })
    }

    pub(super) fn log(&self) -> PathBuf {
        self.project.kernel_log(self.key)
    }
}

/// Replaces a session's record. If the top-level fields name its old connection file, they are changed
/// too; otherwise they would look like another program's kernel.
pub(super) fn replace(state: &mut State, key: &str, session: Session, old_file: Option<&Path>) {
    state.sessions.insert(key.to_owned(), session);
    if old_file.is_some()
        && state.connection_file.as_deref() == old_file
        && let Some(session) = state.session(key)
    {
        state.mirror(&session);
    }
}

/// Ends the process group of a process by signals.
pub(super) async fn end_group(process: &Process) {
    let _ = process.signal_group(Signal::TERM);
    if !process.ended_within(TERM_GRACE).await {
        let _ = process.signal_group(Signal::KILL);
        process.ended_within(KILL_GRACE).await;
    }
}

/// How long a kernel may take after SIGTERM, to write its data.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// How long a process may take after SIGKILL; more than a moment only if it hangs in a system call.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// How long to wait for a supervisor, which checks for one second whether its kernel left
/// processes.
const SUPERVISOR_GRACE: Duration = Duration::from_secs(3);

fn says_address_in_use(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    line.contains("address already in use") || line.contains("address in use")
}

/// Fails if a process that is started now would end with this call.
///
/// Agents' shells may be sandboxes without Unix sockets, or with a pid namespace of their own,
/// whose processes all end with the call.
pub fn refuse_in_a_sandbox() -> Result<(), OpenError> {
    let first = std::fs::read_to_string("/proc/1/comm").unwrap_or_default();
    let cause = match sandboxed(Transport::Ipc) {
        Some(error) => refusal(&error),
        None if SANDBOXES.contains(&first.trim()) => format!("process 1 is {}", first.trim()),
        None => return Ok(()),
    };
    Err(OpenError::Sandboxed { cause })
}

/// Programs that make a sandbox with a pid namespace and are its first process.
const SANDBOXES: [&str; 4] = ["bwrap", "firejail", "nsjail", "minijail0"];
