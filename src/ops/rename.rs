//! Which kernelspec a notebook's file names: its real kernel's, or the one that front ends share.
//!
//! A front end writes the name of the kernelspec that was chosen there into the notebook. Where
//! `nb` is not installed (a colleague, CI, papermill) a notebook that names `nb-shared` does not
//! run, so the real kernel's name, which its session keeps, is put back when `nb` is done with it.

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::status::joined;
use crate::kernel::spec;
use crate::notebook::{Kernelspec, Named, NotANotebook, with_kernelspec};
use crate::project::{Lock, Project, RealSpec, State, lock_notebook, real_path, registry};

/// How often a notebook that somebody saves at the same moments is read anew.
const TRIES: usize = 5;

/// Why a notebook's file was left as it is.
#[derive(Debug, thiserror::Error)]
pub enum RenameError {
    /// It could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is not what a notebook is.
    #[error(transparent)]
    NotANotebook(#[from] NotANotebook),
    /// Somebody else writes it all the time.
    #[error("somebody saves it again and again")]
    Contended,
}

/// Puts the real kernel's name back into a notebook that names the shared one.
///
/// Returns what its user should know. What cannot be put back stops nothing.
pub(super) fn put_back(project: &Project, state: &State, key: &str) -> Option<String> {
    let notebook = project.notebook(key);
    let shared = match std::fs::read(&notebook) {
        Ok(text) => match Named::read(&text) {
            Ok(named) => named
                .kernelspec
                .is_some_and(|name| spec::is_shared_name(&name)),
            Err(error) => {
                return Some(format!(
                    "{key} was left as it is: {}",
                    with_cause(&RenameError::from(error))
                ));
            }
        },
        // The file was moved or never saved; nothing names anything.
        Err(_) => false,
    };
    if !shared {
        return None;
    }
    let real = state.session(key).and_then(|session| session.kernelspec);
    let Some(real) = real.filter(|spec| !spec.name.is_empty()) else {
        return Some(format!(
            "{key} names the kernelspec {} still: which real kernel it had is not known",
            spec::SHARED
        ));
    };
    match name(&notebook, &real) {
        Ok(true) => {
            let mut open = joined(project).into_iter();
            let open = open.any(|joined| joined.session.as_deref() == Some(key));
            let editor = if open {
                "; a front end that shows it sees that as a change on disk"
            } else {
                ""
            };
            Some(format!(
                "{key} names its own kernelspec {} again{editor}",
                real.name
            ))
        }
        Ok(false) => None,
        Err(error) => Some(format!(
            "{key} names the kernelspec {} still: {}",
            spec::SHARED,
            with_cause(&error)
        )),
    }
}

/// Puts the real kernels' names back in the notebooks of all the user's projects: the shared
/// kernelspec is no more. Returns what the user should know.
pub fn put_back_everywhere() -> Vec<String> {
    let projects = registry::known();
    let projects = projects.iter().filter_map(|known| known.project());
    let mut notes = Vec::new();
    for project in projects {
        let Ok(state) = project.state() else { continue };
        for key in state.sessions.keys() {
            let note = put_back(&project, &state, key);
            notes.extend(note.map(|note| format!("{}: {note}", project.root().display())));
        }
    }
    notes
}

/// Lets a notebook name the kernelspec that front ends share, so that JupyterLab starts it by
/// itself; says whether that changed the file. The session keeps the real one.
pub fn select(notebook: &Path, real: &RealSpec) -> Result<bool, RenameError> {
    let shared = Kernelspec {
        name: &spec::shared_name(&real.language),
        display_name: &spec::shared_display_name(&real.language),
        language: &real.language,
    };
    rewrite(notebook, |text| with_kernelspec(text, &shared))
}

/// Names a kernelspec in a notebook's file; says whether that changed it.
fn name(notebook: &Path, named: &RealSpec) -> Result<bool, RenameError> {
    let named = Kernelspec {
        name: &named.name,
        display_name: &named.display_name,
        language: &named.language,
    };
    rewrite(notebook, |text| with_kernelspec(text, &named))
}

/// Replaces a notebook's bytes by what `change` makes of them, unless somebody saves meanwhile:
/// then it is asked anew.
///
/// Links are followed; mode and owner stay.
fn rewrite(
    notebook: &Path,
    change: impl Fn(&[u8]) -> Result<Option<Vec<u8>>, NotANotebook>,
) -> Result<bool, RenameError> {
    // Where the lock cannot be had, as in a sandbox, the look before the exchange must do.
    let _lock: Option<Lock> = lock_notebook(notebook, Duration::from_secs(30)).ok();
    let real = real_path(notebook)?;
    let folder = real
        .parent()
        .ok_or_else(|| io::Error::other("it has no folder"))?;
    for _ in 0..TRIES {
        let before = std::fs::read(&real)?;
        let Some(after) = change(&before)? else {
            return Ok(false);
        };
        let found = std::fs::metadata(&real)?;
        let mut file = tempfile::Builder::new()
            .prefix(".nb-")
            .tempfile_in(folder)?;
        file.write_all(&after)?;
        file.as_file().set_permissions(found.permissions())?;
        if found.uid() != rustix::process::geteuid().as_raw() {
            // Root may edit another's notebook and must not take it from them.
            let _ = std::os::unix::fs::fchown(file.as_file(), Some(found.uid()), Some(found.gid()));
        }
        file.as_file().sync_all()?;
        if std::fs::read(&real)? != before {
            continue;
        }
        file.persist(&real).map_err(|error| error.error)?;
        // The name is on disk too, where the system can do that.
        let _ = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
        return Ok(true);
    }
    Err(RenameError::Contended)
}

fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_cause(source)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::notebook::new_notebook;

    #[test]
    fn a_link_a_mode_and_somebodys_save_are_kept() {
        let temp = tempfile::tempdir().unwrap();
        let (real, link) = (temp.path().join("real.ipynb"), temp.path().join("l.ipynb"));
        std::fs::write(&real, new_notebook("nb-shared", "shared", "python")).unwrap();
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let saved = std::cell::Cell::new(false);
        let own = Kernelspec {
            name: "own",
            display_name: "Own",
            language: "python",
        };
        let changed = rewrite(&link, |text| {
            let new = with_kernelspec(text, &own);
            if !saved.replace(true) {
                let theirs = new_notebook("nb-shared", "theirs", "python")
                    .replace("\"cells\": []", "\"cells\": [{\"source\": \"mine\"}]");
                std::fs::write(&real, theirs).unwrap();
            }
            new
        });
        assert!(changed.unwrap());
        assert!(link.is_symlink());
        let text = std::fs::read_to_string(&real).unwrap();
        assert!(text.contains("mine") && text.contains("\"own\""), "{text}");
        let mode = std::fs::metadata(&real).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 2);

        let again = |text: &[u8]| {
            let number = text.len();
            std::fs::write(&real, vec![b' '; number + 1]).unwrap();
            Ok(Some(Vec::new()))
        };
        assert!(matches!(rewrite(&link, again), Err(RenameError::Contended)));
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 2);
    }
}
