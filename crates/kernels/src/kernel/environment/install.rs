//! The commands that install packages into a Python and remove them, by the manager of its environment.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::folder::{Environment, Manager};
use super::python::Python;
use super::trust::on_path;
use crate::hint::shell::{quote, quote_word};
use crate::kernel::foreign_file;
use crate::kernel::variables::Variables;

/// Commands that change the packages of a Python, to be run in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallCommands {
    /// What they do: `install ipykernel`.
    pub purpose: String,
    /// The commands, each with its arguments.
    pub commands: Vec<Vec<String>>,
    /// The interpreter whose packages they change.
    pub python: PathBuf,
}

/// A change of an environment's packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackageChange {
    /// Packages are installed, or get another version.
    Add,
    /// Packages are installed that a project needs for its development only.
    AddForDevelopment,
    /// Packages are removed.
    Remove,
}

impl PackageChange {
    /// Returns the verb for it.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::AddForDevelopment => "install",
            Self::Remove => "remove",
        }
    }
}

impl fmt::Display for InstallCommands {
    /// Shows the commands as one would type them into a shell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let typed = |command: &Vec<String>| {
            let words = command.iter().map(|word| quote_word(word.as_ref()));
            words.collect::<Vec<_>>().join(" ")
        };
        let commands: Vec<_> = self.commands.iter().map(typed).collect();
        f.write_str(&commands.join(" && "))
    }
}

impl InstallCommands {
    /// Returns the commands that make a new environment with ipykernel in a folder.
    pub fn into_new(python: &Path, folder: &Path) -> Self {
        let made = folder.join(".venv");
        let inside = made.join("bin/python");
        let [program, own, new] =
            [python, inside.as_path(), made.as_path()].map(Path::to_string_lossy);
        let venv = [&*program, "-m", "venv", &new].map(str::to_owned);
        let pip = [&*own, "-m", "pip", "install", "ipykernel"].map(str::to_owned);
        Self {
            purpose: "install ipykernel".to_owned(),
            commands: vec![venv.to_vec(), pip.to_vec()],
            python: inside.clone(),
        }
    }

    /// Returns the commands that install ipykernel into an environment's Python.
    ///
    /// A project with a lock file gets it as a development dependency: `uv sync` and `poetry sync` remove
    /// packages that pip has installed. `folder` is where a new environment is made for a system's Python
    /// that accepts no packages.
    pub fn of(
        python: &Python,
        environment: &Environment,
        folder: &Path,
        variables: &dyn Variables,
    ) -> Self {
        // Debian's and Homebrew's own Python accept no packages from pip.
        if environment.manager == Manager::System && python.takes_no_packages() {
            return Self::into_new(&python.executable, folder);
        }
        let change = PackageChange::AddForDevelopment;
        Self::change(change, &["ipykernel"], python, environment, variables)
    }

    /// Returns the commands that change packages of an environment's Python.
    pub fn change(
        change: PackageChange,
        packages: &[&str],
        python: &Python,
        environment: &Environment,
        variables: &dyn Variables,
    ) -> Self {
        let has = |program: &str| on_path(program, variables).is_some();
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let executable = text(&python.executable);
        let is_removal = change == PackageChange::Remove;
        let is_development = change == PackageChange::AddForDevelopment;
        let one = |words: &[&str]| Self {
            purpose: format!("{} {}", change.verb(), packages.join(" ")),
            commands: vec![
                words
                    .iter()
                    .chain(packages)
                    .map(|word| (*word).to_owned())
                    .collect(),
            ],
            python: python.executable.clone(),
        };
        let add = if is_removal { "remove" } else { "add" };
        let uv_pip = || match is_removal {
            true => one(&["uv", "pip", "uninstall", "--python", &executable]),
            false => one(&["uv", "pip", "install", "--python", &executable]),
        };
        let project = environment.project.as_deref();
        match (environment.manager, project) {
            (Manager::Pixi, Some(project)) => {
                one(&["pixi", add, "--manifest-path", &text(project)])
            }
            (Manager::Conda, _) => {
                let program = conda_program(&environment.prefix, variables);
                let prefix = text(&environment.prefix);
                let verb = if is_removal { "remove" } else { "install" };
                let mut words = vec![&*program, verb, "--yes", "--prefix", &prefix];
                // micromamba has no default channel.
                let channel = (Path::new(&program).ends_with("micromamba") && !is_removal)
                    .then(|| channel_of_python(&environment.prefix))
                    .flatten();
                if let Some(channel) = &channel {
                    words.extend(["--channel", channel]);
                }
                one(&words)
            }
            (Manager::Poetry, Some(project)) => {
                let folder = text(project);
                let mut words = vec!["poetry", "--directory", &folder, add];
                words.extend(
                    is_development
                        .then_some(["--group", "dev"])
                        .into_iter()
                        .flatten(),
                );
                one(&words)
            }
            (Manager::Uv, Some(project)) if has("uv") => {
                let folder = text(project);
                let mut words = vec!["uv", add, "--project", &folder];
                words.extend(is_development.then_some("--dev"));
                one(&words)
            }
            (Manager::Uv, None) if has("uv") => uv_pip(),
            _ if !python.has_pip() && has("uv") => uv_pip(),
            _ => {
                let mut whole = match is_removal {
                    true => one(&[&executable, "-m", "pip", "uninstall", "--yes"]),
                    false => one(&[&executable, "-m", "pip", "install"]),
                };
                if !python.has_pip() {
                    let ensured = [&executable, "-m", "ensurepip"].map(str::to_owned);
                    whole.commands.insert(0, ensured.to_vec());
                }
                whole
            }
        }
    }
}

/// Returns the commands that make a project's broken environment again, with ipykernel, as one would type
/// them into a shell.
pub fn anew(environment: &Environment, variables: &dyn Variables) -> String {
    let prefix = quote(&environment.prefix);
    let project = environment.project.as_deref().map(quote);
    let has_uv = on_path("uv", variables).is_some();
    let python = quote(&environment.prefix.join("bin/python"));
    match (environment.manager, project) {
        (Manager::Uv, Some(project)) if has_uv => {
            format!("uv venv --clear {prefix} && uv sync --project {project}")
        }
        (Manager::Uv, None) if has_uv => {
            format!("uv venv --clear {prefix} && uv pip install --python {python} ipykernel")
        }
        (Manager::Pixi, Some(project)) => {
            format!("rm -r {prefix} && pixi install --all --manifest-path {project}")
        }
        (Manager::Poetry, Some(project)) => format!(
            "poetry --directory {project} env remove --all && poetry --directory {project} install"
        ),
        (Manager::Conda, _) => {
            let conda = conda_program(&environment.prefix, variables);
            format!("{conda} install --yes --prefix {prefix} --force-reinstall python ipykernel")
        }
        _ => format!("python3 -m venv --clear {prefix} && {python} -m pip install ipykernel"),
    }
}

/// Returns the program that manages a conda environment on this machine: the program that made it, if it
/// still exists.
fn conda_program(prefix: &Path, variables: &dyn Variables) -> String {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let has = |name: &&str| on_path(name, variables).is_some();
    if let Some(maker) = maker(prefix) {
        let name = PROGRAMS.iter().find(|name| maker.ends_with(name));
        return match name.filter(|name| has(name)) {
            Some(name) => (*name).to_owned(),
            None => text(maker),
        };
    }
    if let Some(name) = PROGRAMS.iter().find(|name| has(name)) {
        return (*name).to_owned();
    }
    let mut names = ["MAMBA_EXE", "CONDA_EXE"].iter();
    let named = names.find_map(|name| variables.path(name));
    let named = named.filter(|program| program.is_file());
    named.map_or("conda".to_owned(), text)
}

/// The programs that make environments of conda's kind.
const PROGRAMS: [&str; 3] = ["mamba", "conda", "micromamba"];

/// Returns the program that last changed a conda environment, according to the environment's history.
fn maker(prefix: &Path) -> Option<PathBuf> {
    let history = foreign_file::read_text(&prefix.join("conda-meta/history")).ok()?;
    let commands = history
        .lines()
        .filter_map(|line| line.strip_prefix("# cmd: "));
    let mut programs = commands.filter_map(|command| command.split(' ').next().map(Path::new));
    let is_known = |path: &&Path| PROGRAMS.iter().any(|name| path.ends_with(name));
    let last = programs.rfind(|path| is_known(path) && path.is_absolute() && path.is_file());
    last.map(Path::to_owned)
}

/// Returns the channel from which the environment's Python came: it has packages that fit this Python.
fn channel_of_python(prefix: &Path) -> Option<String> {
    let entries = std::fs::read_dir(prefix.join("conda-meta")).ok()?;
    let record = entries.flatten().map(|entry| entry.path()).find(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        let version = name.and_then(|name| name.strip_prefix("python-"));
        version.is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit()))
    })?;
    let record: Value = serde_json::from_slice(&foreign_file::read(&record).ok()?).ok()?;
    let url = record.get("url")?.as_str()?;
    // <channel>/<platform>/<file>
    let (folder, _file) = url.rsplit_once('/')?;
    let (channel, _platform) = folder.rsplit_once('/')?;
    // Some URLs contain credentials, which must not be shown.
    if channel.contains('@') || channel.contains("/t/") {
        return None;
    }
    let known = channel.strip_prefix("https://conda.anaconda.org/");
    Some(known.unwrap_or(channel).to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn python(pip: bool, managed: bool) -> Python {
        let fields = serde_json::json!({
            "executable": "/my env/bin/python", "prefix": "/my env", "ipykernel": false,
            "pip": pip, "environment": !managed, "managed": managed,
        });
        serde_json::from_value(fields).unwrap()
    }

    struct World {
        temp: tempfile::TempDir,
        path: String,
    }

    impl World {
        /// Makes a folder of programs that are found on `PATH`.
        fn new(programs: &[&str]) -> Self {
            let temp = tempfile::tempdir().unwrap();
            for program in programs {
                let program = temp.path().join(program);
                std::fs::create_dir_all(program.parent().unwrap()).unwrap();
                std::fs::write(program, "").unwrap();
            }
            let path = temp.path().to_string_lossy().into_owned();
            Self { temp, path }
        }

        fn command(&self, python: &Python, environment: &Environment) -> String {
            let variables = HashMap::from([("PATH", self.path.as_str())]);
            InstallCommands::of(python, environment, Path::new("/work"), &variables).to_string()
        }
    }

    fn environment(manager: Manager, project: Option<&Path>) -> Environment {
        Environment {
            prefix: "/my env".into(),
            manager,
            project: project.map(Path::to_owned),
            source: String::new(),
        }
    }

    #[test]
    fn each_manager_has_its_command() {
        let world = World::new(&["uv", "micromamba"]);
        let pip = python(true, false);
        let command_text = |manager, project: Option<&str>| {
            world.command(&pip, &environment(manager, project.map(Path::new)))
        };
        assert_eq!(
            command_text(Manager::Venv, None),
            "'/my env/bin/python' -m pip install ipykernel"
        );
        assert_eq!(
            command_text(Manager::Uv, None),
            "uv pip install --python '/my env/bin/python' ipykernel"
        );
        assert_eq!(
            command_text(Manager::Uv, Some("/p")),
            "uv add --project /p --dev ipykernel"
        );
        assert_eq!(
            command_text(Manager::Poetry, Some("/p")),
            "poetry --directory /p add --group dev ipykernel"
        );
        assert_eq!(
            command_text(Manager::Conda, None),
            "micromamba install --yes --prefix '/my env' ipykernel"
        );
        assert_eq!(
            command_text(Manager::Pixi, Some("/p")),
            "pixi add --manifest-path /p ipykernel"
        );
    }

    #[test]
    fn without_pip_there_are_other_ways() {
        let without = python(false, false);
        let venv = environment(Manager::Venv, None);
        assert_eq!(
            World::new(&["uv"]).command(&without, &venv),
            "uv pip install --python '/my env/bin/python' ipykernel"
        );
        let nothing = World::new(&[]);
        let ensured =
            "'/my env/bin/python' -m ensurepip && '/my env/bin/python' -m pip install ipykernel";
        assert_eq!(nothing.command(&without, &venv), ensured);
        assert_eq!(
            nothing.command(&without, &environment(Manager::Uv, None)),
            ensured
        );
        let system = environment(Manager::System, None);
        assert_eq!(
            nothing.command(&python(true, true), &system),
            "'/my env/bin/python' -m venv /work/.venv && /work/.venv/bin/python -m pip install ipykernel"
        );
        let other = World::new(&[]);
        assert!(
            other
                .command(&without, &environment(Manager::Conda, None))
                .starts_with("conda install")
        );
    }

    #[test]
    fn micromamba_gets_the_channel_of_the_python() {
        let world = World::new(&["micromamba"]);
        let mut it = environment(Manager::Conda, None);
        it.prefix = world.temp.path().join("ml");
        let meta = it.prefix.join("conda-meta");
        std::fs::create_dir_all(&meta).unwrap();
        std::fs::write(meta.join("python-dateutil-2.9-0.json"), "{}").unwrap();
        let packages = |url: &str| {
            let record = serde_json::json!({ "url": url }).to_string();
            std::fs::write(meta.join("python-3.12.1-0.json"), record).unwrap();
            let command = world.command(&python(false, false), &it);
            command.split_once("/ml ").unwrap().1.to_owned()
        };
        let file = "linux-64/python-3.12.1-0.conda";
        assert_eq!(
            packages(&format!("https://conda.anaconda.org/conda-forge/{file}")),
            "--channel conda-forge ipykernel"
        );
        assert_eq!(
            packages(&format!("https://mirror.example/forge/{file}")),
            "--channel https://mirror.example/forge ipykernel"
        );
        for secret in ["mirror.example/t/abc/forge", "me:abc@mirror.example/forge"] {
            assert_eq!(packages(&format!("https://{secret}/{file}")), "ipykernel");
        }
    }

    #[test]
    fn the_program_that_made_an_environment_is_the_one_to_change_it() {
        let world = World::new(&["conda", "bin/micromamba"]);
        let mut it = environment(Manager::Conda, None);
        it.prefix = world.temp.path().join("ml");
        std::fs::create_dir_all(it.prefix.join("conda-meta")).unwrap();
        let exe = world.temp.path().join("bin/micromamba");
        let exe = exe.to_str().unwrap();
        let command = |path: &str| {
            let variables = HashMap::from([("PATH", path), ("CONDA_EXE", "/bin/sh")]);
            let python = python(false, false);
            let command =
                InstallCommands::of(&python, &it, Path::new("/work"), &variables).to_string();
            command.split_once(" install").unwrap().0.to_owned()
        };
        let both = format!("{0}:{0}/bin", world.path);
        assert_eq!(
            [command(""), command(&world.path), command(&both)],
            ["/bin/sh", "conda", "conda"]
        );
        let history = format!(
            "==> 2026-01-01 00:00:00 <==\n# cmd: {exe} create -n ml\n# conda version: 3.8.0\n\
             ==> 2026-01-02 00:00:00 <==\n# cmd: /gone/conda install x\n"
        );
        std::fs::write(it.prefix.join("conda-meta/history"), history).unwrap();
        // A non-interactive shell has neither micromamba's function nor its variables.
        assert_eq!(
            [command(""), command(&world.path), command(&both)],
            [exe, exe, "micromamba"]
        );
    }
}
