//! The version of a notebook in a git commit, from the `git` program.

use std::io;
use std::path::Path;
use std::process::{Command, Output};

use crate::kernel::environment::trust;
use crate::kernel::variables::ProcessVariables;

/// Why there is no version of a file in git.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// There is no `git` program.
    #[error("there is no git on the PATH")]
    NoGit,
    /// The program could not be started.
    #[error("cannot run git")]
    Run(#[source] io::Error),
    /// The file is in no repository.
    #[error("{path} is in no git repository")]
    NoRepository {
        /// The file.
        path: String,
    },
    /// No commit has that name.
    #[error("{}", if reference == "HEAD" { "the git repository has no commit yet".to_owned() } else { format!("git knows no commit {reference:?}") })]
    NoCommit {
        /// The name asked for.
        reference: String,
    },
    /// The commit does not have the file.
    #[error("{path} is not in git at {reference}")]
    NotThere {
        /// The file.
        path: String,
        /// The name asked for.
        reference: String,
    },
    /// Another error of git, with git's message.
    #[error("git: {0}")]
    Refused(String),
}

/// A file's content in a commit.
#[derive(Clone, Debug)]
pub struct FileVersion {
    /// The commit's short hash.
    pub commit: String,
    /// The file's bytes.
    pub content: Vec<u8>,
}

/// Returns a file's version in a commit, which a branch, a tag, `HEAD~2` or a hash names.
///
/// # Errors
/// There is no git, no repository, no such commit, or the commit does not have the file.
pub fn committed(file: &Path, reference: &str) -> Result<FileVersion, GitError> {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(GitError::NoRepository {
            path: file.display().to_string(),
        });
    };
    let path = Path::new(name).display().to_string();
    let commit = format!("{reference}^{{commit}}");
    let found = git(
        folder,
        ["rev-parse", "--short", "--verify", "--end-of-options"],
        commit.as_ref(),
    )?;
    if !found.status.success() {
        let inside = git(folder, ["rev-parse"], "--is-inside-work-tree".as_ref())?;
        let message = last_line(&inside.stderr);
        return Err(match inside.status.success() {
            true => GitError::NoCommit {
                reference: reference.to_owned(),
            },
            false if message.contains("not a git repository") => GitError::NoRepository { path },
            false => GitError::Refused(message),
        });
    }
    let commit = last_line(&found.stdout);
    // The path is relative to the folder; `cat-file` applies no filters.
    let mut blob = std::ffi::OsString::from(format!("{commit}:./"));
    blob.push(name);
    let content = git(folder, ["cat-file", "blob"], &blob)?;
    if !content.status.success() {
        let tree = git(folder, ["cat-file", "-e"], &blob)?;
        return Err(match tree.status.success() {
            true => GitError::Refused(last_line(&content.stderr)),
            false => GitError::NotThere {
                path,
                reference: reference.to_owned(),
            },
        });
    }
    Ok(FileVersion {
        commit,
        content: content.stdout,
    })
}

/// Returns a git that runs no other program: another user or a sandboxed kernel may have written the repository's
/// configuration. `None` if there is no git on the `PATH`.
pub fn command() -> Option<Command> {
    let mut git = Command::new(trust::on_path("git", &ProcessVariables)?);
    // Missing objects are not fetched. The list of protocols counts more than any `protocol.NAME.allow`.
    git.env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_ALLOW_PROTOCOL", "")
        .arg("--no-pager")
        .args(["-c", "core.fsmonitor=false"])
        .args(["-c", "core.hooksPath=/dev/null"]);
    Some(git)
}

fn git<const N: usize>(
    folder: &Path,
    arguments: [&str; N],
    last: &std::ffi::OsStr,
) -> Result<Output, GitError> {
    let run = command()
        .ok_or(GitError::NoGit)?
        .arg("-C")
        .arg(folder)
        .args(arguments)
        .arg(last)
        // Its messages are parsed.
        .env("LC_ALL", "C")
        .output();
    run.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => GitError::NoGit,
        _ => GitError::Run(error),
    })
}

/// Returns the last line that git wrote, without `fatal:`.
fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    let line = line.unwrap_or_default().trim();
    line.strip_prefix("fatal: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(folder: &Path, arguments: &[&str]) {
        let done = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b.c"])
            .args(arguments)
            .current_dir(folder)
            .output();
        let done = done.unwrap();
        assert!(done.status.success(), "{arguments:?}: {done:?}");
    }

    fn refused(file: &Path, reference: &str) -> String {
        committed(file, reference).unwrap_err().to_string()
    }

    #[test]
    fn a_file_is_found_in_its_commit_or_the_error_says_what_is_missing() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("sub folder");
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("a: b.ipynb");
        std::fs::write(&file, "first").unwrap();
        let message = refused(&file, "HEAD");
        assert_eq!(message, "a: b.ipynb is in no git repository");
        run(temp.path(), &["init", "-q"]);
        let message = refused(&file, "HEAD");
        assert_eq!(message, "the git repository has no commit yet");
        run(temp.path(), &["commit", "-q", "--allow-empty", "-m", "x"]);
        assert_eq!(refused(&file, "HEAD"), "a: b.ipynb is not in git at HEAD");
        run(temp.path(), &["add", "."]);
        run(temp.path(), &["commit", "-q", "-m", "y"]);
        std::fs::write(&file, "second").unwrap();
        let found = committed(&file, "HEAD").unwrap();
        assert_eq!(found.content, b"first");
        assert_eq!(committed(&file, &found.commit).unwrap().content, b"first");
        assert!(committed(&file, "HEAD~1").is_err());
        for wrong in ["nowhere", "--all", "-h", "HEAD:x"] {
            let message = refused(&file, wrong);
            assert_eq!(message, format!("git knows no commit {wrong:?}"));
        }
    }

    #[test]
    fn the_configuration_of_a_repository_runs_no_program() {
        use std::os::unix::fs::PermissionsExt as _;
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("repository");
        std::fs::create_dir(&folder).unwrap();
        let (file, proof) = (folder.join("a.ipynb"), temp.path().join("proof"));
        let script = temp.path().join("run.sh");
        std::fs::write(
            &script,
            format!("#!/bin/sh\necho $0 > {}\n", proof.display()),
        )
        .unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let script = script.display();

        std::fs::write(&file, "first").unwrap();
        std::fs::write(folder.join(".gitattributes"), "* filter=x diff=x merge=x\n").unwrap();
        for below in ["in", "out"] {
            std::fs::create_dir(folder.join(below)).unwrap();
            std::fs::write(folder.join(below).join("b.ipynb"), below).unwrap();
        }
        run(&folder, &["init", "-q"]);
        run(&folder, &["add", "."]);
        run(&folder, &["commit", "-q", "-m", "x"]);
        run(&folder, &["sparse-checkout", "set", "--sparse-index", "in"]);
        std::fs::write(&file, "second").unwrap();
        for hook in [
            "post-checkout",
            "post-index-change",
            "reference-transaction",
        ] {
            std::os::unix::fs::symlink(
                temp.path().join("run.sh"),
                folder.join(".git/hooks").join(hook),
            )
            .unwrap();
        }
        let config = folder.join(".git/config");
        let poisoned = format!(
            "{}\n[core]\nfsmonitor={script}\nsshCommand={script}\ngitProxy={script}\npager={script}\n\
             askPass={script}\neditor={script}\nalternateRefsCommand={script}\nhooksPath={}/.git/hooks\n\
             [diff]\nexternal={script}\n[diff \"x\"]\ntextconv={script}\ncommand={script}\n\
             [filter \"x\"]\nsmudge={script}\nclean={script}\nprocess={script}\nrequired=true\n\
             [merge \"x\"]\ndriver={script}\n[pager]\nrev-parse={script}\ncat-file={script}\n\
             [alias]\nrev-parse=!{script}\ncat-file=!{script}\n[credential]\nhelper={script}\n\
             [gpg]\nprogram={script}\n[uploadpack]\npackObjectsHook={script}\n\
             [hook \"x\"]\ncommand={script}\nevent=reference-transaction\nevent=post-index-change\n",
            std::fs::read_to_string(&config).unwrap(),
            folder.display(),
        );
        std::fs::write(&config, &poisoned).unwrap();
        assert_eq!(committed(&file, "HEAD").unwrap().content, b"first");
        assert!(!proof.exists());

        // The objects are missing, and git is to fetch them.
        let objects = folder.join(".git/objects");
        let away = temp.path().join("objects");
        for url in [
            format!("ext::{script}"),
            "ssh://127.0.0.1:1/x".to_owned(),
            "git://127.0.0.1:1/x".to_owned(),
            "http://127.0.0.1:1/x".to_owned(),
            format!("file://{}", folder.display()),
            folder.display().to_string(),
        ] {
            let promisor = format!(
                "{poisoned}[extensions]\npartialClone=origin\n[core]\nrepositoryFormatVersion=1\n\
                 [protocol]\nallow=always\n[protocol \"ext\"]\nallow=always\n[protocol \"file\"]\nallow=always\n\
                 [protocol \"ssh\"]\nallow=always\n[protocol \"git\"]\nallow=always\n[protocol \"http\"]\nallow=always\n\
                 [remote \"origin\"]\nurl=\"{url}\"\npromisor=true\nuploadpack={script}\n\
                 partialCloneFilter=blob:none\n",
            );
            std::fs::write(&config, promisor).unwrap();
            let blob = objects_of(&folder, "HEAD:a.ipynb");
            let tree = objects_of(&folder, "HEAD^{tree}");
            for object in [blob, tree] {
                std::fs::rename(objects.join(&object), &away).unwrap();
                committed(&file, "HEAD").unwrap_err();
                assert!(!proof.exists(), "{url}");
                std::fs::rename(&away, objects.join(&object)).unwrap();
            }
            // A listing reads a tree where the index is sparse.
            let tree = objects_of(&folder, "HEAD:out");
            std::fs::rename(objects.join(&tree), &away).unwrap();
            let mut listing = command().unwrap();
            listing.args(["ls-files", "-z"]).current_dir(&folder);
            let listed = listing.output().unwrap().stdout;
            assert!(!String::from_utf8_lossy(&listed).contains("out/"));
            assert!(!proof.exists(), "{url}");
            std::fs::rename(&away, objects.join(&tree)).unwrap();
        }
    }

    /// Returns the path of an object below the folder of objects.
    fn objects_of(folder: &Path, name: &str) -> String {
        let found = git(folder, ["rev-parse", "--verify"], name.as_ref()).unwrap();
        let hash = String::from_utf8(found.stdout).unwrap();
        format!("{}/{}", &hash[..2], hash[2..].trim())
    }
}
