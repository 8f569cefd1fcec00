//! Finds the environment that Poetry made for a project, from Poetry's settings, without running it.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use sha2::{Digest, Sha256};

use super::folder::{Environment, Manager};
use crate::kernel::foreign_file;
use crate::kernel::variables::{Variables, home};

/// Returns the environment that Poetry made for the project in a folder, except one in the project's own
/// `.venv`, which the search finds by itself.
pub(super) fn of_project(
    folder: &Path,
    manifest: &str,
    variables: &dyn Variables,
) -> Option<Environment> {
    let manifest: toml::Table = toml::from_str(manifest).ok()?;
    let poetry = manifest.get("tool").and_then(|tool| tool.get("poetry"));
    if poetry.is_none() && !folder.join("poetry.lock").is_file() {
        return None;
    }
    let named = |table: Option<&toml::Value>| Some(table?.get("name")?.as_str()?.to_owned());
    let name = named(manifest.get("project")).or_else(|| named(poetry))?;
    let environments = environments_folder(folder, variables)?;
    let base = environment_name(&name, folder);
    let prefix = selected(&environments, &base).or_else(|| newest(&environments, &base))?;
    Some(Environment {
        prefix,
        manager: Manager::Poetry,
        project: Some(folder.to_owned()),
        source: format!("Poetry's environment of {}", folder.display()),
    })
}

/// Returns the folder in which Poetry puts all environments.
fn environments_folder(folder: &Path, variables: &dyn Variables) -> Option<PathBuf> {
    let home = home(variables).ok()?;
    let xdg = |name: &str, usual: &str| {
        let named = variables.path(name).filter(|path| path.is_absolute());
        named.unwrap_or_else(|| home.join(usual))
    };
    let (config, cache) = match cfg!(target_os = "macos") {
        true => (
            home.join("Library/Application Support"),
            home.join("Library/Caches"),
        ),
        false => (
            xdg("XDG_CONFIG_HOME", ".config"),
            xdg("XDG_CACHE_HOME", ".cache"),
        ),
    };
    let (config, cache) = (config.join("pypoetry"), cache.join("pypoetry"));
    let settings = |file: PathBuf| -> toml::Table {
        let text = foreign_file::read_text(&file).unwrap_or_default();
        toml::from_str(&text).unwrap_or_default()
    };
    // The project's settings override the user's.
    let own = [
        settings(folder.join("poetry.toml")),
        settings(config.join("config.toml")),
    ];
    let text = |value: &toml::Value| value.as_str().map(PathBuf::from);
    let mut caches = own.iter().filter_map(|it| text(it.get("cache-dir")?));
    let mut paths = own
        .iter()
        .filter_map(|it| text(it.get("virtualenvs")?.get("path")?));
    let cache_named = variables.path("POETRY_CACHE_DIR").or_else(|| caches.next());
    let cache = cache_named.unwrap_or(cache);
    let named = variables.path("POETRY_VIRTUALENVS_PATH");
    let Some(path) = named.or_else(|| paths.next()) else {
        return Some(cache.join("virtualenvs"));
    };
    let path = path.to_str()?;
    let path = path.replace("{cache-dir}", cache.to_str()?);
    let path = path.replace("{project-dir}", folder.to_str()?);
    let path = match path.strip_prefix("~/") {
        Some(below) => home.join(below),
        None => folder.join(path),
    };
    Some(path)
}

/// Returns the prefix of the environment's name: the project's name, and a hash of its folder.
fn environment_name(name: &str, folder: &Path) -> String {
    // Normalised like package names: runs of -, _ and . become one -.
    let mut plain = String::new();
    for letter in name.to_lowercase().chars() {
        match letter {
            '-' | '_' | '.' if plain.ends_with('-') => {}
            '-' | '_' | '.' => plain.push('-'),
            ' ' | '$' | '`' | '!' | '*' | '@' | '"' | '\\' | '\r' | '\n' | '\t' => plain.push('_'),
            other => plain.push(other),
        }
    }
    let plain: String = plain.chars().take(42).collect();
    let real = folder.canonicalize();
    let real = real.unwrap_or_else(|_| folder.to_owned());
    let hash = URL_SAFE.encode(Sha256::digest(real.to_string_lossy().as_bytes()));
    format!("{plain}-{}", &hash[..8])
}

/// Returns the environment that `poetry env use` has selected.
fn selected(folder: &Path, base: &str) -> Option<PathBuf> {
    let chosen = foreign_file::read_text(&folder.join("envs.toml")).ok()?;
    let chosen: toml::Table = toml::from_str(&chosen).ok()?;
    let minor = chosen.get(base)?.get("minor")?.as_str()?;
    let prefix = folder.join(format!("{base}-py{minor}"));
    prefix.is_dir().then_some(prefix)
}

/// Returns the environment that was made last.
fn newest(folder: &Path, base: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let of_project = entries.filter(|entry| {
        let name = entry.file_name();
        let version = name.to_str().and_then(|name| name.strip_prefix(base));
        version.is_some_and(|version| version.starts_with("-py"))
    });
    let last = of_project.max_by_key(|entry| entry.metadata().ok()?.modified().ok());
    last.map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_name_is_what_poetry_makes_of_it() {
        // The names that Poetry 2.5 printed for these projects.
        let name = |name, folder: &str| environment_name(name, Path::new(folder));
        assert_eq!(name("My_Thing..x", "/nonexistent/p"), "my-thing-x-5-winZ6i");
    }

    #[test]
    fn the_chosen_one_goes_before_the_newest() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("p");
        std::fs::create_dir(&folder).unwrap();
        let variables = HashMap::from([("HOME", temp.path().to_str().unwrap())]);
        let environments = temp.path().join("envs");
        let manifest = "[tool.poetry]\nname = \"p\"\n";
        let find = || of_project(&folder, manifest, &variables).map(|it| it.prefix);
        assert_eq!(find(), None);
        let settings = format!("[virtualenvs]\npath = \"{}\"\n", environments.display());
        std::fs::write(folder.join("poetry.toml"), settings).unwrap();
        let base = environment_name("p", &folder);
        let [first, second] =
            ["3.11", "3.12"].map(|it| environments.join(format!("{base}-py{it}")));
        std::fs::create_dir_all(&first).unwrap();
        std::fs::create_dir_all(environments.join("other-12345678-py3.12")).unwrap();
        assert_eq!(find(), Some(first));
        std::fs::create_dir_all(&second).unwrap();
        let chosen = format!("[{base}]\nminor = \"3.12\"\npatch = \"3.12.1\"\n");
        std::fs::write(environments.join("envs.toml"), chosen).unwrap();
        assert_eq!(find(), Some(second));
        assert!(of_project(&folder, "[project]\nname = \"p\"\n", &variables).is_none());
    }
}
