//! Reads the notebook's path from VS Code's id of a cell.
//!
//! `metadata.cellId` of a user's cell is the URI of the cell's document. For kernels other than Python's, to
//! which VS Code sends no start-up code, it is the first thing that names the notebook.

use super::startup::is_notebook;

/// Returns the path of the notebook to which this cell belongs, if the id is the URI of a cell of
/// a notebook that has a file.
///
/// The URI is `vscode-notebook-cell:` with the notebook's path, and `#`, the cell's handle, `s` and
/// the notebook's own scheme in Base64. In a remote window (SSH, WSL, a container) the authority
/// names the remote machine, which is the one that the proxy runs on.
pub(super) fn notebook_of_cell(cell_id: &str) -> Option<String> {
    let (document, fragment) = cell_id.strip_prefix(SCHEME)?.split_once('#')?;
    if !has_a_file(fragment) {
        return None;
    }
    let document = document.split('?').next().unwrap_or_default();
    let path = match document.strip_prefix("//") {
        Some(remote) => &remote[remote.find('/')?..],
        None => document,
    };
    let path = unescaped(path)?;
    let path = match path.strip_prefix('/') {
        // `/c:/…`: a drive, not a folder of the root.
        Some(drive) if cfg!(windows) && drive.as_bytes().get(1) == Some(&b':') => drive.to_owned(),
        _ => path,
    };
    is_notebook(&path).then_some(path)
}

/// Returns whether the notebook's scheme is one of files on this machine.
///
/// An unsaved notebook, a version in Git and a repository that is only browsed have paths, too, but no files.
/// The fragment of an older VS Code carries no scheme.
fn has_a_file(fragment: &str) -> bool {
    let fragment = fragment.replace("%3D", "=").replace("%3d", "=");
    match fragment.split_once('s') {
        Some((_, scheme)) => FILES.contains(&scheme.trim_end_matches('=')),
        None => true,
    }
}

/// Returns the text without percent escapes; `None` if the bytes are not UTF-8.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.extend(hex::decode(digits).ok()?);
        rest = after;
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|path| !path.contains('\0'))
}

const SCHEME: &str = "vscode-notebook-cell:";
/// `file` and `vscode-remote` in Base64.
const FILES: [&str; 2] = ["ZmlsZQ", "dnNjb2RlLXJlbW90ZQ"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cells_uri_names_its_notebook() {
        for (id, path) in [
            (
                "vscode-notebook-cell:/home/ada/n.ipynb#W0sZmlsZQ%3D%3D",
                "/home/ada/n.ipynb",
            ),
            (
                "vscode-notebook-cell:/path%20x/%C3%B6%23%25.ipynb#X34sZmlsZQ%3D%3D",
                "/path x/ö#%.ipynb",
            ),
            (
                "vscode-notebook-cell:/home/ada/n.ipynb#W0sZmlsZQ==",
                "/home/ada/n.ipynb",
            ),
            (
                "vscode-notebook-cell:/home/ada/n.ipynb#ch0000001",
                "/home/ada/n.ipynb",
            ),
            (
                "vscode-notebook-cell:///home/ada/n.ipynb#W0sZmlsZQ%3D%3D",
                "/home/ada/n.ipynb",
            ),
            (
                "vscode-notebook-cell://ssh-remote%2Bbox/home/a/n.ipynb#W0sdnNjb2RlLXJlbW90ZQ%3D%3D",
                "/home/a/n.ipynb",
            ),
            (
                "vscode-notebook-cell://wsl%2Bubuntu/home/a/n.ipynb#Y100sdnNjb2RlLXJlbW90ZQ%3D%3D",
                "/home/a/n.ipynb",
            ),
        ] {
            assert_eq!(notebook_of_cell(id).as_deref(), Some(path), "{id}");
        }
    }

    #[test]
    fn other_ids_name_nothing() {
        for id in [
            "",
            "3f2c19aa",
            "f3c61e1c-6f0c-4a7e-9d76-0f4f2ce4a7b1",
            "vscode-notebook-cell:",
            "vscode-notebook-cell:/home/ada/n.ipynb",
            "file:///home/ada/n.ipynb#W0sZmlsZQ%3D%3D",
            // Notebooks without a file: unsaved, from Git, a script's Interactive Window.
            "vscode-notebook-cell:Untitled-1.ipynb#W0sdW50aXRsZWQ%3D",
            "vscode-notebook-cell:/home/ada/n.ipynb#W0sZ2l0",
            "vscode-notebook-cell:/Interactive-1.interactive#W0sdnNjb2RlLWludGVyYWN0aXZl",
            "vscode-notebook-cell://ssh-remote%2Bbox#W0sdnNjb2RlLXJlbW90ZQ%3D%3D",
            // Malformed URIs.
            "vscode-notebook-cell:/home/ada/%#W0sZmlsZQ%3D%3D",
            "vscode-notebook-cell:/home/ada/%2.ipynb#W0sZmlsZQ%3D%3D",
            "vscode-notebook-cell:/home/ada/%ZZ.ipynb#W0sZmlsZQ%3D%3D",
            "vscode-notebook-cell:/home/ada/%FF.ipynb#W0sZmlsZQ%3D%3D",
            "vscode-notebook-cell:/home/ada/%00.ipynb#W0sZmlsZQ%3D%3D",
        ] {
            assert_eq!(notebook_of_cell(id), None, "{id}");
        }
    }
}
