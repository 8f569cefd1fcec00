//! The files that are never executed outside a sandbox: those that a sandboxed kernel was allowed to write.
//!
//! Such a kernel may have replaced an environment's `bin/python`, or may have written a `.pth` file, an
//! activation script or a kernelspec, or a program with a usual name in a folder on `PATH`. Inside a sandbox
//! these files may run; outside, they are refused with [`Untrusted`].

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::python;
use super::tools::ToolFolders;
use crate::hint;
use crate::hint::{Hint, Verb, nb};
use crate::kernel::variables::Variables;
use crate::project::project_folders;
use crate::project::written::{AllWritten, WritableFolder};

/// Says that a file is not executed or trusted outside a sandbox.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{role} {} is not used outside a sandbox: a sandboxed kernel of {} was allowed to write {}, and may have put anything there",
    path.display(),
    written.notebook.display(),
    written.folder.display()
)]
pub struct Untrusted {
    /// The file's role for the kernel, for the message.
    role: &'static str,
    path: PathBuf,
    written: Box<WritableFolder>,
}

impl Untrusted {
    /// Returns the commands that help, for a notebook's `nb open`.
    pub fn hints(&self) -> Vec<Hint> {
        let open = || nb(Verb::Open).this();
        let mut hints = vec![hint![
            "start this one in a sandbox too: ",
            open().option("--sandbox")
        ]];
        // A scratch folder has no record, and belongs to its kernel as long as it exists.
        if !self.written.key.is_empty() {
            hints.push(hint![
                "when you have looked at what lies there, or made it anew: ",
                open().option("--trust").word(&*self.written.folder)
            ]);
        }
        hints
    }
}

/// Checks that a file or folder may be executed, trusted or used as a working directory outside a sandbox.
pub fn check(role: &'static str, path: &Path) -> Result<(), Untrusted> {
    let written = AllWritten::known().decides(path);
    written.map_or(Ok(()), |written| Err(untrusted(role, path, written)))
}

/// Checks that a program may be executed outside a sandbox, with the environment in which it lies and the
/// Python from which that was made.
pub fn check_program(program: &Path) -> Result<(), Untrusted> {
    let known = AllWritten::known();
    let fault = |written| Err(untrusted("the program", program, written));
    if let Some(written) = known.decides(program) {
        return fault(written);
    }
    let in_bin = |path: &Path| {
        let bin = path.parent().filter(|bin| bin.ends_with("bin"));
        bin.and_then(Path::parent).map(Path::to_owned)
    };
    // The path as called counts, too, because a venv's Python finds its packages by it.
    let real = program.canonicalize().ok();
    let prefixes = [in_bin(program), real.as_deref().and_then(in_bin)];
    for prefix in prefixes.into_iter().flatten() {
        let base = python::base(&prefix);
        let found = known
            .decides_environment(&prefix)
            .or_else(|| known.decides_environment(base?.parent()?));
        if let Some(written) = found {
            return fault(written);
        }
    }
    Ok(())
}

/// Checks that a kernel may be started outside a sandbox by this command, in this folder, with these
/// variables.
pub fn check_start(
    argv: &[OsString],
    folder: &Path,
    variables: &dyn Variables,
) -> Result<(), Untrusted> {
    if AllWritten::known().entries().is_empty() && !has_scratch(folder) {
        // The usual case, decided quickly.
        let scratch = argv.iter().any(|word| has_scratch(Path::new(word)));
        if !scratch {
            return Ok(());
        }
    }
    if let Some((program, rest)) = argv.split_first() {
        let program = Path::new(program);
        match program.components().count() {
            1 => variables
                .programs(program)
                .first()
                .map_or(Ok(()), |it| check_program(it))?,
            _ => check_program(program)?,
        }
        let files = rest.iter().map(Path::new);
        files
            .filter(|word| word.is_absolute() && word.exists())
            .try_for_each(|word| check("the kernel's file", word))?;
    }
    // Python imports modules from its working directory before installed ones, and R reads its profile there.
    check("the kernel's working directory", folder)?;
    for name in CODE {
        let paths = variables.get(name).unwrap_or_default();
        std::env::split_paths(&paths)
            .filter(|path| path.is_absolute())
            .try_for_each(|path| check("the path in a variable of this shell,", &path))?;
    }
    Ok(())
}

fn has_scratch(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "scratch")
}

/// Variables that name code which every kernel of a language executes.
const CODE: [&str; 8] = [
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "R_PROFILE_USER",
    "R_LIBS_USER",
];

/// Returns the first program of this name on `PATH` that `nb` starts by its name, outside a sandbox.
pub fn on_path(program: &str, variables: &dyn Variables) -> Option<PathBuf> {
    let started = StartedByName::known(variables);
    let mut programs = variables.programs(Path::new(program)).into_iter();
    programs.find(|file| started.may_start(file))
}

/// The programs on `PATH` that may be started by their names: those that no project brings.
///
/// A shell, `direnv` or `npm run` puts folders of a project on `PATH`, and the project's author chose the programs
/// there.
pub struct StartedByName {
    written: AllWritten,
    tools: ToolFolders,
    /// Environments that are active in the shell, and that no tool of the user made.
    active: Vec<PathBuf>,
    /// The folders of the projects on which this process works.
    projects: Vec<PathBuf>,
}

impl StartedByName {
    /// Returns the rule for this process.
    pub fn known(variables: &dyn Variables) -> Self {
        Self::beside(project_folders(), variables)
    }

    fn beside(projects: impl IntoIterator<Item = PathBuf>, variables: &dyn Variables) -> Self {
        let tools = ToolFolders::known(variables);
        let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].map(|name| variables.path(name));
        let mut active: Vec<_> = active.into_iter().flatten().collect();
        active.retain(|prefix| !tools.hold(prefix));
        // The working directory may be one of the system's folders, which is no project.
        let is_system = |folder: &PathBuf| tools.hold(folder) && !folder.join(".git").exists();
        let projects = projects.into_iter().filter(|folder| !is_system(folder));
        Self {
            written: AllWritten::known(),
            active,
            projects: projects.collect(),
            tools,
        }
    }

    /// Says whether a program may be started because of its name and place on `PATH`.
    pub fn may_start(&self, file: &Path) -> bool {
        if !file.is_absolute() {
            return false;
        }
        let real = file.canonicalize().ok();
        let folder = file.parent().map(|folder| folder.canonicalize());
        let folder = folder.and_then(Result::ok);
        // A name with `..` says nothing of where it leads.
        let is_plain = file.components().all(|part| part != Component::ParentDir);
        let named = is_plain.then(|| file.to_owned());
        let places = [named, real, folder];
        let is_projects = |place: &PathBuf| {
            let mut inner = self.active.iter().chain(&self.projects);
            inner.any(|folder| place.starts_with(folder)) || self.is_environment_beside(place)
        };
        !places.iter().flatten().any(is_projects) && self.written.decides(file).is_none()
    }

    /// Says whether a path leads into an environment that lies beside the files of a project, or in a folder above
    /// them: `.venv` or `node_modules`.
    fn is_environment_beside(&self, path: &Path) -> bool {
        let is_environment = |folder: &&Path| {
            folder.ends_with("node_modules")
                || folder.join("pyvenv.cfg").is_file()
                || folder.join("conda-meta").is_dir()
        };
        let environments = path.ancestors().filter(is_environment);
        let mut holders = environments
            .filter(|it| !self.tools.hold(it))
            .filter_map(Path::parent);
        holders.any(|holder| {
            let is_users = self
                .tools
                .home()
                .is_some_and(|home| home.starts_with(holder));
            !is_users
                && self
                    .projects
                    .iter()
                    .any(|project| project.starts_with(holder))
        })
    }
}

fn untrusted(role: &'static str, path: &Path, written: WritableFolder) -> Untrusted {
    Untrusted {
        role,
        path: path.to_owned(),
        written: Box::new(written),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn no_program_of_a_project_is_started_by_its_name() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        let (home, project) = (top.join("home"), top.join("work/clone/notebooks"));
        let own = home.join(".local/bin");
        let hostile = [
            project.join(".venv/bin"),
            project.join("node_modules/.bin"),
            project.join("bin"),
            // An environment above the notebook's folder.
            top.join("work/node_modules/.bin"),
            top.join("work/clone/env/bin"),
            // The active one, wherever it is.
            top.join("elsewhere/bin"),
        ];
        for folder in hostile.iter().chain([&own]) {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("git"), "").unwrap();
        }
        std::fs::write(top.join("work/clone/env/pyvenv.cfg"), "").unwrap();
        let link = top.join("link");
        std::os::unix::fs::symlink(&hostile[0], &link).unwrap();
        let program_link = top.join("links");
        std::fs::create_dir(&program_link).unwrap();
        std::os::unix::fs::symlink(hostile[2].join("git"), program_link.join("git")).unwrap();
        let relative = PathBuf::from("target");
        let folders = hostile.iter().chain([&link, &program_link, &relative]);
        let own = project
            .join("../../..")
            .join(own.strip_prefix(&top).unwrap());
        let path = std::env::join_paths(folders.chain([&own])).unwrap();
        let active = top.join("elsewhere");
        let variables = HashMap::from([
            ("HOME", home.to_str().unwrap()),
            ("PATH", path.to_str().unwrap()),
            ("VIRTUAL_ENV", active.to_str().unwrap()),
        ]);
        let started = StartedByName::beside([project], &variables);
        let programs = variables.programs(Path::new("git"));
        assert_eq!(programs.len(), hostile.len() + 3);
        let may_start = programs.into_iter().filter(|it| started.may_start(it));
        assert_eq!(may_start.collect::<Vec<_>>(), [own.join("git")]);
    }

    #[test]
    fn the_systems_programs_are_started_in_every_folder() {
        let variables = HashMap::from([("HOME", "/home/none"), ("PATH", "/usr/bin:/bin")]);
        for folder in ["/usr", "/usr/bin", "/opt", "/bin"] {
            let started = StartedByName::beside([PathBuf::from(folder)], &variables);
            assert!(started.may_start(Path::new("/bin/sh")), "{folder}");
        }
    }

    #[test]
    fn an_environment_in_the_home_folder_is_the_users() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap();
        let bin = home.join("node_modules/.bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("code"), "").unwrap();
        let variables = HashMap::from([("HOME", home.to_str().unwrap())]);
        let started = StartedByName::beside([home.join("project")], &variables);
        assert!(started.may_start(&bin.join("code")));
    }
}
