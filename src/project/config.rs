//! `config.toml`: what the user wants otherwise in this project.
//!
//! Every variable `NB_…` that is a setting has a key here, and wins over it: an editor that was
//! started from a dock has no shell whose environment could be set.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use serde::Deserialize;

use super::{Project, beneath};

/// The settings of a project. Keys that this version does not know are left alone.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct Config {
    /// The notebook that commands mean where none is named; `NB_NOTEBOOK`.
    pub notebook: Option<PathBuf>,
    /// The name under which commands act; `NB_AS`.
    #[serde(rename = "as")]
    pub name: Option<String>,
    /// How many seconds commands wait, 0 for ever; `NB_TIMEOUT`.
    #[serde(deserialize_with = "seconds")]
    pub timeout: Option<f64>,
    /// Whether a proxy that finds no kernel starts one; `NB_AUTOSTART`.
    pub autostart: bool,
    /// What a front end's own Restart does; `NB_ON_RESTART`.
    pub on_restart: OnRestart,
    /// What becomes of front ends' start-up code; `NB_STARTUP_CODE`.
    pub startup_code: StartupCode,
    /// The fingerprints of start-up code that is recognised too, as `proxy.log` tells them: a newer
    /// VS Code than this version knows sends another text; `NB_STARTUP_KNOWN`, with commas.
    pub startup_known: Vec<String>,
    /// Whether a cell waits at the proxy while another client's runs; `NB_TURNS`.
    pub turns: bool,
    /// The level of `proxy.log`; `NB_LOG`.
    pub log: Option<String>,
    /// Variables that kernels get beside those of whoever starts them; `${NAME}` in a value is that
    /// one's; `NB_KERNEL_ENV`, as `NAME=value` with commas.
    pub kernel_env: BTreeMap<String, String>,
    /// What is written down of executions.
    pub journal: JournalConfig,
}

/// What a front end's own Restart does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnRestart {
    /// Restart the shared kernel for real.
    #[default]
    Restart,
    /// Keep the shared kernel and its variables.
    Keep,
}

/// What becomes of the code that front ends run by themselves when they join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StartupCode {
    /// What is recognised is answered in the kernel's stead.
    #[default]
    Answer,
    /// All of it goes to the kernel.
    Forward,
}

/// The `[journal]` table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct JournalConfig {
    /// Whether the code that ran is kept.
    pub code: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            notebook: None,
            name: None,
            timeout: None,
            autostart: true,
            on_restart: OnRestart::default(),
            startup_code: StartupCode::default(),
            startup_known: Vec::new(),
            turns: true,
            log: None,
            kernel_env: BTreeMap::new(),
            journal: JournalConfig::default(),
        }
    }
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self { code: true }
    }
}

/// Why the settings could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
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
    /// A variable of the environment has no value that it may have.
    #[error("{name} is {value:?}; it can be {wanted}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        wanted: &'static str,
    },
}

impl Config {
    /// Returns these settings with what the environment says instead; an empty variable is unset.
    ///
    /// # Errors
    /// [`ConfigError::Variable`] names the variable and what it may be.
    pub fn with(
        mut self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, ConfigError> {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let text = |name| set(name).map(|value| value.to_string_lossy().into_owned());
        if let Some(notebook) = set("NB_NOTEBOOK") {
            self.notebook = Some(notebook.into());
        }
        if let Some(name) = text("NB_AS") {
            self.name = Some(name);
        }
        if let Some(level) = text("NB_LOG") {
            self.log = Some(level);
        }
        let wanted = "a number of seconds, 0 for ever";
        if let Some(seconds) = word("NB_TIMEOUT", text("NB_TIMEOUT"), wanted, time)? {
            self.timeout = Some(seconds);
        }
        for (name, is_on) in [
            ("NB_AUTOSTART", &mut self.autostart),
            ("NB_TURNS", &mut self.turns),
        ] {
            if let Some(said) = word(name, text(name), "1 or 0", switch)? {
                *is_on = said;
            }
        }
        let wanted = "restart or keep";
        if let Some(said) = word("NB_ON_RESTART", text("NB_ON_RESTART"), wanted, keyword)? {
            self.on_restart = said;
        }
        let wanted = "answer or forward";
        if let Some(said) = word("NB_STARTUP_CODE", text("NB_STARTUP_CODE"), wanted, keyword)? {
            self.startup_code = said;
        }
        if let Some(known) = text("NB_STARTUP_KNOWN") {
            let words = known
                .split(',')
                .map(str::trim)
                .filter(|word| !word.is_empty());
            self.startup_known = words.map(str::to_owned).collect();
        }
        let wanted = "NAME=value, several with commas";
        let given = text("NB_KERNEL_ENV");
        // Beside those of the file: each is a setting of its own.
        self.kernel_env
            .extend(word("NB_KERNEL_ENV", given, wanted, pairs)?.unwrap_or_default());
        Ok(self)
    }
}

impl Project {
    /// Reads `config.toml`; a missing file is the default.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let path = self.dir().join("config.toml");
        match beneath::read_text(&path, 1 << 20) {
            Ok(text) => {
                toml::from_str(&text).map_err(|source| ConfigError::Damaged { path, source })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Config::default()),
            Err(source) => Err(ConfigError::Read { path, source }),
        }
    }

    /// Reads `config.toml` and lets the variables of this process win over it.
    pub fn settings(&self) -> Result<Config, ConfigError> {
        self.config()?.with(|name| std::env::var_os(name))
    }
}

/// Reads `A=1,B=2`.
fn pairs(text: &str) -> Option<BTreeMap<String, String>> {
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=')?;
            let name = name.trim();
            (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
        })
        .collect()
}

/// Reads a variable's value, if it is set.
fn word<T>(
    name: &'static str,
    value: Option<String>,
    wanted: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, ConfigError> {
    let Some(value) = value else { return Ok(None) };
    match read(value.trim()) {
        Some(said) => Ok(Some(said)),
        None => Err(ConfigError::Variable {
            name,
            value,
            wanted,
        }),
    }
}

fn switch(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn time(word: &str) -> Option<f64> {
    word.parse().ok().filter(|seconds| is_time(*seconds))
}

/// Reads one of the words that the file takes too.
fn keyword<T: for<'a> Deserialize<'a>>(word: &str) -> Option<T> {
    let word: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
        serde::de::IntoDeserializer::into_deserializer(word);
    T::deserialize(word).ok()
}

fn seconds<'a, D: serde::Deserializer<'a>>(from: D) -> Result<Option<f64>, D::Error> {
    let seconds = f64::deserialize(from)?;
    if is_time(seconds) {
        Ok(Some(seconds))
    } else {
        Err(serde::de::Error::custom(
            "it can be a number of seconds, 0 for ever",
        ))
    }
}

fn is_time(seconds: f64) -> bool {
    seconds.is_finite() && seconds >= 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(config: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(config).unwrap();
        config.with(|name| {
            let (_, value) = variables.iter().find(|(set, _)| *set == name)?;
            Some(OsString::from(value))
        })
    }

    #[test]
    fn code_is_kept_unless_the_user_says_no() {
        let read = |text: &str| toml::from_str::<Config>(text).map(|config| config.journal.code);
        assert_eq!(read(""), Ok(true));
        assert_eq!(read("later = 1\n[journal]\nother = 2"), Ok(true));
        assert_eq!(read("journal.code = false"), Ok(false));
        assert!(read("journal.code = \"no\"").is_err());
    }

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn every_variable_has_a_key_and_wins_over_it() {
        let file = "notebook = 'a.ipynb'\nas = 'ada'\ntimeout = 20\nautostart = false\n\
            on_restart = 'keep'\nstartup_code = 'forward'\nstartup_known = ['ab']\n\
            turns = false\nlog = 'debug'\nkernel_env = { A = '0', C = '2' }\n\
            later = [1]\n[journal]\ncode = false\n";
        let from_file = with(file, &[("NB_AS", "")]).unwrap();
        let wanted = Config {
            notebook: Some("a.ipynb".into()),
            name: Some("ada".into()),
            timeout: Some(20.0),
            autostart: false,
            on_restart: OnRestart::Keep,
            startup_code: StartupCode::Forward,
            startup_known: vec!["ab".to_owned()],
            turns: false,
            log: Some("debug".into()),
            kernel_env: env(&[("A", "0"), ("C", "2")]),
            journal: JournalConfig { code: false },
        };
        assert_eq!(from_file, wanted);
        let variables = [
            ("NB_NOTEBOOK", "b.ipynb"),
            ("NB_AS", "bob"),
            ("NB_TIMEOUT", "2.5"),
            ("NB_AUTOSTART", "1"),
            ("NB_ON_RESTART", "restart"),
            ("NB_STARTUP_CODE", "answer"),
            ("NB_STARTUP_KNOWN", " cd, ef ,"),
            ("NB_KERNEL_ENV", "A=x=1, B=,"),
            ("NB_TURNS", "on"),
            ("NB_LOG", "trace"),
        ];
        let wanted = Config {
            notebook: Some("b.ipynb".into()),
            name: Some("bob".into()),
            timeout: Some(2.5),
            startup_known: vec!["cd".to_owned(), "ef".to_owned()],
            log: Some("trace".into()),
            // Each is a setting of its own.
            kernel_env: env(&[("A", "x=1"), ("B", ""), ("C", "2")]),
            journal: JournalConfig { code: false },
            ..Config::default()
        };
        assert_eq!(with(file, &variables).unwrap(), wanted);
    }

    #[test]
    fn what_a_setting_cannot_be_is_told_with_its_name() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        for wrong in [
            "turns = 1",
            "on_restart = 'perhaps'",
            "timeout = -1",
            "timeout = 'long'",
            "autostart",
        ] {
            std::fs::write(project.dir().join("config.toml"), wrong).unwrap();
            let error = project.config().unwrap_err();
            assert!(error.to_string().contains("config.toml"), "{error}");
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains(wrong), "{cause}");
        }
        for (name, value) in [
            ("NB_TURNS", "perhaps"),
            ("NB_TIMEOUT", "-1"),
            ("NB_TIMEOUT", "inf"),
            ("NB_ON_RESTART", "stop"),
        ] {
            let error = with("", &[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }
}
