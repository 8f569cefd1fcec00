//! Characters that a reader would not see, made visible.

use std::borrow::Cow;

/// Returns a text whose control characters are drawn as pictures, such as `␛`, and whose marks that hide or reorder
/// other characters are named, such as `<U+202E>`. Newlines, tabs and the joiners of emoji and scripts stay.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| matches!(c, '\n' | '\t') || !(c.is_control() || is_mark(c));
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if is_plain(c) => shown.push(c),
            c if is_mark(c) => shown.push_str(&format!("<U+{:04X}>", u32::from(c))),
            '\u{7f}' => shown.push('\u{2421}'),
            c if c < ' ' => shown.extend(char::from_u32(0x2400 + u32::from(c))),
            _ => shown.push(char::REPLACEMENT_CHARACTER),
        }
    }
    Cow::Owned(shown)
}

/// Says whether a character reorders those after it, takes no room, or ends a line for some programs only.
fn is_mark(c: char) -> bool {
    matches!(
        c,
        '\u{200b}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_or_reorders_is_seen_and_other_text_stays() {
        for (text, shown) in [
            ("ok=\"\x1b]\";import os#\x07", "ok=\"␛]\";import os#␇"),
            ("\x1b[8mx\x1b[0m", "␛[8mx␛[0m"),
            ("a\rb\x08\x7f", "a␍b␈␡"),
            ("\u{9b}6n", "\u{fffd}6n"),
            ("rm \u{202e}txt.a\u{2069}", "rm <U+202E>txt.a<U+2069>"),
            ("a\u{200b}b\u{feff}", "a<U+200B>b<U+FEFF>"),
        ] {
            assert_eq!(visible(text), shown);
        }
        for plain in [
            "a\n\tb",
            "ä→",
            "👩\u{200d}🔬",
            "שלום \u{200f}(1)",
            "می\u{200c}خواهم",
        ] {
            assert!(matches!(visible(plain), Cow::Borrowed(text) if text == plain));
        }
    }
}
