//! Texts of others as readers see them, and the mark of `nb`'s own lines.
//!
//! One rule: a name stands within one line; no character of another's text is hidden, and none is the mark
//! with which a line of `nb` begins where outputs or sources can stand. A text of others draws:
//!
//! - control characters, as pictures such as `␛`;
//! - what Unicode calls a default ignorable code point or a control of direction, as `<U+202E>`. The joiners and the
//!   variation selectors of emoji and of scripts that need them stay where they belong;
//! - the mark itself.

use std::borrow::Cow;

/// The mark at the beginning of `nb`'s own lines. [`visible`] leaves it in no text of others.
pub const OWN: char = '‣';

/// Returns a text of others in which all characters are visible. Newlines and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    drawn(text, |c| matches!(c, '\n' | '\t'))
}

/// Returns a name, or another text that belongs into a line, as one line in which all characters are visible.
pub fn visible_line(text: &str) -> Cow<'_, str> {
    drawn(text, |c| c == '\t')
}

/// Returns the text of an output in which all characters but control characters are visible: which of these are kept
/// depends on what the text is written to.
pub fn visible_output(text: &str) -> Cow<'_, str> {
    drawn(text, char::is_control)
}

/// Returns a line of `nb`'s own, with its mark.
pub fn own_line(text: &str) -> String {
    format!("{OWN} {}", visible_line(text))
}

/// Says whether a character reorders others, has no shape, or ends a line for some programs only.
pub fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Draws a text; control characters that `keeps` accepts stay.
fn drawn(text: &str, keeps: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_plain = |c: char| match c.is_control() {
        true => keeps(c),
        false => c != OWN && !is_hidden(c),
    };
    // Most texts have nothing to draw.
    let Some((at, _)) = text.char_indices().find(|(_, c)| !is_plain(*c)) else {
        return Cow::Borrowed(text);
    };
    let (plain, rest) = text.split_at(at);
    let mut shown = String::with_capacity(text.len() + 16);
    shown.push_str(plain);
    // The character before, if it is shown as itself.
    let mut before = plain.chars().next_back();
    let mut characters = rest.chars().peekable();
    while let Some(c) = characters.next() {
        let is_kept = is_plain(c)
            || before.is_some_and(|before| joins(before, c, characters.peek().copied()));
        match c {
            c if is_kept => shown.push(c),
            '\u{7f}' => shown.push('\u{2421}'),
            c if c < ' ' => shown.extend(char::from_u32(0x2400 + u32::from(c))),
            c => shown.push_str(&format!("<U+{:04X}>", u32::from(c))),
        }
        before = is_kept.then_some(c);
    }
    Cow::Owned(shown)
}

/// Says whether a joiner or a variation selector stands where emoji or a script need it.
fn joins(before: char, c: char, after: Option<char>) -> bool {
    match c {
        '\u{200c}' | '\u{200d}' if needs_joiners(before) => true,
        '\u{200d}' => {
            let is_emoji_before = is_emoji(before) || before == '\u{fe0f}';
            is_emoji_before && after.is_some_and(is_emoji)
        }
        '\u{fe0e}' | '\u{fe0f}' if matches!(before, '0'..='9' | '#' | '*') => {
            after == Some('\u{20e3}')
        }
        '\u{fe0e}' | '\u{fe0f}' => is_emoji(before),
        '\u{fe00}'..='\u{fe02}' => {
            // Operators, and letters of Myanmar and Phags-pa.
            let has_forms = matches!(before, '\u{2200}'..='\u{22ff}' | '\u{2a00}'..='\u{2aff}'
                | '\u{1000}'..='\u{109f}' | '\u{a840}'..='\u{a87f}');
            is_ideograph(before) || has_forms
        }
        '\u{e0100}'..='\u{e01ef}' => is_ideograph(before),
        '\u{180b}'..='\u{180d}' | '\u{180f}' => matches!(before, '\u{1820}'..='\u{18aa}'),
        _ => false,
    }
}

/// Says whether a letter belongs to a script in which joiners change how letters are drawn.
fn needs_joiners(letter: char) -> bool {
    let is_of_script = matches!(letter,
        // Arabic, Syriac, N'Ko, Mandaic.
        '\u{620}'..='\u{77f}' | '\u{7c0}'..='\u{8ff}' | '\u{fb50}'..='\u{fdff}'
        | '\u{fe70}'..='\u{fefc}' | '\u{10d00}'..='\u{10d3f}'
        // The scripts of India and their relatives.
        | '\u{900}'..='\u{dff}' | '\u{f00}'..='\u{109f}' | '\u{1780}'..='\u{18aa}'
        | '\u{1a20}'..='\u{1cff}' | '\u{a800}'..='\u{a82f}' | '\u{a840}'..='\u{a87f}'
        | '\u{a8e0}'..='\u{a8ff}' | '\u{a980}'..='\u{a9ff}' | '\u{11000}'..='\u{1193f}');
    is_of_script && !is_hidden(letter)
}

fn is_emoji(c: char) -> bool {
    matches!(c,
        '©' | '®' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2194}'..='\u{21aa}'
        | '\u{231a}'..='\u{23ff}' | '\u{24c2}' | '\u{25aa}'..='\u{25fe}' | '\u{2600}'..='\u{27bf}'
        | '\u{2934}'..='\u{2935}' | '\u{2b05}'..='\u{2b55}' | '\u{3030}' | '\u{303d}' | '\u{3297}'
        | '\u{3299}' | '\u{1f000}'..='\u{1faff}')
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    #[test]
    fn what_hides_or_reorders_is_seen_and_other_text_stays() {
        for (text, shown) in [
            ("ok=\"\x1b]\";import os#\x07", "ok=\"␛]\";import os#␇"),
            ("\x1b[8mx\x1b[0m", "␛[8mx␛[0m"),
            ("a\rb\x08\x7f", "a␍b␈␡"),
            ("\u{9b}6n", "<U+009B>6n"),
            ("rm \u{202e}txt.a\u{2069}", "rm <U+202E>txt.a<U+2069>"),
            ("a\u{200b}b\u{feff}", "a<U+200B>b<U+FEFF>"),
            ("x\u{e0068}\u{e0069}", "x<U+E0068><U+E0069>"),
            ("\u{61c}1\u{200f}", "<U+061C>1<U+200F>"),
            (
                "\u{115f}\u{1160}\u{3164}\u{ffa0}",
                "<U+115F><U+1160><U+3164><U+FFA0>",
            ),
            ("soft\u{ad}hyphen\u{34f}", "soft<U+00AD>hyphen<U+034F>"),
            ("‣ next: x", "<U+2023> next: x"),
            // Joiners and selectors where nothing needs them.
            ("a\u{200d}b\u{200c}c", "a<U+200D>b<U+200C>c"),
            ("👩\u{200d}x", "👩<U+200D>x"),
            ("می\u{200c}\u{200d}", "می\u{200c}<U+200D>"),
            ("😀\u{fe0f}\u{fe0f}\u{e0101}", "😀\u{fe0f}<U+FE0F><U+E0101>"),
            ("1\u{fe0f}2", "1<U+FE0F>2"),
            ("x\u{fe0f}\u{200d}👩", "x<U+FE0F><U+200D>👩"),
        ] {
            assert_eq!(visible(text), shown);
            assert_eq!(visible_line(text), shown);
        }
        for plain in [
            "a\n\tb",
            "ä→",
            "👩\u{200d}🔬 ❤\u{fe0f}\u{200d}🔥 👨🏽\u{200d}🚀 1\u{fe0f}\u{20e3}",
            "שלום (1)",
            "می\u{200c}خواهم",
            "क्\u{200d}ष",
            "葛\u{e0100}",
            "ᠠ\u{180b}",
        ] {
            assert_eq!(visible(plain), plain);
        }
    }

    #[test]
    fn a_name_is_one_line() {
        for (name, shown) in [
            ("a\nnext: x.ipynb", "a␊next: x.ipynb"),
            ("a\r\n\x0b\x0c\x1d", "a␍␊␋␌␝"),
            ("a\u{85}b\u{2028}c\u{2029}", "a<U+0085>b<U+2028>c<U+2029>"),
        ] {
            assert_eq!(visible_line(name), shown);
        }
        assert_eq!(own_line("a\n‣ b"), "‣ a␊<U+2023> b");
    }

    #[test]
    fn an_output_keeps_its_colours_and_hides_no_letters() {
        let text = "\x1b[31mred\x1b[0m\r\u{e0041}‣ next\n";
        let shown = "\x1b[31mred\x1b[0m\r<U+E0041><U+2023> next\n";
        assert_eq!(visible_output(text), shown);
    }

    /// The library's tables of Unicode have these properties.
    fn hidden() -> Regex {
        Regex::new(r"[\p{Default_Ignorable_Code_Point}\p{Bidi_Control}\u2028\u2029\uFFF9-\uFFFB]")
            .expect("a pattern")
    }

    #[test]
    fn all_that_unicode_calls_ignorable_or_a_control_of_direction_is_hidden() {
        let pattern = hidden();
        let mut text = [0; 4];
        for c in '\0'..=char::MAX {
            let expected = pattern.is_match(c.encode_utf8(&mut text));
            assert_eq!(is_hidden(c), expected, "U+{:04X}", u32::from(c));
        }
    }

    /// Texts of all characters, of which many are special.
    fn texts() -> impl Strategy<Value = String> {
        let special = "[\u{0}-\u{20}\u{7f}-\u{a0}\u{ad}\u{61c}\u{115f}\u{180b}-\u{180f}\u{200b}-\u{200f}\
            \u{2023}\u{2028}-\u{202e}\u{2060}-\u{206f}\u{fe00}-\u{fe0f}\u{feff}\u{e0000}-\u{e01ef}]";
        let letters = "[a0#می葛ᠠ👩❤🔥]";
        prop::collection::vec(
            prop_oneof![
                special.prop_map(|it: String| it),
                letters,
                "\\PC",
                "‣ next: "
            ],
            0..24,
        )
        .prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn no_text_hides_anything_or_imitates_a_line_of_nb(text in texts()) {
            let line = visible_line(&text);
            prop_assert_eq!(line.lines().count(), usize::from(!line.is_empty()));
            prop_assert_eq!(&visible_line(&line), &line, "it is drawn once");
            for shown in [line, visible(&text), visible_output(&text)] {
                prop_assert!(!shown.contains(OWN));
                let characters: Vec<_> = shown.chars().collect();
                for (at, c) in characters.iter().enumerate().filter(|(_, c)| is_hidden(**c)) {
                    let before = at.checked_sub(1).map(|at| characters[at]);
                    let after = characters.get(at + 1).copied();
                    prop_assert!(before.is_some_and(|before| joins(before, *c, after)), "{:?}", shown);
                }
            }
            let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
            prop_assert!(!visible(&text).contains(is_control));
            // A line of nb's own is the only one that begins with the mark.
            prop_assert_eq!(own_line(&text).matches(OWN).count(), 1);
        }
    }
}
