//! The user's state folder, and file names that are made from keys.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use sha2::{Digest, Sha256};

/// Returns the folder of this user's data that belongs to no single project.
pub fn state_folder() -> Option<PathBuf> {
    let base = etcetera::choose_base_strategy().ok()?;
    let state = base.state_dir().unwrap_or_else(|| base.data_dir());
    Some(state.join("nb"))
}

/// Makes a folder that only this user may enter, and its parent folders if they are missing. Parts of
/// the path may be links.
pub(super) fn make_private(folder: &Path) -> io::Result<()> {
    let mut made = std::fs::DirBuilder::new();
    made.recursive(true).mode(0o700).create(folder)
}

/// Returns a file name that is unique for a key and still readable.
pub(super) fn short_name(key: &str) -> String {
    let stem = Path::new(key)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    let readable: String = stem
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || matches!(c, '-' | '_') {
                c
            } else {
                '_'
            }
        })
        .take(40)
        .collect();
    format!("{readable}-{}", &hex::encode(Sha256::digest(key))[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_keys_never_share_a_file() {
        assert_ne!(short_name("a/b.ipynb"), short_name("c/b.ipynb"));
        assert!(short_name("a/b c.ipynb").starts_with("b_c-"));
    }
}
