//! `config.toml`: what the user wants otherwise in this project.

use std::io;
use std::path::PathBuf;

use serde::Deserialize;

use super::Project;

/// The settings of a project. Keys that this version does not know are left alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Config {
    /// What is written down of executions.
    pub journal: JournalConfig,
}

/// The `[journal]` table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct JournalConfig {
    /// Whether the code that ran is kept.
    pub code: bool,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self { code: true }
    }
}

/// Why `config.toml` could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no TOML, or a key has another type.
    #[error("{} is not understood; mend it or move it away", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        source: toml::de::Error,
    },
}

impl Project {
    /// Reads `config.toml`; a missing file is the default.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let path = self.dir().join("config.toml");
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                toml::from_str(&text).map_err(|source| ConfigError::Damaged { path, source })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Config::default()),
            Err(source) => Err(ConfigError::Read { path, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_kept_unless_the_user_says_no() {
        let read = |text: &str| toml::from_str::<Config>(text).map(|config| config.journal.code);
        assert_eq!(read(""), Ok(true));
        assert_eq!(read("later = 1\n[journal]\nother = 2"), Ok(true));
        assert_eq!(read("journal.code = false"), Ok(false));
        assert!(read("journal.code = \"no\"").is_err());
    }
}
