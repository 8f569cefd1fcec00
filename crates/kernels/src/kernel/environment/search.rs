//! Finds the environments for a notebook, nearest first, by reading files without running anything.

use std::path::{Path, PathBuf};

use super::folder::{Environment, is_environment, is_trusted};
use super::{conda, python};
use crate::kernel::variables::Variables;

/// Returns the environments for a notebook in `folder`, the first choice first: the active ones, then those
/// of the folder and the folders above it.
pub fn at_hand(folder: &Path, variables: &dyn Variables) -> Vec<Environment> {
    at_hand_in(folder.ancestors(), variables)
}

/// Returns the active environments, then those of these folders.
pub fn at_hand_in<'a>(
    folders: impl Iterator<Item = &'a Path>,
    variables: &dyn Variables,
) -> Vec<Environment> {
    let mut environments: Vec<Environment> = Vec::new();
    let mut add = |environment: Environment| {
        if !environments
            .iter()
            .any(|it| it.prefix == environment.prefix)
        {
            environments.push(environment);
        }
    };
    active(variables).into_iter().for_each(&mut add);
    for folder in folders {
        of_folder(folder, variables).into_iter().for_each(&mut add);
    }
    environments
}

/// Returns the environments that this shell has activated, except conda's `base`: on many machines it is
/// active in every shell, whatever is being worked on.
pub fn active(variables: &dyn Variables) -> Vec<Environment> {
    let by = |name: &str| {
        let prefix = variables.path(name).filter(|path| path.is_absolute())?;
        let is_there = python::of_environment(&prefix).is_some();
        is_there.then(|| Environment::of(&prefix, format!("active in this shell ({name})")))
    };
    let conda = by("CONDA_PREFIX").filter(|it| !conda::is_base_of(&it.prefix, variables));
    by("VIRTUAL_ENV").into_iter().chain(conda).collect()
}

/// Returns the environments that a folder has for its contents, the usual one first.
fn of_folder(folder: &Path, variables: &dyn Variables) -> Vec<Environment> {
    let source_of = |name: &str| format!("{name} in {}", folder.display());
    let mut environments = Vec::new();
    let is_project = ["pyproject.toml", "uv.lock"].map(|name| folder.join(name).is_file());
    if is_project.contains(&true)
        && let Some(named) = variables.path("UV_PROJECT_ENVIRONMENT")
    {
        let prefix = folder.join(named);
        let source = format!("UV_PROJECT_ENVIRONMENT of {}", folder.display());
        environments.push(Environment {
            project: Some(folder.to_owned()),
            ..Environment::of(&prefix, source)
        });
    }
    let usual = folder.join(".venv");
    if python::of_environment(&usual).is_some() || python::dangling(&usual).is_some() {
        environments.push(Environment::of(&usual, source_of(".venv")));
    }
    environments.extend(pixi_environments(folder));
    let conda = folder.join(".conda");
    if conda.join("conda-meta").is_dir() {
        environments.push(Environment::of(&conda, source_of(".conda")));
    }
    for name in ["venv", "env"] {
        let prefix = folder.join(name);
        if is_environment(&prefix) {
            environments.push(Environment::of(&prefix, source_of(name)));
        }
    }
    let has_python = |it: &Environment| it.executable().is_some() || it.dangling().is_some();
    environments.retain(|it| has_python(it) && is_trusted(&it.prefix));
    environments
}

/// Returns the environments that `pixi` made for a project: `default` first, then by name.
fn pixi_environments(folder: &Path) -> Vec<Environment> {
    let entries = std::fs::read_dir(folder.join(".pixi/envs"));
    let entries = entries.into_iter().flatten().flatten();
    let mut prefixes: Vec<_> = entries.map(|entry| entry.path()).collect();
    prefixes.sort_by_key(|prefix| (!prefix.ends_with("default"), prefix.clone()));
    let named = |prefix: &PathBuf| {
        let name = prefix.file_name().unwrap_or_default().to_string_lossy();
        let source = format!("pixi's environment {name} in {}", folder.display());
        Environment::of(prefix, source)
    };
    prefixes.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::kernel::environment::conda::active_base;
    use crate::kernel::environment::folder::Manager;

    fn make(prefix: &Path, marks: &[&str]) {
        for mark in marks.iter().chain(&["bin/python"]) {
            let file = prefix.join(mark);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
    }

    fn names(environments: &[Environment], root: &Path) -> Vec<(Manager, String)> {
        let summary = |it: &Environment| {
            let prefix = it.prefix.strip_prefix(root).unwrap_or(&it.prefix);
            (it.manager, prefix.to_string_lossy().into_owned())
        };
        environments.iter().map(summary).collect()
    }

    #[test]
    fn the_active_one_comes_first_and_the_nearest_before_those_above() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        let nested = root.join("work/nested");
        std::fs::create_dir_all(&nested).unwrap();
        let conda = ["conda-meta/history"];
        make(&nested.join(".venv"), &["pyvenv.cfg"]);
        make(&root.join("work/.pixi/envs/default"), &conda);
        make(&root.join("work/.pixi/envs/cuda"), &conda);
        make(&root.join("work/env"), &conda);
        make(&root.join("work/venv"), &[]);
        make(&root.join("ml"), &conda);
        make(&root.join("active"), &["pyvenv.cfg"]);
        let [active, ml] = ["active", "ml"].map(|name| root.join(name));
        let variables = HashMap::from([
            ("VIRTUAL_ENV", active.to_str().unwrap()),
            ("CONDA_PREFIX", ml.to_str().unwrap()),
        ]);
        let environments = at_hand(&nested, &variables);
        let expected = [
            (Manager::Venv, "active"),
            (Manager::Conda, "ml"),
            (Manager::Venv, "work/nested/.venv"),
            (Manager::Pixi, "work/.pixi/envs/default"),
            (Manager::Pixi, "work/.pixi/envs/cuda"),
            // A folder "venv" that is not an environment does not count.
            (Manager::Conda, "work/env"),
        ];
        let expected = expected.map(|(manager, path)| (manager, path.to_owned()));
        assert_eq!(names(&environments, root), expected);
        assert_eq!(environments[3].name(), "work");
        assert_eq!(environments[4].name(), "work:cuda");
        assert_eq!(environments[3].project, Some(root.join("work")));
    }

    #[test]
    fn base_is_no_choice_however_it_is_called() {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().join("miniforge3");
        make(&base, &["conda-meta/history"]);
        let prefix = base.to_str().unwrap();
        let active = |more: (&'static str, &str)| {
            let variables = HashMap::from([("CONDA_PREFIX", prefix), more]);
            (active(&variables).len(), active_base(&variables).is_some())
        };
        assert_eq!(active(("X", "")), (1, false));
        assert_eq!(active(("CONDA_DEFAULT_ENV", "base")), (0, true));
        assert_eq!(active(("MAMBA_ROOT_PREFIX", prefix)), (0, true));
        for mark in ["condabin", "pkgs"] {
            std::fs::create_dir(base.join(mark)).unwrap();
            assert_eq!(active(("X", "")), (0, true), "{mark}");
            assert_eq!(Environment::of(&base, "").name(), "base");
            std::fs::remove_dir(base.join(mark)).unwrap();
        }
    }

    #[test]
    fn uvs_environment_may_be_elsewhere_and_names_its_manager() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        make(&root.join("elsewhere"), &["pyvenv.cfg"]);
        make(&root.join(".venv"), &["pyvenv.cfg"]);
        let variables = HashMap::from([("UV_PROJECT_ENVIRONMENT", "elsewhere")]);
        assert_eq!(at_hand(root, &variables).len(), 1);
        std::fs::write(root.join("uv.lock"), "").unwrap();
        let environments = at_hand(root, &variables);
        let summaries = names(&environments[..2], root);
        assert_eq!(summaries[0], (Manager::Venv, "elsewhere".to_owned()));
        assert_eq!(summaries[1], (Manager::Uv, ".venv".to_owned()));
        let alone = root.join("alone/.venv");
        make(&alone, &[]);
        std::fs::write(alone.join("pyvenv.cfg"), "home = /x\nuv = 0.9.1\n").unwrap();
        assert_eq!(Environment::of(&alone, "").manager, Manager::Uv);
        assert_eq!(Environment::of(&alone, "").project, None);
        assert_eq!(
            Environment::of(Path::new("/usr"), "").manager,
            Manager::System
        );
    }
}
