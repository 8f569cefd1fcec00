//! Opening a notebook: its kernel runs when this is done.
//!
//! Two that open the same notebook at the same moment: one starts the kernel, the other attaches
//! to it. What an earlier call left half done, because it was killed, is finished or undone first.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::action_event::journal;
use super::attach::{self, Running};
use super::death::note_death;
use super::liveness::{Liveness, liveness};
use super::open_error::OpenError;
use super::sandbox::WantedConfinement;
use super::share;
use super::start::{Held, KernelPlan, refuse_in_a_sandbox};
use crate::kernel::confine::container;
use crate::kernel::confine::sandbox::SandboxError;
use crate::kernel::process::connection::{self, KernelFiles};
use crate::kernel::process::detach::PreforkedProcess;
use crate::kernel::process::launch;
use crate::kernel::process::{Process, Signal};
use crate::kernel::shell::quote;
use crate::kernel::spec;
use crate::kernel::spec::quirks;
use crate::kernel::spec::selection::{self, ChosenKernel, KernelRequest};
use crate::kernel::variables::ProcessVariables;
use crate::notebook::NamedKernel;
use crate::project::event::EventKind;
use crate::project::{
    Backend, Confinement, Container, Ended, KernelSettings, Limits, Project, RealSpec, Session,
    StateError, Status, Transport, beneath,
};
use crate::task;

/// How a notebook is to be opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The kernelspec to start, by name.
    pub kernel: Option<String>,
    /// The Python to start.
    pub python: Option<PathBuf>,
    /// How the kernel is to be reached; the session's or Unix sockets where it is not said.
    pub transport: Option<Transport>,
    /// How long to wait for the kernel.
    pub patience: Duration,
    /// Who asks.
    pub by: String,
    /// Start a kernel here although the record says that one lives elsewhere.
    pub force: bool,
    /// The language of the cells, where a front end tells it and the notebook does not.
    pub language: Option<String>,
    /// The Python that the front end which asks runs on itself.
    pub front_end_python: Option<PathBuf>,
    /// Share the kernel of this notebook.
    pub kernel_of: Option<PathBuf>,
    /// Use this kernel, which another program started.
    pub attach: Option<Running>,
    /// Share no kernel any more, and use none of another program.
    pub own: bool,
    /// What the kernel may use of the machine; the session's where it is not said.
    pub limits: Option<Limits>,
    /// Whether the kernel is to run in a sandbox.
    pub confinement: WantedConfinement,
    /// When a kernel that nobody uses is to be ended; as before where it is not said.
    pub idle: Option<Idle>,
}

/// When a kernel is to be ended that nobody uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// After so many seconds.
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
            patience: Duration::from_secs(60),
            by: "nb".to_owned(),
            force: false,
            language: None,
            front_end_python: None,
            kernel_of: None,
            attach: None,
            own: false,
            limits: None,
            confinement: WantedConfinement::AsBefore,
            idle: None,
        }
    }
}

/// What opening did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
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
    /// How it came to be.
    pub how: How,
    /// How the kernel before this one ended, if it exited unexpectedly.
    pub before: Option<Ended>,
    /// What the user should know.
    pub notes: Vec<String>,
    /// Those of the notes that tell how the kernel was chosen: what was passed over for it.
    pub choice: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// What the user should know of an opening, while it goes on.
#[derive(Debug, Default)]
struct Notes {
    all: Vec<String>,
    /// How the kernel was chosen.
    choice: Vec<String>,
}

/// Makes a notebook's kernel run: attaches when it does, starts it otherwise.
///
/// `notebook` must exist or be made first, see [`super::create::create_notebook`]; its project too. May be
/// dropped at any await: the next call finishes what this one began.
pub async fn ensure_kernel(
    project: &Project,
    notebook: &Path,
    options: &OpenOptions,
) -> Result<Opened, OpenError> {
    let began = Instant::now();
    let key = project.key(notebook);
    let mut notes = Notes {
        all: project.notice().into_iter().collect(),
        choice: Vec::new(),
    };
    let owner = match &options.kernel_of {
        Some(other) => share::owner(notebook, other)?.0,
        None if options.own || options.attach.is_some() => key.clone(),
        None => project.state()?.partner(&key),
    };
    let (session, how, before) = if let Some(running) = &options.attach {
        let (session, same) = attach::attach(project, &key, running, options.patience).await?;
        if same {
            (session, How::Attached, None)
        } else {
            journal(project, &key, &session, EventKind::Opened, &options.by);
            (session, How::Joined, None)
        }
    } else if owner == key {
        own(project, &key, options, &mut notes).await?
    } else {
        let kernel = OpenOptions {
            kernel: None,
            python: None,
            transport: None,
            limits: None,
            idle: None,
            ..options.clone()
        };
        let opened = own(project, &owner, &kernel, &mut notes).await?;
        let known = project.state()?.owner_key(&key) == owner;
        if !known {
            share::join(project, &key, &owner, options.patience).await?;
        }
        if options.kernel_of.is_none() {
            notes.all.push(format!(
                "it shares the kernel of {owner}; for one of its own: nb open {} --own",
                quote(notebook)
            ));
        }
        opened
    };
    if how == How::Started && owner == key {
        notes.all.extend(share::orphans(project).into_iter().map(|orphan| {
            let (new, old) = (quote(notebook), quote(&project.notebook(&orphan)));
            format!(
                "{orphan} is gone, and its kernel runs on; if it is this notebook now: nb shutdown {new} && nb open {new} --kernel-of {old}; else: nb shutdown {old}"
            )
        }));
    }
    let (session, shared_with) = project.update(|state| {
        let session = state.session(&key).unwrap_or(session);
        // The last opened one is what readers without a notebook get.
        state.mirror(&session);
        let mut all = state.sharers(&owner);
        all.insert(0, owner.clone());
        all.retain(|other| *other != key);
        (session, all)
    })?;
    project.remember(&owner, &session);
    Ok(Opened {
        project: project.clone(),
        before: before.filter(|_| how == How::Started),
        kernel_of: Some(owner).filter(|owner| *owner != key),
        session,
        shared_with,
        how,
        key,
        notes: notes.all,
        choice: notes.choice,
        took: began.elapsed(),
    })
}

/// Makes the kernel of a session of its own run.
async fn own(
    project: &Project,
    key: &str,
    options: &OpenOptions,
    notes: &mut Notes,
) -> Result<(Session, How, Option<Ended>), OpenError> {
    // Three programs one after the other: they are there by the time it is known what they start.
    let preforked = starts(project, key).then(PreforkedProcess::supervised);
    let held = Held::wait(project, key, options.patience).await?;
    held.start_by(preforked.and_then(Result::ok));
    let notebook = project.notebook(key);
    notes.all.extend(sweep(project)?);
    task::sweep(project);
    held.record(|session| {
        if session.shared_with().is_some() {
            session.backend = Backend::local(None);
            session.status = Status::Stopped;
        }
    })?;
    let recorded = match held.session()? {
        Some(session) => Some(noticed(&held, session).await?),
        None => None,
    };
    let before = recorded.as_ref().and_then(exited_unexpectedly);
    let (session, how) = match recorded {
        Some(session) => reopen(&held, &notebook, session, options, notes).await?,
        None => {
            let session = start(&held, &notebook, None, options, notes).await?;
            (session, How::Started)
        }
    };
    if how != How::Attached {
        journal(project, key, &session, EventKind::Opened, &options.by);
    }
    if let Some(idle) = options
        .idle
        .filter(|idle| idle.seconds() != session.settings.idle_timeout)
    {
        set_idle(&held, &session, idle, notes)?;
    }
    Ok((session, how, before))
}

/// Says whether a kernel will have to be started, judged by its record alone.
fn starts(project: &Project, key: &str) -> bool {
    let state = project.state().unwrap_or_default();
    let session = state.sessions.get(key);
    session.is_none_or(|session| {
        let process = Process::recorded(session);
        session.is_owned() && process.is_none_or(|process| !process.is_alive())
    })
}

/// Lets the supervisor of a kernel that runs know when to end it.
fn set_idle(
    held: &Held<'_>,
    session: &Session,
    idle: Idle,
    notes: &mut Notes,
) -> Result<(), OpenError> {
    held.record(|session| session.settings.idle_timeout = idle.seconds())?;
    let supervisor = Process::recorded(session).and_then(|process| {
        let files = KernelFiles::of(&session.connection_file);
        files.supervisor_of(&process)
    });
    if supervisor.is_none_or(|supervisor| supervisor.signal(Signal::USR1).is_err()) {
        notes
            .all
            .push("--idle-timeout begins with its next kernel: nb restart".to_owned());
    }
    Ok(())
}

/// Records that the kernel exited unexpectedly, where nobody has noticed it yet.
async fn noticed(held: &Held<'_>, session: Session) -> Result<Session, OpenError> {
    if session.status == Status::Live && liveness(&session).await == Liveness::Dead {
        return Ok(note_death(held.project, held.key, session)?);
    }
    Ok(session)
}

fn exited_unexpectedly(session: &Session) -> Option<Ended> {
    let died = session.status == Status::Died;
    session.ended.clone().filter(|_| died)
}

async fn reopen(
    held: &Held<'_>,
    notebook: &Path,
    session: Session,
    options: &OpenOptions,
    notes: &mut Notes,
) -> Result<(Session, How), OpenError> {
    let started = |session| (session, How::Started);
    match liveness(&session).await {
        // One that was ended there does not stop a start here.
        Liveness::OutOfReach
            if !options.force
                && (!matches!(session.status, Status::Stopped | Status::Died)
                    || matches!(session.backend, Backend::Unknown(_))) =>
        {
            Err(OpenError::out_of_reach(&session))
        }
        Liveness::Foreign | Liveness::Dead if session.is_attached() && options.own => {
            notes
                .all
                .push("the kernel until now was started by another program".to_owned());
            start(held, notebook, Some(session), options, notes)
                .await
                .map(started)
        }
        Liveness::Foreign | Liveness::Dead if session.is_attached() && held.has_record()? => {
            options.confinement.check_running(&session)?;
            let session = attach::reopen(held, session).await?;
            notes.all.push(format!(
                "its kernel was started by another program; for one of its own: nb open {} --own",
                quote(notebook)
            ));
            Ok((session, How::Attached))
        }
        Liveness::Foreign => {
            options.confinement.check_running(&session)?;
            held.record(|session| session.status = Status::Live)?;
            let status = Status::Live;
            Ok((Session { status, ..session }, How::Attached))
        }
        Liveness::Own(process) if session.status == Status::Stopped => {
            // Whoever shut it down was killed before it was gone.
            held.end(&process, Duration::ZERO).await;
            start(held, notebook, Some(session), options, notes)
                .await
                .map(started)
        }
        Liveness::Own(process) => {
            options.confinement.check_running(&session)?;
            if let Some(note) = differs(&session, options) {
                notes.all.push(note);
            }
            let recorded = Process::recorded(&session);
            if session.status == Status::Live && recorded.as_ref() == Some(&process) {
                // Without it nobody can join, and only the user may give up the variables.
                connection::read(&session.connection_file)?;
                if let WantedConfinement::In(wanted) = &options.confinement {
                    // What is no part of the room may change while it runs.
                    held.record(|session| {
                        if let Some(sandbox) = session.sandbox_mut() {
                            sandbox.max_time_s = wanted.max_time_s;
                            sandbox.keep_scratch = wanted.keep_scratch;
                        }
                    })?;
                }
                return Ok((held.session()?.unwrap_or(session), How::Attached));
            }
            let files = KernelFiles::of(&session.connection_file);
            match held.settle(&files, &process, options.patience).await {
                Ok(session) => Ok((session, How::Finished)),
                Err(OpenError::Died { .. }) => start(held, notebook, Some(session), options, notes)
                    .await
                    .map(started),
                Err(OpenError::Connection(_)) => {
                    // Without its connection file nobody can ever reach it.
                    held.end(&process, Duration::ZERO).await;
                    start(held, notebook, Some(session), options, notes)
                        .await
                        .map(started)
                }
                Err(error) => Err(error),
            }
        }
        Liveness::Dead | Liveness::OutOfReach => {
            start(held, notebook, Some(session), options, notes)
                .await
                .map(started)
        }
    }
}

async fn start(
    held: &Held<'_>,
    notebook: &Path,
    before: Option<Session>,
    options: &OpenOptions,
    notes: &mut Notes,
) -> Result<Session, OpenError> {
    // Said first: whatever else is missing there may be at hand outside.
    refuse_in_a_sandbox()?;
    let named = read_named(notebook)?;
    let container = options.confinement.container_of_new(before.as_ref());
    // What an image has is not there outside; of a kernel that was attached the command is unknown.
    let recorded = before
        .as_ref()
        .filter(|before| before.settings.confinement.container().is_none());
    let recorded = recorded.and_then(|before| before.kernelspec.clone());
    let recorded = recorded.filter(|spec| !spec.argv.is_empty());
    let neighbour = neighbour(held.project, held.key)?;
    let policy = options.confinement.policy(before.as_ref());
    let (wanted, folder) = (
        options.clone(),
        notebook.parent().unwrap_or(notebook).to_owned(),
    );
    let choosing = move || {
        let named = meant(named, wanted.language.as_deref());
        let request = KernelRequest {
            kernel: wanted.kernel.as_deref(),
            python: wanted.python.as_deref(),
            recorded: recorded.as_ref(),
            named: named.kernelspec.as_deref(),
            language: named.language.as_deref(),
            neighbour: neighbour.as_ref(),
            front_end: wanted.front_end_python.as_deref(),
            policy,
        };
        selection::select(request, &folder, &ProcessVariables)
    };
    let choice = match &container {
        Some(container) => container_choice(container),
        None => tokio::task::spawn_blocking(choosing)
            .await
            .map_err(|error| OpenError::Internal(error.to_string()))??,
    };
    notes.choice.clone_from(&choice.notes);
    notes.all.extend(choice.notes);
    let known = before.as_ref();
    let settings = known.map(|before| before.settings.clone());
    let settings = settings.unwrap_or_default();
    let only = quirks::transport(&choice.spec);
    let confinement = &options.confinement;
    let sandbox = confinement.of_new(known);
    let transport = options
        .transport
        .or(only)
        .or(known.map(|before| before.transport))
        .unwrap_or_default();
    if sandbox.is_some() {
        if options.transport == Some(Transport::Tcp) {
            return Err(SandboxError::Tcp.into());
        }
        if *confinement == WantedConfinement::AsBefore {
            notes.all.push(format!(
                "it runs in its sandbox as before; for a kernel in none: nb shutdown {0}, then nb open {0} --no-sandbox",
                quote(notebook)
            ));
        }
    }
    if sandbox.is_none() && container.is_none() {
        let folder = notebook.parent().unwrap_or(notebook);
        launch::check_outside(&choice.spec, folder, &ProcessVariables)?;
    }
    let wanted = KernelPlan {
        spec: choice.spec,
        transport: match sandbox.is_some() || container.is_some() {
            true => Transport::Ipc,
            false => transport,
        },
        settings: KernelSettings {
            limits: options.limits.unwrap_or(settings.limits),
            idle_timeout: match options.idle {
                Some(idle) => idle.seconds(),
                None => settings.idle_timeout,
            },
            confinement: match (sandbox, container) {
                (Some(sandbox), _) => Confinement::Sandbox(Box::new(sandbox)),
                (None, Some(container)) => Confinement::Container(container),
                (None, None) => Confinement::None,
            },
            other: settings.other,
        },
    };
    let started = held.start(notebook, before, wanted, options.patience).await;
    notes.all.extend(held.problem());
    started
}

fn container_choice(container: &Container) -> ChosenKernel {
    ChosenKernel {
        spec: container::spec(container),
        why: "it is in the container".to_owned(),
        notes: Vec::new(),
    }
}

/// Returns what that notebook of the project runs whose kernel was started last.
pub(super) fn neighbour(project: &Project, key: &str) -> Result<Option<RealSpec>, StateError> {
    let sessions = project.state()?.sessions;
    let others = sessions.into_iter().filter(|(other, it)| {
        other != key && it.is_owned() && it.settings.confinement.container().is_none()
    });
    let last = others.max_by_key(|(_, session)| session.started_at);
    Ok(last.and_then(|(_, session)| session.kernelspec))
}

/// Returns what is said when the kernel that runs is not the one that was asked for.
fn differs(session: &Session, options: &OpenOptions) -> Option<String> {
    let spec = session.kernelspec.as_ref()?;
    let other_name = options
        .kernel
        .as_ref()
        .is_some_and(|name| *name != spec.name);
    let other_python = options.python.as_ref().is_some_and(|python| {
        let real = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        spec.argv
            .first()
            .is_some_and(|program| real(Path::new(program)) != real(python))
    });
    let other_transport = options
        .transport
        .is_some_and(|transport| transport != session.transport);
    let other_limits = options
        .limits
        .is_some_and(|limits| limits != session.settings.limits);
    let other_room = options.confinement == WantedConfinement::Free && session.sandbox().is_some();
    (other_name || other_python || other_transport || other_limits || other_room).then(|| {
        format!(
            "its kernel already runs ({}, {}) and was kept; to change it: nb shutdown, then nb open",
            spec.argv.first().map_or("?", String::as_str),
            session.transport.as_str()
        )
    })
}

pub(super) fn read_named(notebook: &Path) -> Result<NamedKernel, OpenError> {
    let bytes = match std::fs::read(notebook) {
        Ok(bytes) => bytes,
        // A front end may open a kernel for a notebook that it has not saved yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(source) => {
            return Err(OpenError::Notebook {
                what: "read",
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

/// Returns what a notebook names, with the language of the spec that was chosen in a front end.
///
/// Whoever chose the spec of a language wants that one, whatever ran there before. The spec for
/// Python is also what is at hand for every notebook, so the notebook's own word counts more.
fn meant(named: NamedKernel, chosen: Option<&str>) -> NamedKernel {
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

/// Removes what no session knows any more and no kernel uses; returns a note on a kernel that
/// lives and is known by none, as where `state.json` was moved away.
fn sweep(project: &Project) -> Result<Vec<String>, OpenError> {
    let (files, alive) = unknown(project)?;
    for files in files {
        files.remove(&ProcessVariables);
    }
    let note = |process: Process| {
        let pid = process.pid;
        format!(
            "process {pid} is a kernel that nb started and {} does not know; to end it: kill {pid}",
            project.state_file().display()
        )
    };
    Ok(alive.into_iter().map(note).collect())
}

/// Returns the files of kernels that no session knows and that have ended, and the kernels that no
/// session knows and that live.
pub(super) fn unknown(project: &Project) -> Result<(Vec<KernelFiles>, Vec<Process>), OpenError> {
    let mut found = (Vec::new(), Vec::new());
    let Ok(entries) = beneath::list(&project.connections_dir()) else {
        return Ok(found);
    };
    let names = entries.flatten().map(|entry| entry.path());
    // What is half written has a name of its own.
    let names = names.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !name.starts_with('.')
    });
    let mut paths: Vec<PathBuf> = names.map(|path| path.with_extension("json")).collect();
    paths.sort();
    paths.dedup();
    // Read after the folder: a session is recorded before its files are made, so that what
    // another call is starting now is known here.
    let state = project.state()?;
    for path in paths {
        let files = KernelFiles::of(&path);
        let known = state
            .sessions
            .values()
            .any(|session| session.connection_file == files.connection_file());
        // Nor is what another container sees as its own for this one to judge; nor what nb did not
        // make.
        if known || !files.is_ours() || files.is_of_elsewhere() {
            continue;
        }
        match files.process().filter(Process::is_alive) {
            Some(process) => found.1.push(process),
            None => found.0.push(files),
        }
    }
    Ok(found)
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
        assert_eq!(meant(r.clone(), None), r);
        assert_eq!(meant(r.clone(), Some("python")), r);
        assert_eq!(meant(r.clone(), Some("r")), r);
        assert_eq!(meant(r, Some("julia")), named(None, Some("julia")));
        let nothing = named(None, None);
        assert_eq!(meant(nothing, Some("R")), named(None, Some("R")));
        let unsaid = named(Some("mine"), None);
        assert_eq!(
            meant(unsaid, Some("python")),
            named(Some("mine"), Some("python"))
        );
    }
}
