//! What is never executed outside a sandbox: what a sandboxed kernel was allowed to write.
//!
//! Such a kernel may have replaced an environment's `bin/python`, put a `.pth` file, an activation
//! script or a kernelspec there, or a program with a usual name into a folder that is on `PATH`.
//! Inside a sandbox all of it may run; outside, [`Untrusted`] says why it does not.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::python;
use super::tools::ToolFolders;
use crate::kernel::shell::quote;
use crate::kernel::variables::Variables;
use crate::project::written::{AllWritten, Written};

/// Says that a file is not executed or believed outside a sandbox.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{what} {} is not used outside a sandbox: a sandboxed kernel of {} was allowed to write {}, and may have put anything there",
    path.display(),
    written.notebook.display(),
    written.folder.display()
)]
pub struct Untrusted {
    /// What the file is to the kernel, for the message.
    what: &'static str,
    path: PathBuf,
    written: Box<Written>,
}

impl Untrusted {
    /// Returns the commands that help, for a notebook's `nb open`.
    pub fn hints(&self) -> Vec<String> {
        let mut hints =
            vec!["start this one in a sandbox too: nb open NOTEBOOK --sandbox".to_owned()];
        // A scratch folder is not remembered, and is its kernel's as long as it is there.
        if !self.written.key.is_empty() {
            hints.push(format!(
                "when you have looked at what lies there, or made it anew: nb open NOTEBOOK --trust {}",
                quote(&self.written.folder)
            ));
        }
        hints
    }
}

/// Says whether a file or a folder may be executed, believed or worked in outside a sandbox.
pub fn check(what: &'static str, path: &Path) -> Result<(), Untrusted> {
    match AllWritten::known().decides(path) {
        Some(written) => Err(untrusted(what, path, written)),
        None => Ok(()),
    }
}

/// Says whether a program may be executed outside a sandbox, with the environment that it lies in
/// and the Python from which that was made.
pub fn check_program(program: &Path) -> Result<(), Untrusted> {
    let known = AllWritten::known();
    let fault = |written| untrusted("the program", program, written);
    if let Some(written) = known.decides(program) {
        return Err(fault(written));
    }
    let in_bin = |path: &Path| {
        let bin = path.parent().filter(|bin| bin.ends_with("bin"));
        bin.and_then(Path::parent).map(Path::to_owned)
    };
    // Also as it is called, which is where a venv's Python looks for its packages.
    let real = program.canonicalize().ok();
    let prefixes = [in_bin(program), real.as_deref().and_then(in_bin)];
    for prefix in prefixes.into_iter().flatten() {
        let base = python::base(&prefix);
        let found = known
            .decides_environment(&prefix)
            .or_else(|| known.decides_environment(base?.parent()?));
        if let Some(written) = found {
            return Err(fault(written));
        }
    }
    Ok(())
}

/// Says whether a kernel may be started outside a sandbox: by its command, in a folder, with these
/// variables.
pub fn check_start(
    argv: &[OsString],
    folder: &Path,
    variables: &dyn Variables,
) -> Result<(), Untrusted> {
    if AllWritten::known().entries().is_empty() && !has_scratch(folder) {
        // The usual case, quickly decided.
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
    // Python takes modules of its working directory for installed ones, R its profile from there.
    check("the kernel's working directory", folder)?;
    for name in CODE {
        let paths = variables.get(name).unwrap_or_default();
        std::env::split_paths(&paths)
            .filter(|path| path.is_absolute())
            .try_for_each(|path| check("what a variable of this shell names,", &path))?;
    }
    Ok(())
}

fn has_scratch(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "scratch")
}

/// Variables that name code which every kernel of a language runs.
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

/// Returns a program that is on `PATH` and may be executed outside a sandbox. An activated
/// environment's folder is on it too: what lies there counts only where a tool of the user made it.
pub fn on_path(program: &str, variables: &dyn Variables) -> Option<PathBuf> {
    let known = AllWritten::known();
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].map(|name| variables.path(name));
    let mut active: Vec<_> = active.into_iter().flatten().collect();
    if !active.is_empty() {
        let tools = ToolFolders::known(variables);
        active.retain(|prefix| !tools.hold(prefix));
    }
    let is_active = |file: &PathBuf| active.iter().any(|prefix| file.starts_with(prefix));
    let mut programs = variables.programs(Path::new(program)).into_iter();
    programs.find(|file| file.is_absolute() && !is_active(file) && known.decides(file).is_none())
}

fn untrusted(what: &'static str, path: &Path, written: Written) -> Untrusted {
    Untrusted {
        what,
        path: path.to_owned(),
        written: Box::new(written),
    }
}
