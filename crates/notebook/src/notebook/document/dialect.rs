//! What plain texts in other dialects of the percent format mean, as Jupytext reads them: found, so that it is refused.
//!
//! A fault is the index of a line, and the reason.

/// Why a line is refused.
type Refused = (usize, String);

/// The keys of a marker with which Jupytext reads the lines of the cell in another way.
pub(super) const KEYS: [&str; 4] = ["language", "active", "cell_type", "magic_args"];

/// The dialect of a text, as far as it decides what the lines of a cell mean.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect {
    /// It is a code cell.
    pub(super) is_code: bool,
    /// The text has Jupytext's header.
    pub(super) is_jupytext: bool,
    /// Some line of the text begins a cell.
    pub(super) is_marked: bool,
}

/// Returns how many lines Jupytext's header and what stands before it have, if there is a header.
pub(super) fn header(lines: &[&str]) -> Result<Option<usize>, Refused> {
    let is_rule = |line: &&str| line.trim_end() == "# ---";
    let first = lines_of_a_script(lines);
    if !lines.get(first).is_some_and(is_rule) {
        return Ok(None);
    }
    let inside = lines.get(first + 1..).unwrap_or_default();
    let Some(length) = inside.iter().position(is_rule) else {
        return Ok(None);
    };
    for (at, line) in inside.iter().take(length).enumerate() {
        let line = line.strip_prefix('#').unwrap_or(line);
        let line = line.strip_prefix(' ').unwrap_or(line).trim_end();
        let format = line.trim_start().strip_prefix("format_name:");
        let reason = if format.is_some_and(|name| name.trim() != "percent") {
            "is another format"
        } else if !line.is_empty() && !line.starts_with([' ', '\t']) && line != "jupyter:" {
            "is a cell of its own"
        } else {
            continue;
        };
        return Err((first + 1 + at, format!("{:?} {reason}", line.trim())));
    }
    Ok(Some(first + length + 2))
}

/// Returns how many lines at the top a script has for the shell and for Python: `#!`, and its encoding.
pub(super) fn lines_of_a_script(lines: &[&str]) -> usize {
    let first = usize::from(lines.first().is_some_and(|line| line.starts_with("#!")));
    let is_encoding = |line: &&str| {
        let line = line.to_ascii_lowercase();
        line.starts_with('#') && line.contains("coding") && line.contains("utf-8")
    };
    first + usize::from(lines.get(first).is_some_and(is_encoding))
}

impl Dialect {
    /// Checks the lines of a cell. A marker follows them, or the end of the text.
    pub(super) fn check(self, lines: &[&str], is_followed: bool) -> Result<(), Refused> {
        let (mut quotes, mut fence) = (None, None);
        let is_text = |line: &&str| !line.trim().is_empty();
        let comment = lines.iter().position(|line| line.starts_with('#'));
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_text(line)) {
            if quotes.is_none()
                && let Some(reason) = self.refused(line)
            {
                return Err((at, reason.to_owned()));
            }
            if self.is_code {
                let is_open = after(line, quotes.map(|(_, quote)| quote));
                quotes = is_open.map(|quote| (quotes.map_or(at, |(at, _)| at), quote));
                continue;
            }
            if comment.is_some() && !line.starts_with('#') {
                return Err((
                    at,
                    "a line of a text cell is no comment, and others are".to_owned(),
                ));
            }
            let bare = line.trim_start_matches(['#', ' ']);
            if bare.starts_with("```") || bare.starts_with("~~~") {
                fence = if fence.is_some() { None } else { Some(at) };
            }
        }
        let open = quotes
            .map(|(at, _)| (at, "string"))
            .or(fence.map(|at| (at, "fenced block")));
        match open {
            Some((at, what)) if is_followed => Err((
                at,
                format!("the next marker stands in the {what} that begins here"),
            )),
            _ => Ok(()),
        }
    }

    /// Returns why a line is refused: Jupytext reads something else.
    fn refused(self, line: &str) -> Option<&'static str> {
        let bare = line.trim_start();
        let is_comment = bare.starts_with('#');
        let text = bare.trim_start_matches(['#', ' ']);
        let signs = match is_comment {
            true => bare.strip_prefix('#').unwrap_or(bare).trim_start(),
            false => bare.trim_start_matches(['/', '-', ';', ' ']),
        };
        let after_signs = signs
            .strip_prefix("%%")
            .map(|it| it.trim_start_matches('%'));
        let is_other_marker =
            after_signs.is_some_and(|it| it.is_empty() || it.starts_with([' ', '\t', '[']));
        let is_old = |text: &str| {
            text.starts_with("<codecell>") || (text.starts_with("In[") && text.contains(']'))
        };
        if (is_comment || !self.is_marked) && is_other_marker || is_comment && is_old(text) {
            return Some(
                "this marker is of another dialect: `# %%` at the beginning of a line begins a cell",
            );
        }
        let is_light = ["# +", "# -", "#+", "#-"].iter().any(|sign| {
            let rest = line.strip_prefix(sign);
            rest.is_some_and(|rest| rest.trim().is_empty() || rest.starts_with([' ', '[']))
        });
        if !self.is_marked && (is_light || line.starts_with("```")) {
            return Some("this is another format: `# %%` begins a cell");
        }
        if !self.is_code {
            let quotes = text.trim_start_matches(['r', 'R']);
            let is_quoted =
                !is_comment && (quotes.starts_with("\"\"\"") || quotes.starts_with("'''"));
            return is_quoted
                .then_some("a text cell between quotes: its lines have to be comments");
        }
        let is_magic = is_comment && (is_magic(text) || self.is_jupytext && is_command(text));
        is_magic.then_some("Jupytext reads this comment as a magic: without the # it is one")
    }
}

/// Returns whether a text is a magic, a shell command, or a variable that takes what one of them returns.
fn is_magic(text: &str) -> bool {
    let value = text.split_once('=').filter(|(name, _)| {
        let name = name.trim_end();
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
    });
    let begins = |text: &str| {
        let signs = text.trim_start_matches('%');
        let is_percent =
            signs.len() < text.len() && signs.starts_with(|c: char| c.is_ascii_alphabetic());
        let shell = text
            .strip_prefix(['!', '?'])
            .unwrap_or_default()
            .trim_start();
        let can_begin = |c: char| c.is_ascii_alphabetic() || ".~$\\/{}".contains(c);
        is_percent || shell.starts_with(can_begin)
    };
    begins(text) || value.is_some_and(|(_, value)| begins(value.trim_start()))
}

/// Returns whether a text is a command that IPython knows without a sign, or asks for help.
fn is_command(text: &str) -> bool {
    const COMMANDS: [&str; 13] = [
        "cat", "cd", "cp", "mv", "rm", "rmdir", "mkdir", "copy", "ddir", "echo", "ls", "ldir",
        "ren",
    ];
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let is_free = words
        .next()
        .is_none_or(|next| !next.starts_with(['=', ',']));
    (COMMANDS.contains(&first) && is_free) || (text.trim_end() == first && first.ends_with('?'))
}

/// Returns the quotation mark of the triple-quoted string that is open after a line, from that before it.
fn after(line: &str, before: Option<char>) -> Option<char> {
    let (mut triple, mut single) = (before, None);
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let mut length = c.len_utf8();
        let is_triple = rest
            .strip_prefix(c)
            .and_then(|it| it.strip_prefix(c))
            .is_some_and(|it| it.starts_with(c));
        match (c, triple, single) {
            ('\\', ..) => length += rest.chars().nth(1).map_or(0, char::len_utf8),
            ('#', None, None) => break,
            ('"' | '\'', Some(quote), _) if quote == c && is_triple => (triple, length) = (None, 3),
            ('"' | '\'', None, Some(quote)) if quote == c => single = None,
            ('"' | '\'', None, None) if is_triple => (triple, length) = (Some(c), 3),
            ('"' | '\'', None, None) => single = Some(c),
            _ => {}
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    triple
}
