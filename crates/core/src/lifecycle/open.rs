//! Opens a notebook: makes sure that its kernel runs.
//!
//! If two processes open a notebook at the same moment, one starts the kernel and the other
//! attaches to it. If an earlier call was killed halfway, its work is finished or undone first.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::action_event::journal;
use super::all_kernels::still_runs;
use super::attach::{self, RunningKernel};
use super::confined;
use super::death::note_death;
use super::liveness::{Liveness, liveness};
use super::move_notebook::move_notebook;
use super::open_error::OpenError;
use super::reconnect;
use super::sandbox::{check_running, confinement_of_new, policy};
use super::server_connection;
use super::server_kernel::{self, ServerKernels, WantedServer};
use super::share;
use super::start::{KernelPlan, LockedSession, refuse_in_a_sandbox};
use crate::editing::content::read_notebook;
use crate::editing::history;
use crate::editing::notebook_file::NotebookFile;
use crate::hint;
use crate::hint::{Hint, Joint, Verb, nb};
use crate::kernel::confine::container;
use crate::kernel::confine::sandbox::SandboxError;
use crate::kernel::environment::probe::ProbePolicy;
use crate::kernel::process::connection::{self, KernelFiles};
use crate::kernel::process::detach::PreforkedProcess;
use crate::kernel::process::launch;
use crate::kernel::process::{Process, Signal};
use crate::kernel::spec;
use crate::kernel::spec::quirks;
use crate::kernel::spec::selection::{self, ChosenKernel, KernelRequest};
use crate::kernel::variables::ProcessVariables;
use crate::notebook::NamedKernel;
use crate::project::event::EventKind;
use crate::project::{
    Backend, Confinement, Ended, KernelSettings, Project, RealSpec, ResourceLimits, Session,
    StateError, Status, beneath,
};
use crate::task;
use crate::wire::Transport;

/// The options for opening a notebook.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The kernelspec to start, by name.
    pub kernel: Option<String>,
    /// The Python to start.
    pub python: Option<PathBuf>,
    /// The transport; `None` for the session's, or Unix sockets.
    pub transport: Option<Transport>,
    /// How long to wait for the kernel.
    pub timeout: Duration,
    /// The actor who asks.
    pub by: String,
    /// Whether to start a kernel here although the record says that one runs on another host.
    pub force: bool,
    /// The language of the cells, if a front end sends it and the notebook does not name it.
    pub language: Option<String>,
    /// The Python that the front end itself runs on.
    pub front_end_python: Option<PathBuf>,
    /// The notebook whose kernel is shared.
    pub kernel_of: Option<PathBuf>,
    /// A kernel of another program, to attach to.
    pub attach: Option<RunningKernel>,
    /// Whether to give up a shared kernel or one of another program.
    pub own: bool,
    /// The resources that the kernel may use; `None` for the session's.
    pub limits: Option<ResourceLimits>,
    /// The sandbox or container; `None` for the session's.
    pub confinement: Option<Confinement>,
    /// When to end an unused kernel; `None` for the session's setting.
    pub idle: Option<Idle>,
    /// The server on which the kernel runs; `None` for the session's, or this machine.
    pub server: Option<WantedServer>,
    /// Whether ipykernel is installed into a Python that lacks it.
    pub install: bool,
    /// Whether a front end starts the kernel without a person's choice, because the notebook names its kernelspec.
    /// Then nothing is run from a folder that no person has opened.
    pub unchosen: bool,
}

/// When to end an unused kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// After so many seconds without use.
    After(u64),
    /// Never.
    Never,
}

impl Idle {
    fn seconds(self) -> Option<u64> {
        match self {
            Self::After(seconds) => Some(seconds),
            Self::Never => None,
        }
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            kernel: None,
            python: None,
            transport: None,
            timeout: Duration::from_secs(60),
            by: "nb".to_owned(),
            force: false,
            language: None,
            front_end_python: None,
            kernel_of: None,
            attach: None,
            own: false,
            limits: None,
            confinement: None,
            idle: None,
            server: None,
            install: false,
            unchosen: false,
        }
    }
}

/// What opening did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OpenOutcome {
    /// It started a kernel.
    Started,
    /// The kernel was running.
    Attached,
    /// It finished a start that another call had left half done.
    Finished,
    /// It began to use a kernel that another program had started.
    Joined,
}

/// An opened notebook.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Its project.
    pub project: Project,
    /// Its key in `state.json`.
    pub key: String,
    /// Its session, live.
    pub session: Session,
    /// The key of the session whose kernel it shares.
    pub kernel_of: Option<String>,
    /// The other notebooks that share this kernel, its owner included.
    pub shared_with: Vec<String>,
    /// How the kernel was obtained.
    pub how: OpenOutcome,
    /// How the kernel before this one ended, if it exited unexpectedly.
    pub before: Option<Ended>,
    /// Notes for the user.
    pub notes: Vec<Hint>,
    /// The notes about the choice of the kernel, with the candidates that were not chosen.
    pub choice: Vec<Hint>,
    /// How long it took.
    pub took: Duration,
}

/// The notes for the user that are collected while a notebook is opened.
#[derive(Debug, Default)]
pub(super) struct Notes {
    all: Vec<Hint>,
    /// The notes about the choice of the kernel.
    pub(super) choice: Vec<Hint>,
}

/// Makes sure that a notebook's kernel runs: attaches to a running one, or starts one.
///
/// `notebook` and its project must exist, see [`super::create::create_notebook`]. May be cancelled at any
/// await: the next call finishes what this one began.
pub async fn ensure_kernel(
    servers: &impl ServerKernels,
    project: &Project,
    notebook: &Path,
    options: &OpenOptions,
) -> Result<Opened, OpenError> {
    let started_at = Instant::now();
    let key = project.key(notebook);
    let mut notes = Notes {
        all: project.notice().into_iter().map(Hint::from).collect(),
        choice: Vec::new(),
    };
    notes.all.extend(
        take_up_renamed(project, notebook, options)
            .await
            .map(Hint::from),
    );
    let owner = match &options.kernel_of {
        Some(other) => share::owner(notebook, other)?.0,
        None if options.own || options.attach.is_some() || options.server.is_some() => key.clone(),
        None => project.state()?.partner(&key),
    };
    let (session, how, before) = if let Some(running) = &options.attach {
        let (session, same) = attach::attach(project, &key, running, options.timeout).await?;
        if same {
            (session, OpenOutcome::Attached, None)
        } else {
            journal(project, &key, &session, EventKind::Opened, &options.by);
            (session, OpenOutcome::Joined, None)
        }
    } else if owner == key {
        ensure_own_kernel(servers, project, &key, options, &mut notes).await?
    } else {
        let kernel = OpenOptions {
            kernel: None,
            python: None,
            transport: None,
            limits: None,
            idle: None,
            server: None,
            ..options.clone()
        };
        let opened = ensure_own_kernel(servers, project, &owner, &kernel, &mut notes).await?;
        let is_recorded = project.state()?.owner_key(&key) == owner;
        if !is_recorded {
            share::join(project, &key, &owner, options.timeout).await?;
        }
        if options.kernel_of.is_none() {
            let own = nb(Verb::Open).notebook(notebook).option("--own");
            let text = format!("it shares the kernel of {owner}; for one of its own: ");
            notes.all.push(hint![text, own]);
        }
        opened
    };
    if how == OpenOutcome::Started && owner == key {
        notes.all.extend(orphans(project, notebook));
    }
    let (session, shared_with) = project.update(|state| {
        if let Some(session) = state.sessions.get_mut(&key) {
            session.unchosen &= options.unchosen;
        }
        let session = state.session(&key).unwrap_or(session);
        // Readers that name no notebook get the one that was opened last.
        state.mirror(&session);
        let mut all = state.sharers(&owner);
        all.insert(0, owner.clone());
        all.retain(|other| *other != key);
        (session, all)
    })?;
    project.remember(&owner, &session, still_runs);
    confined::remember(project, &key, &session);
    Ok(Opened {
        project: project.clone(),
        before: before.filter(|_| how == OpenOutcome::Started),
        kernel_of: Some(owner).filter(|owner| *owner != key),
        session,
        shared_with,
        how,
        key,
        notes: notes.all,
        choice: notes.choice,
        took: started_at.elapsed(),
    })
}

/// Returns a note for each kernel whose notebook's file is gone: another program may have renamed it.
fn orphans(project: &Project, notebook: &Path) -> Vec<Hint> {
    let orphans = share::orphans(project);
    let notes = orphans.into_iter().map(|orphan| {
        let old = project.notebook(&orphan);
        hint![
            format!("{orphan} is gone, and its kernel runs on; if it is this notebook now: "),
            nb(Verb::Shutdown).notebook(notebook),
            Joint::And,
            nb(Verb::Mv).word(&*old).word(notebook),
            "; else: ",
            nb(Verb::Shutdown).notebook(&old)
        ]
    });
    notes.collect()
}

/// Takes over the kernel and the history of a notebook whose file is gone, if this notebook has most of its cells:
/// another program has renamed it. Returns a note for the user.
async fn take_up_renamed(
    project: &Project,
    notebook: &Path,
    options: &OpenOptions,
) -> Option<String> {
    let names_a_kernel = options.kernel_of.is_some()
        || options.attach.is_some()
        || options.server.is_some()
        || options.confinement.is_some()
        || options.own;
    let key = project.key(notebook);
    if names_a_kernel || project.state().ok()?.session(&key).is_some() {
        return None;
    }
    let orphans = share::orphans(project);
    if orphans.is_empty() {
        return None;
    }
    let document = NotebookFile::of(notebook)
        .and_then(|file| file.read())
        .ok()?;
    let has_cells_of = |orphan: &String| {
        !document.cells().is_empty() && history::resembles(project, orphan, &document) == Some(true)
    };
    let mut renamed = orphans.into_iter().filter(has_cells_of);
    let (Some(old), None) = (renamed.next(), renamed.next()) else {
        return None;
    };
    let from = project.notebook(&old);
    match move_notebook(&from, notebook, &options.by, options.timeout).await {
        Ok(_) => Some(format!(
            "{old} is gone, and this notebook has its cells: it has the kernel and history of {old} now"
        )),
        Err(error) => {
            tracing::warn!(%error, "the kernel of {old} could not be taken over");
            None
        }
    }
}

/// Takes over the kernel and the history of a notebook that another program has renamed to this one, as opening it does.
/// Returns a note for the user if there was one.
pub async fn take_up(notebook: &Path, by: &str) -> Option<String> {
    let options = OpenOptions {
        by: by.to_owned(),
        ..OpenOptions::default()
    };
    take_up_renamed(&Project::find(notebook)?, notebook, &options).await
}

/// Makes sure that a session's own kernel runs.
async fn ensure_own_kernel(
    servers: &impl ServerKernels,
    project: &Project,
    key: &str,
    options: &OpenOptions,
    notes: &mut Notes,
) -> Result<(Session, OpenOutcome, Option<Ended>), OpenError> {
    // Three processes, each starting the next: they start up while the kernel is chosen.
    let preforked = needs_start(project, key).then(PreforkedProcess::supervised);
    let locked = LockedSession::wait(project, key, options.timeout).await?;
    locked.set_preforked(preforked.and_then(Result::ok));
    let notebook = project.notebook(key);
    notes
        .all
        .extend(sweep(project)?.into_iter().map(Hint::from));
    task::sweep(project);
    locked.record(|session| {
        if session.shared_with().is_some() {
            session.backend = Backend::local(None);
            session.status = Status::Stopped;
        }
    })?;
    let recorded = match locked.session()? {
        Some(session) => Some(with_recorded_death(&locked, session).await?),
        None => None,
    };
    let exited = recorded.as_ref().filter(|it| it.status == Status::Died);
    let before = exited.and_then(|session| session.ended.clone());
    let running = match &recorded {
        Some(session) => reopen(&locked, &notebook, session, options, notes).await?,
        None => None,
    };
    let (session, how) = match running {
        Some(running) => running,
        None => {
            let session = start(servers, &locked, &notebook, recorded, options, notes).await?;
            let is_others = session.as_remote().is_some_and(|remote| !remote.owned);
            match is_others {
                true => (session, OpenOutcome::Joined),
                false => (session, OpenOutcome::Started),
            }
        }
    };
    if how != OpenOutcome::Attached {
        journal(project, key, &session, EventKind::Opened, &options.by);
    }
    if let Some(idle) = options.idle.map(Idle::seconds)
        && idle != session.settings.idle_timeout
    {
        set_idle(&locked, &session, idle, notes)?;
    }
    Ok((session, how, before))
}

/// Says whether a kernel will have to be started, according to the session's record only.
fn needs_start(project: &Project, key: &str) -> bool {
    let state = project.state().unwrap_or_default();
    let session = state.sessions.get(key);
    session.is_none_or(|session| {
        let process = Process::recorded(session);
        session.is_owned() && process.is_none_or(|process| !process.is_alive())
    })
}

/// Passes the time limit for an unused kernel on to the supervisor of a running kernel.
fn set_idle(
    locked: &LockedSession<'_>,
    session: &Session,
    idle: Option<u64>,
    notes: &mut Notes,
) -> Result<(), OpenError> {
    locked.record(|session| session.settings.idle_timeout = idle)?;
    let files = KernelFiles::of(&session.connection_file);
    let process = Process::recorded(session);
    let supervisor = process.and_then(|process| files.supervisor_of(&process));
    if supervisor.is_none_or(|supervisor| supervisor.signal(Signal::USR1).is_err()) {
        let note = "--idle-timeout begins with its next kernel: ";
        notes.all.push(hint![note, nb(Verb::Restart)]);
    }
    Ok(())
}

/// Records that the kernel exited unexpectedly, if that is not recorded yet.
async fn with_recorded_death(
    locked: &LockedSession<'_>,
    session: Session,
) -> Result<Session, OpenError> {
    if session.status == Status::Live && liveness(&session).await == Liveness::Dead {
        return Ok(note_death(locked.project, locked.key, session)?);
    }
    Ok(session)
}

/// Returns a session with its running kernel; `None` if a kernel has to be started.
async fn reopen(
    locked: &LockedSession<'_>,
    notebook: &Path,
    session: &Session,
    options: &OpenOptions,
    notes: &mut Notes,
) -> Result<Option<(Session, OpenOutcome)>, OpenError> {
    let check_running = || check_running(options.confinement.as_ref(), session);
    let liveness = liveness(session).await;
    if liveness.is_up() && session.status != Status::Stopped {
        check_place(session, options)?;
    }
    let process = match liveness {
        Liveness::Disconnected => {
            check_running()?;
            notes.all.extend(difference_note(session, options));
            let session = reconnect::reconnect_held(locked, session.clone()).await?;
            if let Some(bridge) = Process::recorded(&session) {
                notes
                    .all
                    .extend(lost_note(&session, &bridge).await.map(Hint::from));
            }
            return Ok(Some((session, OpenOutcome::Attached)));
        }
        // A kernel that has ended there does not prevent a start here.
        Liveness::OutOfReach
            if !options.force
                && (!matches!(session.status, Status::Stopped | Status::Died)
                    || matches!(session.backend, Backend::Unknown(_))) =>
        {
            return Err(OpenError::out_of_reach(session));
        }
        Liveness::Foreign | Liveness::Dead if session.is_attached() && options.own => {
            let note = "the kernel until now was started by another program";
            notes.all.push(note.into());
            return Ok(None);
        }
        Liveness::Foreign | Liveness::Dead if session.is_attached() && locked.has_record()? => {
            check_running()?;
            let session = attach::reopen(locked, session.clone()).await?;
            notes.all.push(hint![
                "its kernel was started by another program; for one of its own: ",
                nb(Verb::Open).notebook(notebook).option("--own")
            ]);
            return Ok(Some((session, OpenOutcome::Attached)));
        }
        Liveness::Foreign => {
            check_running()?;
            locked.record(|session| session.status = Status::Live)?;
            let mut session = session.clone();
            session.status = Status::Live;
            return Ok(Some((session, OpenOutcome::Attached)));
        }
        Liveness::Own(process) => process,
        Liveness::Dead | Liveness::OutOfReach => return Ok(None),
    };
    let is_wanted = session.status != Status::Stopped;
    if let Some(error) = OpenError::process_stopped(session, &process).filter(|_| is_wanted) {
        return Err(error);
    }
    if session.status == Status::Stopped {
        // The process that shut it down was killed before the kernel had ended.
        locked.end(&process, Duration::ZERO).await;
        return Ok(None);
    }
    check_running()?;
    notes.all.extend(difference_note(session, options));
    if session.status == Status::Live && Process::recorded(session).as_ref() == Some(&process) {
        // Without the file no client can connect, and only the user may decide to give up the
        // variables.
        connection::read(&session.connection_file)?;
        notes
            .all
            .extend(lost_note(session, &process).await.map(Hint::from));
        if let Some(Confinement::Sandbox(requested)) = &options.confinement {
            // These two settings may change while the kernel runs.
            locked.record(|session| {
                if let Some(sandbox) = session.sandbox_mut() {
                    sandbox.max_time_s = requested.max_time_s;
                    sandbox.keep_scratch = requested.keep_scratch;
                }
            })?;
        }
        let session = locked.session()?.unwrap_or_else(|| session.clone());
        return Ok(Some((session, OpenOutcome::Attached)));
    }
    let files = KernelFiles::of(&session.connection_file);
    match locked
        .wait_until_ready(&files, &process, options.timeout)
        .await
    {
        Ok(session) => Ok(Some((session, OpenOutcome::Finished))),
        Err(OpenError::Died { .. }) => Ok(None),
        Err(OpenError::Connection(_)) => {
            // Without its connection file no client can ever connect to it.
            locked.end(&process, Duration::ZERO).await;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn start(
    servers: &impl ServerKernels,
    locked: &LockedSession<'_>,
    notebook: &Path,
    before: Option<Session>,
    options: &OpenOptions,
    notes: &mut Notes,
) -> Result<Session, OpenError> {
    // This is checked first: other things that are missing in the sandbox may exist outside.
    refuse_in_a_sandbox()?;
    let last = before
        .as_ref()
        .and_then(Session::as_remote)
        .filter(|_| !options.own);
    let last = last.map(|last| WantedServer {
        name: last.server.clone(),
        kernel_id: None,
        spec: None,
    });
    let named = kernel_to_start(read_named(notebook)?, options.language.as_deref());
    if let Some(server) = options.server.clone().or(last) {
        check_local_options(notebook, &server.name, before.as_ref(), options)?;
        let spec = options.kernel.as_deref();
        return server_kernel::start(
            servers,
            locked,
            before,
            &server,
            (spec, &named),
            options.timeout,
        )
        .await;
    }
    let plan = plan(
        locked.project,
        locked.key,
        before.as_ref(),
        named,
        options,
        notes,
    )
    .await?;
    let started = locked.start(notebook, before, plan, options.timeout).await;
    notes.all.extend(locked.problem().map(Hint::from));
    started
}

/// Chooses the kernel that a notebook of this machine gets, and how it is started. `last_session` is the record of its last
/// kernel.
pub(super) async fn plan(
    project: &Project,
    key: &str,
    last_session: Option<&Session>,
    named: NamedKernel,
    options: &OpenOptions,
    notes: &mut Notes,
) -> Result<KernelPlan, OpenError> {
    let notebook = &project.notebook(key);
    let confinement = confinement_of_new(options.confinement.as_ref(), last_session);
    let unconfined = match &options.confinement {
        Some(requested) => requested.is_none(),
        None => last_session.is_some_and(|it| it.settings.unconfined),
    };
    if confinement.is_none()
        && !unconfined
        && let Some(left) = confined::check(project, key, notebook, last_session)?
    {
        return Err(left.into());
    }
    let choice = match confinement.container() {
        Some(container) => ChosenKernel {
            spec: container::spec(container),
            why: "it is in the container".to_owned(),
            notes: Vec::new(),
            left_out: None,
        },
        None => {
            let policy = policy(&confinement);
            choose(project, key, named, last_session, policy, options).await?
        }
    };
    notes.choice = choice.notes.into_iter().map(Hint::from).collect();
    if let Some(python) = &choice.left_out {
        notes
            .choice
            .push(left_out_note(notebook, &choice.spec, python));
    }
    notes.all.extend_from_slice(&notes.choice);
    let settings = last_session.map(|it| it.settings.clone());
    let settings = settings.unwrap_or_default();
    let is_sandboxed = confinement.sandbox().is_some();
    if is_sandboxed && options.transport == Some(Transport::Tcp) {
        return Err(SandboxError::Tcp.into());
    }
    if is_sandboxed && options.confinement.is_none() {
        notes.all.push(hint![
            "it runs in its sandbox as before; for a kernel in none: ",
            nb(Verb::Shutdown).notebook(notebook),
            ", then ",
            nb(Verb::Open).notebook(notebook).option("--no-sandbox")
        ]);
    }
    let transport = if confinement.is_none() {
        let folder = notebook.parent().unwrap_or(notebook);
        launch::check_outside(&choice.spec, folder, &ProcessVariables)?;
        let only = quirks::transport(&choice.spec);
        let requested = options.transport.or(only);
        requested
            .or(last_session.map(|it| it.transport))
            .unwrap_or_default()
    } else {
        Transport::Ipc
    };
    Ok(KernelPlan {
        spec: choice.spec,
        transport,
        unchosen: options.unchosen && last_session.is_none_or(|it| it.unchosen),
        settings: KernelSettings {
            limits: options.limits.unwrap_or(settings.limits),
            idle_timeout: match options.idle {
                Some(idle) => idle.seconds(),
                None => settings.idle_timeout,
            },
            confinement,
            unconfined,
            other: settings.other,
        },
    })
}

/// Returns the note that a kernel was started without the environment of the notebook's folder.
fn left_out_note(notebook: &Path, started: &RealSpec, python: &Path) -> Hint {
    let started = started.argv.first().map_or("?", String::as_str);
    let open = nb(Verb::Open).notebook(notebook);
    hint![
        format!("This kernel runs {started}, not "),
        python,
        ": it started when the notebook was shown, and a program of the folder runs only when you choose it: ",
        nb(Verb::Shutdown).notebook(notebook),
        Joint::And,
        open.option("--python").word(python)
    ]
}

/// Returns the note that the connection to the kernel's server is lost, if it cannot be made now.
async fn lost_note(session: &Session, bridge: &Process) -> Option<String> {
    let lost = server_connection::connect_again(session, bridge).await?;
    Some(format!("{lost}; what you run waits for it"))
}

/// Fails if something is asked of a kernel on a server that only a kernel of this machine can be given: above all, no
/// kernel may run without the sandbox that the user counts on.
fn check_local_options(
    notebook: &Path,
    server: &str,
    before: Option<&Session>,
    options: &OpenOptions,
) -> Result<(), OpenError> {
    let confinement = confinement_of_new(options.confinement.as_ref(), before);
    let is_as_before = options.confinement.is_none();
    let option = match confinement {
        Confinement::Sandbox(_) if is_as_before => "the sandbox of its kernels until now",
        Confinement::Container(_) if is_as_before => "the container of its kernels until now",
        Confinement::Sandbox(_) => "--sandbox",
        Confinement::Container(_) => "--container",
        Confinement::None if options.limits.is_some_and(|it| it.memory_bytes.is_some()) => {
            "--memory"
        }
        Confinement::None if options.python.is_some() => "--python",
        Confinement::None if options.transport.is_some() => "--transport",
        Confinement::None if options.install => "--install",
        Confinement::None => return Ok(()),
    };
    Err(OpenError::OnlyHere {
        notebook: notebook.to_owned(),
        option,
        server: server.to_owned(),
        is_as_before: !confinement.is_none() && is_as_before,
        ran_there: options.server.is_none(),
    })
}

/// Fails if the running kernel is not where one is asked for.
fn check_place(session: &Session, options: &OpenOptions) -> Result<(), OpenError> {
    let place = match (session.as_remote(), &options.server) {
        (Some(remote), Some(requested)) => {
            let is_other = |id: &String| *id != remote.kernel_id;
            let is_same_kernel = !requested.kernel_id.as_ref().is_some_and(is_other);
            if remote.server == requested.name && is_same_kernel {
                return Ok(());
            }
            format!("on {} ({})", remote.server, remote.kernel_id)
        }
        (None, Some(_)) => "on this machine".to_owned(),
        (Some(remote), None) if options.own => format!("on {}", remote.server),
        _ => return Ok(()),
    };
    let notebook = session.notebook.clone();
    Err(OpenError::RunsElsewhere { notebook, place })
}

/// Chooses the kernelspec of a new kernel that is not in a container.
async fn choose(
    project: &Project,
    key: &str,
    named: NamedKernel,
    before: Option<&Session>,
    policy: ProbePolicy,
    options: &OpenOptions,
) -> Result<ChosenKernel, OpenError> {
    // An image's kernelspec does not work outside; the command of an attached kernel is not known.
    let recorded = before.filter(|before| before.settings.confinement.container().is_none());
    let recorded = recorded.and_then(|before| before.kernelspec.clone());
    let recorded = recorded.filter(|spec| !spec.argv.is_empty());
    let neighbour = neighbour(project, key)?;
    let opened = match options.unchosen {
        true => Some(opened_notebooks(project)?),
        false => None,
    };
    let notebook = project.notebook(key);
    let requested = options.clone();
    let choosing = tokio::task::spawn_blocking(move || {
        let request = KernelRequest {
            kernel: requested.kernel.as_deref(),
            python: requested.python.as_deref(),
            recorded: recorded.as_ref(),
            named: named.kernelspec.as_deref(),
            language: named.language.as_deref(),
            neighbour: neighbour.as_ref(),
            front_end: requested.front_end_python.as_deref(),
            policy,
            opened: opened.as_deref(),
        };
        let folder = notebook.parent().unwrap_or(&notebook);
        selection::select(request, folder, &ProcessVariables)
    });
    let chosen = choosing.await;
    Ok(chosen.map_err(|error| OpenError::Internal(error.to_string()))??)
}

/// Returns the project's notebooks that a person has opened.
fn opened_notebooks(project: &Project) -> Result<Vec<PathBuf>, StateError> {
    let sessions = project.state()?.sessions.into_iter();
    let opened = sessions.filter(|(_, session)| !session.unchosen);
    Ok(opened.map(|(key, _)| project.notebook(&key)).collect())
}

/// Returns the kernelspec of the project's notebook whose kernel was started last.
pub(super) fn neighbour(project: &Project, key: &str) -> Result<Option<RealSpec>, StateError> {
    let sessions = project.state()?.sessions;
    let others = sessions.into_iter().filter(|(other, it)| {
        other != key && it.is_owned() && it.settings.confinement.container().is_none()
    });
    let last = others.max_by_key(|(_, session)| session.started_at);
    Ok(last.and_then(|(_, session)| session.kernelspec))
}

/// Returns the note that the running kernel is not the one that was asked for.
fn difference_note(session: &Session, options: &OpenOptions) -> Option<Hint> {
    let spec = session.kernelspec.as_ref()?;
    let program = spec.argv.first();
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let python = options.python.as_ref().zip(program);
    let differences = [
        options.kernel.as_ref().is_some_and(|it| *it != spec.name),
        python.is_some_and(|(python, it)| absolute(Path::new(it)) != absolute(python)),
        options.transport.is_some_and(|it| it != session.transport),
        options
            .limits
            .is_some_and(|it| it != session.settings.limits),
        options.confinement == Some(Confinement::None) && session.sandbox().is_some(),
    ];
    differences.contains(&true).then(|| {
        hint![
            format!(
                "its kernel already runs ({}, {}) and was kept; to change it: ",
                program.map_or("?", String::as_str),
                session.transport
            ),
            nb(Verb::Shutdown),
            ", then ",
            nb(Verb::Open)
        ]
    })
}

pub(super) fn read_named(notebook: &Path) -> Result<NamedKernel, OpenError> {
    let bytes = match read_notebook(notebook) {
        Ok(bytes) => bytes,
        // A front end may open a kernel for a notebook that it has not saved yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(source) => {
            return Err(OpenError::Notebook {
                action: "read",
                path: notebook.to_owned(),
                source,
            });
        }
    };
    NamedKernel::read(&bytes).map_err(|source| OpenError::NotANotebook {
        path: notebook.to_owned(),
        source,
    })
}

/// Returns the kernel that a notebook names, with the language of the spec that was chosen in a
/// front end.
///
/// A user who chose the spec of a language wants that language, whatever ran there before. But the
/// spec for Python is the default for every notebook, so the language in the notebook takes
/// precedence over it.
fn kernel_to_start(named: NamedKernel, chosen: Option<&str>) -> NamedKernel {
    let Some(chosen) = chosen else { return named };
    let same = |language: &String| language.eq_ignore_ascii_case(chosen);
    if named.language.is_none() {
        let language = Some(chosen.to_owned());
        return NamedKernel { language, ..named };
    }
    if spec::is_python(chosen) || named.language.as_ref().is_some_and(same) {
        return named;
    }
    NamedKernel {
        kernelspec: None,
        language: Some(chosen.to_owned()),
    }
}

/// Removes the files of kernels that no session knows and that have ended. Returns a note about
/// each such kernel that runs, as after `state.json` was moved away.
fn sweep(project: &Project) -> Result<Vec<String>, OpenError> {
    let (files, alive) = unknown_kernels(project)?;
    for files in files {
        files.remove(&ProcessVariables);
    }
    let notes = alive.iter().map(|process| stray_note(project, process));
    Ok(notes.collect())
}

/// Returns the note about a running kernel that no session knows.
pub(super) fn stray_note(project: &Project, process: &Process) -> String {
    let (pid, state_file) = (process.pid, project.state_file());
    format!(
        "process {pid} is a kernel that nb started and {} does not know; to end it: kill {pid}",
        state_file.display()
    )
}

/// Returns the files of kernels that no session knows and that have ended, and the processes of
/// those that run.
pub(super) fn unknown_kernels(
    project: &Project,
) -> Result<(Vec<KernelFiles>, Vec<Process>), OpenError> {
    let (mut ended, mut running) = (Vec::new(), Vec::new());
    let Ok(entries) = beneath::list(&project.connections_dir()) else {
        return Ok((ended, running));
    };
    let names = entries.flatten().map(|entry| entry.path());
    // A file that is still being written has a temporary name.
    let names = names.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !name.starts_with('.')
    });
    let mut paths: Vec<PathBuf> = names.map(|path| path.with_extension("json")).collect();
    paths.sort();
    paths.dedup();
    // The state is read after the folder: a session is recorded before its files are made, so the
    // files of a kernel that another call is starting now are known here.
    let state = project.state()?;
    for path in paths {
        let files = KernelFiles::of(&path);
        let is_recorded = state
            .sessions
            .values()
            .any(|session| session.connection_file == files.connection_file());
        // A kernel of another container cannot be judged here, and files that nb did not make are
        // not removed.
        if is_recorded || !files.is_ours() || files.is_of_elsewhere() {
            continue;
        }
        match files.process().filter(Process::is_alive) {
            Some(process) => running.push(process),
            None => ended.push(files),
        }
    }
    Ok((ended, running))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spec_that_was_chosen_says_the_language_where_the_notebook_does_not() {
        let named = |kernelspec: Option<&str>, language: Option<&str>| NamedKernel {
            kernelspec: kernelspec.map(str::to_owned),
            language: language.map(str::to_owned),
        };
        let r = named(Some("ir"), Some("R"));
        assert_eq!(kernel_to_start(r.clone(), None), r);
        assert_eq!(kernel_to_start(r.clone(), Some("python")), r);
        assert_eq!(kernel_to_start(r.clone(), Some("r")), r);
        assert_eq!(
            kernel_to_start(r, Some("julia")),
            named(None, Some("julia"))
        );
        let unnamed = named(None, None);
        assert_eq!(kernel_to_start(unnamed, Some("R")), named(None, Some("R")));
        let without_language = named(Some("mine"), None);
        assert_eq!(
            kernel_to_start(without_language, Some("python")),
            named(Some("mine"), Some("python"))
        );
    }
}
