//! `config.toml`: the user's settings for this project.
//!
//! Every variable `NB_…` that is a setting has a key here. The variable takes precedence; the key
//! is for editors that were started from a dock, where no shell sets the environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::{Project, beneath};

/// The settings of a project. Keys that this version does not know are left alone.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct Config {
    /// The notebook of commands that name none; `NB_NOTEBOOK`.
    pub notebook: Option<PathBuf>,
    /// The name under which commands act; `NB_AS`.
    #[serde(rename = "as")]
    pub name: Option<String>,
    /// How many seconds commands wait, 0 for ever; `NB_TIMEOUT`.
    #[serde(deserialize_with = "seconds")]
    pub timeout: Option<f64>,
    /// Whether a proxy that finds no kernel starts one; `NB_AUTOSTART`.
    pub autostart: bool,
    /// The effect of a front end's own Restart; `NB_ON_RESTART`.
    pub on_restart: OnRestart,
    /// The treatment of front ends' start-up code; `NB_STARTUP_CODE`.
    pub startup_code: StartupCode,
    /// The fingerprints of more start-up code that is recognised, as `proxy.log` prints them, for a
    /// VS Code that is newer than this version and sends another text; `NB_STARTUP_KNOWN`,
    /// separated by commas.
    pub startup_known: Vec<String>,
    /// Whether the proxy holds a cell while another client's cell runs; `NB_TURNS`.
    pub turns: bool,
    /// Whether kernels that are started say what each cell changed; `NB_REACTIVE`.
    pub reactive: bool,
    /// How many seconds a front end has to come back before a recorder takes its running cells; `NB_RETURN_TIME`.
    #[serde(deserialize_with = "seconds")]
    pub return_time: Option<f64>,
    /// How many seconds pass between pings of a Jupyter server; `NB_PING_INTERVAL`.
    #[serde(deserialize_with = "seconds")]
    pub ping_interval: Option<f64>,
    /// The level of `proxy.log`; `NB_LOG`.
    pub log: Option<String>,
    /// Variables that kernels get in addition to the environment of the process that starts them;
    /// `${NAME}` in a value is replaced from that environment; `NB_KERNEL_ENV`, as `NAME=value`,
    /// separated by commas.
    pub kernel_env: BTreeMap<String, String>,
    /// The journal's settings.
    pub journal: JournalConfig,
}

/// The effect of a front end's own Restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnRestart {
    /// Restart the shared kernel for real.
    #[default]
    Restart,
    /// Keep the shared kernel and its variables.
    Keep,
}

/// The treatment of the code that front ends run by themselves when they join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StartupCode {
    /// The proxy answers the code that it recognises, in the kernel's stead.
    #[default]
    Answer,
    /// All of it goes to the kernel.
    Forward,
}

/// The `[journal]` table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct JournalConfig {
    /// Whether the journal stores the code that ran.
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
            reactive: true,
            return_time: None,
            ping_interval: None,
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
        /// The system's error.
        source: io::Error,
    },
    /// It is not TOML, or a key has a value of the wrong type.
    #[error("{} is not understood; repair it or move it away", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault, with its position in the file.
        source: toml::de::Error,
    },
    /// A variable of the environment has a value that it cannot have.
    #[error("{name} is {value:?}; it can be {expected}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The values that it can have.
        expected: &'static str,
    },
}

impl Config {
    /// Returns these settings with those of the environment over them; an empty variable counts as
    /// unset.
    ///
    /// # Errors
    /// [`ConfigError::Variable`] names the variable and what it may be.
    pub fn with(
        mut self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, ConfigError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let text = |name: &str| set(name).map(|value| value.to_string_lossy().into_owned());
        self.notebook = set("NB_NOTEBOOK").map(PathBuf::from).or(self.notebook);
        self.name = text("NB_AS").or(self.name);
        self.log = text("NB_LOG").or(self.log);
        let expected = "a number of seconds, 0 for ever";
        self.timeout = read(&text, "NB_TIMEOUT", expected, time)?.or(self.timeout);
        let expected = "a number of seconds";
        self.return_time = read(&text, "NB_RETURN_TIME", expected, time)?.or(self.return_time);
        let interval = read(&text, "NB_PING_INTERVAL", expected, time)?;
        self.ping_interval = interval.or(self.ping_interval);
        for (name, is_on) in [
            ("NB_AUTOSTART", &mut self.autostart),
            ("NB_TURNS", &mut self.turns),
            ("NB_REACTIVE", &mut self.reactive),
        ] {
            *is_on = read(&text, name, "1 or 0", switch)?.unwrap_or(*is_on);
        }
        let restart = read(&text, "NB_ON_RESTART", "restart or keep", keyword)?;
        self.on_restart = restart.unwrap_or(self.on_restart);
        let startup = read(&text, "NB_STARTUP_CODE", "answer or forward", keyword)?;
        self.startup_code = startup.unwrap_or(self.startup_code);
        if let Some(known) = text("NB_STARTUP_KNOWN") {
            let words = known.split(',').map(str::trim);
            let words = words.filter(|word| !word.is_empty());
            self.startup_known = words.map(str::to_owned).collect();
        }
        let expected = "NAME=value, several with commas";
        let given = read(&text, "NB_KERNEL_ENV", expected, pairs)?;
        // Added to the variables of the file: each variable is a setting of its own.
        self.kernel_env.extend(given.unwrap_or_default());
        Ok(self)
    }

    /// Returns how long a front end whose connection ended has to come back before a recorder takes its running cells and
    /// writes their outputs into the notebook.
    pub fn return_time(&self) -> Duration {
        duration(self.return_time, Duration::from_secs(10)).min(Duration::from_secs(30))
    }

    /// Returns how long after a ping of a Jupyter server the next one follows.
    pub fn ping_interval(&self) -> Duration {
        let longest = Duration::from_secs(30);
        duration(self.ping_interval, longest).clamp(Duration::from_secs(1), longest)
    }
}

impl Project {
    /// Reads `config.toml`; returns the defaults if there is no file.
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

    /// Reads `config.toml`, and overrides it with the variables of this process.
    pub fn settings(&self) -> Result<Config, ConfigError> {
        self.config()?.with(|name| std::env::var_os(name))
    }
}

/// Returns a setting in seconds as a duration; the default where it is not set, or is none.
fn duration(seconds: Option<f64>, default: Duration) -> Duration {
    let duration = seconds.map(Duration::try_from_secs_f64);
    duration.and_then(Result::ok).unwrap_or(default)
}

/// Parses `A=1,B=2`.
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

/// Parses the value of a variable, if it is set.
fn read<T>(
    text: &impl Fn(&str) -> Option<String>,
    name: &'static str,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, ConfigError> {
    let Some(value) = text(name) else {
        return Ok(None);
    };
    let parsed = parse(value.trim());
    parsed.map(Some).ok_or(ConfigError::Variable {
        name,
        value,
        expected,
    })
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

/// Parses one of the words that the file accepts too.
fn keyword<T: for<'a> Deserialize<'a>>(word: &str) -> Option<T> {
    let word: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
        serde::de::IntoDeserializer::into_deserializer(word);
    T::deserialize(word).ok()
}

fn seconds<'a, D: serde::Deserializer<'a>>(from: D) -> Result<Option<f64>, D::Error> {
    let seconds = f64::deserialize(from)?;
    let expected = "it can be a number of seconds, 0 for ever";
    let seconds = Some(seconds).filter(|it| is_time(*it));
    seconds
        .map(Some)
        .ok_or_else(|| serde::de::Error::custom(expected))
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
    fn code_is_stored_unless_the_user_forbids_it() {
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
            turns = false\nreactive = false\nreturn_time = 1.5\nping_interval = 20\nlog = 'debug'\nkernel_env = { A = '0', C = '2' }\n\
            later = [1]\n[journal]\ncode = false\n";
        let from_file = with(file, &[("NB_AS", "")]).unwrap();
        let expected = Config {
            notebook: Some("a.ipynb".into()),
            name: Some("ada".into()),
            timeout: Some(20.0),
            autostart: false,
            on_restart: OnRestart::Keep,
            startup_code: StartupCode::Forward,
            startup_known: vec!["ab".to_owned()],
            turns: false,
            reactive: false,
            return_time: Some(1.5),
            ping_interval: Some(20.0),
            log: Some("debug".into()),
            kernel_env: env(&[("A", "0"), ("C", "2")]),
            journal: JournalConfig { code: false },
        };
        assert_eq!(from_file, expected);
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
            ("NB_REACTIVE", "yes"),
            ("NB_RETURN_TIME", "2"),
            ("NB_PING_INTERVAL", "5"),
            ("NB_LOG", "trace"),
        ];
        let expected = Config {
            notebook: Some("b.ipynb".into()),
            name: Some("bob".into()),
            timeout: Some(2.5),
            startup_known: vec!["cd".to_owned(), "ef".to_owned()],
            return_time: Some(2.0),
            ping_interval: Some(5.0),
            log: Some("trace".into()),
            // Each is a setting of its own.
            kernel_env: env(&[("A", "x=1"), ("B", ""), ("C", "2")]),
            journal: JournalConfig { code: false },
            ..Config::default()
        };
        assert_eq!(with(file, &variables).unwrap(), expected);
    }

    #[test]
    fn an_error_names_the_setting_and_its_possible_values() {
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
