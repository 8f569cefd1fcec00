//! `open`: opens a notebook with a live kernel.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::columns;
use super::envelope::Answer;
use super::problem::{ConfirmationQuestion, Problem, ProblemKind, causes};
use super::sandbox::SandboxSummary;
use super::time::milliseconds;
use crate::editing::{language, named_kernelspec};
use crate::hint;
use crate::hint::{Hint, Verb, nb};
use crate::kernel::confine::container;
use crate::kernel::environment::install::InstallCommands;
use crate::kernel::spec;
use crate::kernel::spec::candidates::KernelCandidate;
use crate::kernel::spec::selection::SelectionError;
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::attach;
use crate::lifecycle::create::create_notebook;
pub use crate::lifecycle::open::{Idle, OpenOutcome};
use crate::lifecycle::open::{OpenOptions, Opened, ensure_kernel};
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::sandbox::checked;
pub use crate::lifecycle::server_kernel::WantedServer;
use crate::lifecycle::trust_again::trust_again;
use crate::project::{
    Confinement, Container, Ended, Project, ResourceLimits, Sandbox, Session, Status,
};
use crate::remote::kernels::{self, UserServers};
use crate::remote::named_files;
use crate::setup::install::install;
use crate::setup::serve::{self, Health, Level};
use crate::wire::Transport;

/// The notebook's kernel, and how it is started and reached.
#[derive(Clone, Debug, Default)]
pub struct OpenRequest {
    /// The kernelspec to start; `None` is the notebook's or the environment's own.
    pub kernel: Option<String>,
    /// The Python interpreter to start.
    pub python: Option<PathBuf>,
    /// Whether ipykernel is installed into a Python that lacks it.
    pub install: bool,
    /// The notebook whose kernel is shared.
    pub kernel_of: Option<PathBuf>,
    /// The connection file of a kernel that another program started, to attach to.
    pub attach: Option<PathBuf>,
    /// Whether the notebook gets a kernel of its own on this machine, if it shares one or has one on a server.
    pub own: bool,
    /// The server on which the kernel runs.
    pub server: Option<WantedServer>,
    /// How the kernel is reached.
    pub transport: Option<Transport>,
    /// The kernel's resource limits; `None` leaves them as before.
    pub limits: Option<ResourceLimits>,
    /// After how long without use the kernel is ended; `None` leaves it as before.
    pub idle: Option<Idle>,
    /// How the kernel is confined.
    pub confinement: RequestedConfinement,
    /// Folders that a sandboxed kernel was allowed to write, to be trusted again.
    pub trust: Vec<PathBuf>,
    /// Whether the notebook is to name the shared kernelspec.
    pub select: bool,
    /// Whether the kernelspec for front ends is left as it is.
    pub no_serve: bool,
    /// Whether no person asks for it: a front end opens what the notebook names.
    pub unchosen: bool,
    /// Whether the notebook and its project are created without starting a kernel.
    pub no_kernel: bool,
    /// Whether a kernel is started although one is recorded on another host or in a container.
    pub force: bool,
    /// How many seconds to wait for the kernel, which keeps starting after that; 0 is for ever.
    pub timeout: Option<f64>,
}

/// The confinement that a kernel is to get.
#[derive(Clone, Debug, Default)]
pub enum RequestedConfinement {
    /// The same as for the notebook's kernels so far.
    #[default]
    AsBefore,
    /// No confinement.
    Free,
    /// This sandbox.
    Sandbox(Box<Sandbox>),
    /// A container.
    Container {
        /// Its image.
        image: String,
        /// More options of `podman run` or `docker run`.
        options: Vec<String>,
    },
}

/// What came of opening a notebook.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum OpenAnswer {
    /// No kernel was to be started.
    Created(CreatedNotebook),
    /// Its kernel lives.
    Opened(Box<OpenedNotebook>),
}

impl Answer for OpenAnswer {
    fn has_own_generation(&self) -> bool {
        true
    }
}

/// A notebook and its project, made without a kernel.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CreatedNotebook {
    /// The notebook's key in its project.
    pub notebook: String,
    /// The project's folder.
    pub project: PathBuf,
    /// Whether the notebook was made.
    pub created: bool,
    /// Always null: no kernel was started.
    pub how: (),
    /// The state of its session, if it had a kernel before.
    pub status: Option<String>,
    /// Which of the session's kernels was the last one.
    pub kernel_generation: Option<u64>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// A notebook whose kernel lives.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpenedNotebook {
    /// The notebook's key in its project.
    pub notebook: String,
    /// The project's folder.
    pub project: PathBuf,
    /// Whether the notebook was made.
    pub created: bool,
    /// How it came to its kernel.
    pub how: OpenOutcome,
    /// The state of the session.
    pub status: String,
    /// The kernelspec's name.
    pub kernel: Option<String>,
    /// The kernel's process.
    pub kernel_pid: Option<u32>,
    /// Which of the session's kernels it is.
    pub kernel_generation: u64,
    /// Its connection file.
    pub connection_file: PathBuf,
    /// The notebook whose kernel this one uses.
    pub kernel_of: Option<String>,
    /// Whether `nb` has started it.
    pub owned: bool,
    /// The name of the server on which it runs.
    pub server: Option<String>,
    /// The container that it runs in.
    pub container: Option<Container>,
    /// Its sandbox.
    pub sandbox: Option<SandboxSummary>,
    /// The other notebooks that share the kernel.
    pub shared_with: Vec<String>,
    /// How the kernel before this one ended, if it exited unexpectedly.
    pub before: Option<Ended>,
    /// Whether the notebook was made to name the shared kernelspec.
    pub selected: bool,
    /// What became of the kernelspec for front ends; none where it was left as it is, or failed.
    pub spec: Option<SpecChange>,
    /// What the user should know.
    pub notes: Vec<Hint>,
    /// How long it took.
    pub took_ms: u64,
    /// The session.
    #[serde(skip)]
    pub session: Session,
    /// Why front ends do not find the kernel yet.
    pub spec_problem: Option<Problem>,
}

/// What became of the kernelspec "nb shared kernel".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SpecChange {
    /// It was there.
    Good,
    /// It was missing, and is installed now.
    Installed,
    /// It was out of date, and is mended.
    Mended,
}

/// Opens a notebook: creates it if it does not exist, and starts its kernel if none runs.
///
/// # Errors
/// No kernel can be chosen, or the chosen one does not start. The problem's [question](Problem::question)
/// may ask which kernel is meant.
pub async fn open(caller: &Caller, request: OpenRequest) -> Result<OpenAnswer, Problem> {
    let notebook = match caller.named() {
        Some(notebook) => notebook,
        None => caller.target().await?.session.notebook,
    };
    open_notebook(caller, notebook, request).await
}

/// Starts a kernel for a notebook that never had one, or whose kernel was shut down. A kernel that died is not
/// replaced: the caller decides which cells run again.
///
/// # Errors
/// As those of [`open`].
pub(super) async fn open_if_closed(
    caller: &Caller,
    project: &Project,
    key: &str,
) -> Result<(), Problem> {
    let state = blocking(caller, {
        let project = project.clone();
        move |_| Ok(project.state().ok())
    });
    // A state that cannot be read is reported by what needs the kernel.
    let Some(state) = state.await? else {
        return Ok(());
    };
    let session = state.session(key);
    if session.is_some_and(|it| it.status != Status::Stopped) {
        return Ok(());
    }
    let request = OpenRequest::default();
    let opened = open_notebook(caller, project.notebook(key), request).await;
    let opened = opened.map_err(|problem| Problem {
        kind: ProblemKind::NoKernel,
        ..problem
    })?;
    if let OpenAnswer::Opened(opened) = opened {
        // A renamed notebook has its running kernel: the notes say so.
        if opened.how == OpenOutcome::Started {
            let kernel = opened.session.kernelspec.as_ref();
            let kernel = kernel.map_or("its kernel", |spec| &spec.display_name);
            (caller.progress)(&format!("{key}: no kernel ran; started {kernel}"));
        }
        let notes = opened.notes.iter();
        notes.for_each(|note| (caller.progress)(&note.to_string()));
    }
    Ok(())
}

async fn open_notebook(
    caller: &Caller,
    notebook: PathBuf,
    request: OpenRequest,
) -> Result<OpenAnswer, Problem> {
    check_name(&notebook)?;
    let mut options = options(caller, &request, &notebook).await?;
    if request.no_kernel {
        return created(caller, notebook, options).await;
    }
    let mut installs = request.install;
    let mut created = false;
    let mut opened = loop {
        let error = match attempt(caller, &notebook, &options, &mut created).await? {
            Ok(opened) => break opened,
            Err(error) => error,
        };
        match &error {
            OpenError::Choose(SelectionError::NoIpykernel { install, .. })
                if std::mem::take(&mut installs) =>
            {
                install_ipykernel(caller, (**install).clone()).await?;
                if options.python.is_some() {
                    options.python = Some(install.python.clone());
                }
            }
            _ => return Err(not_opened(error, &notebook)),
        }
    };
    caller.set_target_notebook(&opened.project, &opened.key);
    if request.server.is_some() {
        let shown = &notebook;
        let note = named_files::missing_on_server(&opened.session, &opened.key, shown).await;
        opened.notes.extend(note.map(Hint::from));
    }
    blocking(caller, move |_| {
        let answer = answer(&notebook, opened, created, &request)?;
        Ok(OpenAnswer::Opened(Box::new(answer)))
    })
    .await
}

/// Fails if a path is not the name of a notebook.
pub(super) fn check_name(notebook: &Path) -> Result<(), Problem> {
    let shown = notebook.display();
    if notebook.is_dir() {
        let text = format!("{shown} is a folder, not a notebook");
        let open = nb(Verb::Open).notebook(&notebook.join("NAME.ipynb"));
        return Err(Problem::new(ProblemKind::Usage, text).hint(open));
    }
    if notebook
        .extension()
        .is_none_or(|extension| extension != "ipynb")
    {
        let text = format!("{shown} is not a notebook: its name does not end in .ipynb");
        let open = nb(Verb::Open).notebook(&notebook.with_extension("ipynb"));
        return Err(Problem::new(ProblemKind::Usage, text).hint(open));
    }
    if std::path::absolute(notebook).is_ok_and(|whole| whole.to_str().is_none()) {
        let text = format!("cannot open {shown}: its path is not UTF-8");
        return Err(Problem::new(ProblemKind::Usage, text).hint("rename it"));
    }
    Ok(())
}

/// Returns the options by which a notebook is opened. Also marks the request's folders as trusted.
async fn options(
    caller: &Caller,
    request: &OpenRequest,
    notebook: &Path,
) -> Result<OpenOptions, Problem> {
    let (owned_request, path) = (request.clone(), notebook.to_owned());
    let confinement = blocking(caller, move |_| {
        let python = owned_request.python.as_deref();
        confinement(&owned_request.confinement, python, &path)
    })
    .await?;
    for folder in &request.trust {
        trust_again(folder).await.map_err(|error| {
            let problem = Problem::new(ProblemKind::Refused, causes(&error));
            problem.all_hints(error.hints())
        })?;
    }
    let timeout = caller.kernel_timeout(request.timeout)?;
    let attach = match &request.attach {
        Some(name) => {
            let file = attach::locate(name, &ProcessVariables).map_err(OpenError::from)?;
            Some(attach::probe(file, timeout, &ProcessVariables).await?)
        }
        None => None,
    };
    if let Some(server) = &request.server {
        // A hub may have to start the server, which takes some time.
        kernels::client(&server.name, &mut |text| (caller.progress)(text)).await?;
    }
    let is_contained = matches!(confinement, Some(Confinement::Container(_)));
    Ok(OpenOptions {
        kernel: request.kernel.clone(),
        python: request.python.clone().filter(|_| !is_contained),
        transport: request.transport,
        timeout,
        by: caller.by().to_owned(),
        force: request.force,
        kernel_of: request.kernel_of.clone(),
        attach,
        own: request.own,
        server: request.server.clone(),
        limits: request.limits,
        confinement,
        idle: request.idle,
        install: request.install,
        unchosen: request.unchosen,
        ..OpenOptions::default()
    })
}

/// Returns the confinement that is asked for, with its folders as real paths. `python` is the one in a container.
pub(super) fn confinement(
    requested: &RequestedConfinement,
    python: Option<&Path>,
    notebook: &Path,
) -> Result<Option<Confinement>, Problem> {
    Ok(match requested {
        RequestedConfinement::AsBefore => None,
        RequestedConfinement::Free => Some(Confinement::None),
        RequestedConfinement::Sandbox(sandbox) => {
            let sandbox = checked((**sandbox).clone()).map_err(OpenError::from)?;
            Some(Confinement::Sandbox(Box::new(sandbox)))
        }
        RequestedConfinement::Container { image, options } => {
            Some(Confinement::Container(Container {
                program: container_program(image, notebook)?,
                image: image.clone(),
                python: python.map(|python| python.to_string_lossy().into_owned()),
                options: options.clone(),
            }))
        }
    })
}

/// Returns the program that starts containers of an image.
fn container_program(image: &str, notebook: &Path) -> Result<PathBuf, Problem> {
    let open = nb(Verb::Open).notebook(notebook);
    let refused = |why: &str, hint: Hint| {
        let text = format!("cannot start a kernel in a container of {image}: {why}");
        Problem::new(ProblemKind::Refused, text).hint(hint)
    };
    if image.is_empty() || image.starts_with('-') {
        let open = open.option("--container").word("IMAGE");
        return Err(refused("that is not the name of an image", open.into()));
    }
    container::program(image, &ProcessVariables).map_err(|(why, hint)| {
        let open = open.option("--sandbox");
        refused(&why, hint.into()).hint(hint!["to confine a kernel of this machine: ", open])
    })
}

/// Creates a notebook and its project without a kernel.
async fn created(
    caller: &Caller,
    notebook: PathBuf,
    options: OpenOptions,
) -> Result<OpenAnswer, Problem> {
    blocking(caller, move |_| {
        let created = create_notebook(&notebook, &options, false)?;
        let project = project_of(&notebook)?;
        let key = project.key(&notebook);
        let state = project.state()?;
        let session = state.sessions.get(&key);
        Ok(OpenAnswer::Created(CreatedNotebook {
            project: project.root().to_owned(),
            created,
            how: (),
            status: session.map(|session| session.status.as_str().to_owned()),
            kernel_generation: session.map(|session| session.generation),
            notes: project.notice().into_iter().collect(),
            notebook: key,
        }))
    })
    .await
}

fn project_of(notebook: &Path) -> Result<Project, Problem> {
    let project = Project::for_notebook(notebook);
    project.map_err(|error| Problem::failed("open the project", &error))
}

/// Creates the notebook if it does not exist, and starts its kernel if none runs.
async fn attempt(
    caller: &Caller,
    notebook: &Path,
    options: &OpenOptions,
    created: &mut bool,
) -> Result<Result<Opened, OpenError>, Problem> {
    let (path, mut new_options) = (notebook.to_owned(), options.clone());
    if let Some(server) = &mut new_options.server {
        // A hub may have to start the user's server first, and `tell` reports that.
        let client = kernels::client(&server.name, &mut |line| (caller.progress)(line)).await;
        if !notebook.exists() {
            let spec = match client {
                Ok(client) => {
                    let kernel = options.kernel.as_deref();
                    kernels::spec_of_new(&client, server, kernel, options.timeout).await
                }
                Err(error) => Err(error),
            };
            match spec {
                Ok(spec) => server.spec = Some(spec),
                Err(error) => return Ok(Err(error)),
            }
        }
    }
    let make = move |_: &Caller| match create_notebook(&path, &new_options, true) {
        Ok(is_new) => Ok(Ok((is_new, project_of(&path)?))),
        Err(error) => Ok(Err(error)),
    };
    Ok(match blocking(caller, make).await? {
        Ok((is_new, project)) => {
            *created |= is_new;
            ensure_kernel(&UserServers, &project, notebook, options).await
        }
        Err(error) => Err(error),
    })
}

async fn install_ipykernel(caller: &Caller, commands: InstallCommands) -> Result<(), Problem> {
    (caller.progress)(&format!("installs ipykernel: {commands}"));
    blocking(caller, move |_| run_install(&commands)).await
}

/// Runs the commands that change packages. Blocks.
pub(super) fn run_install(commands: &InstallCommands) -> Result<(), Problem> {
    install(commands).map_err(|error| {
        Problem::new(ProblemKind::Failed, causes(&error))
            .more_lines(&error.lines())
            .hint(error.hint(commands))
    })
}

/// Makes a problem of the error that kept a notebook from being opened; the hints name the notebook.
fn not_opened(error: OpenError, notebook: &Path) -> Problem {
    let candidates = match &error {
        OpenError::Choose(SelectionError::Ambiguous { candidates }) => candidates.clone(),
        _ => Vec::new(),
    };
    let mut problem = Problem::from(error).more_lines(&lines(&candidates));
    if !candidates.is_empty() {
        let options = candidates.iter().map(KernelCandidate::option).collect();
        problem.question = Some(Box::new(ConfirmationQuestion::Kernel(options)));
    }
    let hints = problem.hints.into_iter();
    problem.hints = hints.map(|hint| hint.named(notebook)).collect();
    problem
}

/// Returns a line for each candidate.
fn lines(candidates: &[KernelCandidate]) -> Vec<String> {
    let rows = candidates.iter().map(|candidate| {
        let spec = candidate.spec.as_ref();
        let display_name = spec.map_or("", |spec| &spec.display_name);
        [
            candidate.name.clone(),
            display_name.to_owned(),
            candidate.source.clone(),
            candidate.path.display().to_string(),
        ]
    });
    columns::lines(&rows.collect::<Vec<_>>())
}

/// Does what opening needs after the kernel was started, and returns the answer.
fn answer(
    notebook: &Path,
    opened: Opened,
    created: bool,
    request: &OpenRequest,
) -> Result<OpenedNotebook, Problem> {
    if created && let Err(error) = language::write(notebook) {
        // The first cell that runs writes it.
        tracing::warn!(%error, "cannot write language_info into the notebook");
    }
    let session = opened.session;
    let kernelspec = session.kernelspec.as_ref();
    let served = match request.no_serve {
        true => Ok(None),
        false => install_spec(kernelspec.map_or("python", |spec| &spec.language)).map(Some),
    };
    if let Some(kernelspec) = kernelspec.filter(|_| request.select) {
        named_kernelspec::select(notebook, kernelspec).map_err(|error| {
            let action = format!("name the kernelspec in {}", notebook.display());
            Problem::failed(&action, &error)
        })?;
    }
    let (spec, spec_problem) = match served {
        Ok(served) => (served, None),
        Err(problem) => (None, Some(problem)),
    };
    Ok(OpenedNotebook {
        notebook: opened.key,
        project: opened.project.root().to_owned(),
        created,
        how: opened.how,
        status: session.status.as_str().to_owned(),
        kernel: kernelspec.map(|spec| spec.name.clone()),
        kernel_pid: session.pid(),
        kernel_generation: session.generation,
        connection_file: session.connection_file.clone(),
        kernel_of: opened.kernel_of,
        owned: session.is_owned(),
        server: session.as_remote().map(|remote| remote.server.clone()),
        container: session.confinement().container().cloned(),
        sandbox: session.sandbox().map(SandboxSummary::of),
        shared_with: opened.shared_with,
        before: opened.before,
        selected: request.select,
        spec,
        notes: opened.notes,
        took_ms: milliseconds(opened.took),
        session,
        spec_problem,
    })
}

/// Installs the user's kernelspec for a language if it is missing, and repairs one that is out of date.
fn install_spec(language: &str) -> Result<SpecChange, Problem> {
    let change = match serve::health_for(language, &ProcessVariables)? {
        Health::Good => return Ok(SpecChange::Good),
        Health::Missing => SpecChange::Installed,
        Health::Stale { .. } => SpecChange::Mended,
    };
    serve::serve(&Level::User, language, &ProcessVariables)?;
    Ok(change)
}

impl OpenedNotebook {
    /// Returns the name that front ends show for the shared kernel.
    pub fn spec_name(&self) -> String {
        let kernelspec = self.session.kernelspec.as_ref();
        spec::shared_display_name(kernelspec.map_or("python", |spec| &spec.language))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_server_does_not_ask_for_the_end_of_the_kernel_that_is_opened() {
        let full = OpenError::ServerLimit {
            server: "gpu".to_owned(),
            most: 1,
            open: Vec::new(),
        };
        let problem = not_opened(full, Path::new("/p/new.ipynb"));
        let hint = problem.hints[0].to_string();
        assert_eq!(hint, "end one that is not needed: nb shutdown NOTEBOOK");
        let gone = OpenError::NoServerKernel {
            server: "gpu".to_owned(),
            id: "1".to_owned(),
        };
        let problem = not_opened(gone, Path::new("/p/new.ipynb"));
        let hint = problem.hints[1].to_string();
        assert_eq!(
            hint,
            "to start one there: nb open /p/new.ipynb --server gpu"
        );
    }
}
