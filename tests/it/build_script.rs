//! The build script, by itself: what `--version` will print in a git work tree, in a package, and without git.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::world::succeed;

/// The build script, compiled, and a folder in which a package is built.
struct Script {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Script {
    fn new() -> Script {
        let folder = tempfile::tempdir().expect("make a folder");
        let program = folder.path().join("script");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut rustc = Command::new(Path::new(env!("CARGO")).with_file_name("rustc"));
        rustc.args(["--edition=2024", "-o"]).arg(&program);
        succeed(rustc.arg(root.join("build.rs")));
        Script { folder, program }
    }

    fn package(&self) -> PathBuf {
        self.folder.path().join("work/package")
    }

    /// Runs the script as cargo does, and returns its lines.
    fn run(&self, profile: &str, path: &str) -> Vec<String> {
        let mut script = Command::new(&self.program);
        script
            .current_dir(self.package())
            .env("CARGO_MANIFEST_DIR", self.package())
            .env("CARGO_PKG_VERSION", "1.2.3")
            .env("CARGO_CFG_TARGET_FAMILY", "unix")
            .env("TARGET", "a-target")
            .env("PROFILE", profile)
            .env("PATH", path);
        succeed(&mut script).lines().map(str::to_owned).collect()
    }

    /// Makes a git work tree with one commit, and returns the commit.
    fn commits_in(&self, folder: &Path) -> String {
        let git = |words: &[&str]| {
            let mut git = Command::new("git");
            git.current_dir(folder)
                .args(["-c", "user.name=a", "-c", "user.email=a@localhost"]);
            succeed(git.args(words))
        };
        git(&["init", "--quiet"]);
        git(&["commit", "--quiet", "--allow-empty", "--message=first"]);
        git(&["rev-parse", "--short=10", "HEAD"]).trim().to_owned()
    }
}

#[test]
fn only_a_release_of_a_work_tree_tells_its_commit() {
    let script = Script::new();
    let usual = std::env::var("PATH").expect("there is a PATH");
    std::fs::create_dir_all(script.package()).expect("make a folder");
    let alone = "cargo:rustc-env=NB_BUILD=1.2.3 (a-target)";
    let version = |profile: &str, path: &str| {
        let lines = script.run(profile, path);
        let variable = lines
            .iter()
            .find(|line| line.starts_with("cargo:rustc-env="));
        variable.expect("a line for --version").to_owned()
    };

    // A package that lies in somebody's work tree does not have that work tree's commit.
    script.commits_in(&script.folder.path().join("work"));
    assert_eq!(version("release", &usual), alone);

    let commit = script.commits_in(&script.package());
    let with_commit = format!("cargo:rustc-env=NB_BUILD=1.2.3 ({commit}, a-target)");
    assert_eq!(version("release", &usual), with_commit);
    assert_eq!(version("release", "/nonexistent"), alone, "without git");

    // A debug build does not run the script again after a commit; a release does.
    assert_eq!(version("debug", &usual), alone);
    let watched = |profile: &str| {
        let lines = script.run(profile, &usual).into_iter();
        let lines = lines.filter(|line| line.starts_with("cargo:rerun-if-changed="));
        lines.collect::<Vec<_>>()
    };
    assert_eq!(watched("debug"), ["cargo:rerun-if-changed=build.rs"]);
    assert!(watched("release").contains(&"cargo:rerun-if-changed=.git/logs/HEAD".to_owned()));
}

#[test]
fn on_windows_it_says_in_one_line_that_there_is_no_nb() {
    let script = Script::new();
    let out = Command::new(&script.program)
        .env("CARGO_CFG_TARGET_FAMILY", "windows")
        .output()
        .expect("run the script");
    assert!(!out.status.success());
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(
        stderr,
        "nb runs on Linux and macOS. On Windows, install it in WSL.\n"
    );
}
