//! Text on one line, for lists and messages.

/// Returns the first line of a text that is not blank, cut to `limit` characters.
pub fn first_line(text: &str, limit: usize) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty());
    one_line(line.unwrap_or_default().trim_end(), limit)
}

/// Returns text as one line of at most `limit` characters, without control characters.
pub(in crate::notebook) fn one_line(text: &str, limit: usize) -> String {
    if is_one_line(text, limit) {
        return text.to_owned();
    }
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    match text.char_indices().nth(limit) {
        None => text.chars().map(clean).collect(),
        Some(_) => {
            let kept = text.chars().take(limit.saturating_sub(1));
            kept.map(clean).chain("…".chars()).collect()
        }
    }
}

/// Trims a text and makes it one line as [`one_line`] does; a text that is one already is returned without
/// a copy.
pub(in crate::notebook) fn one_line_of(text: String, limit: usize) -> String {
    let trimmed = text.trim();
    match trimmed.len() == text.len() && is_one_line(trimmed, limit) {
        true => text,
        false => one_line(trimmed, limit),
    }
}

fn is_one_line(text: &str, limit: usize) -> bool {
    let is_plain = |byte: u8| (b' '..0x7f).contains(&byte);
    text.len() <= limit && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold() {
        assert_eq!(one_line("aé😀b", 4), "aé😀b");
        assert_eq!(one_line("aé😀bc", 4), "aé😀…");
    }
}
