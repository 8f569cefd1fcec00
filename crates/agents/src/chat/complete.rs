//! Completions of a cell. Pure, but for the names of files.

use std::path::Path;

use super::cell::SUBCOMMANDS;

/// How many files are suggested.
const FILES_MAX: usize = 100;

/// The names that can be completed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChatNames {
    /// The agents of the chat.
    pub(super) agents: Vec<String>,
    /// The agents that can be started.
    pub(super) known: Vec<String>,
    /// The current agent's slash commands.
    pub(super) commands: Vec<String>,
}

/// Completions, and the characters that they replace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Completions {
    pub(super) matches: Vec<String>,
    /// Where the replaced text begins, in characters.
    pub(super) start: usize,
}

/// Returns the completions at a position, which is counted in characters. `files` returns the files whose
/// path begins with a text.
pub(super) fn complete(
    code: &str,
    position: usize,
    names: &ChatNames,
    files: impl Fn(&str) -> Vec<String>,
) -> Completions {
    let before: String = code.chars().take(position).collect();
    let line = before.rsplit('\n').next().unwrap_or_default();
    let word = line.rsplit(char::is_whitespace).next().unwrap_or_default();
    let is_first_word = line.trim_start() == word;
    let is_message_start = before.trim_start() == word;
    let words: Vec<_> = line.split_whitespace().collect();
    let with_mark = |all: &[String], mark: &str| -> Vec<String> {
        let all = all.iter().map(|name| format!("{mark}{name}"));
        all.filter(|name| name.starts_with(word)).collect()
    };
    let matching = |all: &[&str]| -> Vec<String> {
        let all = all.iter().filter(|name| name.starts_with(word));
        all.map(|name| (*name).to_owned()).collect()
    };
    let complete_words = words.len() - usize::from(!word.is_empty());
    let matches = if is_first_word && word.starts_with(['%', '!']) {
        matching(&["%agent", "!start-agent", "!stop-agent"])
    } else if words.first() == Some(&"%agent") {
        match (complete_words, words.get(1).copied()) {
            (1, _) => {
                let all: Vec<_> = SUBCOMMANDS.iter().map(|(name, _, _)| *name).collect();
                matching(&all)
            }
            (2, Some("start")) => with_mark(&names.known, ""),
            (2, Some("use" | "stop")) => with_mark(&names.agents, ""),
            (2, Some("on")) => {
                let files = files(word).into_iter();
                files
                    .filter(|it| it.ends_with(".ipynb") || it.ends_with('/'))
                    .collect()
            }
            _ => Vec::new(),
        }
    } else if is_message_start && word.starts_with('/') {
        with_mark(&names.commands, "/")
    } else if let Some(path) = word.strip_prefix('@') {
        let mut matches = Vec::new();
        if is_first_word {
            matches = with_mark(&names.agents, "@");
        }
        matches.extend(files(path).into_iter().map(|path| format!("@{path}")));
        matches
    } else {
        Vec::new()
    };
    Completions {
        matches,
        start: position.min(before.chars().count()) - word.chars().count(),
    }
}

/// Returns the files and folders below a folder whose path begins with a text. Hidden ones are left out.
pub(super) fn files(root: &Path, prefix: &str) -> Vec<String> {
    let (folder, name) = match prefix.rfind('/') {
        Some(at) => prefix.split_at(at + 1),
        None => ("", prefix),
    };
    let is_outside = Path::new(folder).is_absolute() || folder.split('/').any(|it| it == "..");
    if is_outside {
        return Vec::new();
    }
    let entries = std::fs::read_dir(root.join(folder)).into_iter().flatten();
    let mut files: Vec<_> = entries
        .flatten()
        .take(10 * FILES_MAX)
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let is_folder = entry.file_type().is_ok_and(|it| it.is_dir());
            let is_match = file.starts_with(name) && !file.starts_with('.');
            let slash = if is_folder { "/" } else { "" };
            is_match.then(|| format!("{folder}{file}{slash}"))
        })
        .collect();
    files.sort();
    files.truncate(FILES_MAX);
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_end(code: &str) -> Completions {
        let strings = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
        let names = ChatNames {
            agents: strings(&["claude"]),
            known: strings(&["claude", "codex", "gemini"]),
            commands: strings(&["compact", "init"]),
        };
        let files = |prefix: &str| {
            let all = ["a.ipynb", "a.py", "sub/"].into_iter();
            let all = all.filter(|it| it.starts_with(prefix));
            all.map(str::to_owned).collect()
        };
        complete(code, code.chars().count(), &names, files)
    }

    #[test]
    fn magics_agents_slash_commands_and_files() {
        let cases: [(&str, &[&str], usize); 10] = [
            ("%a", &["%agent"], 0),
            ("!st", &["!start-agent", "!stop-agent"], 0),
            ("%agent s", &["start", "stop", "sessions"], 7),
            ("%agent start c", &["claude", "codex"], 13),
            ("%agent use ", &["claude"], 11),
            ("%agent on a", &["a.ipynb"], 10),
            ("/c", &["/compact"], 0),
            ("@c", &["@claude"], 0),
            ("schön\nsee @a", &["@a.ipynb", "@a.py"], 10),
            ("a /c", &[], 2),
        ];
        for (code, matches, start) in cases {
            let completions = at_end(code);
            assert_eq!(
                (completions.matches, completions.start),
                (
                    matches
                        .iter()
                        .map(|it| (*it).to_owned())
                        .collect::<Vec<_>>(),
                    start
                ),
                "{code}"
            );
        }
    }

    #[test]
    fn a_position_beyond_the_end_is_the_end() {
        let completions = complete("%a", 99, &ChatNames::default(), |_| Vec::new());
        assert_eq!((completions.matches.len(), completions.start), (1, 0));
        let completions = complete("", 0, &ChatNames::default(), |_| Vec::new());
        assert_eq!(completions, Completions::default());
    }
}
