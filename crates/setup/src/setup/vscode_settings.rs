//! Two settings of VS Code for the folder of a project: save automatically, since an unsaved tab hides what others write,
//! and hide `.nb`.
//!
//! They are in `.vscode/settings.json`, which can be shared with others. All else in the file stays, its comments too.

use std::path::Path;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};

use super::planned_file::{PlannedFile, PlannedFileError, read};
use crate::project::Project;

/// The file, from the project's folder.
const FILE: &str = ".vscode/settings.json";

/// The file in `.nb` by which the person is asked once only.
const ASKED: &str = "asked-for-settings";

const AUTO_SAVE: [&str; 2] = ["files.autoSave", "afterDelay"];

const EXCLUDE: &str = "files.exclude";

const HIDDEN: &str = "**/.nb";

/// Returns the change of the settings of a folder that adds the two, or takes them out again. Nothing is written.
///
/// A setting that the user has is left as it is, whatever its value; only what has the value of `nb` is taken out.
///
/// # Errors
/// The file is a link, or is not what VS Code reads.
pub fn planned(folder: &Path, removes: bool) -> Result<PlannedFile, PlannedFileError> {
    let path = folder.join(FILE);
    let before = read(folder, Path::new(FILE))?;
    let after = match (&before, removes) {
        (None, true) => None,
        (Some(text), true) => removed(text, &path)?,
        (text, false) => Some(added(text.as_deref().unwrap_or_default(), &path)?),
    };
    Ok(PlannedFile {
        path,
        before,
        after,
    })
}

fn added(text: &str, path: &Path) -> Result<String, PlannedFileError> {
    let root = parse(text, path)?;
    let settings = object(&root, path)?;
    let [key, value] = AUTO_SAVE;
    if settings.get(key).is_none() {
        settings.append(key, CstInputValue::String(value.to_owned()));
    }
    match settings.get(EXCLUDE) {
        None => {
            let hidden = vec![(HIDDEN.to_owned(), CstInputValue::Bool(true))];
            settings.append(EXCLUDE, CstInputValue::Object(hidden));
        }
        Some(exclude) => {
            let patterns = exclude.object_value();
            let patterns = patterns
                .ok_or_else(|| unreadable(path, format!("{EXCLUDE:?} is not an object")))?;
            if patterns.get(HIDDEN).is_none() {
                patterns.append(HIDDEN, CstInputValue::Bool(true));
            }
        }
    }
    let text = root.to_string();
    Ok(match text.ends_with('\n') {
        true => text,
        false => text + "\n",
    })
}

fn removed(text: &str, path: &Path) -> Result<Option<String>, PlannedFileError> {
    let root = parse(text, path)?;
    let settings = object(&root, path)?;
    let [key, value] = AUTO_SAVE;
    if let Some(found) = settings.get(key)
        && let Some(set) = found.value()
        && set.to_string() == format!("{value:?}")
    {
        found.remove();
    }
    if let Some(exclude) = settings.get(EXCLUDE)
        && let Some(patterns) = exclude.object_value()
        && let Some(hidden) = patterns.get(HIDDEN)
    {
        hidden.remove();
        if patterns.properties().is_empty() {
            exclude.remove();
        }
    }
    let text = root.to_string();
    let is_empty =
        settings.properties().is_empty() && text.trim().trim_matches(['{', '}']).trim().is_empty();
    Ok((!is_empty).then_some(text))
}

fn parse(text: &str, path: &Path) -> Result<CstRootNode, PlannedFileError> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    let parsed = CstRootNode::parse(text, &ParseOptions::default());
    parsed.map_err(|error| unreadable(path, error.to_string()))
}

fn object(root: &CstRootNode, path: &Path) -> Result<CstObject, PlannedFileError> {
    let object = root.object_value();
    object.ok_or_else(|| unreadable(path, "it is not an object".to_owned()))
}

fn unreadable(path: &Path, why: String) -> PlannedFileError {
    let [key, value] = AUTO_SAVE;
    PlannedFileError::Unreadable {
        path: path.to_owned(),
        why,
        entry: format!("\"{key}\": \"{value}\", \"{EXCLUDE}\": {{\"{HIDDEN}\": true}}"),
    }
}

/// Returns whether the person is to be asked about the settings of a project: VS Code is used in its folder, and they
/// were not asked before.
pub fn is_to_ask(project: &Project, is_in_vscode: bool) -> bool {
    let is_used = is_in_vscode || project.root().join(".vscode").is_dir();
    is_used && !project.dir().join(ASKED).exists()
}

/// Records that the person was asked.
pub fn record_asked(project: &Project) {
    if let Err(error) = crate::project::beneath::create(&project.dir().join(ASKED)) {
        tracing::warn!("cannot record that the settings were offered: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds the settings to a text, and takes them out again.
    fn add_and_remove(text: &str) -> (String, Option<String>) {
        let path = Path::new("settings.json");
        let with = added(text, path).unwrap();
        assert_eq!(added(&with, path).unwrap(), with, "once is enough");
        let without = removed(&with, path).unwrap();
        (with, without)
    }

    #[test]
    fn comments_and_other_settings_stay() {
        let text = "{\n    // ours\n    \"editor.tabSize\": 3, // three\n}\n";
        let (with, without) = add_and_remove(text);
        assert!(
            with.contains("// ours") && with.contains("// three"),
            "{with}"
        );
        assert!(
            with.contains("\n    \"files.autoSave\": \"afterDelay\""),
            "{with}"
        );
        let without = without.unwrap();
        assert!(
            without.contains("// ours") && without.contains("// three"),
            "{without}"
        );
        assert!(!without.contains("files."), "{without}");
    }

    #[test]
    fn an_empty_file_is_removed_again() {
        let (with, without) = add_and_remove("");
        let settings: serde_json::Value = serde_json::from_str(&with).unwrap();
        let expected = serde_json::json!({
            "files.autoSave": "afterDelay", "files.exclude": { "**/.nb": true },
        });
        assert_eq!((settings, without), (expected, None));
    }

    #[test]
    fn what_the_user_has_set_is_theirs() {
        let text = r#"{"files.autoSave": "off", "files.exclude": {"**/.git": true}}"#;
        let (with, without) = add_and_remove(text);
        assert!(with.contains(r#""files.autoSave": "off""#), "{with}");
        assert!(with.contains(r#""**/.nb": true"#), "{with}");
        let without = without.unwrap();
        assert!(
            without.contains("\"off\"") && without.contains(".git"),
            "{without}"
        );
        assert!(!without.contains(".nb"), "{without}");
    }

    #[test]
    fn what_vs_code_cannot_read_is_not_changed() {
        for text in ["[]", "{", "3", r#"{"files.exclude": 3}"#] {
            let error = added(text, Path::new("settings.json")).unwrap_err();
            assert!(error.to_string().contains("add this yourself"), "{error}");
        }
    }

    #[test]
    fn a_link_is_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("/etc", folder.join(".vscode")).unwrap();
        assert!(matches!(
            planned(&folder, false),
            Err(PlannedFileError::Link(_))
        ));
    }
}
