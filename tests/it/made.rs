//! Environments and packages that the tests install under `target/`, once for all tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a folder under `target/` in which `make` has run for these contents; runs it first if the folder
/// does not exist.
///
/// Several test processes may call this at the same time: the first takes the lock, the others wait. The
/// folder's name contains a hash of the contents, so that changed contents get a new folder.
pub fn once(name: &str, contents: &[&str], make: impl FnOnce(&Path)) -> PathBuf {
    let home = folder(name, contents);
    let lock = home.with_file_name(format!("{name}.lock"));
    let lock = std::fs::File::create(lock).expect("create the lock file");
    lock.lock().expect("lock what is being made");
    if !home.join("complete").exists() {
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir(&home).expect("make the folder");
        make(&home);
        std::fs::write(home.join("complete"), "").expect("mark it complete");
    }
    home
}

/// Returns the folder of [`once`], if it is made.
pub fn made(name: &str, contents: &[&str]) -> Option<PathBuf> {
    let home = folder(name, contents);
    home.join("complete").exists().then_some(home)
}

fn folder(name: &str, contents: &[&str]) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("target/tmp has a parent");
    let mark = contents
        .iter()
        .flat_map(|text| text.bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    target.join(format!("{name}-{mark:016x}"))
}

/// Runs a step of the installation, which must succeed.
pub fn run(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    assert!(status.success(), "{command:?} ended with {status}");
}
