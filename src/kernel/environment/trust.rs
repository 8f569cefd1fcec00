//! The files that are never executed outside a sandbox: those that a sandboxed kernel was allowed to write.
//!
//! Such a kernel may have replaced an environment's `bin/python`, or may have written a `.pth` file, an
//! activation script or a kernelspec, or a program with a usual name in a folder on `PATH`. Inside a sandbox
//! these files may run; outside, they are refused with [`Untrusted`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::python;
use super::tools::ToolFolders;
use crate::kernel::shell::quote;
use crate::kernel::variables::Variables;
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
    pub fn hints(&self) -> Vec<String> {
        let mut hints =
            vec!["start this one in a sandbox too: nb open NOTEBOOK --sandbox".to_owned()];
        // A scratch folder has no record, and belongs to its kernel as long as it exists.
        if !self.written.key.is_empty() {
            hints.push(format!(
                "when you have looked at what lies there, or made it anew: nb open NOTEBOOK --trust {}",
                quote(&self.written.folder)
            ));
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

/// Returns a program on `PATH` that may be executed outside a sandbox. The folder of an activated environment
/// is on `PATH`, too; its programs count only if a tool of the user made the environment.
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

fn untrusted(role: &'static str, path: &Path, written: WritableFolder) -> Untrusted {
    Untrusted {
        role,
        path: path.to_owned(),
        written: Box::new(written),
    }
}
