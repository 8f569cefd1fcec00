//! All kernels that could be started for a notebook, wherever they are installed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::thread;

use super::allow_list::SpecAllowList;
use super::ipykernel;
use super::jupyter_paths::JupyterPaths;
use super::kernelspec::{self, InstalledSpec, is_there};
use super::prefix::prefix_in_use;
use crate::hint::{Command, Verb, nb};
use crate::kernel::environment::folder::{Environment, Manager, last_name};
use crate::kernel::environment::install::InstallCommands;
use crate::kernel::environment::probe::{self, NotPython, ProbePolicy};
use crate::kernel::environment::python::Python;
use crate::kernel::environment::{conda, search};
use crate::kernel::variables::Variables;
use crate::project::RealSpec;

/// The place where a kernel was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateSource {
    /// In an environment for the notebook: an active one, or one at or above the notebook's folder.
    AtHand,
    /// By its kernelspec.
    Spec,
    /// The `python3` on `PATH`.
    Path,
    /// Among the environments in conda's list.
    Known,
}

/// A kernel that could be started.
#[derive(Clone, Debug)]
pub struct KernelCandidate {
    /// The spec's name, or the environment's.
    pub name: String,
    /// How it was found, as text for users.
    pub source: String,
    /// The place where it was found.
    pub from: CandidateSource,
    /// The Python, or the spec's folder.
    pub path: PathBuf,
    /// The manager of its environment, if it is in one.
    pub manager: Option<Manager>,
    /// Whether it is conda's `base`.
    pub is_base: bool,
    /// The spec that would be started, or why none can be.
    pub spec: Result<RealSpec, NotStartable>,
}

/// Why a kernel cannot be started.
#[derive(Clone, Debug)]
pub struct NotStartable {
    /// The reason.
    pub why: String,
    /// The commands that help.
    pub install: Option<InstallCommands>,
}

impl KernelCandidate {
    /// Returns the option of `nb open` that chooses it.
    pub fn option(&self) -> (&'static str, String) {
        match self.from {
            CandidateSource::Spec => ("--kernel", self.name.clone()),
            CandidateSource::AtHand | CandidateSource::Path | CandidateSource::Known => {
                ("--python", self.path.to_string_lossy().into_owned())
            }
        }
    }

    /// Returns the command that opens the notebook with it.
    pub fn open(&self) -> Command {
        let (option, value) = self.option();
        let open = nb(Verb::Open).this().option(option);
        open.word(Path::new(&value))
    }

    /// Returns the language of its cells.
    pub fn language(&self) -> &str {
        match &self.spec {
            Ok(spec) if !spec.language.is_empty() => &spec.language,
            _ if self.from == CandidateSource::Spec => "",
            _ => "python",
        }
    }
}

/// Returns the environments for a notebook in `folder`, and all other kernels.
pub fn all(folder: &Path, paths: &JupyterPaths, variables: &dyn Variables) -> Vec<KernelCandidate> {
    let near = search::at_hand(folder, variables);
    let prefix = prefix_in_use(folder, variables);
    // Nothing from the notebook's folder is run just for a list.
    let policy = ProbePolicy::ToolsOnly;
    let mut candidates = of_environments(near, CandidateSource::AtHand, folder, policy, variables);
    let folders = paths.spec_folders(prefix.as_ref());
    let allowed = SpecAllowList::read(paths, prefix.as_ref());
    candidates.extend(of_specs(allowed.filter(kernelspec::kernels(&folders))));
    candidates.extend(pythons_elsewhere(folder, policy, variables));
    let mut seen = HashSet::new();
    candidates.retain(|candidate| seen.insert(candidate.path.clone()));
    candidates
}

/// Returns the kernels that are in no environment for the notebook.
pub(super) fn elsewhere(
    paths: &JupyterPaths,
    policy: ProbePolicy,
    variables: &dyn Variables,
) -> Vec<KernelCandidate> {
    let allowed = SpecAllowList::read(paths, None);
    let specs = kernelspec::kernels(&paths.spec_folders(None));
    let mut candidates = of_specs(allowed.filter(specs));
    candidates.extend(pythons_elsewhere(Path::new("/"), policy, variables));
    candidates
}

/// Returns the `python3` on `PATH` and the environments of conda.
fn pythons_elsewhere(
    folder: &Path,
    policy: ProbePolicy,
    variables: &dyn Variables,
) -> Vec<KernelCandidate> {
    let known = conda::known(variables);
    let base = conda::active_base(variables);
    let on_path = probe::on_path(variables).map(|executable| {
        let prefix = executable.parent().and_then(Path::parent);
        let prefix = prefix.unwrap_or(Path::new("/"));
        (Environment::of(prefix, "python3 on PATH"), executable)
    });
    // An environment that conda knows is listed under conda and not as the Python on PATH.
    let on_path = on_path.filter(|(it, _)| known.iter().all(|other| other.prefix != it.prefix));
    let on_path = Vec::from_iter(on_path);
    let mut candidates = probe_all(on_path, CandidateSource::Path, folder, policy, variables);
    candidates.extend(of_environments(
        known,
        CandidateSource::Known,
        folder,
        policy,
        variables,
    ));
    let active_base = base.map(|base| base.join("bin"));
    for candidate in &mut candidates {
        let mut active = active_base.iter();
        candidate.is_base |= active.any(|bin| candidate.path.starts_with(bin));
    }
    candidates
}

fn of_environments(
    environments: Vec<Environment>,
    from: CandidateSource,
    folder: &Path,
    policy: ProbePolicy,
    variables: &dyn Variables,
) -> Vec<KernelCandidate> {
    let with_python = environments.into_iter();
    let with_python = with_python.filter_map(|it| {
        let executable = it.executable().or_else(|| Some(it.dangling()?.0))?;
        Some((it, executable))
    });
    probe_all(with_python.collect(), from, folder, policy, variables)
}

/// Probes Pythons in parallel: each takes some hundredths of a second.
fn probe_all(
    pythons: Vec<(Environment, PathBuf)>,
    from: CandidateSource,
    folder: &Path,
    policy: ProbePolicy,
    variables: &dyn Variables,
) -> Vec<KernelCandidate> {
    let answers: Vec<_> = thread::scope(|scope| {
        let threads = pythons.iter();
        let threads: Vec<_> = threads
            .map(|(_, executable)| scope.spawn(|| probe::probe(executable, policy, variables)))
            .collect();
        let answers = threads.into_iter().map(|thread| thread.join());
        answers
            .map(|it| it.expect("a probe does not panic"))
            .collect()
    });
    let candidate = |(python, answer): ((Environment, PathBuf), Result<Python, NotPython>)| {
        let (mut environment, mut path) = python;
        let mut name = environment.name();
        if from == CandidateSource::Path {
            // A program on PATH may be a shim that starts another Python.
            if let Ok(python) = &answer {
                environment = Environment::of(&python.prefix, environment.source);
                path = python.executable.clone();
            }
            name = last_name(&path);
        }
        KernelCandidate {
            is_base: environment.manager == Manager::Conda && environment.name() == "base",
            source: environment.source.clone(),
            manager: Some(environment.manager),
            name,
            from,
            path,
            spec: match answer {
                Ok(python) if python.ipykernel => Ok(ipykernel::of_python(&python)),
                Ok(python) => {
                    let install = InstallCommands::of(&python, &environment, folder, variables);
                    Err(NotStartable {
                        why: "it has no ipykernel".to_owned(),
                        install: Some(install),
                    })
                }
                Err(error) => Err(NotStartable {
                    why: error.to_string(),
                    install: None,
                }),
            },
        }
    };
    let probed = pythons.into_iter().zip(answers);
    probed.map(candidate).collect()
}

fn of_specs(installed: Vec<InstalledSpec>) -> Vec<KernelCandidate> {
    let unready = |why: String| NotStartable { why, install: None };
    let usable = |spec: RealSpec| {
        kernelspec::check(&spec).map_err(|error| unready(error.to_string()))?;
        let program = spec.argv.first().cloned().unwrap_or_default();
        match is_there(&spec) {
            true => Ok(spec),
            false => Err(unready(format!("its program {program} is not there"))),
        }
    };
    let with_source = |error: &kernelspec::SpecError| match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    let candidate = |found: InstalledSpec| KernelCandidate {
        source: "kernelspec".to_owned(),
        name: found.name,
        from: CandidateSource::Spec,
        path: found.folder,
        manager: None,
        is_base: false,
        spec: match found.spec {
            Ok(spec) => usable(spec),
            Err(error) => Err(unready(with_source(&error))),
        },
    };
    installed.into_iter().map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_candidate_that_cannot_be_started_has_the_reason() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path();
        let path = home.join("none").to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.to_str().unwrap()), ("PATH", path.as_str())]);
        let paths = JupyterPaths::new(&variables).unwrap();
        let spec = |name: &str, text: &str| {
            let folder = paths.data_dir.join("kernels").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("kernel.json"), text).unwrap();
        };
        spec(
            "a",
            r#"{"argv":["sh","{connection_file}"],"language":"shell"}"#,
        );
        spec("b", r#"{"argv":["/nonexistent/b","{connection_file}"]}"#);
        spec("c", "{");
        spec("nb-shared", r#"{"argv":["nb-proxy","{connection_file}"]}"#);
        let venv = home.join("work/.venv");
        std::fs::create_dir_all(venv.join("bin")).unwrap();
        std::os::unix::fs::symlink("/bin/false", venv.join("bin/python")).unwrap();
        let candidates = all(&home.join("work"), &paths, &variables);
        let candidates: Vec<_> = candidates
            .iter()
            .filter(|it| it.path.starts_with(home))
            .collect();
        let why = |at: usize| match &candidates[at].spec {
            Ok(_) => "",
            Err(unready) => &*unready.why,
        };
        let names: Vec<_> = candidates.iter().map(|it| &*it.name).collect();
        assert_eq!(names, [".venv", "a", "b", "c"]);
        assert!(why(0).contains("not a usable Python"), "{}", why(0));
        assert_eq!(why(1), "");
        assert_eq!(why(2), "its program /nonexistent/b is not there");
        assert!(why(3).contains("is not a kernelspec: EOF"), "{}", why(3));
        assert_eq!(
            candidates[1].open().to_string(),
            "nb open NOTEBOOK --kernel a"
        );
        assert_eq!(
            (candidates[0].language(), candidates[1].language()),
            ("python", "shell")
        );
    }
}
