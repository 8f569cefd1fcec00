//! Gives the programs the text of `--version`: the version, the commit and the target.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("CARGO_CFG_TARGET_FAMILY") != "unix" {
        eprintln!("nb runs on Linux and macOS. On Windows, install it in WSL.");
        std::process::exit(1);
    }
    let (version, target) = (variable("CARGO_PKG_VERSION"), variable("TARGET"));
    // A build script that runs again compiles the package again, so that in debug builds each commit
    // would cost a build: they do not name it.
    let commit = match variable("PROFILE").as_str() {
        "release" => commit(Path::new(&variable("CARGO_MANIFEST_DIR"))),
        _ => None,
    };
    let commit = commit.map(|it| format!("{it}, ")).unwrap_or_default();
    println!("cargo:rustc-env=NB_BUILD={version} ({commit}{target})");
}

/// Returns the commit of the git work tree whose top is this folder; `None` in a package of the registry,
/// and where there is no git.
fn commit(top: &Path) -> Option<String> {
    top.join(".git").symlink_metadata().ok()?;
    let commit = git(top, &["rev-parse", "--short=10", "HEAD"])?;
    let branch = git(top, &["symbolic-ref", "--quiet", "HEAD"]);
    // What changes with the commit: HEAD names a branch, whose file names the commit.
    for name in ["HEAD", "logs/HEAD", "packed-refs"]
        .into_iter()
        .chain(branch.as_deref())
    {
        if let Some(path) = git(top, &["rev-parse", "--git-path", name])
            && top.join(&path).exists()
        {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    Some(commit)
}

fn git(folder: &Path, words: &[&str]) -> Option<String> {
    let out = Command::new("git").args(words).current_dir(folder).output();
    let out = out.ok().filter(|out| out.status.success())?;
    let text = String::from_utf8(out.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
