//! The choice of a notebook's kernel.
//!
//! In this order: the requested kernel, the one that the notebook's session ran before, the one that the
//! notebook's metadata names, the Python environment that is active or lies at or above the notebook, the
//! kernel of another notebook of the project, the Python of the front end that requests the kernel, Jupyter's
//! own `python3`, the `python3` on `PATH`. If only other kernels are left, or conda's `base`, which is active
//! in every shell of many machines, the user is asked.
//!
//! A Python counts only if it has ipykernel. A project's own environment without ipykernel is an error and is
//! not skipped, because it has the notebook's libraries.

use std::path::{Path, PathBuf};

use super::allow_list::SpecAllowList;
use super::candidates::{self, CandidateSource, KernelCandidate};
use super::ipykernel;
use super::jupyter_paths::JupyterPaths;
use super::kernelspec::{self, SpecError, is_there};
use super::prefix::{Prefix, first_prefix, prefix_on_path};
use crate::hint;
use crate::hint::shell::quote;
use crate::hint::{Hint, Verb, nb, option};
use crate::kernel::environment::folder::Environment;
use crate::kernel::environment::install::InstallCommands;
use crate::kernel::environment::probe::{self, NotPython, ProbePolicy};
use crate::kernel::environment::python::Python;
use crate::kernel::environment::{conda, install, search};
use crate::kernel::variables::{NoHome, Variables};
use crate::project::RealSpec;

/// The facts by which a notebook's kernel is chosen.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelRequest<'a> {
    /// The spec that the user requested by name.
    pub kernel: Option<&'a str>,
    /// The Python that the user requested.
    pub python: Option<&'a Path>,
    /// The spec that the session ran before.
    pub recorded: Option<&'a RealSpec>,
    /// The name in the notebook's metadata.
    pub named: Option<&'a str>,
    /// The language in the notebook's metadata.
    pub language: Option<&'a str>,
    /// The spec that another notebook of the project runs.
    pub neighbour: Option<&'a RealSpec>,
    /// The Python that the front end runs on, as a Jupyter server does.
    pub front_end: Option<&'a Path>,
    /// The interpreters that may be run to inspect them.
    pub policy: ProbePolicy,
    /// If a front end starts the kernel without a person's choice: the notebooks of the project that a person has
    /// opened. Nothing is started from a folder that holds none of them.
    pub opened: Option<&'a [PathBuf]>,
}

/// The chosen kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenKernel {
    /// Its spec.
    pub spec: RealSpec,
    /// Why it was chosen.
    pub why: String,
    /// Notes on the choice for the user.
    pub notes: Vec<String>,
    /// The interpreter of the notebook's folder that was left out because no person has chosen it.
    pub left_out: Option<PathBuf>,
}

/// Why no kernel can be started.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    /// No home folder.
    #[error(transparent)]
    NoHome(#[from] NoHome),
    /// The requested Python cannot be used.
    #[error(transparent)]
    NotPython(#[from] NotPython),
    /// The spec is unusable.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The Python has no ipykernel.
    #[error("{} has no ipykernel{}", python.display(), of_project(source_of))]
    NoIpykernel {
        /// The interpreter.
        python: PathBuf,
        /// How it was found.
        source_of: String,
        /// The command that installs it.
        install: Box<InstallCommands>,
    },
    /// The Python of the project's environment was removed.
    #[error(
        "the environment {} cannot be used: {} leads to {}, which is not there",
        environment.prefix.display(),
        link.display(),
        target.display()
    )]
    Dangling {
        /// The environment.
        environment: Box<Environment>,
        /// Its interpreter, a link.
        link: PathBuf,
        /// The path to which the link leads.
        target: PathBuf,
        /// The commands that make the environment again.
        fix: String,
    },
    /// No Python was found.
    #[error("no Python with ipykernel was found: no active environment, none at or above {}, no kernelspec, no python3 on PATH", folder.display())]
    NoPython {
        /// The notebook's folder.
        folder: PathBuf,
    },
    /// More than one kernel could be chosen.
    #[error("{}", ambiguity(candidates))]
    Ambiguous {
        /// All kernels that can be started.
        candidates: Vec<KernelCandidate>,
    },
    /// No spec has this name or language.
    #[error("no kernelspec {wanted} was found")]
    NoSpec {
        /// The name, or the language.
        wanted: String,
        /// The names that exist.
        available: Vec<String>,
    },
    /// The wanted spec is the proxy's.
    #[error("the kernelspec {0} starts nb-proxy, which needs a real kernel behind it")]
    Proxy(String),
}

fn of_project(source: &str) -> String {
    match source.is_empty() {
        true => String::new(),
        false => format!("; it is the project's ({source})"),
    }
}

fn ambiguity(candidates: &[KernelCandidate]) -> String {
    let none = "no environment belongs to the notebook's folder, and ";
    match candidates {
        [only] if only.is_base => {
            format!("{none}conda's base, which is active in this shell, does not count as a choice")
        }
        [_] => format!("{none}one Python elsewhere could run it: name it to use it"),
        all => format!("{none}{} Pythons could run it: say which", all.len()),
    }
}

impl SelectionError {
    /// Returns the commands or options that help.
    pub fn hints(&self) -> Vec<Hint> {
        let one = |hint: Hint| vec![hint];
        let open = || nb(Verb::Open).this();
        let kernel = option(Verb::Open, "--kernel");
        let python = option(Verb::Open, "--python").value("PATH");
        match self {
            Self::NoIpykernel { install, .. } => vec![
                install.to_string().into(),
                hint![
                    open().option("--install"),
                    " runs that; another Python is named with ",
                    python
                ],
            ],
            Self::NoPython { folder } => {
                let venv = folder.join(".venv");
                let text = format!(
                    "install Python 3, then: python3 -m venv {} && {} -m pip install ipykernel",
                    quote(&venv),
                    quote(&venv.join("bin/python"))
                );
                one(text.into())
            }
            Self::Dangling { fix, .. } => vec![
                format!("make it anew: {fix}").into(),
                hint![
                    "or name another Python: ",
                    open().option("--python").word("PATH")
                ],
            ],
            Self::NotPython(_) => one(hint!["name another with ", python]),
            Self::Ambiguous { candidates } => candidates
                .iter()
                .map(|candidate| candidate.open().into())
                .collect(),
            Self::NoSpec { available, .. } => one(match available.is_empty() {
                true => hint!["no kernelspec is installed; name a Python with ", python],
                false => hint!["choose one with ", kernel, ": ", available.join(", ")],
            }),
            Self::Proxy(_) => one(hint![
                "name a real kernel with ",
                kernel.value("NAME"),
                " or ",
                python
            ]),
            Self::Spec(_) => one(hint![nb(Verb::Kernels), " lists those that work"]),
            Self::NoHome(_) => Vec::new(),
        }
    }
}

/// Chooses the kernel for a notebook in `folder`. Takes some time, since it runs the interpreters that
/// `request.policy` allows.
pub fn select(
    request: KernelRequest<'_>,
    folder: &Path,
    variables: &dyn Variables,
) -> Result<ChosenKernel, SelectionError> {
    let selection = Selection {
        request,
        folder,
        paths: JupyterPaths::new(variables)?,
        variables,
        notes: Vec::new(),
    };
    selection.select()
}

/// A selection in progress.
struct Selection<'a> {
    request: KernelRequest<'a>,
    folder: &'a Path,
    paths: JupyterPaths,
    variables: &'a dyn Variables,
    /// Notes for the user on the steps so far.
    notes: Vec<String>,
}

impl Selection<'_> {
    fn select(mut self) -> Result<ChosenKernel, SelectionError> {
        let request = self.request;
        if let Some(name) = request.kernel {
            let spec = self.by_name(name)?;
            return Ok(self.chosen(spec, "it was asked for with --kernel"));
        }
        if let Some(path) = request.python {
            let python = self.named_python(path)?;
            if !python.ipykernel {
                return Err(self.no_ipykernel(&python, &Environment::of(&python.prefix, "")));
            }
            let spec = ipykernel::of_python(&python);
            return Ok(self.chosen(spec, "it was asked for with --python"));
        }
        let usable = |spec: &&RealSpec| !kernelspec::is_proxy(spec) && is_there(spec);
        if let Some(spec) = request.recorded.filter(usable) {
            return Ok(self.chosen(spec.clone(), "the notebook ran it before"));
        }
        let shared = |name: &&str| kernelspec::is_shared_name(name);
        // A notebook that names nb's own spec for a language, and no language, has that language.
        let of_shared = |name: &str| {
            let installed = kernelspec::list(&self.paths.spec_folders(None)).into_iter();
            let mut languages = installed.map(|spec| spec.language);
            languages.find(|it| kernelspec::shared_name(it).eq_ignore_ascii_case(name))
        };
        let language = request.language.map(str::to_owned);
        let language = language.or_else(|| of_shared(request.named.filter(shared)?));
        let language = language.filter(|it| !kernelspec::is_python(it));
        // `python3` means any Python in use; every other name means one spec.
        let is_one_spec = |name: &&str| !(shared(name) || language.is_none() && is_generic(name));
        if let Some(name) = request.named.filter(is_one_spec) {
            match self.by_name(name) {
                Ok(spec) => {
                    let why = format!("the notebook names the kernelspec {name}");
                    return Ok(self.chosen(spec, why));
                }
                Err(SelectionError::NoSpec { .. }) if language.is_none() => {
                    if let Some((spec, why)) = self.by_environments_name(name) {
                        return Ok(self.chosen(spec, why));
                    }
                    self.notes.push(format!(
                        "the notebook names the kernelspec {name}, which is not installed here"
                    ));
                }
                Err(SelectionError::Proxy(_) | SelectionError::NoSpec { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        match language {
            Some(language) => self.by_language(&language),
            None => self.any_python(),
        }
    }

    fn chosen(self, mut spec: RealSpec, why: impl Into<String>) -> ChosenKernel {
        let left_out = self.left_out();
        if !self.may_use(self.folder) {
            ipykernel::import_nothing_of_the_folder(&mut spec);
        }
        ChosenKernel {
            spec,
            why: why.into(),
            notes: self.notes,
            left_out,
        }
    }

    /// Returns whether what lies in a folder may be started.
    fn may_use(&self, folder: &Path) -> bool {
        let holds_one = |opened: &[PathBuf]| opened.iter().any(|it| it.starts_with(folder));
        self.request.opened.is_none_or(holds_one)
    }

    /// Returns the environments for the notebook that may be used.
    fn at_hand(&self) -> Vec<Environment> {
        let folders = self.folder.ancestors().filter(|it| self.may_use(it));
        search::at_hand_in(folders, self.variables)
    }

    /// Returns the interpreter that would be started if everything in the notebook's folder might be.
    fn left_out(&self) -> Option<PathBuf> {
        self.request.opened?;
        let first = search::at_hand(self.folder, self.variables)
            .into_iter()
            .next()?;
        let is_used = self.at_hand().first().is_some_and(|it| *it == first);
        (!is_used).then(|| first.executable()).flatten()
    }

    fn any_python(mut self) -> Result<ChosenKernel, SelectionError> {
        let request = self.request;
        let mut without_ipykernel: Option<(Python, Environment)> = None;
        for environment in self.at_hand() {
            let Some(executable) = environment.executable() else {
                // Another Python would not have the notebook's libraries.
                match environment.dangling() {
                    Some((link, target)) => return Err(self.dangling(environment, link, target)),
                    None => continue,
                }
            };
            match self.probe(&executable) {
                Ok(python) if python.ipykernel => {
                    return Ok(self.chosen(ipykernel::of_python(&python), environment.source));
                }
                Ok(python) => {
                    self.notes.push(format!(
                        "{} has no ipykernel and was passed over; to use it: {}",
                        environment.prefix.display(),
                        self.install(&python, &environment)
                    ));
                    without_ipykernel.get_or_insert((python, environment));
                }
                Err(error) => self.notes.push(error.to_string()),
            }
        }
        let usable = |spec: &&RealSpec| {
            kernelspec::is_python(&spec.language) && !kernelspec::is_proxy(spec) && is_there(spec)
        };
        if let Some(spec) = request.neighbour.filter(usable) {
            return Ok(self.chosen(spec.clone(), "another notebook of the project runs it"));
        }
        let front_end = request.front_end.and_then(|path| self.probe(path).ok());
        if let Some(python) = front_end.filter(|python| python.ipykernel) {
            return Ok(self.chosen(ipykernel::of_python(&python), "the front end runs on it"));
        }
        if let Some((python, environment)) = without_ipykernel {
            return Err(self.no_ipykernel(&python, &environment));
        }
        self.python_elsewhere()
    }

    /// Returns a Python that is unrelated to the notebook's folder, if one has priority over the others.
    fn python_elsewhere(self) -> Result<ChosenKernel, SelectionError> {
        let policy = self.request.policy;
        let mut candidates = candidates::elsewhere(&self.paths, policy, self.variables);
        candidates.retain(|candidate| {
            let spec = candidate.spec.as_ref();
            spec.is_ok_and(|spec| kernelspec::is_python(&spec.language) && is_there(spec))
        });
        let of_jupyter =
            |it: &&KernelCandidate| it.from == CandidateSource::Spec && is_generic(&it.name);
        let on_path = |it: &&KernelCandidate| it.from == CandidateSource::Path && !it.is_base;
        let only = match &*candidates {
            [only] => Some(only).filter(|it| it.from == CandidateSource::Spec),
            _ => None,
        };
        let of_jupyter = candidates.iter().find(of_jupyter);
        let on_path = candidates.iter().find(on_path);
        for (candidate, why) in [
            (
                of_jupyter,
                "it is what Jupyter starts where nothing is named",
            ),
            (
                on_path,
                "it is the python3 on PATH, and nothing nearer was found",
            ),
            (only, "it is the only kernel for Python here"),
        ] {
            if let Some(Ok(spec)) = candidate.map(|it| &it.spec) {
                return Ok(self.chosen(spec.clone(), why));
            }
        }
        if !candidates.is_empty() {
            return Err(SelectionError::Ambiguous { candidates });
        }
        let on_path = probe::on_path(self.variables).and_then(|path| self.probe(&path).ok());
        let base = conda::active_base(self.variables);
        match on_path.filter(|python| base.as_ref() != Some(&python.prefix)) {
            Some(python) => Err(self.no_ipykernel(&python, &Environment::of(&python.prefix, ""))),
            None => Err(SelectionError::NoPython {
                folder: self.folder.to_owned(),
            }),
        }
    }

    fn by_name(&self, name: &str) -> Result<RealSpec, SelectionError> {
        let folders_of = |prefix: Option<&Path>| {
            let prefix = prefix.map(Prefix::of);
            self.paths.spec_folders(prefix.as_ref())
        };
        // If no Python was requested, the specs of the environment for the notebook count, too.
        let prefix = match self.request.python {
            Some(path) => Some(self.named_python(path)?.prefix),
            None => self.at_hand().into_iter().next().map(|it| it.prefix),
        };
        let mut folders = folders_of(prefix.as_deref());
        let mut installed = kernelspec::find(name, &folders);
        if installed.is_none() && prefix.is_none() {
            // Last, because probing the Python on PATH takes time.
            folders = folders_of(prefix_on_path(self.variables).as_deref());
            installed = kernelspec::find(name, &folders);
        }
        if let Some(spec) = installed {
            return Ok(spec?);
        }
        let installed = kernelspec::installed(&folders);
        if installed.iter().any(|it| it.name == name.to_lowercase()) {
            return Err(SelectionError::Proxy(name.to_owned()));
        }
        Err(SelectionError::NoSpec {
            wanted: name.to_owned(),
            available: names(kernelspec::list(&folders)),
        })
    }

    /// Returns the kernel of the conda environment that a notebook names by the spec it had on another
    /// machine: in the form of nb_conda_kernels, or by the name given to `ipykernel install --name`.
    fn by_environments_name(&self, name: &str) -> Option<(RealSpec, String)> {
        let plain = name.strip_prefix("conda-env-").unwrap_or(name);
        let plain = plain.strip_suffix("-py").unwrap_or(plain);
        let mut known = conda::known(self.variables).into_iter();
        let environment = known.find(|it| it.name().eq_ignore_ascii_case(plain))?;
        let python = self.probe(&environment.executable()?).ok()?;
        let spec = python.ipykernel.then(|| ipykernel::of_python(&python))?;
        let prefix = environment.prefix.display();
        let why =
            format!("the notebook names the kernelspec {name}, which {prefix} is called after");
        Some((spec, why))
    }

    fn by_language(self, language: &str) -> Result<ChosenKernel, SelectionError> {
        let prefix = first_prefix(self.at_hand(), self.variables);
        let allowed = SpecAllowList::read(&self.paths, prefix.as_ref());
        let mut installed = kernelspec::list(&self.paths.spec_folders(prefix.as_ref()));
        installed.retain(|spec| allowed.permits(&spec.name));
        let mut specs = installed.iter();
        match specs.find(|spec| spec.language.eq_ignore_ascii_case(language)) {
            Some(spec) => {
                let why = format!("it is the first kernelspec for {language}");
                Ok(self.chosen(spec.clone(), why))
            }
            None => Err(SelectionError::NoSpec {
                wanted: format!("for {language}"),
                available: names(installed),
            }),
        }
    }

    fn probe(&self, executable: &Path) -> Result<Python, NotPython> {
        probe::probe(executable, self.request.policy, self.variables)
    }

    /// Returns the requested Python. A Python that may only be run in its sandbox counts as one with
    /// ipykernel: its start there shows whether it has it.
    fn named_python(&self, path: &Path) -> Result<Python, NotPython> {
        let is_bare = path.components().count() == 1 && !path.exists();
        let programs = is_bare.then(|| self.variables.programs(path));
        let program = programs.and_then(|programs| programs.into_iter().next());
        let path = program.as_deref().unwrap_or(path);
        match self.probe(path) {
            Err(error) if !error.was_run && path.is_file() => {
                let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
                Ok(Python::unprobed(&whole))
            }
            probed => probed,
        }
    }

    /// Returns the error for an environment whose Python is missing, with the commands that make it again.
    fn dangling(&self, environment: Environment, link: PathBuf, target: PathBuf) -> SelectionError {
        SelectionError::Dangling {
            fix: install::anew(&environment, self.variables),
            environment: Box::new(environment),
            link,
            target,
        }
    }

    fn no_ipykernel(&self, python: &Python, environment: &Environment) -> SelectionError {
        SelectionError::NoIpykernel {
            python: python.executable.clone(),
            source_of: environment.source.clone(),
            install: Box::new(self.install(python, environment)),
        }
    }

    fn install(&self, python: &Python, environment: &Environment) -> InstallCommands {
        InstallCommands::of(python, environment, self.folder, self.variables)
    }
}

fn names(specs: Vec<RealSpec>) -> Vec<String> {
    specs.into_iter().map(|spec| spec.name).collect()
}

fn is_generic(name: &str) -> bool {
    matches!(name, "python3" | "python")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Makes a folder with a stand-in Python that claims to have ipykernel or not.
    fn environment(folder: &Path, ipykernel: bool) -> PathBuf {
        let executable = folder.join("bin/python");
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        let answer = format!(
            "#!/bin/sh\necho '{{\"executable\":\"{0}/bin/python\",\"prefix\":\"{0}\",\
             \"ipykernel\":{ipykernel},\"pip\":true,\"environment\":true,\"managed\":false}}'\n",
            folder.display()
        );
        crate::kernel::programs::tests::write_program(&executable, &answer);
        executable
    }

    fn asked(executable: &Path) -> Python {
        probe::probe(executable, ProbePolicy::Any, &HashMap::new()).unwrap()
    }

    fn program(choice: &ChosenKernel) -> &Path {
        Path::new(&choice.spec.argv[0])
    }

    struct World {
        temp: tempfile::TempDir,
        home: String,
    }

    impl World {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let home = temp.path().join("home").to_string_lossy().into_owned();
            std::fs::create_dir_all(temp.path().join("work")).unwrap();
            Self { temp, home }
        }

        fn work(&self) -> PathBuf {
            self.temp.path().join("work")
        }

        fn choose(
            &self,
            request: KernelRequest<'_>,
            more: &[(&str, &str)],
        ) -> Result<ChosenKernel, SelectionError> {
            let mut variables = HashMap::from([("HOME", self.home.as_str())]);
            variables.extend(more.iter().copied());
            select(request, &self.work(), &variables)
        }

        fn spec(&self, name: &str, text: &str) {
            let folder = Path::new(&self.home)
                .join(".local/share/jupyter/kernels")
                .join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("kernel.json"), text).unwrap();
        }
    }

    #[test]
    fn the_active_environment_comes_before_the_one_above_the_notebook() {
        let world = World::new();
        let near = environment(&world.work().join(".venv"), true);
        assert_eq!(
            program(&world.choose(KernelRequest::default(), &[]).unwrap()),
            near
        );
        let active = world.temp.path().join("active");
        let executable = environment(&active, true);
        let set = [("VIRTUAL_ENV", active.to_str().unwrap())];
        assert_eq!(
            program(&world.choose(KernelRequest::default(), &set).unwrap()),
            executable
        );
        environment(&active, false);
        let choice = world.choose(KernelRequest::default(), &set).unwrap();
        assert_eq!(program(&choice), near);
        assert!(
            choice.notes[0].contains("passed over"),
            "{:?}",
            choice.notes
        );
    }

    #[test]
    fn an_environment_whose_python_is_gone_is_no_reason_to_take_another() {
        let world = World::new();
        let venv = world.work().join(".venv");
        std::fs::create_dir_all(venv.join("bin")).unwrap();
        std::fs::write(venv.join("pyvenv.cfg"), "home = /gone/bin\n").unwrap();
        std::os::unix::fs::symlink("/gone/bin/python3.9", venv.join("bin/python3")).unwrap();
        std::os::unix::fs::symlink("python3", venv.join("bin/python")).unwrap();
        let path = environment(&world.temp.path().join("other"), true);
        let path = path.parent().unwrap().to_str().unwrap();
        let error = world
            .choose(KernelRequest::default(), &[("PATH", path)])
            .unwrap_err();
        let message = error.to_string();
        for part in [
            ".venv cannot be used",
            ".venv/bin/python leads to /gone/bin/python3.9",
        ] {
            assert!(message.contains(part), "{message}");
        }
        let venv = venv.display();
        let anew = format!(
            "make it anew: python3 -m venv --clear {venv} && {venv}/bin/python -m pip install ipykernel"
        );
        assert_eq!(error.hints()[0].to_string(), anew);
        // An environment that has its Python comes before it.
        let active = world.temp.path().join("active");
        let executable = environment(&active, true);
        let set = [("VIRTUAL_ENV", active.to_str().unwrap())];
        assert_eq!(
            program(&world.choose(KernelRequest::default(), &set).unwrap()),
            executable
        );
    }

    #[test]
    fn a_python_that_may_not_be_run_yet_is_started_as_it_was_named() {
        let world = World::new();
        let executable = environment(&world.work().join("odd"), false);
        let request = KernelRequest {
            python: Some(&executable),
            policy: ProbePolicy::ToolsOnly,
            ..KernelRequest::default()
        };
        assert_eq!(program(&world.choose(request, &[]).unwrap()), executable);
    }

    #[test]
    fn an_environment_without_a_kernel_names_the_command() {
        let world = World::new();
        let executable = environment(&world.work().join(".venv"), false);
        let request = KernelRequest {
            python: Some(&executable),
            ..KernelRequest::default()
        };
        let error = world.choose(request, &[]).unwrap_err();
        let command = format!("{} -m pip install ipykernel", executable.display());
        assert_eq!(error.hints()[0].to_string(), command);
    }

    #[test]
    fn a_notebook_that_names_the_proxy_gets_a_real_kernel() {
        let world = World::new();
        world.spec(
            "nb-shared",
            r#"{"argv":["/d/nb-proxy","-f","{connection_file}"],"language":"python"}"#,
        );
        let near = environment(&world.work().join(".venv"), true);
        let request = KernelRequest {
            named: Some("nb-shared"),
            language: Some("python"),
            ..KernelRequest::default()
        };
        assert_eq!(program(&world.choose(request, &[]).unwrap()), near);
        // The same if it is not installed: nothing is missing then.
        let request = KernelRequest {
            named: Some("nb-shared-julia"),
            ..request
        };
        assert!(world.choose(request, &[]).unwrap().notes.is_empty());
        let request = KernelRequest {
            kernel: Some("nb-shared"),
            ..KernelRequest::default()
        };
        assert!(matches!(
            world.choose(request, &[]),
            Err(SelectionError::Proxy(_))
        ));
    }

    #[test]
    fn another_language_gets_its_own_kernel() {
        let world = World::new();
        world.spec("ir", r#"{"argv":["R","{connection_file}"],"language":"R"}"#);
        let named = KernelRequest {
            named: Some("ir"),
            language: Some("R"),
            ..KernelRequest::default()
        };
        assert_eq!(world.choose(named, &[]).unwrap().spec.name, "ir");
        let renamed = KernelRequest {
            named: Some("ir-4.5"),
            ..named
        };
        assert_eq!(world.choose(renamed, &[]).unwrap().spec.name, "ir");
        let shared = KernelRequest {
            named: Some("nb-shared-r"),
            ..KernelRequest::default()
        };
        assert_eq!(world.choose(shared, &[]).unwrap().spec.name, "ir");
        let julia = KernelRequest {
            named: Some("j"),
            language: Some("julia"),
            ..KernelRequest::default()
        };
        let error = world.choose(julia, &[]).unwrap_err();
        assert!(error.to_string().contains("for julia"), "{error}");
        assert_eq!(error.hints()[0].to_string(), "choose one with --kernel: ir");
    }

    #[test]
    fn the_sessions_earlier_spec_is_used_while_it_exists() {
        let world = World::new();
        environment(&world.work().join(".venv"), true);
        let before = environment(&world.temp.path().join("before"), true);
        let recorded = ipykernel::of_python(&asked(&before));
        let request = KernelRequest {
            recorded: Some(&recorded),
            ..KernelRequest::default()
        };
        assert_eq!(program(&world.choose(request, &[]).unwrap()), before);
        std::fs::remove_file(&before).unwrap();
        assert_ne!(program(&world.choose(request, &[]).unwrap()), before);
    }

    #[test]
    fn the_projects_kernel_goes_before_the_servers_python_and_that_before_the_path() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("project");
        std::fs::create_dir(&folder).unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let neighbour = environment(&temp.path().join("neighbour"), true);
        let server = environment(&temp.path().join("server"), true);
        let none = environment(&temp.path().join("none"), false);
        let path = none.parent().unwrap().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str()), ("PATH", path.as_str())]);
        let spec = ipykernel::of_python(&asked(&neighbour));
        let mut request = KernelRequest {
            neighbour: Some(&spec),
            front_end: Some(&server),
            ..KernelRequest::default()
        };
        let program = |request| select(request, &folder, &variables).unwrap().spec.argv[0].clone();
        assert_eq!(Path::new(&program(request)), neighbour);
        request.neighbour = None;
        assert_eq!(Path::new(&program(request)), server);
        let own = environment(&folder.join(".venv"), true);
        request.neighbour = Some(&spec);
        assert_eq!(
            Path::new(&program(request)),
            own,
            "its own environment goes before all"
        );
    }

    #[test]
    fn the_projects_environment_without_ipykernel_is_not_replaced_by_another_python() {
        let world = World::new();
        let venv = environment(&world.work().join(".venv"), false);
        let other = environment(&world.temp.path().join("usr"), true);
        let path = other.parent().unwrap().to_str().unwrap().to_owned();
        let error = world
            .choose(KernelRequest::default(), &[("PATH", &path)])
            .unwrap_err();
        let SelectionError::NoIpykernel { python, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(python, &venv);
        assert!(
            error.to_string().contains("it is the project's (.venv in "),
            "{error}"
        );
        assert!(
            error.hints()[0]
                .to_string()
                .contains("pip install ipykernel")
        );
        // A front end's own Python counts, since the user has chosen the kernel in that front end.
        let request = KernelRequest {
            front_end: Some(&other),
            ..KernelRequest::default()
        };
        let choice = world.choose(request, &[("PATH", &path)]).unwrap();
        assert!(choice.notes[0].contains("passed over"), "{choice:?}");
        std::fs::remove_dir_all(world.work().join(".venv")).unwrap();
        let choice = world
            .choose(KernelRequest::default(), &[("PATH", &path)])
            .unwrap();
        assert_eq!(
            (program(&choice), &*choice.why),
            (
                &*other,
                "it is the python3 on PATH, and nothing nearer was found"
            )
        );
    }

    /// Makes a folder an environment of conda.
    fn conda(prefix: &Path) -> PathBuf {
        std::fs::create_dir_all(prefix.join("conda-meta")).unwrap();
        environment(prefix, true)
    }

    #[test]
    fn condas_base_is_no_choice_and_the_candidates_are_listed() {
        let world = World::new();
        let root = Path::new(&world.home).join("miniforge3");
        let base = conda(&root);
        std::fs::create_dir_all(root.join("condabin")).unwrap();
        let bin = root.join("bin").to_string_lossy().into_owned();
        let prefix = root.to_str().unwrap();
        let shell = [
            ("PATH", &*bin),
            ("CONDA_PREFIX", prefix),
            ("CONDA_DEFAULT_ENV", "base"),
        ];
        let asked = || match world.choose(KernelRequest::default(), &shell).unwrap_err() {
            SelectionError::Ambiguous { candidates } => candidates,
            other => panic!("{other}"),
        };
        let candidates = asked();
        assert_eq!(candidates.len(), 1);
        assert_eq!(
            candidates[0].open().to_string(),
            format!("nb open NOTEBOOK --python {}", base.display())
        );
        let message = SelectionError::Ambiguous { candidates }.to_string();
        assert!(message.contains("base, which is active"), "{message}");
        let ml = conda(&root.join("envs/ml"));
        let candidates = asked();
        let names: Vec<_> = candidates.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["ml", "base"]);
        let message = SelectionError::Ambiguous { candidates }.to_string();
        assert!(message.contains("2 Pythons could run it"), "{message}");
        // The notebook may name the environment, which is a choice.
        let named = KernelRequest {
            named: Some("conda-env-ml-py"),
            ..KernelRequest::default()
        };
        let choice = world.choose(named, &shell).unwrap();
        assert_eq!(program(&choice), ml);
        assert!(choice.why.contains("called after"), "{}", choice.why);
        // Jupyter's own spec is a choice, too, and so is an environment that is active by name.
        let active = root.join("envs/ml");
        let shell = [
            ("CONDA_PREFIX", active.to_str().unwrap()),
            ("CONDA_DEFAULT_ENV", "ml"),
        ];
        let choice = world.choose(KernelRequest::default(), &shell).unwrap();
        assert_eq!(
            (program(&choice), &*choice.why),
            (&*ml, "active in this shell (CONDA_PREFIX)")
        );
    }

    #[test]
    fn a_start_that_no_person_chose_uses_nothing_of_folders_that_were_never_opened() {
        let world = World::new();
        let near = environment(&world.work().join(".venv"), true);
        let above = environment(&world.temp.path().join(".venv"), true);
        let server = environment(&world.temp.path().join("server"), true);
        let spec = world.work().join(".venv/share/jupyter/kernels/own");
        std::fs::create_dir_all(&spec).unwrap();
        let text = r#"{"argv":["sh","{connection_file}"],"language":"R"}"#;
        std::fs::write(spec.join("kernel.json"), text).unwrap();
        let opened = |notebooks: &[&str]| -> Vec<PathBuf> {
            let root = world.temp.path();
            notebooks.iter().map(|it| root.join(it)).collect()
        };
        let choose = |opened: &[PathBuf], named, language| {
            let request = KernelRequest {
                opened: Some(opened),
                front_end: Some(&server),
                named,
                language,
                ..KernelRequest::default()
            };
            world.choose(request, &[])
        };
        let choice = choose(&[], Some("nb-shared"), None).unwrap();
        assert_eq!(program(&choice), server);
        assert_eq!(choice.left_out.as_deref(), Some(&*near));
        assert_eq!(choice.spec.argv[1], "-c", "{:?}", choice.spec.argv);
        // To open a notebook is consent to what lies at or above it, and to nothing else.
        for others in [&["a.ipynb"], &["other/a.ipynb"], &["work2/a.ipynb"]] {
            let opened = opened(others);
            let choice = choose(&opened, Some("nb-shared"), None).unwrap();
            assert_eq!(program(&choice), above, "{others:?}");
            assert_eq!(choice.left_out.as_deref(), Some(&*near));
            for (named, language) in [("nb-shared-r", Some("R")), ("own", Some("R"))] {
                let error = choose(&opened, Some(named), language).unwrap_err();
                assert!(matches!(error, SelectionError::NoSpec { .. }), "{error}");
            }
            let choice = choose(&opened, Some("own"), None).unwrap();
            assert_eq!(program(&choice), above);
        }
        let choice = choose(&opened(&["work/deep/a.ipynb"]), None, None).unwrap();
        assert_eq!((program(&choice), &choice.left_out), (&*near, &None));
        assert_eq!(choice.spec.argv[1], "-m");
        let choice = choose(&opened(&["work/a.ipynb"]), Some("own"), None).unwrap();
        assert_eq!(choice.spec.name, "own");
        // An environment that is active in the server's shell was chosen there.
        let active = world.temp.path().join("active");
        let executable = environment(&active, true);
        let request = KernelRequest {
            opened: Some(&[]),
            ..KernelRequest::default()
        };
        let set = [("VIRTUAL_ENV", active.to_str().unwrap())];
        assert_eq!(program(&world.choose(request, &set).unwrap()), executable);
    }

    #[test]
    fn jupyters_own_python_goes_before_the_path_and_several_others_are_asked_for() {
        let world = World::new();
        let path = environment(&world.temp.path().join("usr"), true);
        let bin = path.parent().unwrap().to_str().unwrap().to_owned();
        let text = r#"{"argv":["sh","{connection_file}"],"language":"python"}"#;
        world.spec("python3", text);
        let choose = |more: &[(&str, &str)]| world.choose(KernelRequest::default(), more);
        assert_eq!(choose(&[("PATH", &bin)]).unwrap().spec.name, "python3");
        std::fs::remove_dir_all(Path::new(&world.home).join(".local")).unwrap();
        assert_eq!(program(&choose(&[("PATH", &bin)]).unwrap()), path);
        world.spec("one", text);
        assert_eq!(choose(&[]).unwrap().spec.name, "one");
        world.spec("two", text);
        let error = choose(&[]).unwrap_err();
        assert_eq!(
            error
                .hints()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            [
                "nb open NOTEBOOK --kernel one",
                "nb open NOTEBOOK --kernel two"
            ]
        );
    }
}
