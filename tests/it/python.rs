//! The tests' own pinned Python environment, made under `target/` on first use.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const REQUIREMENTS: &str = include_str!("../python/requirements.txt");

/// Returns the interpreter of the pinned environment; makes it first where it is missing.
///
/// Several test processes may ask at once: the first takes the lock, the others wait. The
/// environment is named by a hash of the requirements, so that a change of them makes a new one.
pub fn interpreter() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .parent()
            .expect("target/tmp has a parent");
        let mark = REQUIREMENTS
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        let home = target.join(format!("test-python-{mark:016x}"));
        let python = home.join("bin/python");
        let lock =
            std::fs::File::create(target.join("test-python.lock")).expect("create the lock file");
        lock.lock().expect("lock the test environment");
        if !home.join("complete").exists() {
            let _ = std::fs::remove_dir_all(&home);
            let wanted = target.join("test-python-requirements.txt");
            std::fs::write(&wanted, REQUIREMENTS).expect("write the requirements");
            run(Command::new("python3").args(["-m", "venv"]).arg(&home));
            run(Command::new(&python)
                .args(["-m", "pip", "install", "--quiet", "-r"])
                .arg(&wanted));
            std::fs::write(home.join("complete"), "").expect("mark the environment complete");
        }
        python
    })
}

/// Returns the path of a script in `tests/python`.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/python")
        .join(name)
}

fn run(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    assert!(status.success(), "{command:?} ended with {status}");
}

#[test]
fn the_environment_has_ipykernel() {
    let out = Command::new(interpreter())
        .args(["-c", "import ipykernel; print(ipykernel.__version__)"])
        .output()
        .expect("run the interpreter");
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), "7.4.0");
}
