//! The sandbox of a notebook's kernel: what was asked for, made into a view.

use std::path::{Path, PathBuf};

use super::open_error::OpenError;
use crate::kernel::confine::container::KernelContainer;
use crate::kernel::confine::program_folders::{OutsideTarget, ProgramFolders};
use crate::kernel::confine::sandbox::{SandboxError, SandboxedStart};
use crate::kernel::confine::view::FilesystemView;
use crate::kernel::confine::{outcome, sandbox};
use crate::kernel::environment::probe::ProbePolicy;
use crate::kernel::environment::tools::ToolFolders;
use crate::kernel::environment::trust;
use crate::kernel::process::connection::{self, KernelFiles};
use crate::kernel::process::launch::KernelStart;
use crate::kernel::shell::quote;
use crate::kernel::spec;
use crate::kernel::variables::{ProcessVariables, Variables, own_data_dir};
use crate::project::registry::known;
use crate::project::scratch::{self, is_scratch};
use crate::project::{Container, Mechanism, Project, RealSpec, Sandbox, Session, real_path};

/// Whether a kernel is to run in a sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum WantedConfinement {
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

impl WantedConfinement {
    /// Returns the sandbox for a new kernel.
    pub(super) fn of_new(&self, before: Option<&Session>) -> Option<Sandbox> {
        let known = before.and_then(|it| it.settings.confinement.sandbox());
        let sandbox = match self {
            Self::AsBefore => known?.clone(),
            Self::Free | Self::Container(_) => return None,
            Self::In(sandbox) => (**sandbox).clone(),
        };
        Some(Sandbox {
            // Of the kernel before; the start takes it away.
            scratch: known.map(|it| it.scratch.clone()).unwrap_or_default(),
            reached: None,
            ..sandbox
        })
    }

    /// Returns which interpreters may be run to choose a new kernel: before one is in its sandbox,
    /// nothing of the notebook's folder is.
    pub(super) fn policy(&self, before: Option<&Session>) -> ProbePolicy {
        let sandboxed = match self {
            Self::AsBefore => {
                before.is_some_and(|before| before.settings.confinement.sandbox().is_some())
            }
            Self::Free | Self::Container(_) => false,
            Self::In(_) => true,
        };
        match sandboxed {
            true => ProbePolicy::ToolsOnly,
            false => ProbePolicy::Any,
        }
    }

    /// Returns the container for a new kernel.
    pub(super) fn container_of_new(&self, before: Option<&Session>) -> Option<Container> {
        match self {
            Self::AsBefore => before?.settings.confinement.container().cloned(),
            Self::Container(container) => Some((**container).clone()),
            Self::Free | Self::In(_) => None,
        }
    }

    /// Refuses to take a kernel that runs for one in the sandbox that was asked for.
    pub(super) fn check_running(&self, session: &Session) -> Result<(), SandboxError> {
        if let Self::Container(wanted) = self {
            return match session.confinement().container() {
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
        let how = match session.sandbox() {
            Some(sandbox) if sandbox.is_same_room(wanted) => return Ok(()),
            Some(_) => "its sandbox has other rules".to_owned(),
            None => "it runs in none".to_owned(),
        };
        let end = match session.is_owned() {
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
    let state = scratch::shelf().and_then(|shelf| shelf.parent().map(Path::to_owned));
    let user = rustix::process::geteuid().as_raw();
    let sockets = Some(PathBuf::from(format!("/tmp/nb-{user}")));
    let own = [own_data_dir(&variables).ok(), state, sockets];
    let own: Vec<_> = own.into_iter().flatten().collect();
    let named = NAMED.iter().filter_map(|name| variables.path(name));
    let on_path = variables.get("PATH").unwrap_or_default();
    let run = named.chain(std::env::split_paths(&on_path));
    let run = run.filter(|it| it.is_absolute()).map(|it| real(&it));
    // One that holds the home folder would forbid everything.
    let whole =
        |it: &Path| it.parent().is_none() || home.as_ref().is_some_and(|home| home.starts_with(it));
    let run: Vec<_> = run.filter(|it| !whole(it)).collect();
    for path in &allow_write {
        let Some(why) = refusal(path, home.as_deref(), &own, &run) else {
            continue;
        };
        return Err(SandboxError::Folder {
            path: path.clone(),
            why: why.to_owned(),
            mend: "name another folder: one in a project, with no programs or settings in it"
                .to_owned(),
        });
    }
    Ok(Sandbox {
        allow_write,
        allow_read,
        ..sandbox
    })
}

/// Returns why nobody in a sandbox may write a folder, where that is so: others run or believe what
/// lies there. `own` is what `nb` itself does, `run` what programs say that they run.
fn refusal(
    path: &Path,
    home: Option<&Path>,
    own: &[PathBuf],
    run: &[PathBuf],
) -> Option<&'static str> {
    let opens = |inner: &Path| inner.starts_with(path);
    let below = home.and_then(|home| path.strip_prefix(home).ok());
    let first = below.and_then(|below| below.components().next());
    let first = first.map(|it| it.as_os_str().to_string_lossy());
    // A hidden folder at home is some program's own, with what it runs or whom it trusts.
    let in_home = first.is_some_and(|it| it.starts_with('.') || HOME.contains(&it.as_ref()));
    let trusted = |name: &&str| {
        path.components()
            .any(|part| part.as_os_str() == std::ffi::OsStr::new(*name))
    };
    if SYSTEM.iter().any(|folder| opens(Path::new(folder))) {
        Some("it holds parts of the system")
    } else if home.is_some_and(opens) {
        Some("it holds your home folder, with what starts when you log in")
    } else if in_home || run.iter().any(|it| path.starts_with(it)) || TRUSTED.iter().any(trusted) {
        Some("what lies there is run or believed whenever you work")
    } else if own.iter().any(|own| opens(own) || path.starts_with(own)) {
        Some("it holds what nb itself runs or trusts")
    } else {
        None
    }
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

/// What in a home folder holds programs without being hidden.
const HOME: [&str; 14] = [
    "bin",
    "go",
    "Library",
    "Applications",
    "snap",
    "perl5",
    "anaconda3",
    "miniconda3",
    "miniforge3",
    "mambaforge",
    "micromamba",
    "R",
    "node_modules",
    "flatpak",
];

/// Variables that name folders of programs, of what they run and of whom they trust.
const NAMED: [&str; 17] = [
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
    "PYTHONUSERBASE",
    "PYENV_ROOT",
    "CONDA_ROOT",
    "MAMBA_ROOT_PREFIX",
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "IPYTHONDIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "NPM_CONFIG_PREFIX",
    "GNUPGHOME",
];

/// What in a folder is run or believed by editors, by version control, by shells and by agents, as
/// soon as somebody works there. What of it is there when a kernel starts it may not write.
const TRUSTED: [&str; 18] = [
    ".git",
    ".hg",
    ".svn",
    ".jj",
    ".husky",
    ".pre-commit-config.yaml",
    ".vscode",
    ".idea",
    ".zed",
    ".devcontainer",
    ".devcontainer.json",
    ".envrc",
    ".env",
    ".claude",
    ".cursor",
    ".codex",
    ".gemini",
    ".mcp.json",
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
    start: &KernelStart,
) -> Result<SandboxedStart, OpenError> {
    let chosen = sandbox::choose_mechanism(sandbox)?;
    let info = connection::read(start.files.connection_file())?;
    let sockets = Path::new(&info.ip).parent().map(Path::to_owned);
    let sockets = sockets.ok_or_else(|| OpenError::Internal("no folder for sockets".to_owned()))?;
    let home = ProcessVariables.path("HOME");
    let (workspace, hidden) = (real(project.root()), real(project.dir()));
    project
        .make_scratch(key, &sandbox.scratch)
        .map_err(SandboxError::Folders)?;
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
    let shown = |path: &Path| {
        let mut all = sandbox.allow_write.iter().chain(&sandbox.allow_read);
        path.starts_with(&workspace) || all.any(|shown| path.starts_with(shown))
    };
    let others = known().into_iter().filter_map(|it| {
        let folder = it.state_file.parent()?.canonicalize().ok()?;
        (folder != hidden && folder.is_dir() && shown(&folder)).then_some(folder)
    });
    let others: Vec<_> = others.collect();
    for path in &sandbox.allow_write {
        if workspace != *path && workspace.starts_with(path) {
            let why = "it holds the project's folder, whose .nb could be exchanged with it";
            let mend = "name the project's folder itself, or one beside or below it";
            return Err(fault(path, why, mend).into());
        }
        let bubblewrap = chosen.mechanism == Mechanism::Bubblewrap;
        let others = others.iter().any(|it| it.starts_with(path));
        let holds = (hidden.starts_with(path) || others) && !bubblewrap;
        if holds || path.starts_with(&hidden) {
            let why = "nb's own folder .nb could be written, which says what runs in which sandbox";
            let mend =
                "name a folder beside .nb; bubblewrap alone can leave .nb out of a larger one";
            return Err(fault(path, why, mend).into());
        }
        if let Some(found) = trusted_in(path).first().filter(|_| !bubblewrap) {
            let why = format!(
                "{} is in it, which is run or believed when somebody works there",
                found.display()
            );
            let mend = "name a folder below it; bubblewrap alone can leave that out";
            return Err(fault(path, &why, mend).into());
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
    let allowed = [&sandbox.allow_read[..], &sandbox.allow_write].concat();
    let folder = real(&start.folder);
    let programs = programs(start, (&workspace, &folder), &allowed, home.as_deref())
        .map_err(|out| leads_out(out, &project.notebook(key), sandbox))?;
    let view = FilesystemView {
        workspace: workspace.clone(),
        hidden,
        connection_file: real(start.files.connection_file()),
        sockets,
        scratch: sandbox.scratch.clone(),
        programs,
        allow_read: sandbox.allow_read.clone(),
        allow_write: sandbox.allow_write.clone(),
        protected: sandbox
            .allow_write
            .iter()
            .flat_map(|it| trusted_in(it))
            .collect(),
        covered: sockets_in(
            std::iter::once(&workspace)
                .chain(&sandbox.allow_read)
                .chain(&sandbox.allow_write),
        ),
        others,
        allow_net: sandbox.allow_net,
        cpus: sandbox.cpus,
        home,
        folder,
    };
    Ok(SandboxedStart {
        sandbox: sandbox.clone(),
        chosen,
        view,
    })
}

/// Returns the sockets that lie in folders which a kernel is to see: a mount that may only be read
/// does not keep anybody from connecting to them.
fn sockets_in<'a>(folders: impl Iterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    use std::os::unix::fs::FileTypeExt;
    let all = folders.flat_map(walkdir::WalkDir::new).take(MOST_FILES);
    let sockets = all.flatten().filter(|it| it.file_type().is_socket());
    sockets.map(walkdir::DirEntry::into_path).collect()
}

/// How many files are looked at for sockets: a start is not to wait for more.
const MOST_FILES: usize = 100_000;

/// Returns what lies in a folder that others run or believe. A link is not protected: nothing can
/// be mounted upon it.
fn trusted_in(folder: &Path) -> Vec<PathBuf> {
    let all = TRUSTED.iter().map(|name| folder.join(name));
    all.filter(|path| path.exists() && !path.is_symlink())
        .collect()
}

/// Makes of the start of a kernel one in the session's container.
pub(super) fn contain(
    project: &Project,
    container: &Container,
    files: &KernelFiles,
) -> Result<KernelContainer, OpenError> {
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
    Ok(KernelContainer::new(
        container,
        workspace,
        hidden,
        sockets,
        files.connection_file(),
    ))
}

/// Returns where the kernel's program and its libraries lie.
fn programs(
    start: &KernelStart,
    (workspace, folder): (&Path, &Path),
    allowed: &[PathBuf],
    home: Option<&Path>,
) -> Result<Vec<PathBuf>, OutsideTarget> {
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
    let tools = ToolFolders::known(&ProcessVariables);
    let mut shown = ProgramFolders {
        workspace,
        folder,
        allowed,
        tools: &tools,
        distrusts: trust::check_program(&program).is_err(),
    };
    let resources = start.spec.resource_dir.as_deref();
    let spec_is_anybodys = resources.is_some_and(|folder| shown.is_of_folder(folder));
    shown.distrusts |= spec_is_anybodys;
    let mut found = shown.programs(&program)?;
    found.extend(resources.filter(|_| !spec_is_anybodys).map(Path::to_owned));
    if spec::is_python(&start.spec.language) {
        // What `pip install --user` has put there; home itself is not seen.
        let local = home.map(|home| home.join(".local/lib"));
        found.extend(local.filter(|lib| lib.is_dir()));
    }
    Ok(found)
}

/// Returns that an environment leads out of what the sandbox shows, with the command that names its
/// Python as the one that is meant.
fn leads_out(out: OutsideTarget, notebook: &Path, sandbox: &Sandbox) -> SandboxError {
    let mut mend = format!("nb open {} --sandbox", quote(notebook));
    for (option, folders) in [
        ("--allow-read", &sandbox.allow_read),
        ("--allow-write", &sandbox.allow_write),
    ] {
        for folder in folders {
            mend.push_str(&format!(" {option} {}", quote(folder)));
        }
    }
    if sandbox.allow_net {
        mend.push_str(" --allow-net");
    }
    let is_link = out.file.is_symlink();
    let why = match is_link {
        true => format!(
            "it is a link that leads to {}, which no tool is known to have installed: a file of the notebook's folder could name any folder of yours so",
            out.target.display()
        ),
        false => format!(
            "it names {}, which no tool is known to have installed: a file of the notebook's folder could name any folder of yours so",
            out.target.display()
        ),
    };
    // Of a linked environment the one that it leads to; of a Python its folder.
    let environment = out.file.canonicalize().ok().filter(|it| it.is_dir());
    let python = environment.map(|it| it.join("bin/python"));
    mend.push_str(&match python.filter(|it| is_link && it.exists()) {
        Some(python) => format!(" --python {}", quote(&python)),
        None => {
            let bin = out.target.parent().filter(|bin| bin.ends_with("bin"));
            let prefix = bin.and_then(Path::parent).unwrap_or(&out.target);
            format!(" --allow-read {}", quote(prefix))
        }
    });
    SandboxError::Folder {
        path: out.file,
        why,
        mend: format!("if that is what you mean: {mend}"),
    }
}

/// Removes a session's scratch folder unless it is to stay; says where it is then.
pub(super) fn end(session: &Session) -> Option<String> {
    let sandbox = session.settings.confinement.sandbox()?;
    let scratch = &sandbox.scratch;
    if scratch.as_os_str().is_empty() {
        return None;
    }
    if sandbox.keep_scratch && is_scratch(scratch) && scratch.exists() {
        if let Err(error) = scratch::keep(scratch) {
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
    remove_scratch(scratch)
}

fn remove_scratch(path: &Path) -> Option<String> {
    let error = scratch::remove(path).err()?;
    let path = path.display();
    Some(format!(
        "its scratch folder {path} cannot be removed: {error}"
    ))
}

/// Returns the session's sandbox with the scratch folder for its next kernel, which is recorded
/// before it is made. The last one's is taken away, unless it is to stay: then it stays the same.
pub(super) fn renew(
    project: &Project,
    key: &str,
    files: &KernelFiles,
    sandbox: Sandbox,
    record: impl FnOnce(&Path) -> Result<(), OpenError>,
) -> Result<Sandbox, OpenError> {
    let before = &sandbox.scratch;
    if sandbox.keep_scratch && is_scratch(before) {
        return Ok(sandbox);
    }
    let fresh = project.fresh_scratch(key).map_err(SandboxError::Folders)?;
    record(&fresh)?;
    // What still runs of the last kernel would go on filling it.
    outcome::end_leftovers(&files.outcome_file());
    if is_scratch(before)
        && let Some(problem) = remove_scratch(before)
    {
        tracing::warn!("{problem}");
    }
    Ok(Sandbox {
        scratch: fresh,
        ..sandbox
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_folder_is_written_whose_content_others_run() {
        let home = Path::new("/home/u");
        let own = ["/home/u/.local/state/nb".into(), "/tmp/nb-1".into()];
        let run = ["/opt/tools/bin".into(), "/data/cargo".into()];
        let refused = |path: &str| refusal(Path::new(path), Some(home), &own, &run);
        for path in [
            ".pyenv",
            ".pyenv/versions/3.13",
            ".cargo",
            ".cargo/bin",
            ".vscode-server",
            ".cache",
            ".cache/pip",
            ".rustup",
            ".nvm",
            ".npm",
            ".conda",
            ".ssh",
            ".local",
            ".local/share",
            ".mozilla",
            ".docker",
            ".kube",
            ".aws",
            ".config",
            ".oh-my-zsh",
            ".vim",
            ".emacs.d",
            ".jupyter",
            ".ipython",
            ".venv",
            ".deno",
            ".juliaup",
            ".sdkman",
            ".gradle",
            ".m2",
            "bin",
            "go",
            "go/bin",
            "miniconda3/envs/x",
            "Library/Python",
        ] {
            assert!(refused(&format!("/home/u/{path}")).is_some(), "{path}");
        }
        for path in [
            "/",
            "/home",
            "/home/u",
            "/usr",
            "/tmp",
            "/tmp/nb-1",
            "/opt/tools/bin",
            "/opt/tools/bin/x",
            "/data/cargo",
            "/data/cargo/registry",
            "/home/u/p/.git",
            "/home/u/p/.git/hooks",
            "/home/u/p/.vscode",
            "/home/u/p/.claude/x",
        ] {
            assert!(refused(path).is_some() || path == "{path}");
        }
        for path in [
            "/home/u/p",
            "/home/u/p/out",
            "/data",
            "/home/u/data",
            "/home/u/p/.cache",
        ] {
            assert_eq!(refused(path), None, "{path}");
        }
    }
}
