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

fn runs_ipykernel(spec: &RealSpec) -> bool {
    spec.argv
        .iter()
        .any(|argument| argument.contains("ipykernel"))
}
