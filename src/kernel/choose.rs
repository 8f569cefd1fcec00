//! Which kernel a notebook gets.
//!
//! In this order: what was asked for, what its session ran before, what the notebook's metadata
//! names, the Python environment that is active or lies above it, the kernel of another notebook
//! of the project, the Python of the front end that asks, an installed kernelspec, the `python3`
//! on `PATH`. A Python counts only with ipykernel in it; one that was passed over is
//! named, with the command that would have made it count.

use std::path::{Path, PathBuf};

use super::paths::{JupyterPaths, NoHome, Prefix, Variables};
use super::python::{self, NotPython, Python};
use super::spec::{self, SpecError};
use crate::project::RealSpec;

/// What is known about the wanted kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish<'a> {
    /// The spec that was asked for by name.
    pub kernel: Option<&'a str>,
    /// The Python that was asked for.
    pub python: Option<&'a Path>,
    /// The spec that the session ran before.
    pub recorded: Option<&'a RealSpec>,
    /// The name in the notebook's metadata.
    pub named: Option<&'a str>,
    /// The language in the notebook's metadata.
    pub language: Option<&'a str>,
    /// What another notebook of the project runs: its user's choice, where nothing else is known.
    pub neighbour: Option<&'a RealSpec>,
    /// The Python that the front end itself runs on, as a Jupyter server does.
    pub front_end: Option<&'a Path>,
}

/// The chosen kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Its spec.
    pub spec: RealSpec,
    /// What the user should know about how it was chosen.
    pub notes: Vec<String>,
}

/// Why no kernel can be started.
#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    /// No home folder.
    #[error(transparent)]
    NoHome(#[from] NoHome),
    /// The Python that was asked for is none.
    #[error(transparent)]
    NotPython(#[from] NotPython),
    /// The spec is unusable.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The Python has no ipykernel.
    #[error("{} has no ipykernel", python.display())]
    NoIpykernel {
        /// The interpreter.
        python: PathBuf,
        /// The command that installs it.
        install: String,
    },
    /// No Python at all.
    #[error("no Python with ipykernel was found: no active environment, no .venv above {}, no kernelspec, no python3 on PATH", folder.display())]
    NoPython {
        /// The notebook's folder.
        folder: PathBuf,
    },
    /// No spec of that name or language.
    #[error("no kernelspec {wanted} was found")]
    NoSpec {
        /// The name, or the language.
        wanted: String,
        /// The names that exist.
        available: Vec<String>,
    },
    /// The wanted spec is the proxy's.
    #[error("the kernelspec {0} starts nb-proxy, which is no kernel but the way to one")]
    Proxy(String),
}

impl ChooseError {
    /// Returns what mends it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoIpykernel { install, .. } => Some(install.clone()),
            Self::NoPython { folder } => {
                let venv = folder.join(".venv");
                Some(format!(
                    "install Python 3, then: python3 -m venv {} && {} -m pip install ipykernel",
                    python::quote(&venv),
                    python::quote(&venv.join("bin/python"))
                ))
            }
            Self::NotPython(_) => Some("name another with --python PATH".to_owned()),
            Self::NoSpec { available, .. } if available.is_empty() => {
                Some("no kernelspec is installed; name a Python with --python PATH".to_owned())
            }
            Self::NoSpec { available, .. } => Some(format!(
                "choose one with --kernel: {}",
                available.join(", ")
            )),
            Self::Proxy(_) => {
                Some("name a real kernel with --kernel NAME or --python PATH".to_owned())
            }
            Self::NoHome(_) | Self::Spec(_) => None,
        }
    }
}

/// Chooses the kernel for a notebook in `folder`. Runs interpreters, so it takes some time.
pub fn choose(
    wish: Wish<'_>,
    folder: &Path,
    variables: &dyn Variables,
) -> Result<Choice, ChooseError> {
    let paths = JupyterPaths::new(variables)?;
    if let Some(name) = wish.kernel {
        return by_name(name, wish.python, folder, &paths, variables);
    }
    if let Some(path) = wish.python {
        let python = python::probe(path)?;
        return with_kernel(python, folder).map(|python| plain(python.kernelspec()));
    }
    if let Some(spec) = wish
        .recorded
        .filter(|spec| !spec::is_proxy(spec) && is_there(spec))
    {
        return Ok(plain(spec.clone()));
    }
    let mut notes = Vec::new();
    let shared = wish.named.filter(|name| spec::is_shared_name(name));
    // Of a notebook that names the spec of ours for a language, that says the language.
    let shared_language = shared.filter(|_| wish.language.is_none()).and_then(|name| {
        let installed = spec::list(&paths.spec_folders(None)).into_iter();
        let mut languages = installed.map(|spec| spec.language);
        languages.find(|language| spec::shared_name(language).eq_ignore_ascii_case(name))
    });
    let language = wish.language.or(shared_language.as_deref());
    let python_wanted = language.is_none_or(spec::is_python);
    // `python3` names whatever Python is in use; any other name means one spec.
    if let Some(name) = wish
        .named
        .filter(|name| shared.is_none() && !(python_wanted && is_generic(name)))
    {
        match by_name(name, None, folder, &paths, variables) {
            Ok(choice) => return Ok(choice),
            Err(ChooseError::Proxy(_)) => {}
            Err(ChooseError::NoSpec { .. }) if python_wanted => {
                notes.push(format!(
                    "the notebook names the kernelspec {name}, which is not installed here"
                ));
            }
            Err(ChooseError::NoSpec { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if !python_wanted {
        return by_language(language.unwrap_or_default(), &paths, notes);
    }
    any_python(wish, folder, &paths, variables, notes)
}

fn any_python(
    wish: Wish<'_>,
    folder: &Path,
    paths: &JupyterPaths,
    variables: &dyn Variables,
    mut notes: Vec<String>,
) -> Result<Choice, ChooseError> {
    let mut without: Option<Python> = None;
    let active = variables.path("VIRTUAL_ENV");
    let environments = active
        .into_iter()
        .chain(python::nearest_environment(folder));
    for environment in environments {
        let Some(executable) = python::of_environment(&environment) else {
            continue;
        };
        match python::probe(&executable) {
            Ok(python) if python.ipykernel => {
                return Ok(Choice {
                    spec: python.kernelspec(),
                    notes,
                });
            }
            Ok(python) => {
                notes.push(format!(
                    "{} has no ipykernel and was passed over; to use it: {}",
                    environment.display(),
                    python.install_command(folder)
                ));
                without.get_or_insert(python);
            }
            Err(error) => notes.push(error.to_string()),
        }
    }
    let usable = |spec: &&RealSpec| {
        spec::is_python(&spec.language) && !spec::is_proxy(spec) && is_there(spec)
    };
    if let Some(spec) = wish.neighbour.filter(usable) {
        let spec = spec.clone();
        return Ok(Choice { spec, notes });
    }
    if let Some(python) = wish.front_end.and_then(|path| python::probe(path).ok())
        && python.ipykernel
    {
        let spec = python.kernelspec();
        return Ok(Choice { spec, notes });
    }
    let installed = spec::list(&paths.spec_folders(None));
    let of_python =
        |spec: &&RealSpec| spec.language.eq_ignore_ascii_case("python") && is_there(spec);
    let preferred = installed
        .iter()
        .filter(of_python)
        .find(|spec| is_generic(&spec.name));
    if let Some(spec) = preferred.or_else(|| installed.iter().find(of_python)) {
        return Ok(Choice {
            spec: spec.clone(),
            notes,
        });
    }
    if let Some(python) = python::on_path(variables).and_then(|path| python::probe(&path).ok()) {
        if python.ipykernel {
            return Ok(Choice {
                spec: python.kernelspec(),
                notes,
            });
        }
        without.get_or_insert(python);
    }
    match without {
        Some(python) => with_kernel(python, folder).map(|python| plain(python.kernelspec())),
        None => Err(ChooseError::NoPython {
            folder: folder.to_owned(),
        }),
    }
}

fn with_kernel(python: Python, folder: &Path) -> Result<Python, ChooseError> {
    if python.ipykernel {
        return Ok(python);
    }
    let install = python.install_command(folder);
    Err(ChooseError::NoIpykernel {
        python: python.executable,
        install,
    })
}

fn by_name(
    name: &str,
    python: Option<&Path>,
    folder: &Path,
    paths: &JupyterPaths,
    variables: &dyn Variables,
) -> Result<Choice, ChooseError> {
    // Without a Python that was asked for, the active environment's specs count too.
    let prefix = match python {
        Some(path) => Some(python::probe(path)?.prefix),
        None => variables
            .path("VIRTUAL_ENV")
            .or_else(|| python::nearest_environment(folder)),
    };
    let prefix = prefix.map(|path| Prefix::of(&path));
    let folders = paths.spec_folders(prefix.as_ref());
    match spec::find(name, &folders) {
        Some(spec) => Ok(plain(spec?)),
        None if spec::installed(&folders)
            .iter()
            .any(|found| found.name == name.to_lowercase()) =>
        {
            Err(ChooseError::Proxy(name.to_owned()))
        }
        None => Err(ChooseError::NoSpec {
            wanted: name.to_owned(),
            available: spec::list(&folders)
                .into_iter()
                .map(|spec| spec.name)
                .collect(),
        }),
    }
}

fn by_language(
    language: &str,
    paths: &JupyterPaths,
    notes: Vec<String>,
) -> Result<Choice, ChooseError> {
    let installed = spec::list(&paths.spec_folders(None));
    let found = installed
        .iter()
        .find(|spec| spec.language.eq_ignore_ascii_case(language));
    match found {
        Some(spec) => Ok(Choice {
            spec: spec.clone(),
            notes,
        }),
        None => Err(ChooseError::NoSpec {
            wanted: format!("for {language}"),
            available: installed.into_iter().map(|spec| spec.name).collect(),
        }),
    }
}

fn plain(spec: RealSpec) -> Choice {
    Choice {
        spec,
        notes: Vec::new(),
    }
}

fn is_generic(name: &str) -> bool {
    matches!(name, "python3" | "python")
}

/// Says whether a spec's program still exists; one that is looked up on `PATH` is given the chance.
fn is_there(spec: &RealSpec) -> bool {
    let argv = spec::command(spec, Path::new(""));
    argv.first()
        .map(Path::new)
        .is_some_and(|program| program.components().count() == 1 || program.exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// A folder with a stand-in Python that claims to have ipykernel or not.
    fn environment(folder: &Path, ipykernel: bool) -> PathBuf {
        let executable = folder.join("bin/python");
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        let answer = format!(
            "#!/bin/sh\necho '{{\"executable\":\"{0}/bin/python\",\"prefix\":\"{0}\",\
             \"ipykernel\":{ipykernel},\"pip\":true,\"environment\":true,\"managed\":false}}'\n",
            folder.display()
        );
        // Written by a child, so that no other test's fork holds it open for writing (ETXTBSY).
        let written = std::process::Command::new("sh")
            .args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""])
            .args([executable.as_os_str(), answer.as_ref()])
            .status()
            .unwrap();
        assert!(written.success());
        executable
    }

    fn program(choice: &Choice) -> &Path {
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

        fn choose(&self, wish: Wish<'_>, more: &[(&str, &str)]) -> Result<Choice, ChooseError> {
            let mut variables = HashMap::from([("HOME", self.home.as_str())]);
            variables.extend(more.iter().copied());
            choose(wish, &self.work(), &variables)
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
        assert_eq!(program(&world.choose(Wish::default(), &[]).unwrap()), near);
        let active = world.temp.path().join("active");
        let executable = environment(&active, true);
        let set = [("VIRTUAL_ENV", active.to_str().unwrap())];
        assert_eq!(
            program(&world.choose(Wish::default(), &set).unwrap()),
            executable
        );
        environment(&active, false);
        let choice = world.choose(Wish::default(), &set).unwrap();
        assert_eq!(program(&choice), near);
        assert!(
            choice.notes[0].contains("passed over"),
            "{:?}",
            choice.notes
        );
    }

    #[test]
    fn an_environment_without_a_kernel_names_the_command() {
        let world = World::new();
        let executable = environment(&world.work().join(".venv"), false);
        let wish = Wish {
            python: Some(&executable),
            ..Wish::default()
        };
        let error = world.choose(wish, &[]).unwrap_err();
        let command = format!("{} -m pip install ipykernel", executable.display());
        assert_eq!(error.hint(), Some(command));
    }

    #[test]
    fn a_notebook_that_names_the_proxy_gets_a_real_kernel() {
        let world = World::new();
        world.spec(
            "nb-shared",
            r#"{"argv":["/d/nb-proxy","-f","{connection_file}"],"language":"python"}"#,
        );
        let near = environment(&world.work().join(".venv"), true);
        let wish = Wish {
            named: Some("nb-shared"),
            language: Some("python"),
            ..Wish::default()
        };
        assert_eq!(program(&world.choose(wish, &[]).unwrap()), near);
        // Also where it is not installed: nothing is missing then.
        let wish = Wish {
            named: Some("nb-shared-julia"),
            ..wish
        };
        assert!(world.choose(wish, &[]).unwrap().notes.is_empty());
        let wish = Wish {
            kernel: Some("nb-shared"),
            ..Wish::default()
        };
        assert!(matches!(
            world.choose(wish, &[]),
            Err(ChooseError::Proxy(_))
        ));
    }

    #[test]
    fn another_language_gets_its_own_kernel() {
        let world = World::new();
        world.spec("ir", r#"{"argv":["R","{connection_file}"],"language":"R"}"#);
        let named = Wish {
            named: Some("ir"),
            language: Some("R"),
            ..Wish::default()
        };
        assert_eq!(world.choose(named, &[]).unwrap().spec.name, "ir");
        let renamed = Wish {
            named: Some("ir-4.5"),
            ..named
        };
        assert_eq!(world.choose(renamed, &[]).unwrap().spec.name, "ir");
        let shared = Wish {
            named: Some("nb-shared-r"),
            ..Wish::default()
        };
        assert_eq!(world.choose(shared, &[]).unwrap().spec.name, "ir");
        let julia = Wish {
            named: Some("j"),
            language: Some("julia"),
            ..Wish::default()
        };
        let error = world.choose(julia, &[]).unwrap_err();
        assert!(error.to_string().contains("for julia"), "{error}");
        assert_eq!(error.hint().unwrap(), "choose one with --kernel: ir");
    }

    #[test]
    fn what_the_session_ran_before_stays_while_it_exists() {
        let world = World::new();
        environment(&world.work().join(".venv"), true);
        let before = environment(&world.temp.path().join("before"), true);
        let recorded = python::probe(&before).unwrap().kernelspec();
        let wish = Wish {
            recorded: Some(&recorded),
            ..Wish::default()
        };
        assert_eq!(program(&world.choose(wish, &[]).unwrap()), before);
        std::fs::remove_file(&before).unwrap();
        assert_ne!(program(&world.choose(wish, &[]).unwrap()), before);
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
        let spec = python::probe(&neighbour).unwrap().kernelspec();
        let mut wish = Wish {
            neighbour: Some(&spec),
            front_end: Some(&server),
            ..Wish::default()
        };
        let program = |wish| choose(wish, &folder, &variables).unwrap().spec.argv[0].clone();
        assert_eq!(Path::new(&program(wish)), neighbour);
        wish.neighbour = None;
        assert_eq!(Path::new(&program(wish)), server);
        let own = environment(&folder.join(".venv"), true);
        wish.neighbour = Some(&spec);
        assert_eq!(
            Path::new(&program(wish)),
            own,
            "its own environment goes before all"
        );
    }
}
