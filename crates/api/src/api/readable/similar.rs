//! Logs in short: of many similar lines the first and the last are kept.

use std::borrow::Cow;

use crate::notebook::own_line;

/// How many similar lines are all kept.
const MANY: usize = 40;

/// How many of the first and of the last of more lines are kept.
const KEPT: usize = 10;

/// Returns a text without the middle of each row of more than 40 lines that differ in numbers alone, as those of a
/// training do. `more` is the command that shows all.
pub fn without_similar_lines<'a>(text: &'a str, more: &str) -> Cow<'a, str> {
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    if lines.len() <= MANY {
        return Cow::Borrowed(text);
    }
    let mut short = String::new();
    let mut rest = lines.as_slice();
    while let Some(first) = rest.first() {
        let alike = rest.iter().take_while(|line| shape(line).eq(shape(first)));
        let (row, after) = rest.split_at(alike.count().max(1));
        rest = after;
        if row.len() <= MANY {
            short.extend(row.iter().copied());
            continue;
        }
        short.extend(row.iter().take(KEPT).copied());
        let count = row.len() - 2 * KEPT;
        short.push_str(&own_line(&format!("[… {count} similar lines; {more} …]")));
        short.push('\n');
        short.extend(row.iter().skip(row.len() - KEPT).copied());
    }
    Cow::Owned(short)
}

/// Returns the words of a line with each number as one digit.
fn shape(line: &str) -> impl Iterator<Item = &str> {
    let is_digit = |c: char| c.is_ascii_digit();
    line.split(is_digit)
        .flat_map(str::split_whitespace)
        .filter(|part| !matches!(*part, "." | "-" | "+" | "e" | "e-" | "e+"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_lines_that_differ_in_numbers_the_ends_are_kept() {
        let log: String = (0..100)
            .map(|epoch| format!("epoch {epoch} loss {:.4}\n", 1.0 / f64::from(epoch + 1)))
            .collect();
        let text = format!("begins\n{log}ends");
        let short = without_similar_lines(&text, "--all shows all");
        let lines: Vec<_> = short.lines().collect();
        assert_eq!(lines.len(), 1 + 2 * KEPT + 1 + 1);
        assert_eq!(lines[1], "epoch 0 loss 1.0000");
        assert_eq!(lines[11], "‣ [… 80 similar lines; --all shows all …]");
        assert_eq!(lines[21], "epoch 99 loss 0.0100");
        assert_eq!(lines[22], "ends");
    }

    #[test]
    fn other_lines_and_few_lines_are_whole() {
        let few = "epoch 1\n".repeat(MANY);
        let letters: String = (0..100)
            .map(|at| format!("{}\n", "x".repeat(at + 1)))
            .collect();
        for text in [few.as_str(), letters.as_str(), "", "\n\n"] {
            assert_eq!(without_similar_lines(text, "more"), text);
        }
    }
}
