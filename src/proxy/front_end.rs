//! Front-end detection: which program launched this process, according to its environment.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::kernel::variables::Variables;
use crate::project::joined::{JoinedFrontEnd, person_at};
use crate::project::session_name;
use crate::route::FrontEnd;

/// The variable that names the front end.
const NAME_VARIABLE: &str = "NB_FRONT_END";

/// The front end that launched this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DetectedFrontEnd {
    /// Its name for users: `VS Code`, `JupyterLab`, …
    pub(super) name: String,
    /// Its kind, by which the bridge interprets its messages.
    pub(super) kind: FrontEnd,
    /// The language of the kernelspec that the user chose.
    pub(super) language: String,
}

impl DetectedFrontEnd {
    /// Reads the environment.
    pub(super) fn read(variables: &dyn Variables) -> Self {
        let has = |name| variables.get(name).is_some();
        // VS Code's extension host passes on its own variables, which its terminals do not have.
        let vs_code = [
            "VSCODE_PID",
            "VSCODE_CWD",
            "VSCODE_IPC_HOOK",
            "VSCODE_NLS_CONFIG",
        ]
        .into_iter()
        .any(has);
        // jupyter_client sets the parent's pid, jupyter_server also the session's name. When VS Code uses
        // kernels of a server, the server launches them.
        let (server, client) = (has("JPY_SESSION_NAME"), has("JPY_PARENT_PID"));
        // `nb web` gives the name, since it serves more than one front end.
        let explicit_name = variables.get(NAME_VARIABLE).filter(|it| !it.is_empty());
        let name = match (explicit_name, vs_code, server, client) {
            (Some(name), ..) => name.to_string_lossy().into_owned(),
            (_, true, ..) => JoinedFrontEnd::VS_CODE.to_owned(),
            (_, _, true, _) => "JupyterLab".to_owned(),
            (.., true) => "Jupyter".to_owned(),
            _ => "a Jupyter client".to_owned(),
        };
        let kind = match (vs_code, server, client) {
            (_, true, _) => FrontEnd::Jupyter,
            (true, _, false) => FrontEnd::VsCode,
            _ => FrontEnd::Other,
        };
        let language = variables.get("NB_LANGUAGE").filter(|it| !it.is_empty());
        let language = language.unwrap_or_else(|| "python".into());
        Self {
            name,
            kind,
            language: language.to_string_lossy().into_owned(),
        }
    }

    /// Returns the actor that its user's edits and cells are recorded under.
    pub(super) fn actor(&self) -> String {
        person_at(&self.name)
    }
}

/// Returns the notebook that a Jupyter server's `JPY_SESSION_NAME` points to.
///
/// The server joins the notebook's folder and the session's name. A session without a name has the path in
/// the server's API, relative to the server's root, while the working directory is the notebook's folder.
/// A console's session name is not a notebook's. A notebook that is not on this disk, because the server stores
/// its contents in another place, is treated as if it were: it gets its own kernel, never another notebook's.
pub(super) fn notebook_of(
    session_name: &OsStr,
    folder: &Path,
    exists: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let spellings = session_name::spellings(Path::new(session_name));
    let default = folder.join(spellings.last()?.file_name()?);
    let mut candidates = Vec::new();
    for name in spellings {
        if name.is_absolute() {
            candidates.push(name.clone());
        }
        candidates.extend(name.file_name().map(|name| folder.join(name)));
    }
    let existing = candidates.into_iter().find(|path| exists(path));
    Some(existing.unwrap_or(default))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn front_ends_are_recognised_by_their_environment_variables() {
        let with = |names: &[&'static str]| {
            let variables: HashMap<&str, &str> = names.iter().map(|name| (*name, "1")).collect();
            let front_end = DetectedFrontEnd::read(&variables);
            (front_end.name, front_end.kind)
        };
        let expected = |name: &str, kind| (name.to_owned(), kind);
        assert_eq!(with(&["VSCODE_PID"]), expected("VS Code", FrontEnd::VsCode));
        assert_eq!(
            with(&["VSCODE_PID", "JPY_PARENT_PID"]),
            expected("VS Code", FrontEnd::Other),
            "what jupyter_client launches is not a launch by the extension"
        );
        assert_eq!(
            with(&["JPY_SESSION_NAME", "JPY_PARENT_PID"]),
            expected("JupyterLab", FrontEnd::Jupyter)
        );
        assert_eq!(
            with(&["JPY_PARENT_PID"]),
            expected("Jupyter", FrontEnd::Other)
        );
        assert_eq!(with(&[]), expected("a Jupyter client", FrontEnd::Other));
        let variables =
            HashMap::from([("NB_FRONT_END", "Jupyter"), ("JPY_SESSION_NAME", "t.ipynb")]);
        let front_end = DetectedFrontEnd::read(&variables);
        assert_eq!(
            (front_end.name, front_end.kind),
            expected("Jupyter", FrontEnd::Jupyter)
        );
    }

    #[test]
    fn the_language_is_that_of_the_kernelspec() {
        let language =
            |value| DetectedFrontEnd::read(&HashMap::from([("NB_LANGUAGE", value)])).language;
        assert_eq!(language("R"), "R");
        assert_eq!(language(""), "python");
    }

    #[test]
    fn a_session_name_leads_to_the_notebook() {
        let files = ["/srv/a/t.ipynb", "/srv/a/two words.ipynb", "/other/u.ipynb"];
        let notebook_of_name = |name: &str| {
            notebook_of(OsStr::new(name), Path::new("/srv/a"), |path| {
                files.iter().any(|file| Path::new(file) == path)
            })
        };
        for (name, notebook) in [
            ("/srv/a/t.ipynb", files[0]),
            ("a/t.ipynb", files[0]),
            ("t.ipynb", files[0]),
            ("a/two words.ipynb", files[1]),
            ("/other/u.ipynb", files[2]),
            ("RTC:a/t.ipynb", files[0]),
            ("/srv/RTC:t.ipynb", files[0]),
            ("/srv/RTC:a/t.ipynb", files[0]),
            ("/srv/a/t-jvsc-0a1b.ipynb", files[0]),
            ("t-jvsc-0a1b.ipynb", files[0]),
            ("/bucket/RTC:remote.ipynb", "/srv/a/remote.ipynb"),
            ("remote-jvsc-0a1b.ipynb", "/srv/a/remote.ipynb"),
        ] {
            assert_eq!(
                notebook_of_name(name),
                Some(PathBuf::from(notebook)),
                "{name}"
            );
        }
        for name in ["console 1", "", "/srv/a/", "/srv/a/t.py", ".ipynb"] {
            assert_eq!(notebook_of_name(name), None, "{name}");
        }
    }
}
