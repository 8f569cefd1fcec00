//! Configures the programs of agents to use `nb`: adds a guide and an MCP server to the files that each program
//! reads.
//!
//! The files are in the project's folder, where they can be shared with others. What users have written there
//! stays: a guide is a file or a marked section of its own, a server is one entry among others.

use std::path::{Path, PathBuf};

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use serde::Serialize;
use serde_json::{Value, json};

use super::planned_file::{PlannedFile, PlannedFileError, read};

/// The program of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum AgentProgram {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// GitHub Copilot in VS Code.
    Copilot,
    /// Cursor.
    Cursor,
    /// Gemini CLI.
    Gemini,
}

/// A part of what a program is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentPart {
    /// The guide.
    Skill,
    /// The MCP server.
    Mcp,
}

/// The guide as a skill: a file of its own.
const SKILL: &str = include_str!("../../../../skills/nb/SKILL.md");

/// The last line of a guide that is a file of its own.
const MARK: &str = "<!-- written by nb agent install -->";

/// The guide in a file that has other instructions too.
const SECTION: &str = "\
## Jupyter notebooks

Use the command `nb` for Jupyter notebooks (.ipynb): a person may share the live kernel and the file in VS Code or
JupyterLab. Begin with `nb help agent`. Do not edit the file and do not start a kernel yourself.
";

/// What stands at the head of Cursor's rule.
const CURSOR_HEAD: &str = "\
---
description: Read, edit and run Jupyter notebooks (.ipynb) on a live kernel that is shared with a person
globs: **/*.ipynb
alwaysApply: false
---

";

/// The form of `nb`'s part of a file.
#[derive(Clone, Copy)]
enum Form {
    /// A file of its own with this text.
    Own(fn() -> String),
    /// A marked section of Markdown.
    Section,
    /// An entry in this object of a JSON file.
    Json(&'static str),
    /// A marked table of TOML.
    Toml,
}

impl Form {
    fn part(self) -> AgentPart {
        match self {
            Self::Own(_) | Self::Section => AgentPart::Skill,
            Self::Json(_) | Self::Toml => AgentPart::Mcp,
        }
    }
}

impl AgentProgram {
    /// All programs.
    pub const ALL: [Self; 5] = [
        Self::Claude,
        Self::Codex,
        Self::Copilot,
        Self::Cursor,
        Self::Gemini,
    ];

    fn files(self) -> [(&'static str, Form); 2] {
        match self {
            Self::Claude => [
                (".claude/skills/nb/SKILL.md", Form::Own(skill)),
                (".mcp.json", Form::Json("mcpServers")),
            ],
            Self::Codex => [
                ("AGENTS.md", Form::Section),
                (".codex/config.toml", Form::Toml),
            ],
            Self::Copilot => [
                (".github/copilot-instructions.md", Form::Section),
                (".vscode/mcp.json", Form::Json("servers")),
            ],
            Self::Cursor => [
                (".cursor/rules/nb.mdc", Form::Own(cursor_rule)),
                (".cursor/mcp.json", Form::Json("mcpServers")),
            ],
            Self::Gemini => [
                ("GEMINI.md", Form::Section),
                (".gemini/settings.json", Form::Json("mcpServers")),
            ],
        }
    }

    /// Returns the changes of the program's files in a folder that add `nb`, or take it out again; `only` of one part.
    /// Nothing is written.
    ///
    /// # Errors
    /// A file is not what the program reads, or is a link.
    pub fn planned(
        self,
        folder: &Path,
        removes: bool,
        only: Option<AgentPart>,
    ) -> Result<Vec<PlannedFile>, PlannedFileError> {
        let files = self.files().into_iter();
        let files = files.filter(|(_, form)| only.is_none_or(|part| part == form.part()));
        let planned = files.map(|(name, form)| {
            let path = folder.join(name);
            let before = read(folder, Path::new(name))?;
            let after = match removes {
                false => form.added(&path, before.as_deref()).map(Some)?,
                true => match &before {
                    Some(before) => form.removed(&path, before)?,
                    None => None,
                },
            };
            Ok(PlannedFile {
                path,
                before,
                after,
            })
        });
        planned.collect()
    }

    /// Returns the servers that the program's files name `nb` and that are not `nb mcp`: the folder's author chose what
    /// they run. An installation leaves them.
    ///
    /// # Errors
    /// A file is not what the program reads, or is a link.
    pub fn other_servers(self, folder: &Path) -> Result<Vec<OtherServer>, PlannedFileError> {
        let mut all = Vec::new();
        for (name, form) in self.files() {
            let path = folder.join(name);
            let Some(text) = read(folder, Path::new(name))? else {
                continue;
            };
            let others = form.other_servers(&path, &text)?.into_iter();
            all.extend(others.map(|entry| OtherServer {
                path: path.clone(),
                entry,
            }));
        }
        Ok(all)
    }
}

/// A server of the name `nb` that is not `nb mcp`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OtherServer {
    /// The file that names it.
    pub path: PathBuf,
    /// What the file says of it.
    pub entry: Value,
}

/// Removes the folders of a removed file that are empty now, if an installation may have made them.
pub fn remove_empty_folders(folder: &Path, removed: &Path) {
    let Ok(name) = removed.strip_prefix(folder) else {
        return;
    };
    let above = name.ancestors().skip(1);
    for inner in above.filter(|it| !it.as_os_str().is_empty()) {
        // A folder with other files stays.
        if std::fs::remove_dir(folder.join(inner)).is_err() {
            return;
        }
    }
}

fn skill() -> String {
    format!("{SKILL}\n{MARK}\n")
}

fn cursor_rule() -> String {
    format!("{CURSOR_HEAD}{SECTION}\n{MARK}\n")
}

/// Returns the entry of the server.
fn server(key: &str) -> Value {
    match key {
        "servers" => json!({"type": "stdio", "command": "nb", "args": ["mcp"]}),
        _ => json!({"command": "nb", "args": ["mcp"]}),
    }
}

/// Says whether the entry of a server is that of [`server`].
fn is_ours(entry: &Value) -> bool {
    ["servers", "mcpServers"]
        .iter()
        .any(|key| *entry == server(key))
}

/// The table of the server.
const TABLE: &str = "[mcp_servers.nb]\ncommand = \"nb\"\nargs = [\"mcp\"]\n";

/// The lines before and after a section of Markdown.
const MARKDOWN: [&str; 2] = [
    "<!-- nb agent install: begin -->",
    "<!-- nb agent install: end -->",
];

/// The lines before and after a table of TOML.
const TOML: [&str; 2] = ["# nb agent install: begin", "# nb agent install: end"];

impl Form {
    /// Returns a file's text with `nb`.
    fn added(self, path: &Path, before: Option<&str>) -> Result<String, PlannedFileError> {
        match self {
            Self::Own(text) => match before.filter(|before| !before.contains(MARK)) {
                Some(_) => Err(PlannedFileError::Foreign(path.to_owned())),
                None => Ok(text()),
            },
            Self::Section => Ok(with_section(before.unwrap_or_default(), MARKDOWN, SECTION)),
            Self::Toml => {
                let before = before.unwrap_or_default();
                let table: toml::Table = before
                    .parse()
                    .map_err(|error| unreadable_table(path, &error))?;
                if table
                    .get("mcp_servers")
                    .and_then(|it| it.get("nb"))
                    .is_some()
                {
                    return Ok(before.to_owned());
                }
                let after = with_section(before, TOML, TABLE);
                // A table cannot be added to one in braces.
                match after.parse::<toml::Table>() {
                    Ok(_) => Ok(after),
                    Err(error) => Err(unreadable_table(path, &error)),
                }
            }
            Self::Json(key) => JsonSettings::parse(path, before.unwrap_or_default(), key)?.added(),
        }
    }

    /// Returns the entries of the servers named `nb` that are not the one that is added.
    fn other_servers(self, path: &Path, text: &str) -> Result<Vec<Value>, PlannedFileError> {
        match self {
            Self::Own(_) | Self::Section => Ok(Vec::new()),
            Self::Toml => {
                let table: toml::Table = text
                    .parse()
                    .map_err(|error| unreadable_table(path, &error))?;
                let servers = table.get("mcp_servers");
                let nb = servers.and_then(|servers| servers.get("nb"));
                let nb = nb.and_then(|nb| serde_json::to_value(nb).ok());
                Ok(nb.into_iter().filter(|nb| !is_ours(nb)).collect())
            }
            Self::Json(key) => Ok(JsonSettings::parse(path, text, key)?.other_servers()),
        }
    }

    /// Returns a file's text without `nb`; `None` if nothing else is in it.
    fn removed(self, path: &Path, before: &str) -> Result<Option<String>, PlannedFileError> {
        let text = match self {
            Self::Own(_) => match before.contains(MARK) {
                true => String::new(),
                false => return Err(PlannedFileError::Foreign(path.to_owned())),
            },
            Self::Section => without_section(before, MARKDOWN),
            Self::Toml => without_section(before, TOML),
            Self::Json(key) => JsonSettings::parse(path, before, key)?.removed(),
        };
        Ok((!text.trim().is_empty()).then_some(text))
    }
}

/// The settings of a program in a JSON file. The comments, the order and the layout of the file stay.
struct JsonSettings<'a> {
    path: &'a Path,
    /// The name of the object that holds the servers.
    key: &'static str,
    text: &'a str,
    root: CstRootNode,
    settings: CstObject,
}

/// Some editors put it before the text.
const BYTE_ORDER_MARK: char = '\u{feff}';

impl<'a> JsonSettings<'a> {
    fn parse(path: &'a Path, text: &'a str, key: &'static str) -> Result<Self, PlannedFileError> {
        let json = text.trim_start_matches(BYTE_ORDER_MARK);
        let json = if json.trim().is_empty() { "{}" } else { json };
        let root = CstRootNode::parse(json, &ParseOptions::default())
            .map_err(|error| unreadable(path, error.to_string(), key))?;
        let settings = root.object_value();
        let settings =
            settings.ok_or_else(|| unreadable(path, "it is not an object".to_owned(), key))?;
        Ok(Self {
            path,
            key,
            text,
            root,
            settings,
        })
    }

    fn added(&self) -> Result<String, PlannedFileError> {
        let is_no_object = || {
            unreadable(
                self.path,
                format!("{:?} is not an object", self.key),
                self.key,
            )
        };
        let servers = self.settings.object_value_or_create(self.key);
        let servers = servers.ok_or_else(is_no_object)?;
        if servers.get("nb").is_some() {
            return Ok(self.text.to_owned());
        }
        servers.append("nb", entry(&server(self.key)));
        Ok(self.changed())
    }

    /// A key may stand in an object more than once: then it depends on the reader which counts.
    fn other_servers(&self) -> Vec<Value> {
        let named = |object: &CstObject, name: &str| {
            let mut all = object.properties();
            all.retain(|it| {
                it.name()
                    .is_some_and(|it| it.decoded_value().as_deref() == Ok(name))
            });
            all
        };
        let servers = named(&self.settings, self.key).into_iter();
        let servers = servers.filter_map(|it| it.object_value());
        let entries = servers.flat_map(|servers| named(&servers, "nb"));
        let entries = entries.map(|it| it.value().and_then(|it| it.to_serde_value()));
        let entries = entries.map(Option::unwrap_or_default);
        entries.filter(|entry| !is_ours(entry)).collect()
    }

    fn removed(&self) -> String {
        let Some(servers) = self.settings.get(self.key) else {
            return self.text.to_owned();
        };
        let Some(nb) = servers.object_value().and_then(|it| it.get("nb")) else {
            return self.text.to_owned();
        };
        let command = nb.object_value().and_then(|it| it.get("command"));
        let command = command.and_then(|it| it.value()?.as_string_lit()?.decoded_value().ok());
        if command.as_deref() != Some("nb") {
            return self.text.to_owned();
        }
        nb.remove();
        if servers
            .object_value()
            .is_some_and(|it| it.properties().is_empty())
        {
            servers.remove();
        }
        let text = self.changed();
        let is_empty = self.settings.properties().is_empty()
            && text.trim().trim_matches(['{', '}']).trim().is_empty();
        if is_empty { String::new() } else { text }
    }

    fn changed(&self) -> String {
        let mark = self.text.starts_with(BYTE_ORDER_MARK);
        let mark = mark.then_some(BYTE_ORDER_MARK).map(String::from);
        let text = mark.unwrap_or_default() + &self.root.to_string();
        if text.ends_with('\n') {
            text
        } else {
            text + "\n"
        }
    }
}

fn entry(value: &Value) -> CstInputValue {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| (key.clone(), entry(value)));
            CstInputValue::Object(fields.collect())
        }
        Value::Array(values) => CstInputValue::Array(values.iter().map(entry).collect()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Null => CstInputValue::Null,
    }
}

fn unreadable(path: &Path, why: String, key: &str) -> PlannedFileError {
    PlannedFileError::Unreadable {
        path: path.to_owned(),
        why,
        entry: json!({key: {"nb": server(key)}}).to_string(),
    }
}

fn unreadable_table(path: &Path, error: &toml::de::Error) -> PlannedFileError {
    PlannedFileError::Unreadable {
        path: path.to_owned(),
        why: error.message().to_owned(),
        entry: TABLE.trim_end().replace('\n', "; "),
    }
}

/// Returns the parts of a text before and after the section between these marks.
fn around<'a>(text: &'a str, [begin, end]: [&str; 2]) -> Option<(&'a str, &'a str)> {
    let (before, rest) = text.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some((before, after.strip_prefix('\n').unwrap_or(after)))
}

/// Returns a text with a section between these marks, in the place of the one that is there.
fn with_section(text: &str, marks: [&str; 2], section: &str) -> String {
    let [begin, end] = marks;
    let block = format!("{begin}\n{section}{end}\n");
    match around(text, marks) {
        Some((before, after)) => format!("{before}{block}{after}"),
        None if text.trim().is_empty() => block,
        None => format!("{}\n\n{block}", text.trim_end_matches('\n')),
    }
}

/// Returns a text without the section between these marks, and without the blank line that came with it.
fn without_section(text: &str, marks: [&str; 2]) -> String {
    let Some((before, after)) = around(text, marks) else {
        return text.to_owned();
    };
    let shorter = before.strip_suffix('\n');
    let before = shorter.filter(|it| it.ends_with('\n')).unwrap_or(before);
    format!("{before}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_all(folder: &Path, program: AgentProgram, removes: bool) {
        for file in program.planned(folder, removes, None).unwrap() {
            file.write().unwrap();
            if removes {
                remove_empty_folders(folder, &file.path);
            }
        }
    }

    #[test]
    fn what_was_added_is_taken_out_again_and_nothing_else() {
        let known = [
            ("AGENTS.md", "# Ours\n\nBe kind.\n"),
            (
                ".codex/config.toml",
                "model = \"x\"\n\n[mcp_servers.other]\ncommand = \"o\"\n",
            ),
            (
                ".mcp.json",
                "{\n  \"mcpServers\": {\n    \"other\": {\n      \"command\": \"o\"\n    }\n  }\n}\n",
            ),
            (".gemini/settings.json", "{\n  \"theme\": \"dark\"\n}\n"),
            (".github/copilot-instructions.md", "Be kind."),
        ];
        for with_files in [false, true] {
            let temp = tempfile::tempdir().unwrap();
            let folder = temp.path();
            for (name, text) in known.iter().filter(|_| with_files) {
                let path = folder.join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            for program in AgentProgram::ALL {
                write_all(folder, program, false);
                let again = program.planned(folder, false, None).unwrap();
                assert!(again.iter().all(PlannedFile::is_same), "{program:?}");
                for file in &again {
                    let text = file.after.as_deref().unwrap();
                    assert!(text.contains("nb"), "{text}");
                }
            }
            let servers = std::fs::read_to_string(folder.join(".mcp.json")).unwrap();
            let servers: Value = serde_json::from_str(&servers).unwrap();
            assert_eq!(servers["mcpServers"]["nb"]["args"], json!(["mcp"]));
            assert_eq!(servers["mcpServers"]["other"].is_null(), !with_files);
            let table = std::fs::read_to_string(folder.join(".codex/config.toml")).unwrap();
            let table: toml::Table = table.parse().unwrap();
            assert_eq!(table["mcp_servers"]["nb"]["command"].as_str(), Some("nb"));
            for program in AgentProgram::ALL {
                write_all(folder, program, true);
                let again = program.planned(folder, true, None).unwrap();
                assert!(again.iter().all(PlannedFile::is_same), "{program:?}");
            }
            for (name, text) in known {
                let now = std::fs::read_to_string(folder.join(name)).ok();
                let now = now.as_deref().map(str::trim_end);
                assert_eq!(now, with_files.then_some(text.trim_end()), "{name}");
            }
            assert!(!folder.join(".cursor").exists());
            assert_eq!(folder.join(".codex").exists(), with_files);
            assert!(folder.exists(), "the project's folder stays");
        }
    }

    #[test]
    fn what_is_not_understood_stays() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path();
        let plan = |program: AgentProgram| program.planned(folder, false, None);
        std::fs::write(folder.join(".mcp.json"), "{ no json").unwrap();
        let error = plan(AgentProgram::Claude).unwrap_err().to_string();
        assert!(
            error.contains("add this yourself: {\"mcpServers\""),
            "{error}"
        );
        std::fs::write(folder.join(".mcp.json"), "{\"mcpServers\": []}").unwrap();
        assert!(plan(AgentProgram::Claude).is_err());
        std::fs::remove_file(folder.join(".mcp.json")).unwrap();
        std::fs::create_dir_all(folder.join(".claude/skills/nb")).unwrap();
        std::fs::write(folder.join(".claude/skills/nb/SKILL.md"), "mine").unwrap();
        let error = plan(AgentProgram::Claude).unwrap_err();
        assert!(matches!(error, PlannedFileError::Foreign(_)), "{error}");
        // A server that somebody has set up otherwise stays too.
        let own = "{\"mcpServers\": {\"nb\": {\"command\": \"/opt/nb\"}}}";
        std::fs::create_dir(folder.join(".gemini")).unwrap();
        std::fs::write(folder.join(".gemini/settings.json"), own).unwrap();
        for removes in [false, true] {
            let files = AgentProgram::Gemini.planned(folder, removes, None).unwrap();
            assert_eq!(files[1].after.as_deref(), Some(own));
        }
    }

    #[test]
    fn another_server_of_the_name_is_named() {
        let others = |program: AgentProgram, file: &str, text: &str| {
            let temp = tempfile::tempdir().unwrap();
            let path = temp.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            let others = program.other_servers(temp.path()).unwrap();
            assert!(others.iter().all(|other| other.path == path), "{others:?}");
            others.len()
        };
        for (entry, count) in [
            (r#"{"command": "nb", "args": ["mcp"]}"#, 0),
            (
                r#"{"type": "stdio", "command": "nb", "args": ["mcp"]} // ours"#,
                0,
            ),
            (r#"{"type": "http", "url": "http://192.0.2.1/mcp"}"#, 1),
            (r#"{"command": "nb", "args": ["run", "import this"]}"#, 1),
            (r#"{"command": "./nb", "args": ["mcp"]}"#, 1),
            (
                r#"{"command": "nb", "args": ["mcp"], "env": {"LD_PRELOAD": "./x.so"}}"#,
                1,
            ),
            (r#"{"command": "nb", "args": ["mcp"], "cwd": "tools"}"#, 1),
            (
                r#"{"command": "nb", "args": ["mcp"]}, "nb": {"url": "http://192.0.2.1"}"#,
                1,
            ),
            (r#"{"command": "nb", "args": ["mcp"]}, "\u006eb": 1"#, 1),
            ("[]", 1),
        ] {
            for (program, file, key) in [
                (AgentProgram::Claude, ".mcp.json", "mcpServers"),
                (AgentProgram::Copilot, ".vscode/mcp.json", "servers"),
                (AgentProgram::Cursor, ".cursor/mcp.json", "mcpServers"),
                (AgentProgram::Gemini, ".gemini/settings.json", "mcpServers"),
            ] {
                let text = format!("{{\"{key}\": {{\"nb\": {entry}\n}}}}");
                assert_eq!(others(program, file, &text), count, "{text}");
            }
        }
        for (table, count) in [
            (TABLE, 0),
            (
                "[mcp_servers.nb]\ncommand = \"nb\"\nargs = [\"run\", \"1\"]\n",
                1,
            ),
            (
                "[mcp_servers.nb]\ncommand = \"nb\"\nargs = [\"mcp\"]\nenv = {A = \"b\"}\n",
                1,
            ),
            ("mcp_servers.nb.url = \"http://192.0.2.1\"\n", 1),
        ] {
            assert_eq!(
                others(AgentProgram::Codex, ".codex/config.toml", table),
                count,
                "{table}"
            );
        }
    }

    /// Returns the text of a program's second file after an installation, and after the removal.
    fn add_and_remove(program: AgentProgram, name: &str, text: &str) -> [Option<String>; 2] {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        [false, true].map(|removes| {
            write_all(temp.path(), program, removes);
            std::fs::read_to_string(&path).ok()
        })
    }

    #[test]
    fn comments_layout_and_numbers_of_json_settings_stay() {
        for text in [
            "{\n\t// ours\n\t\"inputs\": [1e400, 12345678901234567890123,],\n\t\"servers\": {\n\t\t\"o\": {\"command\": \"\\u00e9\"}, // other\n\t},\n}\n",
            "\u{feff}{\r\n  \"servers\": {\r\n    \"o\": {}\r\n  }\r\n}\r\n",
        ] {
            let file = ".vscode/mcp.json";
            let [with, without] = add_and_remove(AgentProgram::Copilot, file, text);
            assert!(with.unwrap().contains("\"args\": ["));
            assert_eq!(without.as_deref(), Some(text));
        }
        // A changed entry of `nb` is removed, too.
        let text = "{\"servers\": {\"nb\": {\"command\": \"nb\", \"args\": [\"mcp\", \"-v\"]}}}";
        let [with, without] = add_and_remove(AgentProgram::Copilot, ".vscode/mcp.json", text);
        assert_eq!((with.as_deref(), without), (Some(text), None));
    }

    #[test]
    fn a_table_of_codex_is_not_declared_twice() {
        for text in [
            "mcp_servers.nb.command = \"/opt/nb\"\n",
            "[mcp_servers.\"nb\"]\ncommand = \"/opt/nb\"\n",
            "[mcp_servers]\nnb = { command = \"/opt/nb\" }\n",
        ] {
            let [with, without] = add_and_remove(AgentProgram::Codex, ".codex/config.toml", text);
            assert_eq!(with.as_deref(), Some(text));
            assert_eq!(without.as_deref(), Some(text));
        }
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join(".codex")).unwrap();
        let inline = "mcp_servers = { other = { command = \"x\" } }\n";
        std::fs::write(temp.path().join(".codex/config.toml"), inline).unwrap();
        let error = AgentProgram::Codex
            .planned(temp.path(), false, None)
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("add this yourself: [mcp_servers.nb]"),
            "{error}"
        );
        // What a user has added to the table stays.
        let [with, _] = add_and_remove(AgentProgram::Codex, ".codex/config.toml", "");
        let more = with
            .unwrap()
            .replace("args =", "startup_timeout_sec = 9\nargs =");
        let [with, without] = add_and_remove(AgentProgram::Codex, ".codex/config.toml", &more);
        assert_eq!((with.as_deref(), without), (Some(more.as_str()), None));
    }

    #[test]
    fn links_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let (folder, outside) = (temp.path().join("project"), temp.path().join("outside"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        for (to, name) in [
            (outside.join("new"), "AGENTS.md"),
            (outside.clone(), ".cursor"),
        ] {
            std::os::unix::fs::symlink(to, folder.join(name)).unwrap();
        }
        for program in [AgentProgram::Codex, AgentProgram::Cursor] {
            let error = program.planned(&folder, false, None).unwrap_err();
            assert!(matches!(error, PlannedFileError::Link(_)), "{error}");
        }
        assert_eq!(std::fs::read_dir(outside).unwrap().count(), 0);
    }

    #[test]
    fn the_skill_is_the_guide() {
        let guide = include_str!("../../../../docs/agent.md");
        let (head, body) = SKILL.split_once("\n---\n\n").unwrap();
        assert!(head.starts_with("---\nname: nb\ndescription: "));
        assert_eq!(body, guide);
    }
}
