//! Completions of a cell. Pure, but for the names of files.

use std::path::Path;

use super::cell::SUBCOMMANDS;

/// How many files are suggested.
const MOST_FILES: usize = 100;

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
    let of = |all: &[String], mark: &str| -> Vec<String> {
        let all = all.iter().map(|name| format!("{mark}{name}"));
        all.filter(|name| name.starts_with(word)).collect()
    };
    let fixed = |all: &[&str]| -> Vec<String> {
        let all = all.iter().filter(|name| name.starts_with(word));
        all.map(|name| (*name).to_owned()).collect()
    };
    let done = words.len() - usize::from(!word.is_empty());
    let matches = if is_first_word && word.starts_with(['%', '!']) {
        fixed(&["%agent", "!start-agent", "!stop-agent"])
    } else if words.first() == Some(&"%agent") {
        match (done, words.get(1).copied()) {
            (1, _) => {
                let all: Vec<_> = SUBCOMMANDS.iter().map(|(name, _, _)| *name).collect();
                fixed(&all)
            }
            (2, Some("start")) => of(&names.known, ""),
            (2, Some("use" | "stop")) => of(&names.agents, ""),
            (2, Some("on")) => {
                let found = files(word).into_iter();
                found
                    .filter(|it| it.ends_with(".ipynb") || it.ends_with('/'))
                    .collect()
            }
            _ => Vec::new(),
        }
    } else if is_message_start && word.starts_with('/') {
        of(&names.commands, "/")
    } else if let Some(path) = word.strip_prefix('@') {
        let mut found = Vec::new();
        if is_first_word {
            found = of(&names.agents, "@");
        }
        found.extend(files(path).into_iter().map(|path| format!("@{path}")));
        found
    } else {
        Vec::new()
    };
    Completions {
        matches,
        start: position.min(before.chars().count()) - word.chars().count(),
    }
}

/// Returns the files and folders below a folder whose path begins with a text. Hidden ones are left out.
pub(super) fn files(here: &Path, begun: &str) -> Vec<String> {
    let (folder, name) = match begun.rfind('/') {
        Some(at) => begun.split_at(at + 1),
        None => ("", begun),
    };
    let is_outside = Path::new(folder).is_absolute() || folder.split('/').any(|it| it == "..");
    if is_outside {
        return Vec::new();
    }
    let entries = std::fs::read_dir(here.join(folder)).into_iter().flatten();
    let mut found: Vec<_> = entries
        .flatten()
        .take(10 * MOST_FILES)
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let is_folder = entry.file_type().is_ok_and(|it| it.is_dir());
            let fits = file.starts_with(name) && !file.starts_with('.');
            let slash = if is_folder { "/" } else { "" };
            fits.then(|| format!("{folder}{file}{slash}"))
        })
        .collect();
    found.sort();
    found.truncate(MOST_FILES);
    found
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
        let files = |begun: &str| {
            let all = ["a.ipynb", "a.py", "sub/"].into_iter();
            let all = all.filter(|it| it.starts_with(begun));
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
            let found = at_end(code);
            assert_eq!(
                (found.matches, found.start),
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
        let found = complete("%a", 99, &ChatNames::default(), |_| Vec::new());
        assert_eq!((found.matches.len(), found.start), (1, 0));
        let found = complete("", 0, &ChatNames::default(), |_| Vec::new());
        assert_eq!(found, Completions::default());
    }
}
