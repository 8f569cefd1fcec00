//! Kernelspecs: finds and reads them, and makes the commands that they define.

use std::ffi::OsString;
use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

use super::quirks;
use crate::kernel::environment::trust::{self, Untrusted};
use crate::kernel::foreign_file;
use crate::kernel::variables::Variables;
use crate::project::{InterruptMode, RealSpec};

/// The file stem of the program that front ends start; a spec that starts it is not a kernel's.
pub const PROXY: &str = "nb-proxy";

/// The name of the spec by which front ends find the proxy, and the prefix of other languages' specs.
pub const SHARED: &str = "nb-shared";

/// The script that the kernelspec of the Python package runs. It must never change: VS Code recognises a kernel
/// by its spec's arguments.
const LAUNCHER: &str = "{resource_dir}/nb-proxy.py";

/// Returns whether a kernelspec's name is one of `nb`'s, for Python or for another language.
pub fn is_shared_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let rest = name.strip_prefix(SHARED);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Returns the name of `nb`'s spec for a language: Python's is [`SHARED`].
///
/// Jupyter allows letters, digits, `.`, `-` and `_` in names and ignores their case.
pub fn shared_name(language: &str) -> String {
    if is_python(language) {
        return SHARED.to_owned();
    }
    let mut name = format!("{SHARED}-");
    for letter in language.to_lowercase().chars() {
        match letter {
            'a'..='z' | '0'..='9' | '.' | '_' => name.push(letter),
            '+' => name.push('p'),
            '#' => name.push_str("sharp"),
            _ => name.push('-'),
        }
    }
    name
}

/// Returns the display name of `nb`'s spec for a language.
pub fn shared_display_name(language: &str) -> String {
    if is_python(language) {
        "nb shared kernel".to_owned()
    } else {
        format!("nb shared kernel ({language})")
    }
}

/// Returns whether a language is Python; an empty one counts as Python.
pub fn is_python(language: &str) -> bool {
    language.is_empty() || language.eq_ignore_ascii_case("python")
}

/// Why a spec could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not a kernelspec.
    #[error("{} is not a kernelspec", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The syntax error.
        source: serde_json::Error,
    },
    /// A sandboxed kernel may have written the spec, with any command, or with any folder for the next
    /// sandbox to show.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// The spec's command cannot start a kernel.
    #[error("{} starts no kernel: {why}", path.display())]
    Command {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

/// A kernelspec as Jupyter would list it.
#[derive(Debug)]
pub struct InstalledSpec {
    /// Its name, in lower case as in Jupyter.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// The spec, if it is usable.
    pub spec: Result<RealSpec, SpecError>,
}

/// Reads the spec in a folder.
pub fn read(folder: &Path) -> Result<RealSpec, SpecError> {
    let path = folder.join("kernel.json");
    trust::check("the kernelspec", &path)?;
    let bytes = foreign_file::read(&path).map_err(|source| SpecError::Read {
        path: path.clone(),
        source,
    })?;
    let mut spec: RealSpec = parse(&bytes).map_err(|source| SpecError::Damaged { path, source })?;
    let name = folder.file_name().unwrap_or_default();
    // Jupyter's name for a spec is in lower case, whatever the case of its folder's name is.
    spec.name = name.to_string_lossy().to_lowercase();
    spec.resource_dir = Some(folder.to_owned());
    Ok(spec)
}

fn parse(bytes: &[u8]) -> serde_json::Result<RealSpec> {
    let mut fields: serde_json::Map<String, Value> = serde_json::from_slice(bytes)?;
    // The folder's name counts, not a name in the file.
    fields.insert("name".to_owned(), Value::String(String::new()));
    let mode = fields.get("interrupt_mode").and_then(Value::as_str);
    // Jupyter ignores its case.
    let mode = mode.map(str::to_lowercase);
    let is_said = mode.is_some();
    if let Some(mode) = mode {
        fields.insert("interrupt_mode".to_owned(), Value::String(mode));
    }
    let mut spec: RealSpec = serde_json::from_value(Value::Object(fields))?;
    if !is_said && quirks::dies_of_interrupts(&spec.argv) {
        spec.interrupt_mode = InterruptMode::Message;
    }
    Ok(spec)
}

/// Checks that a spec that was read can start a kernel here; the error says why not.
pub fn check(spec: &RealSpec) -> Result<(), SpecError> {
    let path = spec.resource_dir.clone().unwrap_or_default();
    let path = path.join("kernel.json");
    let wrong = |why: String| Err(SpecError::Command { path, why });
    let names_file = |argument: &String| argument.contains("{connection_file}");
    if spec.argv.first().is_none_or(String::is_empty) {
        return wrong("its argv is empty".to_owned());
    }
    if !spec.argv.iter().any(names_file) {
        let why = "no argument of its argv is or holds {connection_file}, so that the kernel \
                   would not know where to listen";
        return wrong(why.to_owned());
    }
    let metadata = spec.other.get("metadata").unwrap_or(&Value::Null);
    match metadata["kernel_provisioner"]["provisioner_name"].as_str() {
        Some("local-provisioner") | None => Ok(()),
        Some(other) => wrong(format!(
            "Jupyter starts it through the provisioner {other}, and nb as a process of this machine only"
        )),
    }
}

/// Returns the spec with this name that is a real kernel, from the first folder that has it.
///
/// As in Jupyter, a damaged spec still hides those of the same name in later folders.
pub fn find(name: &str, folders: &[PathBuf]) -> Option<Result<RealSpec, SpecError>> {
    let name = name.to_lowercase();
    let all = folders.iter().flat_map(|folder| entries(folder));
    all.filter(|(installed, _)| *installed == name)
        .map(|(_, folder)| read(&folder))
        .find(|spec| !spec.as_ref().is_ok_and(is_proxy))
        .map(|spec| spec.and_then(|spec| check(&spec).map(|()| spec)))
}

/// Returns every spec as Jupyter lists them; of equal names the first folder's, damaged or not.
pub fn installed(folders: &[PathBuf]) -> Vec<InstalledSpec> {
    first_of_each_name(folders, |_| true)
}

/// Returns every spec of a real kernel, usable or not; of equal names the first folder's.
pub fn kernels(folders: &[PathBuf]) -> Vec<InstalledSpec> {
    first_of_each_name(folders, |installed| match &installed.spec {
        Ok(spec) => !is_proxy(spec),
        Err(_) => !is_shared_name(&installed.name),
    })
}

/// Returns every usable spec of a real kernel; of equal names the first folder's.
pub fn list(folders: &[PathBuf]) -> Vec<RealSpec> {
    let kernels = kernels(folders).into_iter();
    let specs = kernels.filter_map(|installed| installed.spec.ok());
    specs.filter(|spec| check(spec).is_ok()).collect()
}

fn first_of_each_name(
    folders: &[PathBuf],
    counts: impl Fn(&InstalledSpec) -> bool,
) -> Vec<InstalledSpec> {
    let mut all: Vec<InstalledSpec> = Vec::new();
    for (name, folder) in folders.iter().flat_map(|folder| entries(folder)) {
        let spec = read(&folder);
        let installed = InstalledSpec { name, folder, spec };
        if counts(&installed) && !all.iter().any(|known| known.name == installed.name) {
            all.push(installed);
        }
    }
    all
}

/// Returns the folders with a `kernel.json` in a folder, by their names in lower case.
///
/// Names are compared with folder names and never joined to a path: a notebook might contain any path as a
/// name.
fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let with_spec = entries.filter(|entry| entry.path().join("kernel.json").is_file());
    let name = |entry: &DirEntry| entry.file_name().to_string_lossy().to_lowercase();
    let mut named: Vec<_> = with_spec.map(|it| (name(&it), it.path())).collect();
    named.sort();
    named
}

/// Returns whether the spec starts `nb-proxy`, by its command or by its name, since a wrapper may start it.
pub fn is_proxy(spec: &RealSpec) -> bool {
    is_shared_name(&spec.name) || starts_proxy(spec)
}

/// Returns whether the spec's command is `nb-proxy`.
pub fn starts_proxy(spec: &RealSpec) -> bool {
    proxy_program(spec).is_some()
}

/// Returns the path of the `nb-proxy` that the spec's command starts.
pub fn proxy_program(spec: &RealSpec) -> Option<PathBuf> {
    let first = Path::new(spec.argv.first()?.trim_matches('"'));
    let is_proxy = first.file_stem() == Some(PROXY.as_ref());
    is_proxy
        .then(|| first.to_owned())
        .or_else(|| packaged_proxy(spec))
}

/// Returns the path of `nb-proxy` if the spec is that of the Python package, whose command is a Python with
/// the package's script: the program of its environment.
pub fn packaged_proxy(spec: &RealSpec) -> Option<PathBuf> {
    let is_ours = is_bare_python(spec.argv.first()?) && spec.argv.get(1)? == LAUNCHER;
    let prefix = prefix(spec).filter(|_| is_ours)?;
    Some(prefix.join("bin").join(PROXY))
}

/// Returns the command that starts the kernel.
///
/// As in `jupyter_client`, a bare `python` means the Python to which the spec belongs: the one above its
/// folder if there is one, else the one on `PATH`.
pub fn command(spec: &RealSpec, connection_file: &Path) -> Vec<OsString> {
    let resources = spec.resource_dir.as_deref().unwrap_or(Path::new(""));
    let prefix = prefix(spec);
    let expand = |argument: &String| {
        let argument = argument
            .replace("{connection_file}", &connection_file.to_string_lossy())
            .replace("{resource_dir}", &resources.to_string_lossy());
        match &prefix {
            Some(prefix) => argument.replace("{prefix}", &prefix.to_string_lossy()),
            None => argument,
        }
    };
    let mut argv: Vec<OsString> = spec.argv.iter().map(expand).map(OsString::from).collect();
    if let (Some(program), Some(prefix)) = (argv.first_mut(), prefix)
        && is_bare_python(&program.to_string_lossy())
    {
        let own = prefix.join("bin").join(&*program);
        if own.is_file() {
            *program = own.into_os_string();
        }
    }
    argv
}

/// Returns the `sys.prefix` under which a spec's folder lies: `<prefix>/share/jupyter/kernels/x`.
pub(in crate::kernel) fn prefix(spec: &RealSpec) -> Option<PathBuf> {
    let kernels = spec.resource_dir.as_deref()?.parent()?;
    let prefix = kernels.ancestors().nth(3)?;
    kernels
        .ends_with("share/jupyter/kernels")
        .then(|| prefix.to_owned())
}

fn is_bare_python(program: &str) -> bool {
    let version = program.strip_prefix("python");
    version.is_some_and(|it| it.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// Returns whether a kernel chooses its own TCP ports if its connection file contains 0, and writes them
/// there, as ipykernel does. Then no other program can take a port before the kernel has it.
pub fn chooses_ports(spec: &RealSpec) -> bool {
    let module = spec.argv.iter().skip_while(|word| *word != "-m").nth(1);
    module.is_some_and(|it| matches!(it.as_str(), "ipykernel_launcher" | "ipykernel"))
}

/// Returns the variables that the spec sets, with `${NAME}` replaced from the environment.
pub fn environment(spec: &RealSpec, variables: &dyn Variables) -> Vec<(OsString, OsString)> {
    let strings = spec.env.iter();
    let strings = strings.filter_map(|(name, value)| Some((name, value.as_str()?)));
    strings
        .map(|(name, value)| (name.into(), substitute(value, variables).into()))
        .collect()
}

/// Replaces `$NAME` and `${NAME}` like Python's `Template.safe_substitute`: unknown names stay.
pub(in crate::kernel) fn substitute(text: &str, variables: &dyn Variables) -> String {
    static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = r"\$(?:(\$)|([A-Za-z0-9_]+)|\{([A-Za-z0-9_]+)\})";
        Regex::new(pattern).expect("the pattern is right")
    });
    let value = |captures: &Captures<'_>| {
        if captures.get(1).is_some() {
            return "$".to_owned();
        }
        let name = captures
            .get(2)
            .or(captures.get(3))
            .map_or("", |it| it.as_str());
        match variables.get(name) {
            Some(value) => value.to_string_lossy().into_owned(),
            None => captures[0].to_owned(),
        }
    };
    match text.contains('$') {
        true => PLACEHOLDER.replace_all(text, value).into_owned(),
        false => text.to_owned(),
    }
}

/// Returns whether a spec's program exists. A bare name always counts: the system searches for it on `PATH`.
pub(super) fn is_there(spec: &RealSpec) -> bool {
    let argv = command(spec, Path::new(""));
    let mut program = argv.first().map(Path::new).into_iter();
    program.any(|program| program.components().count() == 1 || program.exists())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn install(folder: &Path, name: &str, text: &str) {
        std::fs::create_dir_all(folder.join(name)).unwrap();
        std::fs::write(folder.join(name).join("kernel.json"), text).unwrap();
    }

    #[test]
    fn a_spec_of_the_proxy_is_never_a_kernel() {
        let temp = tempfile::tempdir().unwrap();
        let (first, second) = (temp.path().join("1"), temp.path().join("2"));
        install(
            &first,
            "python3",
            r#"{"argv":["/d/nb-proxy","-f","{connection_file}"]}"#,
        );
        install(
            &second,
            "Python3",
            r#"{"argv":["python","-f","{connection_file}"]}"#,
        );
        let folders = [first, second.clone()];
        let spec = find("python3", &folders).unwrap().unwrap();
        assert_eq!(spec.resource_dir, Some(second.join("Python3")));
        assert_eq!(list(&folders).len(), 1);
        assert!(find("julia", &folders).is_none());
    }

    #[test]
    fn each_language_has_a_spec_of_ours_that_is_never_a_kernel() {
        for (language, name) in [
            ("python", "nb-shared"),
            ("Python", "nb-shared"),
            ("R", "nb-shared-r"),
            ("C++17", "nb-shared-cpp17"),
            ("c#", "nb-shared-csharp"),
            ("Wolfram Language", "nb-shared-wolfram-language"),
            ("日本", "nb-shared---"),
        ] {
            assert_eq!(shared_name(language), name);
            assert!(is_shared_name(name));
        }
        assert!(is_shared_name("NB-Shared-R"));
        assert!(!is_shared_name("nb-sharedx") && !is_shared_name("python3"));
        let temp = tempfile::tempdir().unwrap();
        install(temp.path(), "nb-shared-r", r#"{"argv":["env","nb-proxy"]}"#);
        assert!(list(&[temp.path().to_owned()]).is_empty());
    }

    #[test]
    fn names_have_no_case_and_are_no_paths() {
        let temp = tempfile::tempdir().unwrap();
        let (first, second) = (temp.path().join("1"), temp.path().join("2"));
        let text = r#"{"argv":["r","{connection_file}"]}"#;
        install(&first, "IR", text);
        install(&second, "ir", text);
        install(&second, "other", text);
        let folders = [first.clone(), second.clone()];
        let spec = find("Ir", &folders).unwrap().unwrap();
        assert_eq!(spec.name, "ir");
        assert_eq!(spec.resource_dir, Some(first.join("IR")));
        let names: Vec<_> = list(&folders).into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["ir", "other"]);
        let path = second.join("other");
        assert!(find(path.to_str().unwrap(), &folders).is_none());
        assert!(find("../2/other", &folders).is_none());
    }

    #[test]
    fn a_spec_that_can_start_nothing_says_why_and_hides_what_is_behind_it() {
        let temp = tempfile::tempdir().unwrap();
        let (first, second) = (temp.path().join("1"), temp.path().join("2"));
        install(&second, "r", r#"{"argv":["r","{connection_file}"]}"#);
        let folders = [first.clone(), second];
        let error = |text: &str| {
            install(&first, "r", text);
            assert!(list(&folders).is_empty());
            let error = find("r", &folders).unwrap().unwrap_err();
            let why = std::error::Error::source(&error);
            format!(
                "{error}: {}",
                why.map(ToString::to_string).unwrap_or_default()
            )
        };
        assert!(error(r#"{"display_name":"R"}"#).contains("missing field `argv`"));
        assert!(error(r#"{"argv":"R -f"}"#).contains("expected a sequence"));
        assert!(error(r#"{"argv":["R",1]}"#).contains("expected a string"));
        assert!(error("[]").contains("expected a map"));
        assert!(error(r#"{"argv":[]}"#).contains("argv is empty"));
        assert!(error(r#"{"argv":["R"]}"#).contains("{connection_file}"));
        let far = r#"{"argv":["R","{connection_file}"],
            "metadata":{"kernel_provisioner":{"provisioner_name":"yarn"}}}"#;
        assert!(error(far).contains("provisioner yarn"));
    }

    #[test]
    fn the_interrupt_mode_is_read_or_known_for_specs_without_one() {
        let temp = tempfile::tempdir().unwrap();
        let mode = |text: &str| {
            install(temp.path(), "k", text);
            read(&temp.path().join("k")).unwrap().interrupt_mode
        };
        let deno = r#""argv":["/x/deno","jupyter","--kernel","--conn","{connection_file}"]"#;
        assert_eq!(mode(&format!("{{{deno}}}")), InterruptMode::Message);
        let text = format!(r#"{{{deno},"interrupt_mode":"Signal"}}"#);
        assert_eq!(mode(&text), InterruptMode::Signal);
        let bash = r#"{"argv":["python","-m","bash_kernel"]}"#;
        assert_eq!(mode(bash), InterruptMode::Signal);
        let xpython = r#"{"argv":["python3.11","-m","xpython_launcher"]}"#;
        assert_eq!(mode(xpython), InterruptMode::Message);
    }

    #[test]
    fn a_damaged_spec_is_named() {
        let temp = tempfile::tempdir().unwrap();
        install(temp.path(), "r", "{");
        let error = find("r", &[temp.path().to_owned()]).unwrap().unwrap_err();
        assert!(
            error
                .to_string()
                .contains("r/kernel.json is not a kernelspec"),
            "{error}"
        );
    }

    #[test]
    fn a_bare_python_is_the_one_above_the_spec() {
        let temp = tempfile::tempdir().unwrap();
        let kernels = temp.path().join("share/jupyter/kernels");
        let text = r#"{"argv":["python","{resource_dir}/k.py","{connection_file}"],
            "env":{"A":"${X}/$Y$$","B":"$NONE ${X"}}"#;
        install(&kernels, "py", text);
        let spec = read(&kernels.join("py")).unwrap();
        let argv = command(&spec, Path::new("/c.json"));
        assert_eq!(argv[0], "python");
        assert_eq!(argv[1], kernels.join("py/k.py").into_os_string());
        assert_eq!(argv[2], "/c.json");
        std::fs::create_dir(temp.path().join("bin")).unwrap();
        std::fs::write(temp.path().join("bin/python"), "").unwrap();
        let argv = command(&spec, Path::new("/c.json"));
        assert_eq!(argv[0], temp.path().join("bin/python").into_os_string());
        let variables = HashMap::from([("X", "x"), ("Y", "y")]);
        let environment = environment(&spec, &variables);
        assert_eq!(environment[0].1, "x/y$");
        assert_eq!(environment[1].1, "$NONE ${X");
    }
}
