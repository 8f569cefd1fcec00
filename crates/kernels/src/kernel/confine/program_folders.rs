//! The folders that a sandbox shows for a kernel's program.
//!
//! An environment needs more than its own folder: the `bin/python` of a venv is a link to the base Python,
//! and `pyvenv.cfg` names the folder with the base's libraries. Both may be hostile if the environment came
//! with the notebook's folder: they could name the folder of the user's keys. So a folder that they name is
//! shown only if the system or a tool of the user has installed it.

use std::path::{Component, Path, PathBuf};

use crate::kernel::environment::folder::is_environment;
use crate::kernel::environment::python;
use crate::kernel::environment::tools::{SYSTEM, ToolFolders};

/// The rules by which the folders of a program are shown.
#[derive(Clone, Copy, Debug)]
pub struct ProgramFolders<'a> {
    /// The project's root, a real path. It is always shown.
    pub workspace: &'a Path,
    /// The notebook's folder, a real path.
    pub folder: &'a Path,
    /// The folders that the user lets the kernel read and write, as real paths.
    pub allowed: &'a [PathBuf],
    /// The folders of the system's and the user's own tools.
    pub tools: &'a ToolFolders,
    /// Whether the program is named by a file of the notebook's folder, or lies where a sandboxed kernel was
    /// allowed to write.
    pub distrusts: bool,
}

/// Says that an environment cannot be used in a sandbox because it leads to a folder that may not be
/// shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideTarget {
    /// The link or the settings file.
    pub file: PathBuf,
    /// The path that it leads to.
    pub target: PathBuf,
}

impl ProgramFolders<'_> {
    /// Returns the folders that a program needs, as they are named; the paths may lead through links.
    pub fn programs(&self, program: &Path) -> Result<Vec<PathBuf>, OutsideTarget> {
        let is_untrusted = self.distrusts || self.is_of_folder(program);
        let mut list = FolderList {
            shown: self,
            folders: Vec::new(),
        };
        let mut at = program.to_owned();
        let mut from = None;
        // The system follows 40 links at most.
        for _ in 0..40 {
            let folder = self.folder_of(&at);
            match &from {
                Some(_) if is_untrusted => {
                    if self.is_installed(&folder) {
                        list.add(folder);
                    }
                }
                None if is_untrusted => list.add_named(program, folder)?,
                _ => list.add(folder),
            }
            let Ok(target) = std::fs::read_link(&at) else {
                break;
            };
            from = Some(at.clone());
            at = at.parent().unwrap_or(Path::new("/")).join(target);
        }
        if let Ok(real) = program.canonicalize() {
            let folder = self.folder_of(&real);
            if !is_untrusted || self.is_installed(&folder) {
                list.add(folder);
            } else if !list.covers(&real) {
                let file = linked(program).unwrap_or_else(|| program.to_owned());
                return Err(OutsideTarget { file, target: real });
            }
        }
        for prefix in list.folders.clone() {
            self.add_base(&prefix, is_untrusted, &mut list)?;
        }
        Ok(list.folders)
    }

    /// Adds the Python from which a venv was made.
    fn add_base(
        &self,
        prefix: &Path,
        is_untrusted: bool,
        list: &mut FolderList<'_>,
    ) -> Result<(), OutsideTarget> {
        let file = prefix.join("pyvenv.cfg");
        let base = python::base(prefix);
        let Some(base) = base.filter(|base| base.is_absolute()) else {
            return Ok(());
        };
        for python in ["python", "python3"].map(|name| base.join(name)) {
            let Ok(real) = python.canonicalize() else {
                continue;
            };
            for program in [&python, &real] {
                let folder = self.folder_of(program);
                let may = match is_untrusted {
                    true => self.is_installed(&folder),
                    false => is_python(&folder) || self.is_shown(program),
                };
                if may {
                    list.add(folder);
                }
            }
            if is_untrusted && !list.covers(&real) {
                return Err(OutsideTarget { file, target: real });
            }
        }
        Ok(())
    }

    /// Returns whether a path may have come with the notebook's folder: whether it lies in or above that
    /// folder, but is not the user's home or above it, and not where only root writes.
    pub fn is_of_folder(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let own = rustix::process::geteuid().as_raw();
        let is_untrusted = |above: &&Path| {
            let holds_home = self
                .tools
                .home()
                .is_some_and(|home| home.starts_with(above));
            let is_roots = std::fs::metadata(above).is_ok_and(|metadata| metadata.uid() == 0);
            let is_systems = is_roots && own != 0;
            !holds_home && !is_systems && above.parent().is_some()
        };
        let folders = self.folder.ancestors().chain([self.workspace]);
        let folders: Vec<_> = folders.filter(is_untrusted).collect();
        // Checked with the real path, too: the home folders of some systems are reached by a link.
        let prefix = path.parent().and_then(Path::parent);
        let real = prefix.and_then(|prefix| {
            let above = prefix.parent()?.canonicalize().ok()?;
            Some(above.join(prefix.file_name()?))
        });
        let places = [Some(path.to_owned()), real];
        let mut places = places.iter().flatten();
        places.any(|place| folders.iter().any(|folder| place.starts_with(folder)))
    }

    /// Returns whether a path is shown whatever the program is.
    fn is_shown(&self, path: &Path) -> bool {
        let real = path.canonicalize();
        real.is_ok_and(|real| {
            let own = std::iter::once(self.workspace);
            let mut all = own.chain(self.allowed.iter().map(PathBuf::as_path));
            all.any(|folder| real.starts_with(folder))
                || SYSTEM.iter().any(|folder| real.starts_with(folder))
        })
    }

    /// Returns whether a folder is shown anyway, or is a Python that the system or a tool of the user has
    /// installed.
    fn is_installed(&self, folder: &Path) -> bool {
        let real = folder.canonicalize();
        self.is_shown(folder)
            || real.is_ok_and(|real| {
                self.tools.hold(&real) && (is_python(&real) || is_environment(&real))
            })
    }

    /// Returns the folder to show for a program: its environment or installation, else the folder in which it
    /// lies, or the program alone.
    fn folder_of(&self, program: &Path) -> PathBuf {
        let home = self.tools.home();
        let bin = program.parent().unwrap_or(Path::new("/"));
        let prefix = bin.parent().filter(|_| bin.ends_with("bin"));
        let in_home = |path: &Path| home.is_some_and(|home| path.starts_with(home));
        let local = home.map(|home| home.join(".local"));
        let is_whole = |prefix: &&Path| {
            let has_libraries = has_pythons(prefix) || prefix.join("lib/R").exists();
            !in_home(prefix)
                || (local.as_deref() != Some(*prefix) && (is_environment(prefix) || has_libraries))
        };
        let folder = prefix.filter(is_whole).unwrap_or(bin);
        // A program that lies in home itself, or at the root, is shown alone.
        let above_home = home.is_some_and(|home| home.starts_with(folder));
        match above_home || folder.parent().is_none() {
            true => program.to_owned(),
            false => folder.to_owned(),
        }
    }
}

/// The folders found so far.
struct FolderList<'a> {
    shown: &'a ProgramFolders<'a>,
    folders: Vec<PathBuf>,
}

impl FolderList<'_> {
    fn add(&mut self, folder: PathBuf) {
        if !self.folders.contains(&folder) {
            self.folders.push(folder);
        }
    }

    /// Adds the folder of an untrusted program: the environment in which it lies if no link leads there;
    /// otherwise only the program.
    fn add_named(&mut self, program: &Path, folder: PathBuf) -> Result<(), OutsideTarget> {
        let link = linked(&folder);
        if self.shown.is_installed(&folder) || (link.is_none() && is_environment(&folder)) {
            self.add(folder);
        } else if let Some(file) = link {
            let target = folder.canonicalize().unwrap_or(folder);
            return Err(OutsideTarget { file, target });
        } else {
            let real = program
                .canonicalize()
                .unwrap_or_else(|_| program.to_owned());
            if real == program || self.shown.is_installed(&self.shown.folder_of(&real)) {
                self.add(program.to_owned());
            }
        }
        Ok(())
    }

    /// Returns whether a real path lies in what is shown.
    fn covers(&self, real: &Path) -> bool {
        let mut folders = self.folders.iter().filter_map(|it| it.canonicalize().ok());
        self.shown.is_shown(real) || folders.any(|folder| real.starts_with(folder))
    }
}

/// Returns the last link on the way to a path that belongs to this user. Root's links, which are part of a
/// system's folders, do not count.
fn linked(path: &Path) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let plain = path.components().all(|part| part != Component::ParentDir);
    if !plain {
        return Some(path.to_owned());
    }
    let top = |path: &Path| path.parent().is_some_and(|above| above.parent().is_none());
    let links = path.ancestors().filter(|it| it.is_symlink() && !top(it));
    let mut links = links.map(Path::to_owned);
    links.find(|link| {
        let owner = link.symlink_metadata().map(|metadata| metadata.uid());
        rustix::process::geteuid().is_root() || owner.ok() != Some(0)
    })
}

/// Returns whether a folder contains the libraries of any Python.
fn has_pythons(prefix: &Path) -> bool {
    let entries = std::fs::read_dir(prefix.join("lib")).into_iter().flatten();
    let mut names = entries.flatten().map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().starts_with("python"))
}

/// Returns whether a folder is the installation of a Python.
fn is_python(prefix: &Path) -> bool {
    let entries = std::fs::read_dir(prefix.join("lib")).into_iter().flatten();
    let mut libraries = entries.flatten().map(|entry| entry.path());
    libraries.any(|library| library.join("os.py").is_file())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::os::unix::fs::symlink;

    use super::*;

    struct World {
        _temp: tempfile::TempDir,
        home: PathBuf,
        tools: ToolFolders,
    }

    impl World {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let home = temp.path().canonicalize().unwrap().join("home");
            std::fs::create_dir_all(home.join("clone/nb")).unwrap();
            std::fs::create_dir_all(home.join(".ssh")).unwrap();
            std::fs::write(home.join(".ssh/id_rsa"), "secret").unwrap();
            let variables = HashMap::from([("HOME", home.to_str().unwrap())]);
            let tools = ToolFolders::known(&variables);
            Self {
                _temp: temp,
                home,
                tools,
            }
        }

        /// Makes an installed Python.
        fn python(&self, prefix: &str) -> PathBuf {
            let prefix = self.home.join(prefix);
            std::fs::create_dir_all(prefix.join("bin")).unwrap();
            std::fs::create_dir_all(prefix.join("lib/python3.14")).unwrap();
            std::fs::write(prefix.join("lib/python3.14/os.py"), "").unwrap();
            std::fs::write(prefix.join("bin/python3.14"), "").unwrap();
            let _ = symlink("python3.14", prefix.join("bin/python3"));
            prefix
        }

        /// Makes a venv with these settings, whose interpreter is a link to `target`.
        fn venv(&self, prefix: &str, base: &Path, target: &Path) -> PathBuf {
            let prefix = self.home.join(prefix);
            std::fs::create_dir_all(prefix.join("bin")).unwrap();
            let settings = format!("home = {}\n", base.display());
            std::fs::write(prefix.join("pyvenv.cfg"), settings).unwrap();
            let _ = std::fs::remove_file(prefix.join("bin/python"));
            symlink(target, prefix.join("bin/python")).unwrap();
            prefix
        }

        /// Returns the folders shown for a program, for a notebook in `clone/nb`, which is also the project.
        fn shown(&self, program: &Path) -> Result<Vec<PathBuf>, OutsideTarget> {
            self.shown_with(program, &[], false)
        }

        fn shown_with(
            &self,
            program: &Path,
            allowed: &[PathBuf],
            distrusts: bool,
        ) -> Result<Vec<PathBuf>, OutsideTarget> {
            let shown = ProgramFolders {
                workspace: &self.home.join("clone/nb"),
                folder: &self.home.join("clone/nb"),
                allowed,
                tools: &self.tools,
                distrusts,
            };
            shown.programs(program)
        }
    }

    #[test]
    fn an_environment_comes_with_the_python_that_it_was_made_from() {
        let world = World::new();
        // Base Pythons of pyenv, uv and conda.
        for base in [
            ".pyenv/versions/3.14",
            ".local/share/uv/python/cpython-3.14",
            "miniforge3",
        ] {
            let base = world.python(base);
            for place in ["clone/.venv", "clone/nb/.venv", "envs/mine"] {
                let env = world.venv(place, &base.join("bin"), &base.join("bin/python3"));
                let folders = world.shown(&env.join("bin/python")).unwrap();
                assert_eq!(folders, [env, base.clone()]);
            }
        }
        let base = world.python("pythons/3.14");
        let env = world.venv("envs/own", &base.join("bin"), &base.join("bin/python3"));
        assert_eq!(world.shown(&env.join("bin/python")).unwrap(), [env, base]);
        let env = world.venv("clone/.venv", "/usr/bin".as_ref(), "/usr/bin/env".as_ref());
        let folders = world.shown(&env.join("bin/python")).unwrap();
        assert_eq!(folders[0], env);
        assert!(
            folders[1..].iter().all(|it| it.starts_with("/usr")),
            "{folders:?}"
        );
    }

    #[test]
    fn an_environment_of_the_folder_shows_nothing_that_its_files_name() {
        let world = World::new();
        let base = world.python(".pyenv/versions/3.14");
        let [bin, python] = ["bin", "bin/python3"].map(|name| base.join(name));
        let home = &world.home;
        // A link to a key would show the folder of the key.
        let key = home.join(".ssh/id_rsa");
        let env = world.venv("clone/.venv", &bin, &key);
        let program = env.join("bin/python");
        assert_eq!(world.shown(&program).unwrap_err().target, key);
        // The same through a tool's folder.
        std::fs::create_dir_all(home.join(".ssh/bin")).unwrap();
        std::fs::write(home.join(".ssh/bin/python3"), "").unwrap();
        let around = home.join(".pyenv/versions/../../.ssh/id_rsa");
        world.venv("clone/.venv", &bin, &around);
        assert!(world.shown(&program).is_err());
        // The settings name the folder, alone or disguised as an installation.
        world.venv("clone/.venv", &home.join(".ssh/bin"), &python);
        assert!(world.shown(&program).is_err());
        world.python("work");
        world.venv("clone/.venv", &home.join("work/bin"), &python);
        let out = world.shown(&program).unwrap_err();
        assert_eq!(out.file, env.join("pyvenv.cfg"));
        // The user may allow the folder to be read.
        let allowed = [home.join("work")];
        assert!(world.shown_with(&program, &allowed, false).is_ok());
        // A link in place of the environment.
        std::fs::rename(&env, home.join("other")).unwrap();
        symlink(home.join("other"), &env).unwrap();
        let out = world.shown(&program).unwrap_err();
        assert_eq!(out.file, env);
    }

    #[test]
    fn files_that_a_sandboxed_kernel_could_write_are_trusted_no_more_than_the_folder() {
        let world = World::new();
        let base = world.python("pythons/3.14");
        let env = world.venv("envs/mine", &base.join("bin"), &base.join("bin/python3"));
        let program = env.join("bin/python");
        assert_eq!(world.shown(&program).unwrap(), [env, base.clone()]);
        assert!(world.shown_with(&program, &[], true).is_err());
        assert!(world.shown_with(&program, &[base], true).is_ok());
    }

    #[test]
    fn a_program_in_home_takes_nothing_of_home_along() {
        let world = World::new();
        let home = &world.home;
        for folder in ["bin", ".local/bin", ".local/lib/python3.11", "lib/python3"] {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        for program in ["bin/deno", ".local/bin/deno", "deno"] {
            std::fs::write(home.join(program), "").unwrap();
        }
        let of = |name: &str| world.shown(&home.join(name)).unwrap();
        // Home looks like an environment here, but is none.
        assert_eq!(of("bin/deno"), [home.join("bin/deno")]);
        assert_eq!(of(".local/bin/deno"), [home.join(".local/bin")]);
        assert_eq!(of("deno"), [home.join("deno")]);
    }
}
