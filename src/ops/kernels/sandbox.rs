//! The sandbox of a notebook's kernel: what was asked for, made into a room.

use std::path::{Path, PathBuf};

use super::gc::scratch::keep;
use super::open_error::OpenError;
use crate::kernel::connection::{self, KernelFiles};
use crate::kernel::container::Contained;
use crate::kernel::launch::Start;
use crate::kernel::paths::{ProcessVariables, Variables, own_data_dir};
use crate::kernel::python::quote;
use crate::kernel::sandbox::{self, Confined, Room, SandboxError};
use crate::kernel::{spec, trust};
use crate::project::written::AllWritten;
use crate::project::{Container, Mechanism, Project, RealSpec, Sandbox, Session, real_path};

/// Whether a kernel is to run in a sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Confinement {
    /// As the session's kernels until now.
    #[default]
    AsBefore,
    /// In none.
    Free,
    /// In this one.
    In(Box<Sandbox>),
    /// In this container.
    Container(Box<Container>),
}

impl Confinement {
    /// Returns the sandbox for a new kernel.
    pub(super) fn of_new(
        &self,
        project: &Project,
        key: &str,
        before: Option<&Session>,
    ) -> Option<Sandbox> {
        let sandbox = match self {
            Self::AsBefore => before?.sandbox.clone()?,
            Self::Free | Self::Container(_) => return None,
            Self::In(sandbox) => (**sandbox).clone(),
        };
        Some(Sandbox {
            scratch: project.scratch(key),
            reached: None,
            ..sandbox
        })
    }

    /// Returns the container for a new kernel.
    pub(super) fn container_of_new(&self, before: Option<&Session>) -> Option<Container> {
        match self {
            Self::AsBefore => before?.container.clone(),
            Self::Container(container) => Some((**container).clone()),
            Self::Free | Self::In(_) => None,
        }
    }

    /// Refuses to take a kernel that runs for one in the sandbox that was asked for.
    pub(super) fn check_running(&self, session: &Session) -> Result<(), SandboxError> {
        if let Self::Container(wanted) = self {
            return match &session.container {
                Some(container) if *container == **wanted => Ok(()),
                it => Err(SandboxError::Container {
                    why: match it {
                        Some(it) => format!("the one that runs is in another, of {}", it.image),
                        None => "one runs already, in none".to_owned(),
                    },
                    mend: format!(
                        "nb shutdown {}, then repeat this (its variables are gone then)",
                        quote(&session.notebook)
                    ),
                }),
            };
        }
        let Self::In(wanted) = self else {
            return Ok(());
        };
        let how = match &session.sandbox {
            Some(sandbox) if sandbox.is_same_room(wanted) => return Ok(()),
            Some(_) => "its sandbox has other rules".to_owned(),
            None => "it runs in none".to_owned(),
        };
        let end = match session.owned {
            true => format!("nb shutdown {}", quote(&session.notebook)),
            false => "end it in the program that started it".to_owned(),
        };
        Err(SandboxError::Runs {
            how,
            mend: format!("{end}, then repeat this (its variables are gone then)"),
        })
    }
}

/// Returns the sandbox with folders that are real paths; refuses what would open it.
pub fn checked(sandbox: Sandbox) -> Result<Sandbox, SandboxError> {
    let folders = |paths: &[PathBuf], option: &str| {
        let real = paths.iter().map(|path| folder(path, option));
        real.collect::<Result<Vec<_>, _>>()
    };
    let allow_write = folders(&sandbox.allow_write, "--allow-write")?;
    let allow_read = folders(&sandbox.allow_read, "--allow-read")?;
    let variables = ProcessVariables;
    let home = variables.path("HOME").map(|home| real(&home));
    let state = home.as_ref().map(|home| home.join(".local/state/nb"));
    let user = rustix::process::geteuid().as_raw();
    let sockets = Some(PathBuf::from(format!("/tmp/nb-{user}")));
    let own = [own_data_dir(&variables).ok(), state, sockets];
    let own: Vec<_> = own.into_iter().flatten().collect();
    for path in &allow_write {
        let opens = |inner: &Path| inner.starts_with(path);
        let starts = |name: &&str| {
            let code = home.as_ref().map(|home| home.join(name));
            code.is_some_and(|code| opens(&code) || path.starts_with(&code))
        };
        let why = if SYSTEM.iter().any(|folder| opens(Path::new(folder))) {
            "it holds parts of the system"
        } else if home.as_deref().is_some_and(opens) {
            "it holds your home folder, with what starts when you log in"
        } else if HOME.iter().any(starts) {
            "what lies there is run or believed whenever you work"
        } else if own.iter().any(|own| opens(own) || path.starts_with(own)) {
            "it holds what nb itself runs or trusts"
        } else {
            continue;
        };
        return Err(SandboxError::Folder {
            path: path.clone(),
            why: why.to_owned(),
            mend: "name the folder below it that the kernel is to write".to_owned(),
        });
    }
    Ok(Sandbox {
        allow_write,
        allow_read,
        ..sandbox
    })
}

fn real(path: &Path) -> PathBuf {
    real_path(path).unwrap_or_else(|_| path.to_owned())
}

fn folder(path: &Path, option: &str) -> Result<PathBuf, SandboxError> {
    let fault = |why: String, mend: String| SandboxError::Folder {
        path: path.to_owned(),
        why,
        mend,
    };
    match path.canonicalize() {
        Ok(real) if real.is_dir() => Ok(real),
        Ok(_) => Err(fault(
            "it is no folder".to_owned(),
            format!("{option} takes a folder"),
        )),
        Err(error) => Err(fault(
            error.to_string(),
            format!("mkdir -p {}", quote(path)),
        )),
    }
}

/// What in a home folder is run by shells, by Python, Jupyter and conda, or says whom to trust.
const HOME: [&str; 12] = [
    ".local/bin",
    ".local/lib",
    ".local/share/jupyter",
    ".config",
    ".ipython",
    ".jupyter",
    ".conda",
    ".ssh",
    ".gnupg",
    ".git",
    "bin",
    "Library",
];

/// What nobody may be let write: whoever writes there is everybody else soon.
const SYSTEM: [&str; 12] = [
    "/usr", "/etc", "/bin", "/sbin", "/lib", "/boot", "/dev", "/proc", "/sys", "/run", "/var/lib",
    "/tmp",
];

/// Makes of the start of a kernel one in the session's sandbox. Blocks for some milliseconds.
///
/// What it may write is remembered before it begins: nothing that lies there is executed outside
/// from then on.
pub(super) fn confine(
    project: &Project,
    key: &str,
    sandbox: &Sandbox,
    start: &Start,
) -> Result<Confined, OpenError> {
    let chosen = sandbox::choose(sandbox)?;
    let info = connection::read(start.files.connection_file())?;
    let sockets = Path::new(&info.ip).parent().map(Path::to_owned);
    let sockets = sockets.ok_or_else(|| OpenError::Internal("no folder for sockets".to_owned()))?;
    let home = ProcessVariables.path("HOME");
    let (workspace, hidden) = (real(project.root()), real(project.dir()));
    let name = sandbox.scratch.file_name().unwrap_or_default();
    let scratch = hidden.join("scratch").join(name);
    let fault = |path: &Path, why: &str, mend: &str| {
        let (path, why, mend) = (path.to_owned(), why.to_owned(), mend.to_owned());
        SandboxError::Folder { path, why, mend }
    };
    if home
        .as_deref()
        .is_some_and(|home| real(home).starts_with(&workspace))
    {
        let why = "as a workspace it would show the kernel your whole home folder";
        let mend = "move the notebook into a folder of its own";
        return Err(fault(&workspace, why, mend).into());
    }
    for path in sandbox.allow_write.iter().chain(&sandbox.allow_read) {
        // Who may write beside it may have put a symlink at its place, to anywhere.
        if real(path) != *path {
            let why = "it is not the folder any more that it was: a symlink leads elsewhere now";
            let mend = "look who put it there; then name the folder that is meant";
            return Err(fault(path, why, mend).into());
        }
    }
    for path in &sandbox.allow_write {
        if workspace != *path && workspace.starts_with(path) {
            let why = "it holds the project's folder, whose .nb could be exchanged with it";
            let mend = "name the project's folder itself, or one beside or below it";
            return Err(fault(path, why, mend).into());
        }
        let holds = hidden.starts_with(path) && chosen.mechanism != Mechanism::Bubblewrap;
        if holds || path.starts_with(&hidden) {
            let why = "nb's own folder .nb could be written, which says what runs in which sandbox";
            let mend =
                "name a folder beside .nb; bubblewrap alone can leave .nb out of a larger one";
            return Err(fault(path, why, mend).into());
        }
    }
    for path in &sandbox.allow_write {
        project.remember_written(key, path).map_err(|error| {
            let why = format!("that it could be written cannot be remembered: {error}");
            fault(
                path,
                &why,
                "make nb's state folder (~/.local/state/nb) writable",
            )
        })?;
    }
    let room = Room {
        workspace,
        hidden,
        connection_file: real(start.files.connection_file()),
        sockets,
        scratch,
        programs: programs(start, home.as_deref()),
        allow_read: sandbox.allow_read.clone(),
        allow_write: sandbox.allow_write.clone(),
        allow_net: sandbox.allow_net,
        cpus: sandbox.cpus,
        home,
        folder: real(&start.folder),
    };
    Ok(Confined {
        sandbox: sandbox.clone(),
        chosen,
        room,
    })
}

/// Makes of the start of a kernel one in the session's container.
pub(super) fn contain(
    project: &Project,
    container: &Container,
    files: &KernelFiles,
) -> Result<Contained, OpenError> {
    let info = connection::read(files.connection_file())?;
    let sockets = Path::new(&info.ip).parent().map(Path::to_owned);
    let sockets = sockets.ok_or_else(|| OpenError::Internal("no folder for sockets".to_owned()))?;
    let (workspace, hidden) = (real(project.root()), real(project.dir()));
    let refused = |why: String| SandboxError::Container {
        why,
        mend: "move the notebook into a folder of its own".to_owned(),
    };
    let home = ProcessVariables.path("HOME");
    if home.is_some_and(|home| real(&home).starts_with(&workspace)) {
        let workspace = workspace.display();
        let why = format!("with {workspace} it would be given your whole home folder");
        return Err(refused(why).into());
    }
    let odd = [&workspace, &hidden, &sockets].into_iter();
    if let Some(path) = { odd }.find(|path| path.to_string_lossy().contains(':')) {
        let path = path.display();
        let why = format!("{path} has a colon in its name, which no mount can have");
        return Err(refused(why).into());
    }
    let container = container.clone();
    Ok(Contained::new(container, workspace, hidden, sockets, files))
}

/// Returns where the kernel's program and its libraries lie.
fn programs(start: &Start, home: Option<&Path>) -> Vec<PathBuf> {
    let argv = spec::command(&start.spec, start.files.connection_file());
    let set = spec::environment(&start.spec, &ProcessVariables);
    let own_path = set.iter().rfind(|(name, _)| name == "PATH");
    let path = own_path.map(|(_, value)| value.clone());
    let path = path
        .or_else(|| std::env::var_os("PATH"))
        .unwrap_or_default();
    let named = argv.first().map(PathBuf::from).unwrap_or_default();
    let program = match named.components().count() {
        1 => std::env::split_paths(&path)
            .map(|folder| folder.join(&named))
            .find(|program| program.is_file())
            .unwrap_or(named),
        _ => named,
    };
    let mut found = sandbox::programs(&program, home);
    found.extend(start.spec.resource_dir.clone());
    if trust::check_program(&program).is_err() {
        found = believed(found);
    }
    if spec::is_python(&start.spec.language) {
        // What `pip install --user` has put there; home itself is not seen.
        let local = home.map(|home| home.join(".local/lib"));
        found.extend(local.filter(|lib| lib.is_dir()));
    }
    found
}

/// Returns what of the folders of a program is shown, where a sandboxed kernel could write it.
///
/// Its symlinks and its `pyvenv.cfg` may name any folder, the user's keys for example. So what is
/// shown is the folder that was written, and a base Python only where it is one.
fn believed(folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let known = AllWritten::known();
    let is_python = |folder: &Path| {
        let entries = std::fs::read_dir(folder.join("lib")).into_iter().flatten();
        let mut libraries = entries.flatten().map(|entry| entry.path());
        libraries.any(|library| library.join("os.py").is_file())
    };
    let shown = folders.into_iter().filter_map(|folder| {
        let real = folder.canonicalize().ok()?;
        match known.decides(&real) {
            Some(written) => Some(written.folder),
            None => is_python(&real).then_some(real),
        }
    });
    shown.collect()
}

/// Removes a session's scratch folder unless it is to stay; says where it is then.
pub(super) fn end(session: &Session) -> Option<String> {
    let sandbox = session.sandbox.as_ref()?;
    let scratch = &sandbox.scratch;
    if sandbox.keep_scratch && scratch.exists() {
        if let Err(error) = keep(scratch) {
            let scratch = scratch.display();
            return Some(format!(
                "nb gc would remove its scratch folder {scratch}: {error}"
            ));
        }
        return Some(format!(
            "its scratch folder was kept: {}",
            scratch.display()
        ));
    }
    match std::fs::remove_dir_all(scratch) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Some(format!(
            "its scratch folder {} cannot be removed: {error}",
            scratch.display()
        )),
        _ => None,
    }
}

/// Makes the connection file of a kernel, with sockets of their own folder for a sandbox.
pub(super) fn create_files(
    files: &KernelFiles,
    sandboxed: bool,
    transport: crate::project::Transport,
    spec: &RealSpec,
) -> Result<(), OpenError> {
    match sandboxed {
        true => files.create_apart(spec, &ProcessVariables)?,
        false => files.create(transport, spec, &ProcessVariables)?,
    };
    Ok(())
}
