//! Permissions: how an agent's request is put to the person, what an answer means, and what is allowed from
//! now on. Pure.

use std::collections::BTreeSet;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::protocol::{PermissionKind, PermissionOption};
use super::update::{ToolChange, ToolContent};
use crate::notebook::visible_line;

/// A question for the person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionQuestion {
    /// The name of the agent.
    pub agent: String,
    /// What it wants to do.
    pub title: String,
    /// The kind of tool.
    pub kind: String,
    /// Where.
    pub places: Vec<String>,
    /// The answers, each with its letter.
    pub options: Vec<PermissionOption>,
    /// What an answer that allows it from now on permits; `None` if the request does not say enough to be known again.
    pub standing: Option<StandingPermission>,
}

/// An answer that holds from now on.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StandingPermission {
    /// The name of the agent.
    pub agent: String,
    /// What it may do.
    pub title: String,
    /// The kind of tool.
    pub kind: String,
    /// The files.
    #[serde(default)]
    pub files: Vec<String>,
    /// The digest of the tool's input, without the texts that an edit of the files replaces and writes.
    #[serde(default)]
    pub input: Option<String>,
}

impl StandingPermission {
    /// Returns what a permission for a tool call from now on permits: the same call of the same tool, on the same
    /// files; of an edit that shows its texts, also with other texts. `None` if the call names neither files nor an
    /// input: another call could look the same.
    pub fn of(agent: &str, tool: &ToolChange) -> Option<Self> {
        let mut input = tool.input.clone().unwrap_or_default();
        let mut files: Vec<_> = tool.locations.iter().flatten().map(|it| &it.path).collect();
        for content in tool.content.iter().flatten() {
            if let ToolContent::Diff { path, old, new } = content {
                files.push(path);
                remove_texts(&mut input, &[old, new]);
            }
        }
        let files = files.into_iter().map(|file| file.display().to_string());
        let files: BTreeSet<_> = files.collect();
        if files.is_empty() && input.is_null() {
            return None;
        }
        let digest = || hex::encode(Sha256::digest(input.to_string()));
        Some(Self {
            agent: agent.to_owned(),
            title: tool.title.clone()?,
            kind: tool.kind.clone()?,
            files: files.into_iter().collect(),
            input: (!input.is_null()).then(digest),
        })
    }
}

/// Removes the strings that are one of the texts.
fn remove_texts(value: &mut Value, texts: &[&String]) {
    match value {
        Value::String(text) if texts.contains(&&*text) => text.clear(),
        Value::Array(values) => values.iter_mut().for_each(|it| remove_texts(it, texts)),
        Value::Object(fields) => fields.values_mut().for_each(|it| remove_texts(it, texts)),
        _ => {}
    }
}

/// What the person's answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionChoice {
    /// One of the options.
    Option(PermissionOption),
    /// None of them: nothing is allowed.
    Nothing,
    /// A text that is no answer.
    Unclear,
}

impl PermissionQuestion {
    /// Returns the option that an empty answer selects: the one that decides least of those that allow nothing.
    pub fn default_option(&self) -> Option<&PermissionOption> {
        let options = self.options.iter();
        let rejecting = options.filter(|it| it.kind < PermissionKind::AllowOnce);
        rejecting.min_by_key(|it| it.kind)
    }

    /// Returns the question as a prompt: a line for each option.
    pub fn prompt(&self) -> String {
        let mut text = format!("{} asks: {}", one_line(&self.agent), one_line(&self.title));
        if !self.kind.is_empty() {
            text.push_str(&format!(" ({})", one_line(&self.kind)));
        }
        if !self.places.is_empty() {
            text.push_str(&format!("\nin {}", one_line(&self.places.join(", "))));
        }
        for (option, letter) in self.options.iter().zip(letters()) {
            let meaning = match option.kind {
                PermissionKind::RejectOnce => "not this time",
                PermissionKind::RejectAlways => "never",
                PermissionKind::AllowOnce => "this time",
                PermissionKind::AllowTurn => "until the end of this turn",
                PermissionKind::AllowAlways => "from now on",
            };
            let name = one_line(&option.name);
            text.push_str(&format!("\n  {letter}  {name} ({meaning})"));
        }
        let default_text = match self.default_letter() {
            Some(letter) => letter.to_string(),
            None => "nothing is allowed".to_owned(),
        };
        text.push_str(&format!("\nletter, or Enter for [{default_text}]: "));
        text
    }

    fn default_letter(&self) -> Option<char> {
        let default_option = self.default_option()?;
        let at = self.options.iter().position(|it| it == default_option)?;
        letters().nth(at)
    }

    /// Reads the person's answer: a letter, or nothing.
    pub fn choice(&self, answer: &str) -> PermissionChoice {
        let answer = answer.trim().trim_end_matches([')', '.']);
        let mut characters = answer.chars();
        match (characters.next(), characters.next()) {
            (None, _) => match self.default_option() {
                Some(option) => PermissionChoice::Option(option.clone()),
                None => PermissionChoice::Nothing,
            },
            (Some(letter), None) => {
                let letter = letter.to_ascii_lowercase();
                let at = letters().position(|it| it == letter);
                match at.and_then(|at| self.options.get(at)) {
                    Some(option) => PermissionChoice::Option(option.clone()),
                    None => PermissionChoice::Unclear,
                }
            }
            _ => PermissionChoice::Unclear,
        }
    }

    /// Returns the option by which this one request is allowed, if the agent offers one.
    pub fn once(&self) -> Option<&PermissionOption> {
        let mut options = self.options.iter();
        options.find(|it| it.kind == PermissionKind::AllowOnce)
    }
}

/// The letters of options. An agent that offers more of them than these gets no answer to the rest.
fn letters() -> impl Iterator<Item = char> {
    'a'..='z'
}

/// Returns a text of an agent as one line of bounded length, so that it cannot imitate the rest of a prompt.
fn one_line(text: &str) -> String {
    const LINE_CHARS_MAX: usize = 200;
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = text.chars().map(plain).take(LINE_CHARS_MAX).collect();
    if text.chars().nth(LINE_CHARS_MAX).is_some() {
        line.push('…');
    }
    visible_line(&line).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::update::Location;
    use super::*;

    fn option(id: &str, kind: PermissionKind) -> PermissionOption {
        PermissionOption {
            id: id.to_owned(),
            name: format!("{id}\nb  forged"),
            kind,
        }
    }

    fn question(kinds: &[PermissionKind]) -> PermissionQuestion {
        let options = kinds.iter().enumerate();
        PermissionQuestion {
            agent: "claude".to_owned(),
            title: "Write\u{1b}[2J \u{202e}x".to_owned(),
            kind: "edit".to_owned(),
            places: vec!["a.py:3".to_owned()],
            options: options
                .map(|(at, kind)| option(&at.to_string(), *kind))
                .collect(),
            standing: None,
        }
    }

    fn edit(path: &str, new: &str, input: Value) -> ToolChange {
        let diff = |path: &str| ToolContent::Diff {
            path: path.into(),
            old: String::new(),
            new: new.to_owned(),
        };
        ToolChange {
            title: Some("Write a file".to_owned()),
            kind: Some("edit".to_owned()),
            content: Some(vec![diff(path)]),
            input: Some(input),
            ..ToolChange::default()
        }
    }

    #[test]
    fn a_permission_from_now_on_is_for_these_files_and_this_command() {
        let standing = |tool: &ToolChange| StandingPermission::of("claude", tool);
        let input = |path: &str, new: &str| serde_json::json!({"file_path": path, "content": new});
        let allowed = standing(&edit("/p/a.py", "1", input("/p/a.py", "1")));
        assert!(allowed.is_some());
        assert_eq!(
            standing(&edit("/p/a.py", "2", input("/p/a.py", "2"))),
            allowed,
            "another text of the same file"
        );
        let mut also = edit("/p/a.py", "1", input("/p/a.py", "1"));
        also.locations = Some(vec![Location {
            path: "/home/ada/.bashrc".into(),
            line: None,
        }]);
        for other in [
            edit("/home/ada/.bashrc", "1", input("/home/ada/.bashrc", "1")),
            edit("/p/a.py", "1", input("/home/ada/.bashrc", "1")),
            edit("/p/a.py", "1", Value::Null),
            also,
        ] {
            assert_ne!(standing(&other), allowed, "{other:?}");
        }
        let command = |line: &str| {
            standing(&ToolChange {
                title: Some("Run a command".to_owned()),
                kind: Some("execute".to_owned()),
                input: Some(serde_json::json!({ "command": line })),
                ..ToolChange::default()
            })
        };
        assert!(command("ls").is_some());
        assert_eq!(command("ls"), command("ls"));
        assert_ne!(command("ls"), command("rm -r ."));
    }

    #[test]
    fn what_names_neither_files_nor_an_input_is_asked_for_each_time() {
        let tool = ToolChange {
            title: Some("Change a file".to_owned()),
            kind: Some("edit".to_owned()),
            ..ToolChange::default()
        };
        assert_eq!(StandingPermission::of("claude", &tool), None);
    }

    fn chosen(question: &PermissionQuestion, answer: &str) -> String {
        match question.choice(answer) {
            PermissionChoice::Option(option) => option.id,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn the_default_is_the_least_and_what_holds_for_ever_is_typed() {
        use PermissionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};
        let all = question(&[AllowAlways, AllowOnce, RejectAlways, RejectOnce]);
        assert_eq!(chosen(&all, ""), "3");
        assert_eq!(chosen(&all, " A) "), "0");
        assert_eq!(chosen(&all, "b"), "1");
        assert_eq!(chosen(&question(&[RejectAlways, AllowOnce]), "\n"), "0");
        let only_allow = question(&[AllowAlways, AllowOnce]);
        assert_eq!(chosen(&only_allow, ""), "Nothing");
        for unclear in ["c", "yes", "1", "ab", "ä"] {
            assert_eq!(chosen(&only_allow, unclear), "Unclear", "{unclear}");
        }
        assert_eq!(chosen(&question(&[]), ""), "Nothing");
    }

    #[test]
    fn an_agents_text_cannot_imitate_an_option() {
        use PermissionKind::{AllowOnce, RejectOnce};
        let prompt = question(&[AllowOnce, RejectOnce]).prompt();
        assert_eq!(
            prompt,
            "claude asks: Write [2J <U+202E>x (edit)\nin a.py:3\n  a  0 b  forged (this time)\n  \
             b  1 b  forged (not this time)\nletter, or Enter for [b]: "
        );
    }
}
