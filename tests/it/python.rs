//! The tests' own pinned Python environment, made under `target/` on first use.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::made::{self, run};

const REQUIREMENTS: &str = include_str!("../python/requirements.txt");

/// Returns the interpreter of the pinned environment; makes it first where it is missing.
pub fn interpreter() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let home = made::once("test-python", &[REQUIREMENTS], |home| {
            let wanted = home.join("requirements.txt");
            std::fs::write(&wanted, REQUIREMENTS).expect("write the requirements");
            run(Command::new("python3").args(["-m", "venv"]).arg(home));
            run(Command::new(home.join("bin/python"))
                .args(["-m", "pip", "install", "--quiet", "-r"])
                .arg(&wanted));
        });
        home.join("bin/python")
    })
}

/// Returns the path of a script in `tests/python`.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/python")
        .join(name)
}

#[test]
fn the_environment_has_ipykernel() {
    let out = Command::new(interpreter())
        .args(["-c", "import ipykernel; print(ipykernel.__version__)"])
        .output()
        .expect("run the interpreter");
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), "7.4.0");
}
