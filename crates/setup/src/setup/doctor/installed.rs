//! Checks the installation: this program, and the kernelspec by which front ends find it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Check;
use crate::hint::shell::quote;
use crate::kernel::environment::trust::{self, StartedByName};
use crate::kernel::programs::version_of;
use crate::kernel::spec;
use crate::kernel::spec::jupyter_paths::JupyterPaths;
use crate::kernel::spec::prefix::prefix_in_use;
use crate::kernel::variables::Variables;
use crate::project::RealSpec;
use crate::setup::program::is_later_version;
use crate::setup::serve::{self, Health, Level};
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
    let programs: Vec<PathBuf> = std::env::split_paths(&path)
        .map(|folder| folder.join("nb"))
        .filter(|file| file.is_file())
        .collect();
    let is_own = |file: &&PathBuf| file.canonicalize().is_ok_and(|canonical| canonical == own);
    let started = StartedByName::known(variables);
    let describe = |program: &Path| match started.may_start(program) {
        true => describe_program(program),
        false => "a program of a project,".to_owned(),
    };
    let folder = own.parent().unwrap_or(Path::new("/"));
    let first = format!("export PATH={}:\"$PATH\"", quote(folder));
    match programs.first() {
        Some(first) if is_own(&first) => {
            let text = format!("version {version}, {}", own.display());
            match programs.iter().find(|it| !is_own(it)) {
                None => Check::good(ABOUT, text),
                Some(other) => Check::note(
                    ABOUT,
                    format!("{text}; {} comes after it on PATH", describe(other)),
                    format!("remove it where it is not wanted: {}", other.display()),
                ),
            }
        }
        Some(other) => Check::bad(
            ABOUT,
            format!(
                "{} comes first on PATH and is {} not this one: version {version}, {}",
                other.display(),
                describe(other),
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

/// Says what another `nb` is.
fn describe_program(program: &Path) -> String {
    match version_of(program, "nb") {
        Some(version) => format!("another nb, version {version},"),
        // nb-cli and nteract install a program of this name, too.
        None => "another program, of nb-cli or nteract perhaps,".to_owned(),
    }
}

/// Checks that front ends find the kernelspec, and that its program can be started.
pub(super) fn spec(variables: &dyn Variables) -> Vec<Check> {
    const ABOUT: &str = "kernelspec";
    let health = match serve::health(&Level::User, variables) {
        Ok(health) => health,
        Err(error) => {
            let fix = "set HOME to a folder of yours";
            return vec![Check::bad(ABOUT, with_causes(&error), fix)];
        }
    };
    let folders = JupyterPaths::new(variables).map(|paths| {
        let prefix = prefix_in_use(Path::new("/"), variables);
        let own = paths.data_dir.join("kernels").join(spec::SHARED);
        (paths.spec_folders(prefix.as_ref()), own)
    });
    let (folders, own) = folders.unwrap_or_default();
    let specs = spec::installed(&folders);
    let used = specs.iter().find(|it| it.name == spec::SHARED);
    let used = used.map(|it| (&it.folder, it.spec.as_ref().ok()));
    let is_ours = |(folder, spec): &(&PathBuf, Option<&RealSpec>)| {
        **folder == own || spec.is_some_and(spec::starts_proxy)
    };
    match (health, used.filter(is_ours)) {
        (Health::Missing, None) => {
            let text = "\"nb shared kernel\" is not installed yet; nb open does it";
            return vec![Check::note(ABOUT, text, "nb serve")];
        }
        (Health::Stale { why }, _) => return vec![Check::bad(ABOUT, why, "nb serve")],
        (Health::Missing | Health::Good, _) => {}
    }
    let Some((folder, spec)) = used else {
        let text = "it is not where Jupyter looks".to_owned();
        return vec![Check::note(ABOUT, text, "nb serve")];
    };
    if !is_ours(&(folder, spec)) {
        return vec![Check::bad(
            ABOUT,
            format!("{} is another program's and hides nb's", folder.display()),
            format!("mv {0} {0}.other", quote(folder)),
        )];
    }
    let hides = folders.iter().map(|it| it.join(spec::SHARED));
    let hides = hides.filter(|it| it != folder && it.join("kernel.json").is_file());
    let hides: Vec<_> = hides.map(|it| it.display().to_string()).collect();
    let mut text = format!("in {}", folder.display());
    if !hides.is_empty() {
        text.push_str(&format!(", before the one in {}", hides.join(" and ")));
    }
    let mut checks = vec![Check::good(ABOUT, text)];
    let program = spec.and_then(spec::proxy_program);
    checks.extend(program.map(|program| {
        let packaged = spec.and_then(spec::packaged_proxy);
        starts(&program, packaged.is_some(), &place_of(folder, &own))
    }));
    checks
}

/// Returns the option of `nb serve` that installs the kernelspec in this folder; `own` is the folder for the user.
fn place_of(folder: &Path, own: &Path) -> String {
    let data = folder.parent().and_then(Path::parent);
    match data {
        _ if folder == own => String::new(),
        Some(data) if data.ends_with(".nb/jupyter") => " --project".to_owned(),
        Some(data) if data.ends_with("share/jupyter") => {
            let prefix = data.parent().and_then(Path::parent);
            format!(" --prefix {}", quote(prefix.unwrap_or(data)))
        }
        _ => String::new(),
    }
}

/// Checks that the kernelspec's program can be run, since its folder may be mounted noexec, and that it is of
/// this version.
fn starts(program: &Path, is_packaged: bool, place: &str) -> Check {
    const ABOUT: &str = "nb-proxy";
    let own = env!("CARGO_PKG_VERSION");
    let python = program.with_file_name("python");
    let reinstall = match is_packaged {
        true => format!("{} -m pip install nb-proxy=={own}", quote(&python)),
        false => format!("nb serve{place}"),
    };
    let anew = format!("nb unserve{place} && nb serve{place}");
    let bad = |why: String| {
        let fix = match is_packaged {
            true => reinstall.clone(),
            false => format!(
                "{anew}; if its folder is mounted noexec, set XDG_DATA_HOME to one that is not"
            ),
        };
        let text = format!("{} cannot be run: {why}", program.display());
        Check::bad(ABOUT, text, fix)
    };
    if let Err(untrusted) = trust::check_program(program) {
        return bad(with_causes(&untrusted));
    }
    let ran = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let out = match ran {
        Ok(out) if out.status.success() => out,
        Ok(out) => return bad(out.status.to_string()),
        Err(error) => return bad(error.to_string()),
    };
    let output = String::from_utf8_lossy(&out.stdout);
    let version = output.split_whitespace().nth(1).unwrap_or_default();
    let text = format!("nb-proxy {version}, {}", program.display());
    let other = format!("{text}; this nb is version {own}");
    match version == own {
        true => Check::good(ABOUT, text),
        // The later program serves both.
        false if is_later_version(version) && !is_packaged => {
            let fix = format!("install nb {version}, or to go back: {anew}");
            Check::note(ABOUT, other, fix)
        }
        false => Check::note(ABOUT, other, reinstall),
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
        assert!(
            hidden
                .text
                .contains("is another program, of nb-cli or nteract perhaps, not this one")
        );
        write_script(&other.join("nb"), "echo nb 0.0.9 \\(an older one\\)");
        let older = check(&[&other, &own]);
        let text = "other/nb comes first on PATH and is another nb, version 0.0.9,";
        assert!(older.text.contains(text), "{older:?}");
        let text = "another nb, version 0.0.9, comes after it on PATH";
        let after = check(&[&own, &other]);
        assert!(after.text.contains(text), "{after:?}");
        write_script(&other.join("nb"), "echo nb-convert 7.0");
        let other_program = check(&[&own, &other]);
        assert!(
            other_program
                .text
                .contains("another program, of nb-cli or nteract perhaps, comes after")
        );
        let nowhere = check(&[]);
        assert_eq!(nowhere.verdict, Verdict::Bad);
        let fix = nowhere.fix.unwrap().to_string();
        assert!(fix.starts_with("export PATH="));
    }

    /// Writes a program by another process: a file that this process has written may still be open in a
    /// child that another test starts.
    fn write_script(path: &Path, script: &str) {
        let written = Command::new("sh")
            .args([
                "-c",
                "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"",
            ])
            .args([path.as_os_str(), script.as_ref()])
            .status();
        assert!(written.unwrap().success());
    }

    #[test]
    fn the_spec_of_a_package_is_enough_and_its_version_is_told() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_str().unwrap();
        let environment = temp.path().join("env");
        let variables = HashMap::from([
            ("HOME", home),
            ("VIRTUAL_ENV", environment.to_str().unwrap()),
        ]);
        let folder = environment.join("share/jupyter/kernels/nb-shared");
        let bin = environment.join("bin");
        for folder in [&folder, &bin] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(environment.join("pyvenv.cfg"), "home = /usr/bin\n").unwrap();
        std::fs::write(bin.join("python"), "").unwrap();
        let text = include_str!(
            "../../../../../kernelspec/wheel/data/share/jupyter/kernels/nb-shared/kernel.json"
        );
        std::fs::write(folder.join("kernel.json"), text).unwrap();
        write_script(
            &bin.join("nb-proxy"),
            "echo nb-proxy 0.0.9 \\(an older one\\)",
        );
        let checks = spec(&variables);
        assert_eq!(checks[0].verdict, Verdict::Good, "{checks:?}");
        assert_eq!(checks[1].verdict, Verdict::Note, "{checks:?}");
        assert!(checks[1].text.starts_with("nb-proxy 0.0.9, "), "{checks:?}");
        let fix = checks[1].fix.as_ref().unwrap().to_string();
        let version = env!("CARGO_PKG_VERSION");
        assert!(fix.ends_with(&format!(
            "env/bin/python -m pip install nb-proxy=={version}"
        )));
        // The user's own kernelspec beside it: in an environment the environment's comes first.
        serve::serve(&Level::User, "python", &variables).unwrap();
        let both = &spec(&variables)[0];
        assert_eq!(both.verdict, Verdict::Good);
        assert!(
            both.text
                .contains("env/share/jupyter/kernels/nb-shared, before the one in "),
            "{both:?}"
        );
    }

    #[test]
    fn a_program_of_an_environments_spec_is_mended_there() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let environment = temp.path().join("my env");
        std::fs::create_dir_all(environment.join("bin")).unwrap();
        std::fs::write(environment.join("pyvenv.cfg"), "home = /usr/bin\n").unwrap();
        std::fs::write(environment.join("bin/python"), "").unwrap();
        let variables = HashMap::from([
            ("HOME", temp.path().to_str().unwrap()),
            ("VIRTUAL_ENV", environment.to_str().unwrap()),
        ]);
        let level = Level::Prefix(environment.clone());
        let program = serve::serve(&level, "python", &variables).unwrap().proxy;
        let mode = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(program, mode).unwrap();
        let checks = spec(&variables);
        let fix = checks[1].fix.as_ref().unwrap().to_string();
        let prefix = quote(&environment);
        let expected =
            format!("nb unserve --prefix {prefix} && nb serve --prefix {prefix}; if its folder");
        assert!(fix.starts_with(&expected), "{checks:?}");
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
        let checks = spec(&variables);
        assert_eq!(checks[0].verdict, Verdict::Good, "{checks:?}");
        let folder = first.join("kernels/nb-shared");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("kernel.json"), r#"{"argv":["other"]}"#).unwrap();
        let hidden = &spec(&variables)[0];
        assert_eq!(hidden.verdict, Verdict::Bad);
        assert!(hidden.text.contains("hides nb's"), "{hidden:?}");
        for program in ["/bin/false", "/nonexistent"] {
            let check = starts(Path::new(program), false, "");
            assert_eq!(check.verdict, Verdict::Bad, "{check:?}");
        }
    }
}
