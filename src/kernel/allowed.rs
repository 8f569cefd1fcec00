//! Which kernelspecs Jupyter's configuration lets its front ends list:
//! `KernelSpecManager.allowed_kernelspecs`.
//!
//! As in Jupyter, it hides the others from lists and from choices, and one that is named is started
//! all the same. A configuration in JSON is read whole; of one in Python, a set or list of plain
//! strings, since nobody but Python can run the rest.

use std::path::PathBuf;

use regex::Regex;
use serde_json::Value;

use super::bounded;
use super::paths::{JupyterPaths, Prefix};
use super::spec::Installed;

/// The files' names, that which counts most first: what a server reads comes after what all read.
const FILES: [&str; 4] = [
    "jupyter_server_config.json",
    "jupyter_server_config.py",
    "jupyter_config.json",
    "jupyter_config.py",
];

/// The settings' names, the newer first.
const NAMES: [&str; 2] = ["allowed_kernelspecs", "whitelist"];

/// The kernelspecs that may be listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed(Option<Only>);

/// A list, and the file that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Only {
    file: PathBuf,
    names: Vec<String>,
}

impl Allowed {
    /// Reads the configuration as the Python in use would.
    pub fn read(paths: &JupyterPaths, prefix: Option<&Prefix>) -> Self {
        let folders = paths.config_folders(prefix);
        let files = FILES
            .iter()
            .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        for file in files {
            let Ok(text) = bounded::text(&file) else {
                continue;
            };
            let is_json = file.extension() == Some("json".as_ref());
            let names = if is_json {
                of_json(&text)
            } else {
                of_python(&text)
            };
            if let Some(names) = names {
                // An empty set allows all of them.
                return Self((!names.is_empty()).then_some(Only { file, names }));
            }
        }
        Self(None)
    }

    /// Leaves those out that may not be listed.
    pub fn filter(&self, mut specs: Vec<Installed>) -> Vec<Installed> {
        specs.retain(|spec| self.permits(&spec.name));
        specs
    }

    /// Says whether a spec of this name may be listed.
    pub fn permits(&self, name: &str) -> bool {
        let only = self.0.as_ref();
        only.is_none_or(|only| only.names.iter().any(|allowed| allowed == name))
    }

    /// Returns what is said where some of these specs are left out.
    pub fn note(&self, specs: &[Installed]) -> Option<String> {
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
    let names = NAMES
        .iter()
        .find_map(|name| settings.get(name))?
        .as_array()?;
    let names = names.iter().filter_map(Value::as_str);
    Some(names.map(str::to_owned).collect())
}

fn of_python(text: &str) -> Option<Vec<String>> {
    let assigned = r#"(?m)^[ \t]*c\.KernelSpecManager\.(?:allowed_kernelspecs|whitelist)[ \t]*=[ \t]*(?:set\()?[\[{(]([^\]})]*)[\]})]"#;
    let assigned = Regex::new(assigned).expect("it is well formed");
    let last = assigned.captures_iter(text).last()?;
    let string = Regex::new(r#"["']([^"']*)["']"#).expect("it is well formed");
    let names = string.captures_iter(last.get(1)?.as_str());
    Some(names.map(|name| name[1].to_owned()).collect())
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
        let python = "c = get_config()\n# c.KernelSpecManager.allowed_kernelspecs = {'x'}\n\
            c.KernelSpecManager.allowed_kernelspecs = {\n    'python3',\n    \"ir\",\n}\n";
        assert_eq!(of_python(python).unwrap(), ["python3", "ir"]);
        let older = "c.KernelSpecManager.whitelist = set(['a'])";
        assert_eq!(of_python(older).unwrap(), ["a"]);
        assert_eq!(
            of_python("c.KernelSpecManager.allowed_kernelspecs = names()"),
            None
        );
    }

    #[test]
    fn the_servers_configuration_counts_more_than_everybodys() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().to_str().unwrap();
        let variables = HashMap::from([("HOME", "/nowhere"), ("JUPYTER_CONFIG_DIR", folder)]);
        let read = || Allowed::read(&JupyterPaths::new(&variables).unwrap(), None);
        assert_eq!(read(), Allowed::default());
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
