//! The sandbox of a notebook's kernel: turns the user's options into a filesystem view.

use std::path::{Path, PathBuf};

use super::open_error::OpenError;
use crate::hint;
use crate::hint::shell::quote;
use crate::hint::{Hint, Verb, nb};
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
use crate::kernel::spec;
use crate::kernel::variables::{ProcessVariables, Variables, own_data_dir};
use crate::project::registry::known;
use crate::project::scratch::{self, is_scratch};
use crate::project::{Confinement, Container, Mechanism, Project, Sandbox, Session, real_path};

/// Returns the sandbox or container of a new kernel: the one that is wanted, or that of the
/// session's last kernel.
pub(super) fn confinement_of_new(
    requested: Option<&Confinement>,
    before: Option<&Session>,
) -> Confinement {
    let last = before.map(|it| &it.settings.confinement);
    match requested.or(last) {
        Some(Confinement::Sandbox(sandbox)) => {
            let last = last.and_then(Confinement::sandbox);
            Confinement::Sandbox(Box::new(Sandbox {
                // This is the last kernel's folder, which the start removes.
                scratch: last.map(|it| it.scratch.clone()).unwrap_or_default(),
                reached: None,
                ..(**sandbox).clone()
            }))
        }
        other => other.cloned().unwrap_or_default(),
    }
}

/// Returns which interpreters may be run to choose a new kernel: for a sandboxed kernel, none from the
/// notebook's folder, since the sandbox does not exist yet.
pub(super) fn policy(confinement: &Confinement) -> ProbePolicy {
    match confinement {
        Confinement::Sandbox(_) => ProbePolicy::ToolsOnly,
        Confinement::None | Confinement::Container(_) => ProbePolicy::Any,
    }
}

/// Fails if a running kernel is not in the sandbox or container that is wanted.
pub(super) fn check_running(
    requested: Option<&Confinement>,
    session: &Session,
) -> Result<(), SandboxError> {
    let end = match session.is_owned() {
        true => nb(Verb::Shutdown).notebook(&session.notebook).into(),
        false => Hint::from("end it in the program that started it"),
    };
    let fix = end.and(", then repeat this (its variables are gone then)");
    match (requested, session.confinement()) {
        (None | Some(Confinement::None), _) => Ok(()),
        (Some(Confinement::Container(requested)), Confinement::Container(it))
            if it == requested =>
        {
            Ok(())
        }
        (Some(Confinement::Container(_)), it) => Err(SandboxError::Container {
            why: match it.container() {
                Some(it) => format!("the one that runs is in another, of {}", it.image),
                None => "one runs already, in none".to_owned(),
            },
            fix,
        }),
        (Some(Confinement::Sandbox(requested)), Confinement::Sandbox(it)) => {
            match it.has_same_rules(requested) {
                true => Ok(()),
                false => Err(SandboxError::Runs {
                    how: "its sandbox has other rules".to_owned(),
                    fix,
                }),
            }
        }
        (Some(Confinement::Sandbox(_)), _) => Err(SandboxError::Runs {
            how: "it runs in none".to_owned(),
            fix,
        }),
    }
}

/// Returns the sandbox with its folders as real paths; fails for folders that would let the kernel
/// out.
pub fn checked(sandbox: Sandbox) -> Result<Sandbox, SandboxError> {
    let folders = |paths: &[PathBuf], option: &str| {
        let resolved = paths.iter().map(|path| folder(path, option));
        resolved.collect::<Result<Vec<_>, _>>()
    };
    let allow_write = folders(&sandbox.allow_write, "--allow-write")?;
    let allow_read = folders(&sandbox.allow_read, "--allow-read")?;
    let variables = ProcessVariables;
    let home = variables.path("HOME").map(|home| resolved(&home));
    let state = scratch::shelf().and_then(|shelf| shelf.parent().map(Path::to_owned));
    let user = rustix::process::geteuid().as_raw();
    let sockets = Some(PathBuf::from(format!("/tmp/nb-{user}")));
    let own = [own_data_dir(&variables).ok(), state, sockets];
    let own: Vec<_> = own.into_iter().flatten().collect();
    let named = NAMED.iter().filter_map(|name| variables.path(name));
    let on_path = variables.get("PATH").unwrap_or_default();
    let run = named.chain(std::env::split_paths(&on_path));
    let run = run.filter(|it| it.is_absolute()).map(|it| resolved(&it));
    // A folder that contains the home folder would forbid everything.
    let contains_home =
        |it: &Path| it.parent().is_none() || home.as_ref().is_some_and(|home| home.starts_with(it));
    let run: Vec<_> = run.filter(|it| !contains_home(it)).collect();
    for path in &allow_write {
        let Some(why) = refusal(path, home.as_deref(), &own, &run) else {
            continue;
        };
        return Err(SandboxError::Folder {
            path: path.clone(),
            why: why.to_owned(),
            fix: "name another folder: one in a project, with no programs or settings in it".into(),
        });
    }
    Ok(Sandbox {
        allow_write,
        allow_read,
        ..sandbox
    })
}

/// Returns why a sandboxed kernel must not write a folder: other programs run or trust files in it. `own`
/// are the folders of `nb` itself, `run` those from which programs say that they run files.
fn refusal(
    path: &Path,
    home: Option<&Path>,
    own: &[PathBuf],
    run: &[PathBuf],
) -> Option<&'static str> {
    let opens = |inner: &Path| inner.starts_with(path);
    let relative = home.and_then(|home| path.strip_prefix(home).ok());
    let first = relative.and_then(|relative| relative.components().next());
    let first = first.map(|it| it.as_os_str().to_string_lossy());
    // A hidden folder in the home folder belongs to a program, with files that it runs or trusts.
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

fn resolved(path: &Path) -> PathBuf {
    real_path(path).unwrap_or_else(|_| path.to_owned())
}

fn folder(path: &Path, option: &str) -> Result<PathBuf, SandboxError> {
    let folder_error = |why: String, fix: String| SandboxError::Folder {
        path: path.to_owned(),
        why,
        fix: fix.into(),
    };
    match path.canonicalize() {
        Ok(resolved) if resolved.is_dir() => Ok(resolved),
        Ok(_) => Err(folder_error(
            "it is not a folder".to_owned(),
            format!("{option} takes a folder"),
        )),
        Err(error) => Err(folder_error(
            error.to_string(),
            format!("mkdir -p {}", quote(path)),
        )),
    }
}

/// The folders in a home folder that contain programs and are not hidden.
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

/// Variables that name folders of programs, or of files that programs run or trust.
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

/// The entries of a folder that editors, version control, shells and agents run or trust as soon as
/// a person works there. A kernel may not write those that exist when it starts.
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

/// The folders that no kernel may write: a program that can write there can soon act as any user.
const SYSTEM: [&str; 12] = [
    "/usr", "/etc", "/bin", "/sbin", "/lib", "/boot", "/dev", "/proc", "/sys", "/run", "/var/lib",
    "/tmp",
];

/// Prepares the start of a kernel in the session's sandbox. Blocks for some milliseconds.
///
/// The folders that the kernel may write are recorded before it starts: from then on, nothing in
/// them is executed outside.
pub(super) fn confine(
    project: &Project,
    key: &str,
    sandbox: &Sandbox,
    start: &KernelStart,
) -> Result<SandboxedStart, OpenError> {
    let chosen = sandbox::choose_mechanism(sandbox)?;
    let sockets = sockets_of(&start.files)?;
    let home = ProcessVariables.path("HOME");
    let (workspace, hidden) = (resolved(project.root()), resolved(project.dir()));
    project
        .make_scratch(key, &sandbox.scratch)
        .map_err(SandboxError::Folders)?;
    let folder_error = |path: &Path, why: &str, fix: &'static str| {
        let (path, why, fix) = (path.to_owned(), why.to_owned(), fix.into());
        SandboxError::Folder { path, why, fix }
    };
    if holds_home(&workspace) {
        let why = "as a workspace it would show the kernel your whole home folder";
        let fix = "move the notebook into a folder of its own";
        return Err(folder_error(&workspace, why, fix).into());
    }
    for path in sandbox.allow_write.iter().chain(&sandbox.allow_read) {
        // A program that may write the parent folder may have put a symlink there, to anywhere.
        if resolved(path) != *path {
            let why = "it is not the folder any more that it was: a symlink leads elsewhere now";
            let fix = "look who put it there; then name the folder that is meant";
            return Err(folder_error(path, why, fix).into());
        }
    }
    let shown = |path: &Path| {
        let mut all = sandbox.allow_write.iter().chain(&sandbox.allow_read);
        path.starts_with(&workspace) || all.any(|shown| path.starts_with(shown))
    };
    let known = known().into_iter();
    let known = known.filter_map(|it| Some(it.state_file.parent()?.to_owned()));
    // A temporary project hides that of the notebook, too.
    let read = std::iter::once(&workspace).chain(&sandbox.allow_read);
    let read = read.filter_map(|it| Some(Project::find(it)?.dir().to_owned()));
    let others = known.chain(read).filter_map(|it| {
        let folder = it.canonicalize().ok()?;
        (folder != hidden && folder.is_dir() && shown(&folder)).then_some(folder)
    });
    let mut others: Vec<_> = others.collect();
    others.sort();
    others.dedup();
    for path in &sandbox.allow_write {
        if workspace != *path && workspace.starts_with(path) {
            let why = "it holds the project's folder, whose .nb could be exchanged with it";
            let fix = "name the project's folder itself, or one beside or below it";
            return Err(folder_error(path, why, fix).into());
        }
        let bubblewrap = chosen.mechanism == Mechanism::Bubblewrap;
        let others = others.iter().any(|it| it.starts_with(path));
        let holds = (hidden.starts_with(path) || others) && !bubblewrap;
        if holds || path.starts_with(&hidden) {
            let why = "nb's own folder .nb could be written, which says what runs in which sandbox";
            let fix =
                "name a folder beside .nb; bubblewrap alone can leave .nb out of a larger one";
            return Err(folder_error(path, why, fix).into());
        }
        if let Some(entry) = trusted_in(path).first().filter(|_| !bubblewrap) {
            let why = format!(
                "{} is in it, which is run or believed when somebody works there",
                entry.display()
            );
            let fix = "name a folder below it; bubblewrap alone can leave that out";
            return Err(folder_error(path, &why, fix).into());
        }
    }
    for path in &sandbox.allow_write {
        project.remember_written(key, path).map_err(|error| {
            let why = format!("that it could be written cannot be remembered: {error}");
            folder_error(
                path,
                &why,
                "make nb's state folder (~/.local/state/nb) writable",
            )
        })?;
    }
    let allowed = [&sandbox.allow_read[..], &sandbox.allow_write].concat();
    let folder = resolved(&start.folder);
    let programs = programs(start, (&workspace, &folder), &allowed, home.as_deref())
        .map_err(|out| leads_outside(out, &project.notebook(key), sandbox))?;
    let view = FilesystemView {
        workspace: workspace.clone(),
        hidden,
        connection_file: resolved(start.files.connection_file()),
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
        covered: sockets_in([&workspace].into_iter().chain(&allowed)),
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

/// Returns the folder of a kernel's sockets.
fn sockets_of(files: &KernelFiles) -> Result<PathBuf, OpenError> {
    let info = connection::read(files.connection_file())?;
    let folder = Path::new(&info.ip).parent().map(Path::to_owned);
    folder.ok_or_else(|| OpenError::Internal("no folder for sockets".to_owned()))
}

/// Says whether a folder is the user's home folder or contains it.
fn holds_home(folder: &Path) -> bool {
    let home = ProcessVariables.path("HOME");
    home.is_some_and(|home| resolved(&home).starts_with(folder))
}

/// Returns the sockets in folders that a kernel may see: a read-only mount does not prevent
/// connections to them.
fn sockets_in<'a>(folders: impl Iterator<Item = &'a PathBuf>) -> Vec<PathBuf> {
    use std::os::unix::fs::FileTypeExt;
    let all = folders.flat_map(walkdir::WalkDir::new).take(MOST_FILES);
    let sockets = all.flatten().filter(|it| it.file_type().is_socket());
    sockets.map(walkdir::DirEntry::into_path).collect()
}

/// How many files are searched for sockets, so that the search does not delay the start.
const MOST_FILES: usize = 100_000;

/// Returns the entries of a folder that others run or trust. Links are left out: nothing can be
/// mounted on them.
fn trusted_in(folder: &Path) -> Vec<PathBuf> {
    let all = TRUSTED.iter().map(|name| folder.join(name));
    all.filter(|path| path.exists() && !path.is_symlink())
        .collect()
}

/// Prepares the start of a kernel in the session's container.
pub(super) fn contain(
    project: &Project,
    container: &Container,
    files: &KernelFiles,
) -> Result<KernelContainer, OpenError> {
    let sockets = sockets_of(files)?;
    let (workspace, hidden) = (resolved(project.root()), resolved(project.dir()));
    let container_error = |why: String| SandboxError::Container {
        why,
        fix: "move the notebook into a folder of its own".into(),
    };
    if holds_home(&workspace) {
        let workspace = workspace.display();
        let why = format!("with {workspace} it would be given your whole home folder");
        return Err(container_error(why).into());
    }
    let has_colon = |path: &&&PathBuf| path.to_string_lossy().contains(':');
    if let Some(path) = [&workspace, &hidden, &sockets].iter().find(has_colon) {
        let path = path.display();
        let why = format!("{path} has a colon in its name, which no mount can have");
        return Err(container_error(why).into());
    }
    Ok(KernelContainer::new(
        container.clone(),
        workspace,
        hidden,
        sockets,
        files.connection_file(),
    ))
}

/// Returns the folders of the kernel's program and its libraries.
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
    let mut folders = shown.programs(&program)?;
    folders.extend(resources.filter(|_| !spec_is_anybodys).map(Path::to_owned));
    if spec::is_python(&start.spec.language) {
        // The packages of `pip install --user`; the rest of the home folder is not visible.
        let local = home.map(|home| home.join(".local/lib"));
        folders.extend(local.filter(|lib| lib.is_dir()));
    }
    Ok(folders)
}

/// Returns the error that an environment links to a folder outside of what the sandbox shows, with
/// the command that confirms its Python.
fn leads_outside(out: OutsideTarget, notebook: &Path, sandbox: &Sandbox) -> SandboxError {
    let mut open = nb(Verb::Open).notebook(notebook).option("--sandbox");
    for (option, folders) in [
        ("--allow-read", &sandbox.allow_read),
        ("--allow-write", &sandbox.allow_write),
    ] {
        for folder in folders {
            open = open.option(option).word(&**folder);
        }
    }
    if sandbox.allow_net {
        open = open.option("--allow-net");
    }
    let is_link = out.file.is_symlink();
    let leads = match is_link {
        true => "is a link that leads to",
        false => "names",
    };
    let why = format!(
        "it {leads} {}, which no tool is known to have installed: a file of the notebook's folder could name any folder of yours so",
        out.target.display()
    );
    // For a linked environment this is its target; for a single Python its folder.
    let environment = out.file.canonicalize().ok().filter(|it| it.is_dir());
    let python = environment.map(|it| it.join("bin/python"));
    open = match python.filter(|it| is_link && it.exists()) {
        Some(python) => open.option("--python").word(&*python),
        None => {
            let bin = out.target.parent().filter(|bin| bin.ends_with("bin"));
            let prefix = bin.and_then(Path::parent).unwrap_or(&out.target);
            open.option("--allow-read").word(prefix)
        }
    };
    SandboxError::Folder {
        path: out.file,
        why,
        fix: hint!["if that is what you mean: ", open],
    }
}

/// Removes a session's scratch folder unless it is to stay; returns a note then.
pub(super) fn end(session: &Session) -> Option<String> {
    let sandbox = session.settings.confinement.sandbox()?;
    let scratch = &sandbox.scratch;
    if scratch.as_os_str().is_empty() {
        return None;
    }
    if sandbox.keep_scratch && is_scratch(scratch) && scratch.exists() {
        let path = scratch.display();
        return Some(match scratch::keep(scratch) {
            Ok(()) => format!("its scratch folder was kept: {path}"),
            Err(error) => format!("nb gc would remove its scratch folder {path}: {error}"),
        });
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
/// before it is made. Removes the last kernel's folder, unless it is to stay: then it is used
/// again.
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
    // Processes that the last kernel left would go on writing into its folder.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_folder_is_written_whose_content_others_run() {
        let home = Path::new("/home/u");
        let own = ["/home/u/.local/state/nb".into(), "/tmp/nb-1".into()];
        let run = ["/opt/tools/bin".into(), "/data/cargo".into()];
        let container_error = |path: &str| refusal(Path::new(path), Some(home), &own, &run);
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
            assert!(
                container_error(&format!("/home/u/{path}")).is_some(),
                "{path}"
            );
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
            assert!(container_error(path).is_some() || path == "{path}");
        }
        for path in [
            "/home/u/p",
            "/home/u/p/out",
            "/data",
            "/home/u/data",
            "/home/u/p/.cache",
        ] {
            assert_eq!(container_error(path), None, "{path}");
        }
    }
}
