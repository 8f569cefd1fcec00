//! Front-end detection: which program launched this process, according to its environment.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::kernel::variables::Variables;
use crate::project::session_name;
use crate::route::FrontEnd;

/// The variable that names the front end.
const NAME: &str = "NB_FRONT_END";

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
        let given = variables.get(NAME).filter(|it| !it.is_empty());
        let name = match (given, vs_code, server, client) {
            (Some(name), ..) => name.to_string_lossy().into_owned(),
            (_, true, ..) => "VS Code".to_owned(),
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
    pub(super) fn by(&self) -> String {
        format!("human ({})", self.name)
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
    let here = folder.join(spellings.last()?.file_name()?);
    let mut candidates = Vec::new();
    for name in spellings {
        if name.is_absolute() {
            candidates.push(name.clone());
        }
        candidates.extend(name.file_name().map(|name| folder.join(name)));
    }
    let found = candidates.into_iter().find(|path| exists(path));
    Some(found.unwrap_or(here))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn front_ends_are_recognised_by_what_they_set() {
        let with = |names: &[&'static str]| {
            let variables: HashMap<&str, &str> = names.iter().map(|name| (*name, "1")).collect();
            let found = DetectedFrontEnd::read(&variables);
            (found.name, found.kind)
        };
        let named = |name: &str, kind| (name.to_owned(), kind);
        assert_eq!(with(&["VSCODE_PID"]), named("VS Code", FrontEnd::VsCode));
        assert_eq!(
            with(&["VSCODE_PID", "JPY_PARENT_PID"]),
            named("VS Code", FrontEnd::Other),
            "what jupyter_client launches is no launch by the extension"
        );
        assert_eq!(
            with(&["JPY_SESSION_NAME", "JPY_PARENT_PID"]),
            named("JupyterLab", FrontEnd::Jupyter)
        );
        assert_eq!(with(&["JPY_PARENT_PID"]), named("Jupyter", FrontEnd::Other));
        assert_eq!(with(&[]), named("a Jupyter client", FrontEnd::Other));
        let given = HashMap::from([("NB_FRONT_END", "Jupyter"), ("JPY_SESSION_NAME", "t.ipynb")]);
        let found = DetectedFrontEnd::read(&given);
        assert_eq!(
            (found.name, found.kind),
            named("Jupyter", FrontEnd::Jupyter)
        );
    }

    #[test]
    fn the_language_is_the_specs() {
        let language =
            |value| DetectedFrontEnd::read(&HashMap::from([("NB_LANGUAGE", value)])).language;
        assert_eq!(language("R"), "R");
        assert_eq!(language(""), "python");
    }

    #[test]
    fn a_session_name_leads_to_the_notebook() {
        let there = ["/srv/a/t.ipynb", "/srv/a/two words.ipynb", "/other/u.ipynb"];
        let found = |name: &str| {
            notebook_of(OsStr::new(name), Path::new("/srv/a"), |path| {
                there.iter().any(|known| Path::new(known) == path)
            })
        };
        for (name, notebook) in [
            ("/srv/a/t.ipynb", there[0]),
            ("a/t.ipynb", there[0]),
            ("t.ipynb", there[0]),
            ("a/two words.ipynb", there[1]),
            ("/other/u.ipynb", there[2]),
            ("RTC:a/t.ipynb", there[0]),
            ("/srv/RTC:t.ipynb", there[0]),
            ("/srv/RTC:a/t.ipynb", there[0]),
            ("/srv/a/t-jvsc-0a1b.ipynb", there[0]),
            ("t-jvsc-0a1b.ipynb", there[0]),
            ("/bucket/RTC:remote.ipynb", "/srv/a/remote.ipynb"),
            ("remote-jvsc-0a1b.ipynb", "/srv/a/remote.ipynb"),
        ] {
            assert_eq!(found(name), Some(PathBuf::from(notebook)), "{name}");
        }
        for name in ["console 1", "", "/srv/a/", "/srv/a/t.py", ".ipynb"] {
            assert_eq!(found(name), None, "{name}");
        }
    }
}
