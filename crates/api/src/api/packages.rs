//! `packages`: lists, adds and removes packages of the environment of a notebook's kernel.

use std::path::PathBuf;

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::open::run_install;
use super::problem::{Problem, ProblemKind, causes};
use crate::execution::imports::refresh_imports;
use crate::hint;
use crate::hint::{Verb, nb};
use crate::kernel::environment::folder::{Environment, Manager};
use crate::kernel::environment::install::InstallCommands;
pub use crate::kernel::environment::install::PackageChange;
pub use crate::kernel::environment::probe::Package;
use crate::kernel::environment::probe::{self, ProbePolicy};
use crate::kernel::environment::python::Python;
use crate::kernel::environment::trust::on_path;
use crate::kernel::process::Process;
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::target::Target;
use crate::project::{Relation, Status};

/// How many packages are changed at once.
const NAMES_MAX: usize = 100;

/// How many characters a name has, with its versions.
const NAME_CHARS: usize = 200;

/// What to do to the packages.
#[derive(Clone, Debug, Default)]
pub struct PackagesRequest {
    /// The change; `None` lists the packages.
    pub change: Option<PackageChange>,
    /// The packages that are changed; to be added, each may have extras and versions: `pandas[excel]>=2,<3`.
    pub names: Vec<String>,
}

/// The packages of an environment, or what of them has changed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PackagesAnswer {
    /// The notebook's key in its project.
    pub notebook: String,
    /// The environment's folder.
    pub environment: PathBuf,
    /// The program that made it: `venv`, `uv`, `pixi`, `poetry`, `conda` or `system`.
    pub manager: &'static str,
    /// The file with the project's dependencies, if that was changed, too.
    pub manifest: Option<PathBuf>,
    /// All packages, by name; empty after a change.
    pub packages: Vec<Package>,
    /// Packages, or versions of them, that are new.
    pub added: Vec<Package>,
    /// Packages, or versions of them, that are gone.
    pub removed: Vec<Package>,
    /// What else there is to know.
    pub notes: Vec<String>,
}

impl Answer for PackagesAnswer {}

/// Lists or changes the packages of the Python environment in which a notebook's kernel runs, with the program that manages
/// the environment. The running kernel can import what was added.
///
/// # Errors
/// A name is none of a package, the environment is not one that `nb` changes, or the program fails.
pub async fn packages(
    caller: &Caller,
    request: PackagesRequest,
) -> Result<PackagesAnswer, Problem> {
    check_names(&request)?;
    let target = caller.target_or_last_used().await?;
    let executable = interpreter(&target)?;
    let (notebook, by) = (target.notebook_key.clone(), caller.by());
    let mut answer = blocking(caller, move |caller| {
        change(caller, &request, notebook, &executable)
    })
    .await?;
    let mut changed: Vec<_> = answer.added.iter().chain(&answer.removed).collect();
    changed.sort_unstable();
    changed.dedup_by_key(|package| &package.name);
    if changed.is_empty() || matches!(target.session.status, Status::Stopped | Status::Died) {
        return Ok(answer);
    }
    let names: Vec<_> = changed.iter().map(|package| package.name.clone()).collect();
    match refresh_imports(&target.project, &target.key, &target.session, by, &names).await {
        Ok(stay) if stay.is_empty() => {}
        Ok(stay) => answer.notes.push(format!(
            "the kernel has imported {} before, which stays as it was until nb restart",
            stay.join(", ")
        )),
        Err(error) => answer.notes.push(format!(
            "the running kernel was not made to look for new packages ({}): where an import fails, run importlib.invalidate_caches()",
            causes(&error)
        )),
    }
    Ok(answer)
}

/// Refuses what is no package's name: options, paths and URLs would make an installer do something else.
fn check_names(request: &PackagesRequest) -> Result<(), Problem> {
    let refused = |text: String| Err(Problem::new(ProblemKind::Usage, text));
    let Some(change) = request.change else {
        return match request.names.first() {
            Some(name) => refused(format!("list takes no name, but there is {name:?}")),
            None => Ok(()),
        };
    };
    if request.names.is_empty() || request.names.len() > NAMES_MAX {
        let verb = change.verb();
        return refused(format!("{verb} takes 1 to {NAMES_MAX} names of packages"));
    }
    for name in &request.names {
        if !is_requirement(name, change) {
            let more = match change {
                PackageChange::Remove => "",
                _ => "; a name may have extras and versions: pandas[excel]>=2,<3",
            };
            return refused(format!("{name:?} is no name of a package{more}"));
        }
    }
    Ok(())
}

/// Says whether a text is a package's name, which to add it may have extras and versions. One that looks like a file is none.
fn is_requirement(text: &str, change: PackageChange) -> bool {
    const FILES: [&str; 11] = [
        ".whl", ".zip", ".gz", ".bz2", ".xz", ".tar", ".tgz", ".tbz", ".txz", ".lzma", ".ipynb",
    ];
    let is_word = |c: char| c.is_ascii_alphanumeric();
    let end = text.find(|c: char| !is_word(c) && !"._-".contains(c));
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let versions = match rest.strip_prefix('[') {
        None => rest,
        Some(extras) => match extras.split_once(']') {
            Some((extras, rest)) if extras.chars().all(|c| is_word(c) || "._-,".contains(c)) => {
                rest
            }
            _ => return false,
        },
    };
    let lower = text.to_ascii_lowercase();
    text.len() <= NAME_CHARS
        && name.starts_with(is_word)
        && name.ends_with(is_word)
        && (rest.is_empty() || change != PackageChange::Remove)
        && (versions.is_empty() || versions.starts_with(['<', '>', '=', '!', '~']))
        && versions
            .chars()
            .all(|c| is_word(c) || "<>=!~.,*+-_".contains(c))
        && !FILES.iter().any(|ending| lower.ends_with(ending))
}

/// Returns the interpreter of a session's kernel.
fn interpreter(target: &Target) -> Result<PathBuf, Problem> {
    let (session, notebook) = (&target.session, &target.notebook_key);
    let refused = |why: String| {
        let text =
            format!("the packages of the kernel of {notebook} cannot be changed here: {why}");
        Err(Problem::new(ProblemKind::Refused, text))
    };
    if let Some(remote) = session.as_remote() {
        return refused(format!(
            "it runs on the server {}; a cell there can run %pip install",
            remote.server
        ));
    }
    if session.relation() == Relation::OtherHost {
        return refused("it runs on another machine, or in another container".to_owned());
    }
    if !session.confinement().is_none() {
        return refused(
            "it runs in a sandbox or a container, and an installer would run code outside of it"
                .to_owned(),
        );
    }
    let language = session.language();
    if !language.eq_ignore_ascii_case("python") {
        return refused(format!(
            "it runs {language}, and nb changes packages of Python"
        ));
    }
    let of_spec = session
        .kernelspec
        .as_ref()
        .and_then(|spec| spec.argv.first());
    let of_spec = of_spec.map(PathBuf::from).filter(|path| path.is_absolute());
    let of_process = || Process::recorded(session).and_then(|it| probe::of_process(&it));
    match of_spec.or_else(of_process) {
        Some(executable) => Ok(executable),
        None => refused("its Python is not known".to_owned()),
    }
}

/// Lists the packages, or changes them and tells what has changed.
fn change(
    caller: &Caller,
    request: &PackagesRequest,
    notebook: String,
    executable: &std::path::Path,
) -> Result<PackagesAnswer, Problem> {
    let unusable = |error| Problem::failed("read the packages", &error);
    let python = probe::probe(executable, ProbePolicy::Any, &ProcessVariables).map_err(unusable)?;
    let environment = Environment::of(&python.prefix, "of the kernel");
    let list = || probe::packages(executable).map_err(unusable);
    let mut answer = PackagesAnswer {
        notebook,
        environment: environment.prefix.clone(),
        manager: environment.manager.as_str(),
        manifest: None,
        packages: Vec::new(),
        added: Vec::new(),
        removed: Vec::new(),
        notes: Vec::new(),
    };
    let Some(change) = request.change else {
        answer.packages = list()?;
        return Ok(answer);
    };
    let names: Vec<_> = request.names.iter().map(String::as_str).collect();
    let commands =
        InstallCommands::change(change, &names, &python, &environment, &ProcessVariables);
    answer.manifest = check_manager(&python, &environment, &commands)?;
    let before = list()?;
    let has = |packages: &[Package], name: &str| packages.iter().any(|it| is_same(&it.name, name));
    if change == PackageChange::Remove
        && answer.manifest.is_none()
        && let Some(missing) = names.iter().find(|name| !has(&before, name))
    {
        let prefix = environment.prefix.display();
        let text = format!("{missing} is not installed in {prefix}");
        return Err(Problem::new(ProblemKind::Failed, text));
    }
    (caller.progress)(&format!("runs {commands}"));
    run_install(&commands)?;
    let after = list()?;
    let only = |these: &[Package], those: &[Package]| {
        let only = these.iter().filter(|it| !those.contains(it));
        only.cloned().collect::<Vec<_>>()
    };
    (answer.added, answer.removed) = (only(&after, &before), only(&before, &after));
    if has(&before, "ipykernel") && !has(&after, "ipykernel") {
        answer.notes.push(
            "ipykernel is gone, too: the running kernel goes on, and nb open --install puts it back"
                .to_owned(),
        );
    }
    Ok(answer)
}

/// Says whether both are names of one package.
fn is_same(one: &str, other: &str) -> bool {
    let normal = |name: &str| name.to_ascii_lowercase().replace(['_', '.'], "-");
    normal(one) == normal(other)
}

/// Refuses environments that their own programs have to change. Returns the manifest that is changed, too.
fn check_manager(
    python: &Python,
    environment: &Environment,
    commands: &InstallCommands,
) -> Result<Option<PathBuf>, Problem> {
    let prefix = environment.prefix.display();
    match (environment.manager, &environment.project) {
        (manager @ (Manager::Conda | Manager::Pixi | Manager::Poetry), _) => {
            let text = format!(
                "{} manages {prefix}, and nb does not run it",
                manager.as_str()
            );
            Err(Problem::new(ProblemKind::Usage, text).hint(commands.to_string()))
        }
        (Manager::System, _) if python.takes_no_packages() => {
            let text = format!(
                "{} is the system's own Python, which takes no packages",
                python.executable.display()
            );
            let open = nb(Verb::Open).this().option("--own").option("--install");
            Err(Problem::new(ProblemKind::Refused, text)
                .hint(hint!["to make an environment: ", open]))
        }
        (Manager::Uv, Some(project)) if on_path("uv", &ProcessVariables).is_some() => {
            Ok(Some(project.join("pyproject.toml")))
        }
        (Manager::Uv, Some(project)) => {
            let text = format!(
                "uv made the environment of {}, and is not on PATH",
                project.display()
            );
            Err(Problem::new(ProblemKind::Failed, text)
                .hint("https://docs.astral.sh/uv/ tells how to install it"))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_paths_and_urls_are_no_names() {
        let is_refused = |name: &str, change| {
            let request = PackagesRequest {
                change: Some(change),
                names: vec![name.to_owned()],
            };
            check_names(&request).is_err_and(|problem| problem.kind == ProblemKind::Usage)
        };
        for name in [
            "six",
            "ruamel.yaml",
            "a",
            "typing_extensions>=4",
            "pandas[excel,s3]>=2,<3",
            "six==1.17.*",
            "torch==2.1+cu121",
        ] {
            assert!(!is_refused(name, PackageChange::Add), "{name}");
            let has_more = name.contains(['[', '=', '>']);
            assert_eq!(is_refused(name, PackageChange::Remove), has_more, "{name}");
        }
        for name in [
            "",
            "-r",
            "-x",
            "--index-url=https://evil.example",
            ".",
            "./six",
            "/tmp/six",
            "a/b",
            "a\\b",
            "six.whl",
            "six-1.0.tar.gz",
            "x.ZIP",
            "t.ipynb",
            "git+https://example.org/x",
            "https://example.org/x",
            "file:x",
            "x@https://example.org/x",
            "six ; python_version<'3'",
            "six\n-r x",
            "a[b",
            "a[-]b",
            "six==1 --pre",
            "sïx",
            "six-",
        ] {
            assert!(is_refused(name, PackageChange::Add), "{name}");
        }
        assert!(is_refused(&"a".repeat(300), PackageChange::Add));
        let many = PackagesRequest {
            change: Some(PackageChange::Add),
            names: vec!["six".to_owned(); NAMES_MAX + 1],
        };
        assert!(check_names(&many).is_err());
    }
}
