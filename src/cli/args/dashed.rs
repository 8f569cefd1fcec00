//! Texts that may begin with `-`.

/// What such a text begins with after [`dashes`](crate::cli::parser::dashes); no argument of a process can contain it.
pub(crate) const MARK: char = '\0';

/// Parses a word of a command that takes texts.
#[expect(clippy::unnecessary_wraps, reason = "clap wants a parser")]
pub(crate) fn text(word: &str) -> Result<String, String> {
    Ok(word.strip_prefix(MARK).unwrap_or(word).to_owned())
}
