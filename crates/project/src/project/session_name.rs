//! The names that Jupyter's clients give to the sessions of notebooks.
//!
//! jupyter-collaboration puts a drive's name before the path (`RTC:`); VS Code, when it uses a server, puts a mark
//! behind the notebook's name.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// Returns the paths that a session's name may mean, the best first; none if it is not a notebook's. The last one has the
/// notebook's own name for certain.
pub fn spellings(named: &Path) -> Vec<PathBuf> {
    if named.extension() != Some(OsStr::new("ipynb")) {
        return Vec::new();
    }
    let plain = without_drives(named);
    let unmarked = without_mark(&plain).unwrap_or_else(|| plain.clone());
    let marked = without_mark(named).into_iter();
    let all = marked.chain([unmarked.clone(), named.to_owned(), plain, unmarked]);
    all.collect()
}

/// Returns the path without the drive names in its parts.
fn without_drives(path: &Path) -> PathBuf {
    path.components()
        .map(|part| match part {
            Component::Normal(name) => {
                let name = name.to_string_lossy();
                match name.split_once(':') {
                    Some((_, rest)) => PathBuf::from(rest),
                    None => PathBuf::from(&*name),
                }
            }
            other => PathBuf::from(other.as_os_str()),
        })
        .collect()
}

/// Returns the notebook's path without the mark that VS Code puts behind its name; `None` if there is none.
fn without_mark(path: &Path) -> Option<PathBuf> {
    let stem = path.file_stem()?.to_string_lossy();
    let (name, _) = stem.rsplit_once("-jvsc-")?;
    Some(path.with_file_name(format!("{name}.ipynb")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_and_a_drive_are_no_part_of_the_name() {
        for (named, first) in [
            ("a/t.ipynb", "a/t.ipynb"),
            ("RTC:a/t.ipynb", "a/t.ipynb"),
            ("a/t-jvsc-0a1b.ipynb", "a/t.ipynb"),
        ] {
            let found = spellings(Path::new(named));
            assert_eq!(found.first().map(PathBuf::as_path), Some(Path::new(first)));
            assert_eq!(found.last().map(PathBuf::as_path), Some(Path::new(first)));
        }
        assert!(spellings(Path::new("console 1")).is_empty());
    }
}
