//! Commands as users type them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Quotes a path for a shell, if necessary. A path that looks like an option gets `./` before it.
pub fn quote(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    match bytes.first() {
        Some(b'-') => quote_word(Path::new("./").join(path).as_os_str()),
        _ => quote_word(path.as_os_str()),
    }
}

/// Quotes a word of a command for a shell, if necessary; an option stays one.
pub fn quote_word(word: &OsStr) -> String {
    let Some(text) = word.to_str() else {
        // The form of bash and zsh for bytes that are no text.
        let bytes = word.as_bytes().iter().flat_map(|byte| byte.escape_ascii());
        let text: String = bytes.map(char::from).collect();
        return format!("$'{text}'");
    };
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:@%,~".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_path_is_the_same_path_for_a_shell_and_no_option() {
        for name in [
            b"a b.ipynb".as_slice(),
            b"it's.ipynb",
            b"-n.ipynb",
            b"caf\xe9 'x' \\n.ipynb",
            b"",
        ] {
            let path = Path::new(OsStr::from_bytes(name));
            let command = format!("printf %s {}", quote(path));
            let out = std::process::Command::new("bash")
                .args(["-c", &command])
                .output()
                .unwrap();
            let expected = match name {
                [b'-', ..] => [b"./", name].concat(),
                _ => name.to_vec(),
            };
            assert_eq!(out.stdout, expected, "{command}");
        }
        assert_eq!(quote_word(OsStr::new("-m")), "-m");
    }
}
