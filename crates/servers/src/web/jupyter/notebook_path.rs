//! Finds the notebook for a path or name in a request of Jupyter's interface.
//!
//! The client's own folder may be another one, also on another machine. So the longest end of the path that is a notebook
//! below the root is chosen.

use std::path::{Component, Path, PathBuf};

use super::models::LiveNotebook;
use crate::project::session_name::spellings;

/// Returns the notebook for a session's name or path. `below` returns the notebook at a path below the root, if
/// there is one.
pub(super) fn find_notebook(
    path: &str,
    live: &[LiveNotebook],
    below: impl Fn(&Path) -> Option<PathBuf>,
) -> Option<PathBuf> {
    let spellings = spellings(Path::new(path));
    let by_path = spellings.iter().find_map(|spelling| {
        let mut parts = spelling.components().filter_map(|part| match part {
            Component::Normal(name) => Some(Path::new(name)),
            _ => None,
        });
        loop {
            let path_end: PathBuf = parts.clone().collect();
            parts.next()?;
            if let Some(notebook) = below(&path_end) {
                return Some(notebook);
            }
        }
    });
    by_path.or_else(|| {
        let name = spellings.last()?.file_name()?;
        let is_named = |it: &&LiveNotebook| it.notebook.file_name() == Some(name);
        single_notebook(live.iter().filter(is_named))
    })
}

/// Returns the notebook if there is only one.
pub(super) fn single_notebook<'a>(
    mut live: impl Iterator<Item = &'a LiveNotebook>,
) -> Option<PathBuf> {
    match (live.next(), live.next()) {
        (Some(single), None) => Some(single.notebook.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_end_of_a_path_below_the_root_is_chosen() {
        let files = ["a.ipynb", "sub/a.ipynb", "sub/b.ipynb"];
        let find = |path: &str| {
            find_notebook(path, &[], |path| {
                let is_file = files.iter().any(|it| Path::new(it) == path);
                is_file.then(|| Path::new("/root").join(path))
            })
        };
        for (path, notebook) in [
            ("a.ipynb", "/root/a.ipynb"),
            ("sub/a.ipynb", "/root/sub/a.ipynb"),
            ("/home/ann/sub/a.ipynb", "/root/sub/a.ipynb"),
            ("/home/ann/other/a.ipynb", "/root/a.ipynb"),
            ("../sub/b.ipynb", "/root/sub/b.ipynb"),
            ("a-jvsc-0a1b.ipynb", "/root/a.ipynb"),
            ("RTC:sub/a.ipynb", "/root/sub/a.ipynb"),
        ] {
            assert_eq!(find(path), Some(PathBuf::from(notebook)), "{path}");
        }
        for path in ["b.ipynb", "c.ipynb", "a.txt", "console 1", ""] {
            assert_eq!(find(path), None, "{path}");
        }
    }
}
