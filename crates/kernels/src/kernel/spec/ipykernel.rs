//! The kernelspec of a Python's ipykernel.

use super::kernelspec;
use crate::kernel::environment::python::Python;
use crate::project::{InterruptMode, RealSpec};

/// Returns the kernelspec of an interpreter's ipykernel.
///
/// The other fields come from the spec that ipykernel has installed; the command always names this
/// interpreter.
pub fn of_python(python: &Python) -> RealSpec {
    let folder = python.prefix.join("share/jupyter/kernels/python3");
    let executable = python.executable.to_string_lossy().into_owned();
    // A spec that a sandboxed kernel may have written cannot be read and is then ignored.
    match kernelspec::read(&folder) {
        Ok(mut installed) if !kernelspec::is_proxy(&installed) && runs_ipykernel(&installed) => {
            if let Some(program) = installed.argv.first_mut() {
                *program = executable;
            }
            installed
        }
        _ => of_command(&executable, "Python 3 (ipykernel)"),
    }
}

/// Returns the kernelspec of ipykernel in the Python of this name or path.
pub fn of_command(python: &str, display_name: &str) -> RealSpec {
    let argv = [
        python,
        "-m",
        "ipykernel_launcher",
        "-f",
        "{connection_file}",
    ];
    RealSpec {
        name: "python3".to_owned(),
        display_name: display_name.to_owned(),
        argv: argv.map(str::to_owned).to_vec(),
        language: "python".to_owned(),
        interrupt_mode: InterruptMode::Signal,
        env: serde_json::Map::new(),
        resource_dir: None,
        other: serde_json::Map::new(),
    }
}

/// The code that starts ipykernel as `-m ipykernel_launcher` does, but imports nothing from the working directory.
const LAUNCH: &str = "import sys; del sys.path[0]; import runpy; runpy.run_module('ipykernel_launcher', run_name='__main__', alter_sys=True)";

/// Changes a command that runs `-m ipykernel_launcher`, for which Python searches the working directory first: a
/// file of that name beside the notebook would be run.
pub(super) fn import_nothing_of_the_folder(spec: &mut RealSpec) {
    let module = ["-m", "ipykernel_launcher"];
    let found = spec.argv.windows(2).position(|words| words == module);
    if let Some(at) = found {
        spec.argv[at..at + 2].clone_from_slice(&["-c", LAUNCH].map(str::to_owned));
    }
}

fn runs_ipykernel(spec: &RealSpec) -> bool {
    spec.argv
        .iter()
        .any(|argument| argument.contains("ipykernel"))
}
