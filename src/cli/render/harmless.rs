//! Removes from others' text what a terminal should not receive.
//!
//! A notebook, a kernel or a file in a repository may contain escape sequences that change a terminal's
//! title, write the clipboard, or hide what is shown. Colours are kept; all other escape sequences and
//! control characters are removed. Text that goes into a file or a pipe is not changed here.

use std::borrow::Cow;

/// Which control characters are kept beside colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// None: it is static text.
    Text,
    /// Those that redraw the last line, as progress bars do: the text comes from a running cell.
    Live,
}

/// Returns a text without what a terminal should not receive.
pub(crate) fn harmless(text: &str, kind: Kind) -> Cow<'_, str> {
    if !text
        .chars()
        .any(|c| c.is_control() && c != '\n' && c != '\t')
    {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        match c {
            '\x1b' => {
                let length = escape(after);
                let (sequence, next) = after.split_at(length);
                if is_allowed(sequence, kind) {
                    kept.push(c);
                    kept.push_str(sequence);
                }
                rest = next;
                continue;
            }
            // The C1 forms of the same introducers; their parameters follow.
            '\u{9b}' | '\u{9d}' | '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}' => {
                let introducer = match c {
                    '\u{9b}' => "[",
                    _ => "]",
                };
                rest = &after[body(introducer, after)..];
                continue;
            }
            '\r' | '\x08' if kind == Kind::Live => kept.push(c),
            c if c.is_control() && c != '\n' && c != '\t' => {}
            c => kept.push(c),
        }
        rest = after;
    }
    Cow::Owned(kept)
}

/// Returns how many bytes after ESC belong to the escape sequence.
fn escape(after: &str) -> usize {
    let Some(introducer) = after.chars().next() else {
        return 0;
    };
    let length = introducer.len_utf8();
    match introducer {
        '[' | ']' | 'P' | 'X' | '^' | '_' => {
            let name = &after[..length];
            length + body(name, &after[length..])
        }
        // For example the choice of a character set: intermediate bytes may come before the final one.
        ' '..='/' => {
            let more = after
                .bytes()
                .take_while(|byte| (b' '..=b'/').contains(byte));
            let more = more.count();
            let last = after[more..].chars().next().filter(char::is_ascii_graphic);
            more + last.map_or(0, char::len_utf8)
        }
        '0'..='~' => length,
        _ => 0,
    }
}

/// Returns the length in bytes of the rest of an escape sequence with this introducer.
fn body(introducer: &str, rest: &str) -> usize {
    if introducer == "[" {
        let parameters = rest.bytes().take_while(|byte| (b' '..=b'?').contains(byte));
        let parameters = parameters.count();
        let last = rest.as_bytes().get(parameters);
        return parameters + usize::from(last.is_some_and(|byte| (b'@'..=b'~').contains(byte)));
    }
    // A string sequence ends with BEL or ST. An unterminated one must not hide the lines below.
    for (at, c) in rest.char_indices() {
        match c {
            '\x07' | '\u{9c}' => return at + c.len_utf8(),
            '\x1b' if rest[at..].starts_with("\x1b\\") => return at + 2,
            '\x1b' | '\n' => return at,
            _ => {}
        }
    }
    rest.len()
}

fn is_allowed(escape: &str, kind: Kind) -> bool {
    let Some(rest) = escape.strip_prefix('[') else {
        return false;
    };
    let Some(last) = rest.bytes().last() else {
        return false;
    };
    let parameters = &rest.as_bytes()[..rest.len() - 1];
    let is_plain = parameters
        .iter()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b';' | b':'));
    let is_allowed = match last {
        b'm' => !conceals(parameters),
        _ => kind == Kind::Live && b"ABCDEFGJK".contains(&last),
    };
    is_plain && is_allowed
}

/// Says whether the parameters of a colour also conceal text.
fn conceals(parameters: &[u8]) -> bool {
    let mut rest = parameters.split(|byte| *byte == b';').map(|parameter| {
        let text = std::str::from_utf8(parameter).unwrap_or_default();
        // What follows a colon belongs to the number before it.
        let (number, is_whole) = match text.split_once(':') {
            Some((number, _)) => (number, true),
            None => (text, false),
        };
        (number.parse::<u32>().unwrap_or_default(), is_whole)
    });
    while let Some(number) = rest.next() {
        match number {
            (8, _) => return true,
            // A colour by its number, or by its red, green and blue.
            (38 | 48 | 58, false) => {
                let mut colour = rest.clone();
                let length = match colour.next() {
                    Some((5, false)) => 1,
                    Some((2, false)) => 3,
                    _ => continue,
                };
                if colour.by_ref().take(length).count() == length {
                    rest = colour;
                }
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> String {
        harmless(text, Kind::Text).into_owned()
    }

    #[test]
    fn colours_pass_and_nothing_else_does() {
        const COLOURS_8: &str = "\x1b[38;5;8mx\x1b[48;2;8;8;8my\x1b[38:5:8;1mz\x1b[38;5m";
        assert_eq!(
            text("\x1b[1;31mred\x1b[0m\n\tx"),
            "\x1b[1;31mred\x1b[0m\n\tx"
        );
        for (hostile, shown) in [
            ("a\x1b]0;title\x07b", "ab"),
            ("a\x1b]52;c;cm0=\x1b\\b", "ab"),
            ("a\x1bP1$r\x1b\\b", "ab"),
            ("a\x1b[2Jb\x1b[1;1Hc", "abc"),
            ("a\x1b[?1049hb", "ab"),
            ("a\x1bcb", "ab"),
            ("a\x1b(0b", "ab"),
            ("a\u{9b}2Jb", "ab"),
            ("a\u{9d}0;title\x07b", "ab"),
            ("a\rb\x08c\x07\x7f", "abc"),
            ("a\x1b", "a"),
            ("a\x1b[", "a"),
            ("a\x1b[31", "a"),
            ("a\x1b\x1b]0;t\x07b", "ab"),
            ("a\x1b]never ends\nb", "a\nb"),
            ("ä\x1b[6nö", "äö"),
            ("a\x1b[8mb\x1b[0;08;1mc\x1b[38;5;1;8md", "abcd"),
            ("a\x1b[38;8mb\x1b[8:1mc\x1b[38:5:1;8md", "abcd"),
            (COLOURS_8, COLOURS_8),
        ] {
            assert_eq!(text(hostile), shown, "{hostile:?}");
        }
    }

    #[test]
    fn a_running_cell_may_draw_over_its_last_line() {
        let live = |text| harmless(text, Kind::Live).into_owned();
        assert_eq!(live("10%\r20%\x1b[K\x1b[1A"), "10%\r20%\x1b[K\x1b[1A");
        assert_eq!(live("a\x1b]52;c;cm0=\x07\x1b[?1049hb"), "ab");
    }

    #[test]
    fn no_text_whatever_leaves_an_escape_that_is_no_colour() {
        let parts = [
            "\x1b", "[", "]", "m", "0", ";", "\x07", "\\", "P", "a", "\n", "\u{9b}", "?",
        ];
        // All texts that consist of four of the parts.
        for number in 0..parts.len().pow(4) {
            let mut left = number;
            let mut sample = String::new();
            for _ in 0..4 {
                sample.push_str(parts[left % parts.len()]);
                left /= parts.len();
            }
            let shown = text(&sample);
            for (at, _) in shown.match_indices('\x1b') {
                let rest = &shown[at + 1..];
                let end = rest
                    .find('m')
                    .unwrap_or_else(|| panic!("{sample:?}: {shown:?}"));
                let colour = &rest[..end];
                let digits = colour.strip_prefix('[').unwrap_or("?");
                assert!(
                    digits
                        .bytes()
                        .all(|byte| byte.is_ascii_digit() || byte == b';'),
                    "{sample:?}: {shown:?}"
                );
            }
        }
    }
}
