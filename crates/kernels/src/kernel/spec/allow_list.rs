//! The kernelspecs that Jupyter's configuration lets its front ends list:
//! `KernelSpecManager.allowed_kernelspecs`.
//!
//! As in Jupyter, other specs are hidden from lists and choices, but can be started by name. Only JSON
//! configuration files are read: a configuration in Python is a program.

use std::path::PathBuf;

use serde_json::Value;

use super::jupyter_paths::JupyterPaths;
use super::kernelspec::InstalledSpec;
use super::prefix::Prefix;
use crate::kernel::foreign_file;

/// The files' names: a server's own settings override those for all programs.
const FILES: [&str; 2] = ["jupyter_server_config.json", "jupyter_config.json"];

/// The settings' names, the newer one first.
const NAMES: [&str; 2] = ["allowed_kernelspecs", "whitelist"];

/// The kernelspecs that may be listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecAllowList(Option<Only>);

/// The allowed names, and the file that lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Only {
    file: PathBuf,
    names: Vec<String>,
}

impl SpecAllowList {
    /// Reads the configuration as the Python in use would.
    pub fn read(paths: &JupyterPaths, prefix: Option<&Prefix>) -> Self {
        let folders = paths.config_folders(prefix);
        let files = FILES
            .iter()
            .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        for file in files {
            let Ok(text) = foreign_file::read_text(&file) else {
                continue;
            };
            if let Some(names) = of_json(&text) {
                // An empty set allows all specs.
                return Self((!names.is_empty()).then_some(Only { file, names }));
            }
        }
        Self(None)
    }

    /// Removes the specs that may not be listed.
    pub fn filter(&self, mut specs: Vec<InstalledSpec>) -> Vec<InstalledSpec> {
        specs.retain(|spec| self.permits(&spec.name));
        specs
    }

    /// Returns whether a spec of this name may be listed.
    pub fn permits(&self, name: &str) -> bool {
        let only = self.0.as_ref();
        only.is_none_or(|only| only.names.iter().any(|allowed| allowed == name))
    }

    /// Returns a note if some of these specs are left out.
    pub fn note(&self, specs: &[InstalledSpec]) -> Option<String> {
        let only = self.0.as_ref()?;
        let hidden = specs.iter().filter(|spec| !self.permits(&spec.name));
        let hidden: Vec<_> = hidden.map(|spec| spec.name.as_str()).collect();
        (!hidden.is_empty()).then(|| {
            format!(
                "left out, as allowed_kernelspecs in {} says: {}",
                only.file.display(),
                hidden.join(", ")
            )
        })
    }
}

fn of_json(text: &str) -> Option<Vec<String>> {
    let config: Value = serde_json::from_str(text).ok()?;
    let settings = config.get("KernelSpecManager")?;
    let names = NAMES.iter().find_map(|name| settings.get(name));
    let names = names?.as_array()?;
    let names = names.iter().filter_map(Value::as_str);
    Some(names.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_list_is_read_where_jupyter_reads_it() {
        let json = r#"{"KernelSpecManager": {"allowed_kernelspecs": ["python3", "ir"]}}"#;
        assert_eq!(of_json(json).unwrap(), ["python3", "ir"]);
        assert_eq!(of_json("{}"), None);
    }

    #[test]
    fn the_servers_configuration_counts_more_than_everybodys() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().to_str().unwrap();
        let variables = HashMap::from([("HOME", "/nowhere"), ("JUPYTER_CONFIG_DIR", folder)]);
        let read = || SpecAllowList::read(&JupyterPaths::new(&variables).unwrap(), None);
        assert_eq!(read(), SpecAllowList::default());
        let write = |name: &str, names: &str| {
            let text = format!("{{\"KernelSpecManager\": {{\"allowed_kernelspecs\": {names}}}}}");
            std::fs::write(temp.path().join(name), text).unwrap();
        };
        write("jupyter_config.json", r#"["a"]"#);
        assert!(read().permits("a") && !read().permits("b"));
        write("jupyter_server_config.json", r#"["b"]"#);
        assert!(read().permits("b") && !read().permits("a"));
        write("jupyter_server_config.json", "[]");
        assert!(read().permits("a"));
    }
}
