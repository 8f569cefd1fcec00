//! What a user can do next: sentences in which commands of `nb` are values.
//!
//! Each front door words the commands itself: the command line as a shell takes them, with the notebook as it was
//! typed; MCP as calls of its tools. Nothing finds a command in a text.

mod command;
pub mod shell;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

pub use command::{Command, Verb, Word, nb};

/// A sentence that may contain commands. `Display` writes it for a shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint(Vec<HintPart>);

/// A part of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HintPart {
    /// Words.
    Text(Cow<'static, str>),
    /// A command of `nb`.
    Command(Command),
    /// An option of a command that is named alone.
    Option(OptionName),
    /// A file's path.
    Path(PathBuf),
    /// What stands between two commands.
    Joint(Joint),
}

/// How a command follows another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joint {
    /// Instead of it.
    Or,
    /// After it.
    And,
}

/// An option of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionName {
    /// The command.
    pub verb: Verb,
    /// The option with its dashes.
    pub name: &'static str,
    /// The word that stands for its value; empty if it has none.
    pub value: &'static str,
}

/// Makes a hint from its parts: texts, commands, options, paths and joints.
#[macro_export]
macro_rules! hint {
    ($($part:expr),+ $(,)?) => { $crate::hint::Hint::default()$(.and($part))+ };
}

impl Hint {
    /// Adds a part, or all parts of another hint.
    #[must_use]
    pub fn and(mut self, next: impl Into<Self>) -> Self {
        self.0.extend(next.into().0);
        self
    }

    /// Returns the parts.
    pub fn parts(&self) -> &[HintPart] {
        &self.0
    }

    /// Returns the hint with this path as the notebook of the request.
    #[must_use]
    pub fn named(mut self, notebook: &Path) -> Self {
        for part in &mut self.0 {
            if let HintPart::Command(command) = part {
                command.name(notebook);
            }
        }
        self
    }

    /// Returns the hint for a shell, with the commands and paths in the caller's spelling.
    pub fn spelled(
        &self,
        command: impl Fn(&Command) -> String,
        path: impl Fn(&Path) -> String,
    ) -> String {
        let parts = self.0.iter().map(|part| match part {
            HintPart::Text(text) => Cow::Borrowed(&**text),
            HintPart::Command(it) => command(it).into(),
            HintPart::Option(option) => option.to_string().into(),
            HintPart::Path(it) => path(it).into(),
            HintPart::Joint(joint) => joint.text().into(),
        });
        parts.collect()
    }
}

impl Joint {
    /// Returns the joint as a shell or a reader has it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Or => " | ",
            Self::And => " && ",
        }
    }
}

/// Names an option that has no value.
pub fn option(verb: Verb, name: &'static str) -> OptionName {
    let value = "";
    OptionName { verb, name, value }
}

impl OptionName {
    /// Adds the word that stands for the option's value.
    #[must_use]
    pub fn value(mut self, value: &'static str) -> Self {
        self.value = value;
        self
    }
}

impl fmt::Display for OptionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            "" => f.write_str(self.name),
            value => write!(f, "{} {value}", self.name),
        }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelled(Command::to_string, shell::quote))
    }
}

impl Serialize for Hint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Hint {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}

impl From<HintPart> for Hint {
    fn from(part: HintPart) -> Self {
        Self(vec![part])
    }
}

impl From<&'static str> for Hint {
    fn from(text: &'static str) -> Self {
        HintPart::Text(text.into()).into()
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Self {
        HintPart::Text(text.into()).into()
    }
}

impl From<Command> for Hint {
    fn from(command: Command) -> Self {
        HintPart::Command(command).into()
    }
}

impl From<OptionName> for Hint {
    fn from(option: OptionName) -> Self {
        HintPart::Option(option).into()
    }
}

impl From<&Path> for Hint {
    fn from(path: &Path) -> Self {
        HintPart::Path(path.to_owned()).into()
    }
}

impl From<Joint> for Hint {
    fn from(joint: Joint) -> Self {
        HintPart::Joint(joint).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_a_text_for_a_shell() {
        let path = Path::new("/p/it's.ipynb");
        let hints = [
            hint!["allow nb outside the sandbox"],
            hint![
                nb(Verb::Status),
                " tells its state; ",
                nb(Verb::Open),
                " starts it"
            ],
            hint![nb(Verb::Open).this(), " starts one"],
            hint!["rm ", path, Joint::And, nb(Verb::Open).notebook(path)],
            hint![
                "next: ",
                nb(Verb::Reply).job("7f3a").stdin("FILE"),
                Joint::Or,
                nb(Verb::Wait)
            ],
            hint![
                "named with ",
                option(Verb::Open, "--kernel").value("NAME"),
                "; ",
                option(Verb::Open, "--own"),
                " is another"
            ],
        ];
        assert_eq!(
            hints.map(|hint| hint.to_string()),
            [
                "allow nb outside the sandbox",
                "nb status tells its state; nb open starts it",
                "nb open NOTEBOOK starts one",
                r"rm '/p/it'\''s.ipynb' && nb open '/p/it'\''s.ipynb'",
                "next: nb reply 7f3a - < FILE | nb wait",
                "named with --kernel NAME; --own is another",
            ]
        );
    }

    #[test]
    fn a_hint_gets_the_notebook_that_it_is_about() {
        let server = nb(Verb::Open).this().option("--server").word("gpu box");
        let hint = hint!["to start one there: ", server];
        let named = hint.named(Path::new("/p/a.ipynb"));
        assert_eq!(
            named,
            hint![
                "to start one there: ",
                nb(Verb::Open)
                    .notebook(Path::new("/p/a.ipynb"))
                    .option("--server")
                    .word("gpu box")
            ]
        );
        let text = "to start one there: nb open /p/a.ipynb --server 'gpu box'";
        assert_eq!(serde_json::to_value(&named).unwrap(), text);
    }
}
