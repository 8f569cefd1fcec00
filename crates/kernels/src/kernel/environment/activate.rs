//! The variables that the activation of an environment sets and removes.
//!
//! Packages of conda need it: libraries find their data through variables that the scripts in
//! `etc/conda/activate.d` set. A shell runs the scripts in the same order and with the same variables as
//! conda, mamba and pixi do, and the resulting variables are used. A venv has no scripts, but `pip` and
//! `python` in a cell's `!` lines must be the environment's, too.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::folder::{Environment, Manager, is_environment};
use crate::kernel::foreign_file;
use crate::kernel::variables::Variables;
use crate::project::written::AllWritten;

/// The variables to set and to remove, compared with those before the activation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VariableChanges {
    /// Variables and their values.
    pub set: BTreeMap<OsString, OsString>,
    /// Variables to remove.
    pub remove: Vec<OsString>,
    /// Why the scripts' variables are missing; the kernel starts without them.
    pub problem: Option<String>,
}

/// Variables after a change.
pub struct ChangedVariables<'a> {
    before: &'a dyn Variables,
    change: &'a VariableChanges,
}

impl Variables for ChangedVariables<'_> {
    fn get(&self, name: &str) -> Option<OsString> {
        let name = OsStr::new(name);
        if self.change.remove.iter().any(|removed| removed == name) {
            return None;
        }
        match self.change.set.get(name) {
            Some(value) => Some(value.clone()).filter(|value| !value.is_empty()),
            None => self.before.get(name.to_str()?),
        }
    }
}

/// Returns the environment in which a program lies: `<prefix>/bin/<program>`.
pub fn around(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    (program.is_absolute() && is_environment(prefix)).then(|| prefix.to_owned())
}

/// Returns the changes of the variables for processes in an environment; `all` are the present variables.
///
/// The scripts run outside every sandbox, so scripts and variables that a sandboxed kernel may have written
/// are left out. If the environment has scripts, a shell runs for at most ten seconds.
pub fn activate(prefix: &Path, all: &BTreeMap<OsString, OsString>) -> VariableChanges {
    let known = AllWritten::known();
    let is_trusted = |path: &Path| known.decides_environment(path).is_none();
    let Activation {
        mut after,
        is_conda,
        scripts,
        left_out,
    } = Activation::of(prefix, all, &is_trusted);
    let mut problem = left_out.then(|| {
        format!(
            "the activation scripts of {} were not run: a sandboxed kernel may have written them",
            prefix.display()
        )
    });
    // A venv leaves the active conda environment active.
    let before = all.get(OsStr::new("CONDA_PREFIX")).map(Path::new);
    let before = before.filter(|it| is_conda && !it.as_os_str().is_empty() && is_trusted(it));
    match run_scripts(before, &scripts, &after, None) {
        Ok(Some(result)) => after = result,
        Ok(None) => {}
        Err(error) => {
            problem = Some(format!("{} was not activated: {error}", prefix.display()));
        }
    }
    VariableChanges::between(all, &after, problem)
}

/// Returns the changes of the variables for a sandboxed process in an environment, without those by scripts,
/// and the scripts: [`run_inside`] runs them in the sandbox.
///
/// Runs nothing; reads the variables that the environment's files name.
pub fn prepare(
    prefix: &Path,
    all: &BTreeMap<OsString, OsString>,
) -> (VariableChanges, Vec<PathBuf>) {
    // Only these matter: few other variables pass into a sandbox.
    let before = ["PATH", "CONDA_PREFIX", "VIRTUAL_ENV"].map(OsStr::new);
    let before = before.iter().filter_map(|name| all.get_key_value(*name));
    let before = before.map(|(name, value)| (name.clone(), value.clone()));
    let activation = Activation::of(prefix, &before.collect(), &|_| true);
    let is_of_active =
        |name: &&OsString| is_of_conda(name) || VENV_VARIABLES.iter().any(|it| name == it);
    let removed = all.keys().filter(is_of_active);
    let removed = removed.filter(|name| !activation.after.contains_key(*name));
    let change = VariableChanges {
        remove: removed.cloned().collect(),
        set: activation.after,
        problem: None,
    };
    (change, activation.scripts)
}

/// Runs an environment's scripts in the sandbox in which this process already is; returns the resulting
/// variables. The scripts' output goes to files in `temporary`.
pub fn run_inside(
    scripts: &[PathBuf],
    variables: BTreeMap<OsString, OsString>,
    temporary: &Path,
) -> (BTreeMap<OsString, OsString>, Option<String>) {
    match run_scripts(None, scripts, &variables, Some(temporary)) {
        Ok(Some(result)) => (result, None),
        Ok(None) => (variables, None),
        Err(error) => {
            let problem = format!("the environment was not activated: {error}");
            (variables, Some(problem))
        }
    }
}

/// An activation whose scripts have not run yet.
struct Activation {
    /// The variables.
    after: BTreeMap<OsString, OsString>,
    /// Whether the environment is of conda's kind, which has scripts.
    is_conda: bool,
    /// The scripts, in order.
    scripts: Vec<PathBuf>,
    /// Whether scripts of the environment were left out as untrusted.
    left_out: bool,
}

impl Activation {
    fn of(
        prefix: &Path,
        all: &BTreeMap<OsString, OsString>,
        is_trusted: &dyn Fn(&Path) -> bool,
    ) -> Self {
        let environment = Environment::of(prefix, "");
        let mut after = all.clone();
        let get = |name: &str| all.get(OsStr::new(name)).filter(|value| !value.is_empty());
        // Deactivates the active environments, including nested ones.
        let conda_before = get("CONDA_PREFIX").map(PathBuf::from);
        let venv_before = get("VIRTUAL_ENV").map(PathBuf::from);
        let deactivated: Vec<_> = conda_before.iter().chain(&venv_before).collect();
        for name in VENV_VARIABLES {
            after.remove(OsStr::new(name));
        }
        let is_conda = matches!(environment.manager, Manager::Conda | Manager::Pixi);
        let bin = prefix.join("bin");
        let path = get("PATH").cloned().unwrap_or_default();
        let others = std::env::split_paths(&path).filter(|folder| {
            let is_bin_of = |it: &PathBuf| *folder == it.join("bin");
            let is_deactivated = deactivated.iter().any(|it| is_bin_of(it));
            // A venv in conda's Python may still need conda's libraries and programs.
            let is_kept = !is_conda && conda_before.as_ref().is_some_and(is_bin_of);
            *folder != bin && (!is_deactivated || is_kept)
        });
        let folders: Vec<_> = [bin.clone()].into_iter().chain(others).collect();
        // PATH cannot contain a folder with a colon in its name; it then stays unchanged.
        if let Ok(path) = std::env::join_paths(folders) {
            after.insert("PATH".into(), path);
        }
        let mut scripts = Vec::new();
        let mut left_out = false;
        if is_conda {
            after.retain(|name, _| !is_of_conda(name));
            let mut set = |name: &str, value: &OsStr| {
                after.insert(name.into(), value.to_owned());
            };
            let name = conda_name(&environment);
            set("CONDA_PREFIX", prefix.as_os_str());
            set("CONDA_SHLVL", "1".as_ref());
            set("CONDA_DEFAULT_ENV", name.as_ref());
            set("CONDA_PROMPT_MODIFIER", format!("({name}) ").as_ref());
            let own = sorted(&prefix.join(ACTIVATE_SCRIPTS), "sh");
            if is_trusted(prefix) {
                for (name, value) in own_variables(prefix) {
                    after.insert(name.into(), value.into());
                }
                scripts = own;
            } else {
                left_out = !own.is_empty();
            }
        } else {
            after.insert("VIRTUAL_ENV".into(), prefix.as_os_str().to_owned());
        }
        Self {
            after,
            is_conda,
            scripts,
            left_out,
        }
    }
}

impl VariableChanges {
    /// Returns the variables of `before` after this change.
    pub fn of<'a>(&'a self, before: &'a dyn Variables) -> ChangedVariables<'a> {
        let change = self;
        ChangedVariables { before, change }
    }

    fn between(
        all: &BTreeMap<OsString, OsString>,
        after: &BTreeMap<OsString, OsString>,
        problem: Option<String>,
    ) -> Self {
        let set = after
            .iter()
            .filter(|(name, value)| all.get(*name) != Some(value))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let removed = all.keys().filter(|name| !after.contains_key(*name));
        Self {
            set,
            remove: removed.cloned().collect(),
            problem,
        }
    }
}

/// The variables of an active venv, and `PYTHONHOME`, which points to another Python.
const VENV_VARIABLES: [&str; 3] = ["VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "PYTHONHOME"];

/// Returns whether a variable belongs to the active conda environment, or to one in which that is nested.
fn is_of_conda(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let begins = ["CONDA_PREFIX_", "PIXI_PROJECT_", "PIXI_ENVIRONMENT_"];
    begins.iter().any(|it| name.starts_with(it))
        || matches!(
            &*name,
            "CONDA_PREFIX" | "CONDA_SHLVL" | "CONDA_DEFAULT_ENV" | "CONDA_PROMPT_MODIFIER"
        )
}

/// Returns the name that conda gives an environment: its folder's name if it lies in `envs`, else its path.
fn conda_name(environment: &Environment) -> String {
    let (prefix, name) = (&environment.prefix, environment.name());
    let folder = prefix.parent().filter(|folder| folder.ends_with("envs"));
    let is_alone = environment.manager == Manager::Conda && folder.is_none() && name != "base";
    match is_alone {
        true => prefix.to_string_lossy().into_owned(),
        false => name,
    }
}

/// Returns the variables that packages (`etc/conda/env_vars.d`) and the user (`conda env config vars`, in
/// `conda-meta/state`) have set for an environment; the user's override the packages'.
fn own_variables(prefix: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut read = |file: &Path, below: Option<&str>| {
        let text = foreign_file::read(file).unwrap_or_default();
        let value: Value = serde_json::from_slice(&text).unwrap_or_default();
        let table = match below {
            Some(field) => value.get(field),
            None => Some(&value),
        };
        for (name, value) in table.and_then(Value::as_object).into_iter().flatten() {
            // conda's value for a variable that its user has unset.
            if let Some(value) = value.as_str().filter(|value| *value != "***unset***") {
                all.insert(name.clone(), value.to_owned());
            }
        }
    };
    for file in sorted(&prefix.join("etc/conda/env_vars.d"), "json") {
        read(&file, None);
    }
    read(&prefix.join("conda-meta/state"), Some("env_vars"));
    all
}

/// Returns a folder's files with this suffix, sorted by name.
fn sorted(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|it| it == ending))
        .collect();
    files.sort();
    files
}

/// The folder of the scripts that run when an environment is activated.
const ACTIVATE_SCRIPTS: &str = "etc/conda/activate.d";

/// How long all of an environment's scripts may take.
const SCRIPTS_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the scripts that deactivate the old environment, and then those that activate the new one; returns
/// the resulting variables, `None` if there is nothing to run. `temporary` is the folder for unnamed files,
/// if it is not the usual one.
fn run_scripts(
    before: Option<&Path>,
    enter: &[PathBuf],
    variables: &BTreeMap<OsString, OsString>,
    temporary: Option<&Path>,
) -> io::Result<Option<BTreeMap<OsString, OsString>>> {
    let leave = before.map(|prefix| sorted(&prefix.join("etc/conda/deactivate.d"), "sh"));
    let leave = leave.unwrap_or_default();
    if leave.is_empty() && enter.is_empty() {
        return Ok(None);
    }
    let mut text = String::new();
    // The scripts' stdout goes to stderr, since the variables are read from another descriptor.
    text.push_str("exec 3>&1 1>&2\nnb_prefix=$CONDA_PREFIX\n");
    let mut arguments: Vec<&OsStr> = Vec::new();
    let source = |text: &mut String, arguments: &[&OsStr]| {
        text.push_str(&format!(". \"${{{}}}\"\n", arguments.len()));
    };
    if let Some(before) = before {
        arguments.push(before.as_os_str());
        text.push_str("export CONDA_PREFIX=\"${1}\"\n");
    }
    for script in leave.iter().rev() {
        arguments.push(script.as_os_str());
        source(&mut text, &arguments);
    }
    text.push_str("export CONDA_PREFIX=\"$nb_prefix\"\nunset nb_prefix\n");
    for script in enter {
        arguments.push(script.as_os_str());
        source(&mut text, &arguments);
    }
    // By its absolute path, because a script may have changed PATH.
    text.push_str("if [ -x /usr/bin/env ]; then /usr/bin/env -0 >&3; else env -0 >&3; fi\n");
    // Many scripts are written for bash, whatever their suffix is.
    let shell = match Path::new("/bin/bash").exists() {
        true => "/bin/bash",
        false => "/bin/sh",
    };
    let unnamed = || match temporary {
        Some(folder) => tempfile::tempfile_in(folder),
        None => tempfile::tempfile(),
    };
    let (mut out, mut err) = (unnamed()?, unnamed()?);
    let mut child = Command::new(shell)
        .arg("-c")
        .arg(&text)
        .arg("nb")
        .args(&arguments)
        .env_clear()
        .envs(variables)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(err.try_clone()?)
        // A separate process group, so that a timeout also kills the processes that the scripts have started.
        .process_group(0)
        .spawn()?;
    let deadline = Instant::now() + SCRIPTS_TIMEOUT;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            let group = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = child.wait();
            let limit = format!("its scripts took more than {} s", SCRIPTS_TIMEOUT.as_secs());
            return Err(io::Error::other(limit));
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let [result, err] = [&mut out, &mut err].map(read_whole);
    let result = parse(&result?);
    if !status.success() || !result.contains_key(OsStr::new("PATH")) {
        let err = err?;
        let err = String::from_utf8_lossy(&err);
        let last = err.lines().last().unwrap_or("its scripts ended the shell");
        return Err(io::Error::other(last.to_owned()));
    }
    Ok(Some(result))
}

fn read_whole(file: &mut std::fs::File) -> io::Result<Vec<u8>> {
    use std::io::{Read, Seek};
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Parses the output of `env -0`, without the variables that a shell adds.
fn parse(bytes: &[u8]) -> BTreeMap<OsString, OsString> {
    let pairs = bytes.split(|byte| *byte == 0).filter_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = pair.split_at(at);
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((text(name), text(value.get(1..)?)))
    });
    let of_shell = ["_", "SHLVL", "PWD", "OLDPWD"].map(OsString::from);
    pairs.filter(|(name, _)| !of_shell.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        pairs
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    fn write(file: PathBuf, text: &str) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    fn set<'a>(change: &'a VariableChanges, name: &str) -> Option<&'a str> {
        change.set.get(OsStr::new(name))?.to_str()
    }

    #[test]
    fn a_conda_environment_is_entered_by_its_scripts_and_the_old_one_is_left() {
        let temp = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "my new"].map(|name| temp.path().join("envs").join(name));
        write(new.join("conda-meta/history"), "");
        write(
            new.join("etc/conda/activate.d/a.sh"),
            "echo noise\nexport DATA=\"$CONDA_PREFIX/share\"\nexport LINES_=\"a\nb\"\n",
        );
        write(
            new.join("etc/conda/activate.d/b.sh"),
            "export DATA=\"$DATA:$OLD\"\n",
        );
        write(new.join("etc/conda/activate.d/c.fish"), "exit 1");
        write(
            new.join("etc/conda/env_vars.d/p.json"),
            r#"{"P":"1","Q":"1"}"#,
        );
        write(
            new.join("conda-meta/state"),
            r#"{"env_vars":{"Q":"2","R":"***unset***"}}"#,
        );
        write(
            old.join("etc/conda/deactivate.d/a.sh"),
            "unset FROM_OLD\nexport OLD=\"left ${CONDA_PREFIX##*/}\"\n",
        );
        let path = format!("/first:{}/bin:/usr/bin:/bin", old.display());
        let before = variables(&[
            ("PATH", &path),
            ("CONDA_PREFIX", old.to_str().unwrap()),
            ("CONDA_PREFIX_1", "/base"),
            ("CONDA_SHLVL", "2"),
            ("CONDA_EXE", "/base/bin/conda"),
            ("FROM_OLD", "1"),
            ("VIRTUAL_ENV", "/v"),
            ("HOME", "/h"),
        ]);
        let change = activate(&new, &before);
        assert_eq!(change.problem, None);
        let prefix = new.to_str().unwrap();
        let path = format!("{prefix}/bin:/first:/usr/bin:/bin");
        assert_eq!(set(&change, "PATH"), Some(&*path));
        assert_eq!(set(&change, "CONDA_PREFIX"), Some(prefix));
        assert_eq!(set(&change, "CONDA_DEFAULT_ENV"), Some("my new"));
        assert_eq!(set(&change, "CONDA_SHLVL"), Some("1"));
        assert_eq!(
            set(&change, "DATA"),
            Some(&*format!("{prefix}/share:left old"))
        );
        assert_eq!(set(&change, "LINES_"), Some("a\nb"));
        assert_eq!(
            (set(&change, "P"), set(&change, "Q")),
            (Some("1"), Some("2"))
        );
        assert_eq!(set(&change, "CONDA_EXE"), None, "it stays as it is");
        let removed: Vec<_> = change.remove.iter().filter_map(|it| it.to_str()).collect();
        assert_eq!(removed, ["CONDA_PREFIX_1", "FROM_OLD", "VIRTUAL_ENV"]);
        let before = std::collections::HashMap::from([("HOME", "/h"), ("VIRTUAL_ENV", "/v")]);
        let after = change.of(&before);
        assert_eq!(after.get("HOME"), Some("/h".into()));
        assert_eq!(after.get("VIRTUAL_ENV"), None);
        assert_eq!(after.get("P"), Some("1".into()));
    }

    #[test]
    fn a_start_in_a_sandbox_is_prepared_without_running_a_script() {
        let temp = tempfile::tempdir().unwrap();
        let (prefix, canary) = (temp.path().join("env"), temp.path().join("ran"));
        write(prefix.join("conda-meta/history"), "");
        let script = prefix.join("etc/conda/activate.d/x.sh");
        let text = format!(
            "touch {}\nexport DATA=\"$CONDA_PREFIX/share\"\n",
            canary.display()
        );
        write(script.clone(), &text);
        write(prefix.join("etc/conda/env_vars.d/p.json"), r#"{"P":"1"}"#);
        // The environment is active already.
        let before = variables(&[
            ("PATH", "/usr/bin:/bin"),
            ("CONDA_PREFIX", prefix.to_str().unwrap()),
            ("VIRTUAL_ENV", "/v"),
            ("P", "1"),
            ("API_KEY", "secret"),
        ]);
        let (change, scripts) = prepare(&prefix, &before);
        assert!(!canary.exists(), "a script was run");
        assert_eq!(scripts, [script]);
        let names: Vec<_> = change
            .set
            .keys()
            .map(|name| name.to_str().unwrap())
            .collect();
        let conda = [
            "CONDA_DEFAULT_ENV",
            "CONDA_PREFIX",
            "CONDA_PROMPT_MODIFIER",
            "CONDA_SHLVL",
        ];
        assert_eq!(names, [&conda[..], &["P", "PATH"]].concat());
        assert_eq!(change.remove, ["VIRTUAL_ENV"]);
        let (left, problem) = run_inside(&scripts, change.set, temp.path());
        assert!(canary.exists() && problem.is_none());
        let data = prefix.join("share").into_os_string();
        assert_eq!(left.get(OsStr::new("DATA")), Some(&data));
    }

    #[test]
    fn failing_scripts_are_reported_and_change_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        let prefix = temp.path();
        write(prefix.join("conda-meta/history"), "");
        write(
            prefix.join("etc/conda/activate.d/a.sh"),
            "export A=1\necho no licence >&2\nexit 3\n",
        );
        let change = activate(prefix, &variables(&[("PATH", "/bin")]));
        let problem = change.problem.clone().unwrap();
        assert!(
            problem.ends_with("was not activated: no licence"),
            "{problem}"
        );
        assert_eq!(set(&change, "A"), None);
        assert_eq!(set(&change, "CONDA_PREFIX"), prefix.to_str());
        assert_eq!(
            set(&change, "CONDA_DEFAULT_ENV"),
            prefix.to_str(),
            "it is in no envs folder"
        );
        // A failing command in a script is ignored, as conda does.
        write(
            prefix.join("etc/conda/activate.d/a.sh"),
            "false\nexport A=1\n",
        );
        let change = activate(prefix, &variables(&[("PATH", "/bin")]));
        assert_eq!(
            (change.problem.as_deref(), set(&change, "A")),
            (None, Some("1"))
        );
    }

    #[test]
    fn a_venv_goes_before_the_path_and_needs_no_shell() {
        let temp = tempfile::tempdir().unwrap();
        let venv = temp.path();
        write(venv.join("pyvenv.cfg"), "");
        write(venv.join("bin/python"), "");
        assert_eq!(around(&venv.join("bin/python")), Some(venv.to_owned()));
        assert_eq!(around(Path::new("/usr/bin/env")), None);
        assert_eq!(around(Path::new("python")), None);
        let before = [
            ("PATH", "/conda/bin:/v/bin:/bin"),
            ("CONDA_PREFIX", "/conda"),
            ("VIRTUAL_ENV", "/v"),
            ("PYTHONHOME", "/x"),
        ];
        let change = activate(venv, &variables(&before));
        let path = format!("{}/bin:/conda/bin:/bin", venv.display());
        assert_eq!(set(&change, "PATH"), Some(&*path));
        assert_eq!(set(&change, "VIRTUAL_ENV"), venv.to_str());
        assert_eq!(change.remove, ["PYTHONHOME"]);
        assert_eq!(set(&change, "CONDA_PREFIX"), None);
    }

    #[test]
    fn the_output_of_env_is_read_as_bytes() {
        let read = parse(b"A=1=2\0B=\xff\n\0_=x\0SHLVL=3\0broken\0");
        assert_eq!(read.len(), 2);
        assert_eq!(read[OsStr::new("A")], "1=2");
        assert_eq!(read[OsStr::new("B")].as_bytes(), b"\xff\n");
    }
}
