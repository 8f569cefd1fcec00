//! Checks the installation: this program, and the kernelspec by which front ends find it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Check;
use crate::kernel::shell::quote;
use crate::kernel::spec;
use crate::kernel::spec::jupyter_paths::JupyterPaths;
use crate::kernel::spec::prefix::prefix_in_use;
use crate::kernel::variables::Variables;
use crate::lifecycle::program::proxy_path;
use crate::lifecycle::serve::{self, Health, Level};
use crate::task::causes::with_causes;

/// Checks that the command `nb` in this shell runs this program.
pub(super) fn own_program(variables: &dyn Variables) -> Check {
    const ABOUT: &str = "nb";
    let version = env!("CARGO_PKG_VERSION");
    let own = std::env::current_exe().and_then(|path| path.canonicalize());
    let Ok(own) = own else {
        let text = format!("version {version}, whose file is gone: it was replaced or removed");
        return Check::note(ABOUT, text, "type nb again: the new one answers then");
    };
    let path = variables.get("PATH").unwrap_or_default();
    let all: Vec<PathBuf> = std::env::split_paths(&path)
        .map(|folder| folder.join("nb"))
        .filter(|file| file.is_file())
        .collect();
    let is_own = |file: &&PathBuf| file.canonicalize().is_ok_and(|real| real == own);
    let folder = own.parent().unwrap_or(Path::new("/"));
    let first = format!("export PATH={}:\"$PATH\"", quote(folder));
    match all.first() {
        Some(first) if is_own(&first) => {
            let text = format!("version {version}, {}", own.display());
            match all.iter().find(|it| !is_own(it)) {
                None => Check::good(ABOUT, text),
                Some(other) => Check::note(
                    ABOUT,
                    format!("{text}; another one comes after it on PATH"),
                    format!("remove it where it is not wanted: {}", other.display()),
                ),
            }
        }
        Some(other) => Check::bad(
            ABOUT,
            format!(
                "{} comes first on PATH and is another program than this one, {}",
                other.display(),
                own.display()
            ),
            first,
        ),
        None => Check::bad(
            ABOUT,
            format!("this one, {}, is not on PATH", own.display()),
            first,
        ),
    }
}

/// Checks that front ends find the kernelspec, and that its program can be started.
pub(super) fn spec(variables: &dyn Variables) -> Vec<Check> {
    const ABOUT: &str = "kernelspec";
    let health = match serve::health(&Level::User, variables) {
        Ok(health) => health,
        Err(error) => {
            let mend = "set HOME to a folder of yours";
            return vec![Check::bad(ABOUT, with_causes(&error), mend)];
        }
    };
    match health {
        Health::Missing => {
            let text = "\"nb shared kernel\" is not installed yet; nb open does it";
            return vec![Check::note(ABOUT, text, "nb serve")];
        }
        Health::Stale { why } => {
            return vec![Check::bad(ABOUT, why, "nb serve")];
        }
        Health::Good => {}
    }
    let mut checks = Vec::new();
    let folders = JupyterPaths::new(variables).map(|paths| {
        let prefix = prefix_in_use(Path::new("/"), variables);
        let own = paths.data_dir.join("kernels").join(spec::SHARED);
        (paths.spec_folders(prefix.as_ref()), own)
    });
    let (folders, own) = folders.unwrap_or_default();
    let found = spec::installed(&folders);
    let shared = found.iter().find(|found| found.name == spec::SHARED);
    match shared.map(|found| (&found.folder, &found.spec)) {
        Some((folder, Ok(found))) if *folder == own || spec::starts_proxy(found) => {
            checks.push(Check::good(ABOUT, format!("in {}", folder.display())));
        }
        Some((folder, _)) => checks.push(Check::bad(
            ABOUT,
            format!("{} is another program's and hides nb's", folder.display()),
            format!("mv {0} {0}.other", quote(folder)),
        )),
        None => checks.push(Check::note(
            ABOUT,
            "it is not where Jupyter looks".to_owned(),
            "nb serve",
        )),
    }
    if let Ok(program) = proxy_path(variables) {
        checks.push(starts(&program));
    }
    checks
}

/// Checks that the kernelspec's program can be run: its folder may be mounted noexec.
fn starts(program: &Path) -> Check {
    const ABOUT: &str = "nb-proxy";
    let ran = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let bad = |why: String| {
        Check::bad(
            ABOUT,
            format!("{} cannot be run: {why}", program.display()),
            "nb unserve && nb serve; if its folder is mounted noexec, set XDG_DATA_HOME to one that is not",
        )
    };
    match ran {
        Ok(out) if out.status.success() => {
            let version = String::from_utf8_lossy(&out.stdout);
            Check::good(ABOUT, format!("{}, {}", version.trim(), program.display()))
        }
        Ok(out) => bad(out.status.to_string()),
        Err(error) => bad(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::Verdict;
    use super::*;

    #[test]
    fn another_nb_before_this_one_is_told_of() {
        let temp = tempfile::tempdir().unwrap();
        let [other, own] = ["other", "own"].map(|name| temp.path().join(name));
        for folder in [&other, &own] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(other.join("nb"), "").unwrap();
        let this = std::env::current_exe().unwrap();
        std::os::unix::fs::symlink(this, own.join("nb")).unwrap();
        let check = |folders: &[&PathBuf]| {
            let path = std::env::join_paths(folders).unwrap();
            let path = path.to_str().unwrap();
            own_program(&HashMap::from([("PATH", path)]))
        };
        assert_eq!(check(&[&own]).verdict, Verdict::Good);
        let hidden = check(&[&other, &own]);
        assert_eq!(hidden.verdict, Verdict::Bad);
        assert!(hidden.text.contains("other/nb comes first"), "{hidden:?}");
        assert_eq!(check(&[&own, &other]).verdict, Verdict::Note);
        let nowhere = check(&[]);
        assert_eq!(nowhere.verdict, Verdict::Bad);
        assert!(nowhere.mend.unwrap().starts_with("export PATH="));
    }

    #[test]
    fn a_spec_that_is_hidden_or_cannot_be_run_is_told_of() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_str().unwrap();
        let first = temp.path().join("first");
        let extra = first.to_str().unwrap();
        let variables = HashMap::from([("HOME", home), ("JUPYTER_PATH", extra)]);
        assert_eq!(spec(&variables)[0].verdict, Verdict::Note);
        serve::serve(&Level::User, "python", &variables).unwrap();
        let told = spec(&variables);
        assert_eq!(told[0].verdict, Verdict::Good, "{told:?}");
        let folder = first.join("kernels/nb-shared");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("kernel.json"), r#"{"argv":["other"]}"#).unwrap();
        let hidden = &spec(&variables)[0];
        assert_eq!(hidden.verdict, Verdict::Bad);
        assert!(hidden.text.contains("hides nb's"), "{hidden:?}");
        assert_eq!(starts(Path::new("/bin/false")).verdict, Verdict::Bad);
        assert_eq!(starts(Path::new("/nonexistent")).verdict, Verdict::Bad);
    }
}
