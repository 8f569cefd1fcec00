//! A Python interpreter, and what the files of its environment show about it, without running it.
//!
//! This is faster than running the interpreter, and it executes nothing in the environment: every start of
//! Python would execute the environment's `.pth` files.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::kernel::foreign_file;

/// A Python interpreter and its properties.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Python {
    /// `sys.executable`.
    pub executable: PathBuf,
    /// `sys.prefix`.
    pub prefix: PathBuf,
    /// Whether it can run as a kernel.
    pub ipykernel: bool,
    pip: bool,
    environment: bool,
    managed: bool,
}

impl Python {
    /// Returns an interpreter that was neither inspected nor run, as if it had ipykernel: its start in a
    /// sandbox shows whether that is true.
    pub fn unprobed(executable: &Path) -> Self {
        let bin = executable.parent().filter(|bin| bin.ends_with("bin"));
        let prefix = bin.and_then(Path::parent).unwrap_or(Path::new("/"));
        Self {
            executable: executable.to_owned(),
            prefix: prefix.to_owned(),
            ipykernel: true,
            pip: false,
            environment: false,
            managed: false,
        }
    }

    /// Returns whether pip is in it.
    pub fn has_pip(&self) -> bool {
        self.pip
    }

    /// Returns whether it is a system's own Python, which only the system's package manager may change.
    pub fn takes_no_packages(&self) -> bool {
        !self.environment && (self.managed || !self.pip)
    }
}

/// The possible paths of an environment's interpreter.
const NAMES: [&str; 2] = ["bin/python", "bin/python3"];

/// Returns the interpreter of a folder that is an environment.
pub fn of_environment(folder: &Path) -> Option<PathBuf> {
    let mut named = NAMES.iter().map(|name| folder.join(name));
    named.find(|path| path.is_file())
}

/// Returns an environment's interpreter that is a link to a missing program, and the path to which it leads.
pub fn dangling(folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut named = NAMES.iter().map(|name| folder.join(name));
    let link = named.find(|path| path.is_symlink() && !path.exists())?;
    let mut at = link.clone();
    // Finds the last link of the chain, whose target was removed. The limit is the system's own.
    for _ in 0..40 {
        let Ok(target) = std::fs::read_link(&at) else {
            break;
        };
        at = at.parent().unwrap_or(Path::new("/")).join(target);
    }
    of_environment(folder).is_none().then_some((link, at))
}

/// The layout of an environment, from its files.
struct Layout {
    prefix: PathBuf,
    /// Whether its packages come from a base Python, as in a venv.
    has_base: bool,
    /// The folders that contain its packages, its own first.
    sites: Vec<PathBuf>,
    library: PathBuf,
}

/// Inspects the environment of an interpreter; returns `None` if it has none, or its files do not tell
/// enough. A package that is not found may still be installed, since code in a `.pth` file may add folders.
pub(super) fn inspect(executable: &Path) -> Option<Python> {
    let layout = Layout::of(executable)?;
    Some(Python {
        executable: executable.to_owned(),
        ipykernel: layout.has("ipykernel_launcher.py"),
        pip: layout.has("pip/__init__.py"),
        environment: layout.has_base,
        managed: layout.library.join("EXTERNALLY-MANAGED").is_file(),
        prefix: layout.prefix,
    })
}

/// Returns the version of an interpreter's package, if its environment's files show it.
pub fn package_version(executable: &Path, package: &str) -> Option<String> {
    let sites = Layout::of(executable)?.sites;
    let entries = sites.iter().filter_map(|site| std::fs::read_dir(site).ok());
    entries.flatten().flatten().find_map(|entry| {
        let name = entry.file_name();
        let rest = name.to_str()?.strip_prefix(package)?.strip_prefix('-')?;
        rest.strip_suffix(".dist-info").map(str::to_owned)
    })
}

/// Returns the folder of the Python from which a venv was made, according to its `pyvenv.cfg`.
pub fn base(prefix: &Path) -> Option<PathBuf> {
    let settings = foreign_file::read_text(&prefix.join("pyvenv.cfg")).ok()?;
    setting(&settings, "home").map(PathBuf::from)
}

/// Returns a value of `pyvenv.cfg`.
pub(in crate::kernel) fn setting<'a>(settings: &'a str, key: &str) -> Option<&'a str> {
    let pairs = settings.lines().filter_map(|line| line.split_once('='));
    { pairs }
        .find(|(name, _)| name.trim().eq_ignore_ascii_case(key))
        .map(|(_, value)| value.trim())
}

impl Layout {
    fn of(executable: &Path) -> Option<Self> {
        let bin = executable.parent().filter(|bin| bin.ends_with("bin"))?;
        let prefix = bin.parent()?.to_owned();
        let settings = foreign_file::read_text(&prefix.join("pyvenv.cfg")).ok();
        if settings.is_none() && !prefix.join("conda-meta").is_dir() {
            return None;
        }
        let settings = settings.as_deref();
        // Any other kind of program must be run to find out.
        let real = executable.canonicalize().ok()?;
        let mode = std::fs::metadata(&real).ok()?.permissions().mode();
        let version = real.file_name()?.to_str()?.strip_prefix("python")?;
        if mode & 0o111 == 0 {
            return None;
        }
        let recorded_version = || {
            let all = settings?;
            let whole = setting(all, "version").or_else(|| setting(all, "version_info"))?;
            let mut parts = whole.split('.');
            Some(format!("{}.{}", parts.next()?, parts.next()?))
        };
        // The folder of `python3.13t` has this name, too.
        let version = match version.contains('.') {
            true => version.to_owned(),
            false => recorded_version()?,
        };
        let name = format!("python{version}");
        let library = |prefix: &Path| prefix.join("lib").join(&name);
        let mut sites = vec![library(&prefix).join("site-packages")];
        sites.push(prefix.join("lib64").join(&name).join("site-packages"));
        let shares = settings.and_then(|it| setting(it, "include-system-site-packages"));
        let base = settings.and_then(|it| setting(it, "home"));
        let base = base.and_then(|bin| Path::new(bin).parent());
        if let Some(base) =
            base.filter(|_| shares.is_some_and(|it| it.eq_ignore_ascii_case("true")))
        {
            sites.push(library(base).join("site-packages"));
            // Debian's folders.
            sites.push(base.join("lib/python3/dist-packages"));
            sites.push(library(&base.join("local")).join("dist-packages"));
        }
        let named: Vec<_> = sites.iter().flat_map(|site| named_in(site)).collect();
        sites.extend(named);
        Some(Self {
            library: base.map_or_else(|| library(&prefix), library),
            has_base: settings.is_some(),
            sites,
            prefix,
        })
    }

    fn has(&self, file: &str) -> bool {
        self.sites.iter().any(|site| site.join(file).is_file())
    }
}

/// Returns the folders that a folder's `.pth` files name; lines of code in them are not run.
fn named_in(site: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(site).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|it| it == "pth"));
    let texts: Vec<_> = files
        .filter_map(|path| foreign_file::read_text(&path).ok())
        .collect();
    let lines = texts.iter().flat_map(|text| text.lines().map(str::trim));
    let named = lines.filter(|line| {
        let is_code = line.starts_with("import ") || line.starts_with("import\t");
        !line.is_empty() && !line.starts_with('#') && !is_code
    });
    named
        .map(|line| site.join(line))
        .filter(|it| it.is_dir())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::environment::probe::{ProbePolicy, probe};
    use crate::kernel::variables::ProcessVariables;

    /// Makes an environment whose Python leaves a mark when it is run.
    fn environment(prefix: &Path, settings: Option<&str>) -> PathBuf {
        let site = prefix.join("lib/python3.12/site-packages");
        for folder in [&site, &prefix.join("bin")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        match settings {
            Some(settings) => std::fs::write(prefix.join("pyvenv.cfg"), settings).unwrap(),
            None => std::fs::create_dir_all(prefix.join("conda-meta")).unwrap(),
        }
        let real = prefix.join("bin/python3.12");
        std::fs::write(&real, "#!/bin/sh\necho ran > \"$0.ran\"\n").unwrap();
        std::fs::set_permissions(&real, PermissionsExt::from_mode(0o755)).unwrap();
        let python = prefix.join("bin/python");
        let _ = std::os::unix::fs::symlink("python3.12", &python);
        python
    }

    fn put(prefix: &Path, file: &str, text: &str) {
        let file = prefix.join("lib/python3.12/site-packages").join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    #[test]
    fn an_environment_is_inspected_without_running_it() {
        let temp = tempfile::tempdir().unwrap();
        for settings in [None, Some("home = /usr/bin\nversion = 3.12.3\n")] {
            let prefix = temp.path().join(settings.map_or("conda", |_| "venv"));
            let python = environment(&prefix, settings);
            let seen = inspect(&python).unwrap();
            assert!(!seen.ipykernel && !seen.pip);
            put(&prefix, "ipykernel_launcher.py", "");
            put(&prefix, "pip/__init__.py", "");
            put(&prefix, "ipykernel-7.4.0.dist-info/METADATA", "");
            let seen = inspect(&python).unwrap();
            assert!(seen.ipykernel && seen.pip);
            assert_eq!((&seen.executable, &seen.prefix), (&python, &prefix));
            assert_eq!(seen.environment, settings.is_some());
            assert_eq!(
                package_version(&python, "ipykernel").as_deref(),
                Some("7.4.0")
            );
            // So is what the rest of the program asks for.
            let python_found = probe(&python, ProbePolicy::Any, &ProcessVariables);
            assert!(python_found.unwrap().ipykernel);
            assert!(!prefix.join("bin/python.ran").exists(), "it was run");
        }
    }

    #[test]
    fn folders_that_a_pth_file_names_count_and_its_code_does_not() {
        let temp = tempfile::tempdir().unwrap();
        let prefix = temp.path().join("venv");
        let python = environment(
            &prefix,
            Some("home = /usr/bin\nversion_info = 3.12.3.final.0\n"),
        );
        let source = temp.path().join("source");
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("ipykernel_launcher.py"), "").unwrap();
        let code = format!("import sys; sys.path.append('{}')\n# x\n", source.display());
        put(&prefix, "code.pth", &code);
        assert!(!inspect(&python).unwrap().ipykernel);
        put(&prefix, "editable.pth", &format!("{}\n", source.display()));
        assert!(inspect(&python).unwrap().ipykernel);
    }

    #[test]
    fn a_path_without_an_environment_or_a_python_gives_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let prefix = temp.path().join("venv");
        assert!(inspect(Path::new("/usr/bin/env")).is_none());
        let python = environment(&prefix, Some("home = /usr/bin\nversion = 3.12.3\n"));
        std::fs::remove_file(&python).unwrap();
        std::os::unix::fs::symlink("/bin/false", &python).unwrap();
        assert!(inspect(&python).is_none());
    }
}
