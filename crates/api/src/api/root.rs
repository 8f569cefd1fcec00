//! The folder whose notebooks the clients of a server may name.

use std::path::{Path, PathBuf};

use super::problem::{Problem, ProblemKind, causes};

/// A folder, without links in its path.
///
/// The check keeps a client's paths inside. It confines no code: what a kernel runs may open any file of the
/// user.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// Takes a folder.
    ///
    /// # Errors
    /// It does not exist.
    pub fn of(folder: &Path) -> Result<Self, Problem> {
        let canonical = folder.canonicalize().map_err(|error| {
            let text = format!("{}: {}", folder.display(), causes(&error));
            Problem::new(ProblemKind::Usage, text).hint("--root FOLDER")
        })?;
        match canonical.is_dir() {
            true => Ok(Self(canonical)),
            false => Err(Problem::new(
                ProblemKind::Usage,
                format!("{} is not a folder", folder.display()),
            )),
        }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Returns the real path of a notebook that a client names, which need not exist.
    ///
    /// # Errors
    /// It is outside of the folder, directly or through a link, or it is no `.ipynb`.
    pub fn notebook(&self, named: &Path) -> Result<PathBuf, Problem> {
        let usage = |text: String| Problem::new(ProblemKind::Usage, text);
        let shown = named.display();
        let path = self.0.join(named);
        let canonical = match path.canonicalize() {
            Ok(canonical) => canonical,
            Err(_) if path.symlink_metadata().is_ok() => {
                return Err(usage(format!("{shown} cannot be followed")));
            }
            Err(_) => {
                let (folder, name) = (path.parent(), path.file_name());
                let folder = folder.and_then(|folder| folder.canonicalize().ok());
                let (Some(folder), Some(name)) = (folder, name) else {
                    return Err(usage(format!("the folder of {shown} does not exist")));
                };
                folder.join(name)
            }
        };
        if !canonical.starts_with(&self.0) {
            let root = self.0.display();
            let text = format!("{shown} is outside of {root}, the folder of this server");
            return Err(Problem::new(ProblemKind::Refused, text)
                .hint("--root FOLDER serves another folder"));
        }
        match canonical
            .extension()
            .is_some_and(|ending| ending == "ipynb")
        {
            true => Ok(canonical),
            false if named.as_os_str().is_empty() => {
                Err(usage("notebook: a path is expected".into()))
            }
            false => Err(usage(format!("{shown} is no .ipynb file"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_path_leads_out() {
        let temp = tempfile::tempdir().unwrap();
        let (root, outside) = (temp.path().join("root"), temp.path().join("outside"));
        for folder in [root.join("sub"), outside.clone()] {
            std::fs::create_dir_all(folder).unwrap();
        }
        for file in [root.join("a.ipynb"), outside.join("b.ipynb")] {
            std::fs::write(file, "").unwrap();
        }
        symlink(&outside, root.join("folder")).unwrap();
        symlink(outside.join("b.ipynb"), root.join("link.ipynb")).unwrap();
        symlink(outside.join("new.ipynb"), root.join("dangling.ipynb")).unwrap();
        symlink(root.join("a.ipynb"), root.join("inner.ipynb")).unwrap();
        let root = Root::of(&root).unwrap();
        let canonical = root.folder().to_owned();
        for (named, path) in [
            ("a.ipynb", "a.ipynb"),
            ("./sub/../a.ipynb", "a.ipynb"),
            ("sub/new.ipynb", "sub/new.ipynb"),
            ("inner.ipynb", "a.ipynb"),
        ] {
            let found = root.notebook(Path::new(named)).unwrap();
            assert_eq!(found, canonical.join(path), "{named}");
        }
        let absolute = canonical.join("a.ipynb");
        assert_eq!(root.notebook(&absolute).unwrap(), absolute);
        let outside_notebook = outside.join("b.ipynb");
        for named in [
            "../outside/b.ipynb",
            "sub/../../outside/b.ipynb",
            "folder/b.ipynb",
            "folder/new.ipynb",
            "link.ipynb",
            "dangling.ipynb",
            "/etc/passwd",
            "nowhere/a.ipynb",
            "sub",
            "",
            "a.txt",
            outside_notebook.to_str().unwrap(),
        ] {
            assert!(root.notebook(Path::new(named)).is_err(), "{named}");
        }
    }
}
