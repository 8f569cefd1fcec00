//! The kernelspec "Agent Client Protocol", by which front ends find the kernel of a chat.
//!
//! It starts `nb` by the link in `nb`'s own data folder.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::program::{CHAT, CHAT_WORD, starts_chat};
use super::serve::{
    Level, ServeError, Served, install_spec, kernels_dir, make_link, record_level,
    remove_unused_link,
};
use crate::kernel::variables::Variables;

/// The name that people see.
pub const DISPLAY_NAME: &str = "Agent Client Protocol";

/// The language of a chat's notebooks.
pub const LANGUAGE: &str = "agent-chat";

/// Installs the kernelspec, and the link that it starts. Does nothing if both are up to date.
///
/// # Errors
/// The folder holds another program's kernelspec, or a file cannot be written.
pub fn serve(level: &Level, variables: &dyn Variables) -> Result<Served, ServeError> {
    let kernels = kernels_dir(level, variables)?;
    let folder = kernels.join(CHAT);
    if folder.join("kernel.json").exists() && !starts_chat(&folder) {
        return Err(ServeError::NotOurs { folder });
    }
    let program = make_link(variables)?;
    let changed = install_spec(&folder, &kernel_json(&program))?;
    record_level(level, kernels, variables)?;
    Ok(Served {
        folder,
        display_name: DISPLAY_NAME.to_owned(),
        proxy: program,
        changed,
    })
}

/// Removes the kernelspec of a level, and the link if no known kernelspec needs it any more. Returns what was removed.
///
/// # Errors
/// A file cannot be removed.
pub fn unserve(level: &Level, variables: &dyn Variables) -> Result<Vec<PathBuf>, ServeError> {
    let folder = kernels_dir(level, variables)?.join(CHAT);
    let mut removed = Vec::new();
    if starts_chat(&folder) {
        std::fs::remove_dir_all(&folder).map_err(|source| ServeError::Remove {
            path: folder.clone(),
            source,
        })?;
        removed.push(folder);
    }
    removed.extend(remove_unused_link(variables)?);
    Ok(removed)
}

fn kernel_json(program: &Path) -> Vec<u8> {
    let spec = json!({
        "argv": [program, CHAT_WORD, "-f", "{connection_file}"],
        "display_name": DISPLAY_NAME,
        "language": LANGUAGE,
        "interrupt_mode": "message",
        "metadata": { "debugger": false },
    });
    let mut text = serde_json::to_vec_pretty(&spec).expect("a JSON value can be written");
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn what_is_installed_is_removed_and_another_programs_stays() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str())]);
        let served = serve(&Level::User, &variables).unwrap();
        assert!(served.changed && served.proxy.is_file());
        assert!(!serve(&Level::User, &variables).unwrap().changed);
        let prefix = Level::Prefix(temp.path().join("env"));
        serve(&prefix, &variables).unwrap();

        // The program is still needed by the other one.
        assert_eq!(
            unserve(&Level::User, &variables).unwrap(),
            std::slice::from_ref(&served.folder)
        );
        assert!(served.proxy.is_file());
        assert_eq!(unserve(&prefix, &variables).unwrap().len(), 2);
        assert!(!served.proxy.exists());

        std::fs::create_dir_all(&served.folder).unwrap();
        let other = r#"{"argv": ["x", "{connection_file}"], "display_name": "x", "language": "x"}"#;
        std::fs::write(served.folder.join("kernel.json"), other).unwrap();
        assert!(matches!(
            serve(&Level::User, &variables),
            Err(ServeError::NotOurs { .. })
        ));
        assert_eq!(
            unserve(&Level::User, &variables).unwrap(),
            Vec::<PathBuf>::new()
        );
        assert!(served.folder.exists());
    }
}
