//! The manifest of a pixi project: its name, its features, and how its environments are activated.

use std::path::{Path, PathBuf};

use crate::kernel::foreign_file;

/// The manifest of a pixi project: `pixi.toml`, or `tool.pixi` in `pyproject.toml`.
pub(super) struct PixiManifest {
    /// The path of the file, which may not exist.
    pub(super) path: PathBuf,
    project: PathBuf,
    whole: toml::Table,
}

/// The variables and scripts that activate a pixi environment.
#[derive(Default)]
pub(super) struct PixiActivation {
    pub(super) variables: Vec<(String, String)>,
    pub(super) scripts: Vec<PathBuf>,
}

impl PixiManifest {
    /// Reads the manifest in a project's folder; a missing or damaged one counts as empty.
    pub(super) fn read(project: &Path) -> Self {
        let files = ["pixi.toml", "pyproject.toml"].map(|name| project.join(name));
        let path = files.iter().find(|file| file.is_file());
        let path = path.unwrap_or(&files[0]).clone();
        let text = foreign_file::read_text(&path).unwrap_or_default();
        Self {
            path,
            project: project.to_owned(),
            whole: toml::from_str(&text).unwrap_or_default(),
        }
    }

    fn table(&self) -> &toml::Table {
        let inner = self.whole.get("tool").and_then(|tool| tool.get("pixi"));
        inner.and_then(toml::Value::as_table).unwrap_or(&self.whole)
    }

    /// Returns the project's name, from the manifest, else from its folder.
    pub(super) fn project_name(&self) -> String {
        let named = |table: &toml::Table, section: &str| {
            Some(table.get(section)?.get("name")?.as_str()?.to_owned())
        };
        let found = ["workspace", "project"].iter().find_map(|section| {
            named(self.table(), section).or_else(|| named(&self.whole, section))
        });
        let folder = || self.project.file_name().unwrap_or_default();
        found.unwrap_or_else(|| folder().to_string_lossy().into_owned())
    }

    /// Returns the features of an environment other than `default`.
    pub(super) fn features(&self, prefix: &Path) -> Vec<&str> {
        let find = || {
            let name = prefix.file_name()?.to_str()?;
            let environment = self.table().get("environments")?.get(name)?;
            environment
                .get("features")
                .unwrap_or(environment)
                .as_array()
        };
        let features = find().into_iter().flatten();
        features.filter_map(toml::Value::as_str).collect()
    }

    /// Returns the variables and scripts that activate an environment.
    pub(super) fn activation(&self, prefix: &Path) -> PixiActivation {
        let table = self.table();
        let features = self.features(prefix).into_iter();
        let features = features.filter_map(|it| table.get("feature")?.get(it)?.as_table());
        let mut all = PixiActivation::default();
        // A feature's variables follow the project's, and so override them.
        for part in std::iter::once(table).chain(features) {
            let activations = activations(part);
            // The variables of a platform override those of all platforms.
            for activation in activations.iter().rev() {
                let set = activation.get("env").and_then(toml::Value::as_table);
                for (name, value) in set.into_iter().flatten() {
                    let value = value.as_str().map(|it| (name.clone(), it.to_owned()));
                    all.variables.extend(value);
                }
            }
            // Of several lists of scripts only the most specific one counts.
            let mut lists = activations
                .iter()
                .filter_map(|it| it.get("scripts")?.as_array());
            let scripts = lists.next().into_iter().flatten();
            let scripts = scripts.filter_map(toml::Value::as_str);
            all.scripts
                .extend(scripts.map(|script| self.project.join(script)));
        }
        all
    }
}

/// Returns the parts of an activation table that apply to this platform, the most specific first.
fn activations(table: &toml::Table) -> Vec<&toml::Value> {
    let (system, machine) = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("macos", "aarch64") => ("osx", "osx-arm64".to_owned()),
        ("macos", _) => ("osx", "osx-64".to_owned()),
        (_, "x86_64") => ("linux", "linux-64".to_owned()),
        (_, "powerpc64") => ("linux", "linux-ppc64le".to_owned()),
        (_, other) => ("linux", format!("linux-{other}")),
    };
    let activation_of = |name: &str| table.get("target")?.get(name)?.get("activation");
    let tables = [
        activation_of(&machine),
        activation_of(system),
        activation_of("unix"),
        table.get("activation"),
    ];
    tables.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixis_settings_for_a_platform_take_precedence() {
        let temp = tempfile::tempdir().unwrap();
        let project = temp.path();
        let text = "[workspace]\nname = \"deep\"\n[activation]\nscripts = [\"all.sh\"]\nenv = { A = \"1\", B = \"1\" }\n\
             [target.unix.activation]\nscripts = [\"unix.sh\"]\nenv = { B = \"2\" }\n\
             [target.win-64.activation]\nscripts = [\"win.bat\"]\nenv = { A = \"3\" }\n";
        std::fs::write(project.join("pixi.toml"), text).unwrap();
        let activation =
            PixiManifest::read(project).activation(&project.join(".pixi/envs/default"));
        let last = |name: &str| {
            let mut all = activation.variables.iter().rev();
            all.find(|(it, _)| it == name).map(|(_, value)| &**value)
        };
        assert_eq!((last("A"), last("B")), (Some("1"), Some("2")));
        assert_eq!(activation.scripts, [project.join("unix.sh")]);
    }
}
