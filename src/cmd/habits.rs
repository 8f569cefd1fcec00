//! What users of nb-cli, another program of this name, are used to type.
//!
//! Most of it are hidden names of our own commands and options. Here is what needs more: its
//! commands of two words. They are only taken for such where a notebook follows, which no command
//! of ours has there.

use std::ffi::OsString;
use std::path::Path;

/// Two words of nb-cli's and the one of ours.
const TWO_WORDS: [(&str, &str, &str); 4] = [
    ("cell", "add", "insert"),
    ("cell", "update", "edit"),
    ("cell", "delete", "rm"),
    ("output", "clear", "clear"),
];

/// Returns the arguments as our own commands take them.
pub(super) fn as_ours(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let [_, first, second, notebook, ..] = arguments.as_slice() else {
        return arguments;
    };
    let ours = TWO_WORDS.iter().find(|(a, b, _)| first == a && second == b);
    let ends = Path::new(notebook)
        .extension()
        .is_some_and(|it| it == "ipynb");
    if let Some((_, _, ours)) = ours.filter(|_| ends) {
        arguments.splice(1..=2, [OsString::from(ours)]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nb_cli_has_is_changed() {
        for (typed, ours) in [
            ("nb cell add a.ipynb -s x", "nb insert a.ipynb -s x"),
            ("nb cell update a.ipynb -i 0", "nb edit a.ipynb -i 0"),
            ("nb cell delete a.ipynb -c 3f2c", "nb rm a.ipynb -c 3f2c"),
            ("nb output clear a.ipynb", "nb clear a.ipynb"),
            // A cell whose id begins so.
            ("nb cell add", "nb cell add"),
            ("nb cell add --json", "nb cell add --json"),
            ("nb cell a.ipynb add", "nb cell a.ipynb add"),
            ("nb", "nb"),
        ] {
            let words = typed.split(' ').map(OsString::from).collect();
            let meant = as_ours(words).join(" ".as_ref());
            assert_eq!(meant, ours);
        }
    }
}
