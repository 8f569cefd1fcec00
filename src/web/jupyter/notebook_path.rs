//! Which notebook a request of Jupyter's interface means.
//!
//! The client's own folder may be another one, also on another machine: of the path that it names, the longest end that
//! is a notebook below the root counts.

use std::path::{Component, Path, PathBuf};

use super::models::LiveNotebook;
use crate::project::session_name::spellings;

/// Returns the notebook that a session's name or path means. `below` returns the notebook at a path below the root, if
/// there is one.
pub(super) fn notebook_named(
    named: &str,
    live: &[LiveNotebook],
    below: impl Fn(&Path) -> Option<PathBuf>,
) -> Option<PathBuf> {
    let spellings = spellings(Path::new(named));
    let found = spellings.iter().find_map(|spelling| {
        let mut parts = spelling.components().filter_map(|part| match part {
            Component::Normal(name) => Some(Path::new(name)),
            _ => None,
        });
        loop {
            let end: PathBuf = parts.clone().collect();
            parts.next()?;
            if let Some(notebook) = below(&end) {
                return Some(notebook);
            }
        }
    });
    found.or_else(|| {
        let name = spellings.last()?.file_name()?;
        let is_named = |it: &&LiveNotebook| it.notebook.file_name() == Some(name);
        only(live.iter().filter(is_named))
    })
}

/// Returns the only notebook of some.
pub(super) fn only<'a>(mut live: impl Iterator<Item = &'a LiveNotebook>) -> Option<PathBuf> {
    match (live.next(), live.next()) {
        (Some(only), None) => Some(only.notebook.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_end_below_the_root_counts() {
        let there = ["a.ipynb", "sub/a.ipynb", "sub/b.ipynb"];
        let found = |named: &str| {
            notebook_named(named, &[], |path| {
                let is_there = there.iter().any(|it| Path::new(it) == path);
                is_there.then(|| Path::new("/root").join(path))
            })
        };
        for (named, notebook) in [
            ("a.ipynb", "/root/a.ipynb"),
            ("sub/a.ipynb", "/root/sub/a.ipynb"),
            ("/home/ann/sub/a.ipynb", "/root/sub/a.ipynb"),
            ("/home/ann/other/a.ipynb", "/root/a.ipynb"),
            ("../sub/b.ipynb", "/root/sub/b.ipynb"),
            ("a-jvsc-0a1b.ipynb", "/root/a.ipynb"),
            ("RTC:sub/a.ipynb", "/root/sub/a.ipynb"),
        ] {
            assert_eq!(found(named), Some(PathBuf::from(notebook)), "{named}");
        }
        for named in ["b.ipynb", "c.ipynb", "a.txt", "console 1", ""] {
            assert_eq!(found(named), None, "{named}");
        }
    }
}
