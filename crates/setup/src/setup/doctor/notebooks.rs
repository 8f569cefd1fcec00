//! Checks of the notebook and its project: the kernel it would get, the recorded state, and
//! notebooks in git that do not run for others.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Check;
use crate::editing::content::read_notebook;
use crate::editing::git;
use crate::editing::notebook_file::NotebookFile;
use crate::hint::Joint;
use crate::hint::shell::quote;
use crate::kernel::environment::python;
use crate::kernel::environment::tools::ToolFolders;
use crate::kernel::environment::trust;
use crate::kernel::spec;
use crate::kernel::spec::candidates::CandidateSource;
use crate::kernel::spec::selection::SelectionError;
use crate::kernel::variables::Variables;
use crate::lifecycle::available::available;
use crate::notebook::{Cell, CellType, NamedKernel};
use crate::project::{Project, RealSpec};
use crate::task::causes::with_causes;

/// The oldest major version of ipykernel that works: it answers on control while a cell runs.
const OLDEST_IPYKERNEL: u32 = 6;

/// Checks the project's state.
pub(super) fn project(notebook: &Path) -> Check {
    const ABOUT: &str = "project";
    let Some(project) = Project::find(notebook) else {
        return Check::good(ABOUT, "none here yet; nb open makes one");
    };
    match project.state() {
        Ok(state) => {
            let notebooks = match state.sessions.len() {
                1 => "1 notebook".to_owned(),
                count => format!("{count} notebooks"),
            };
            Check::good(ABOUT, format!("{} ({notebooks})", project.root().display()))
        }
        Err(error) => {
            let file = quote(&project.state_file());
            let fix = format!("mv {file} {file}.damaged, then nb open each notebook again");
            Check::bad(ABOUT, with_causes(&error), fix)
        }
    }
}

/// Checks that the notebook would get a kernel, which one, and which others are damaged.
pub(super) fn kernel(notebook: &Path, variables: &dyn Variables) -> Vec<Check> {
    const ABOUT: &str = "kernel";
    let kernels = match available(notebook, variables) {
        Ok(kernels) => kernels,
        Err(error) => {
            let fix = "repair the file, or name another notebook";
            return vec![Check::bad(ABOUT, with_causes(&error), fix)];
        }
    };
    let mut checks = Vec::new();
    match &kernels.chosen {
        Ok(choice) => {
            let program = choice.spec.argv.first().map_or("?", String::as_str);
            let version = ipykernel_version(&choice.spec, variables);
            let named = version.as_ref().map(|it| format!(", ipykernel {it}"));
            let named = named.unwrap_or_default();
            let text = format!(
                "{} ({program}{named}): {}",
                choice.spec.display_name, choice.why
            );
            let major = version.and_then(|it| it.split('.').next()?.parse::<u32>().ok());
            checks.push(match major {
                Some(major) if major < OLDEST_IPYKERNEL => Check::bad(
                    ABOUT,
                    format!("{text}; it is too old: it answers no request while a cell runs"),
                    format!(
                        "{} -m pip install --upgrade ipykernel",
                        quote(Path::new(program))
                    ),
                ),
                _ => Check::good(ABOUT, text),
            });
        }
        Err(error) => {
            let hints = error.hints().into_iter();
            let hint = match error {
                SelectionError::Ambiguous { .. } => {
                    hints.reduce(|all, hint| all.and(Joint::Or).and(hint))
                }
                _ => hints.take(1).next(),
            };
            let hint = hint.unwrap_or_default();
            checks.push(Check::bad(ABOUT, with_causes(error), hint));
        }
    }
    for (folder, error) in &kernels.unreadable {
        let text = format!(
            "the kernelspecs in {} cannot be read: {error}",
            folder.display()
        );
        checks.push(Check::bad(
            ABOUT,
            text,
            format!("as its owner: chmod a+rx {}", quote(folder)),
        ));
    }
    let damaged = kernels
        .candidates
        .iter()
        .filter(|candidate| candidate.from == CandidateSource::Spec);
    for candidate in damaged {
        if let Err(unready) = &candidate.spec {
            let text = format!("the kernelspec {}: {}", candidate.name, unready.why);
            let fix = format!("mend or remove {}", candidate.path.display());
            checks.push(Check::note(ABOUT, text, fix));
        }
    }
    checks
}

/// The packages that bring IPython's magic for cells of SQL, and what a cell runs to load each.
const SQL_MAGICS: [(&str, &str); 3] = [
    ("jupysql", "%load_ext sql"),
    ("ipython_sql", "%load_ext sql"),
    ("magic_duckdb", "%load_ext magic_duckdb"),
];

/// Checks that the kernel has the magic of a notebook with cells of SQL, and that a cell loads it.
pub(super) fn sql(notebook: &Path, variables: &dyn Variables) -> Option<Check> {
    const ABOUT: &str = "sql";
    let document = NotebookFile::of(notebook).ok()?.read().ok()?;
    let cells = document.cells().iter();
    let code = cells.filter(|cell| cell.cell_type() == CellType::Code);
    let code: Vec<_> = code.map(Cell::source).collect();
    let mut lines = code.iter().flat_map(|source| source.lines());
    lines.find(|line| line.starts_with("%%sql") || line.starts_with("%sql "))?;
    let kernels = available(notebook, variables).ok()?;
    let program = PathBuf::from(kernels.chosen.ok()?.spec.argv.first()?);
    let installed = SQL_MAGICS.iter().find_map(|(package, load)| {
        Some((python::package_version(&program, package)?, package, load))
    });
    let Some((version, package, load)) = installed else {
        // Of an environment whose files do not show its packages nothing is known.
        python::package_version(&program, "ipykernel")?;
        let program = quote(&program);
        let text = format!("the notebook has cells of SQL, and {program} has no magic for them");
        let fix = format!(
            "{program} -m pip install jupysql, then {} in a cell",
            SQL_MAGICS[0].1
        );
        return Some(Check::bad(ABOUT, text, fix));
    };
    let text = format!("{package} {version}");
    let is_loaded = code.iter().any(|source| source.contains("load_ext"));
    Some(match is_loaded {
        true => Check::good(ABOUT, text),
        false => Check::note(
            ABOUT,
            format!("{text} is installed, and no cell loads it"),
            format!("{load} in a cell above the first one of SQL"),
        ),
    })
}

/// Returns the version of a kernelspec's ipykernel. If no files show it, the kernelspec's Python is
/// run, but only if it belongs to the system or to one of the user's tools.
fn ipykernel_version(spec: &RealSpec, variables: &dyn Variables) -> Option<String> {
    let argv = spec::command(spec, Path::new(""));
    let runs_it = |argument: &std::ffi::OsString| argument.to_string_lossy().contains("ipykernel");
    if !argv.iter().any(runs_it) {
        return None;
    }
    let program = Path::new(argv.first()?);
    if let Some(version) = python::package_version(program, "ipykernel") {
        return Some(version);
    }
    let is_own = ToolFolders::known(variables).hold_program(program);
    if !is_own || trust::check_program(program).is_err() {
        return None;
    }
    let question = "import importlib.metadata as m; print(m.version('ipykernel'))";
    let out = Command::new(program)
        .args(["-c", question])
        .env_remove("PYTHONPATH")
        // A module in the notebook's folder must not replace an installed one.
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let version = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    (out.status.success() && !version.is_empty()).then_some(version)
}

/// Finds notebooks in git that name nb's kernelspec: they do not run where nb is not installed, at
/// colleagues, in CI or with papermill.
pub(super) fn tracked(notebook: &Path) -> Vec<Check> {
    const ABOUT: &str = "git";
    let folder = match Project::find(notebook) {
        Some(project) => project.root().to_owned(),
        None => notebook.parent().unwrap_or(Path::new("/")).to_owned(),
    };
    let named = tracked_notebooks(&folder);
    let named = named.iter().filter(|path| names_ours(&folder.join(path)));
    named
        .map(|path| {
            Check::bad(
                ABOUT,
                format!(
                    "{} is tracked and names the kernelspec {}: it does not run where nb is not installed",
                    path.display(),
                    spec::SHARED
                ),
                format!("nb fmt --write {}", quote(path)),
            )
        })
        .collect()
}

/// Returns the notebooks that git tracks below a folder; none if there is no git.
fn tracked_notebooks(folder: &Path) -> Vec<PathBuf> {
    let Some(mut git) = git::command() else {
        return Vec::new();
    };
    let listed = git
        .args(["ls-files", "-z", "--", "*.ipynb"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let Ok(listed) = listed.map(|out| out.stdout) else {
        return Vec::new();
    };
    let paths = listed
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty());
    paths
        .map(|path| PathBuf::from(String::from_utf8_lossy(path).into_owned()))
        .collect()
}

fn names_ours(notebook: &Path) -> bool {
    let named = read_notebook(notebook)
        .ok()
        .and_then(|text| NamedKernel::read(&text).ok());
    let named = named.and_then(|named| named.kernelspec);
    named.is_some_and(|name| spec::is_shared_name(&name))
}
