//! Start-up code: what VS Code's Jupyter extension runs by itself when it joins a kernel.
//!
//! It arrives as `execute_request`s with `store_history:false` and no `metadata.cellId`, and VS
//! Code waits for each before the user's first cell: behind another client's long cell that means minutes of
//! "Connecting…". So the bridge answers texts that it knows exactly, without the kernel.
//!
//! The texts themselves are the extension's; this file has only a hash of each ([`KNOWN_SETUPS`]), calculated
//! without what differs from user to user: line ends, trailing blanks, empty lines, the line that names the
//! notebook and the one that turns Jedi off (which a setting omits). A text that differs in anything else is
//! passed on to the kernel: a new version of the extension, the Interactive Window (it installs a debugger
//! hook first), another extension, the user's own `jupyter.runStartupCommands`.

use sha2::{Digest, Sha256};

/// Start-up code that is answered in the kernel's stead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Startup {
    /// Asks for the version of ipywidgets; VS Code reads it from the stdout, see
    /// [`widget_probe_stdout`].
    WidgetProbe,
    /// Defines VS Code's helper module and sets a theme for plots. The shared kernel would have that theme
    /// for all clients, and nobody waits for it. Only turning Jedi off is repeated in the kernel.
    Setup {
        /// The notebook's absolute path; `None` for a notebook without a file, and for the Interactive
        /// Window, which names a script.
        notebook: Option<String>,
        /// Whether it turns Jedi off; a setting of VS Code's keeps it on.
        jedi_off: bool,
    },
}

/// Returns the kind of a known start-up code; `added` are fingerprints that the user has added.
pub(super) fn recognise(code: &str, added: &[String]) -> Option<Startup> {
    let text = NormalizedCode::of(code);
    let fingerprint = text.fingerprint();
    let setup = |notebook: Option<String>| Startup::Setup {
        notebook: notebook.filter(|path| is_notebook(path)),
        jedi_off: text.jedi_off,
    };
    // Before VS Code 2024.2 the code is only these two lines; the line about Jedi alone could be the user's
    // own.
    if text.rest.is_empty() {
        return text.notebook.map(|path| setup(Some(path)));
    }
    let is_added = added.contains(&fingerprint);
    if fingerprint == KNOWN_PROBE || (is_added && code.contains(WIDGETS_ALIAS)) {
        // The probe names no notebook.
        return text.notebook.is_none().then_some(Startup::WidgetProbe);
    }
    let is_setup = is_added || KNOWN_SETUPS.contains(&&*fingerprint);
    is_setup.then(|| setup(text.notebook))
}

/// Returns the notebook that an unknown start-up code names: that of a newer VS Code, or of the Interactive
/// Window.
pub(super) fn notebook_in(code: &str) -> Option<String> {
    let path = NormalizedCode::of(code).notebook?;
    is_notebook(&path).then_some(path)
}

/// Returns the hash of a text, for `startup_known` in the project's configuration: a new version of the
/// extension then needs no new version of nb.
pub(super) fn fingerprint(code: &str) -> String {
    NormalizedCode::of(code).fingerprint()
}

/// Returns whether an unknown text looks like VS Code's own start-up code, so that its fingerprint is worth a
/// line in the log.
pub(super) fn looks_like_startup(code: &str) -> bool {
    code.contains(HELPER_FUNCTION)
        || code.contains(WIDGETS_ALIAS)
        || code.contains(NOTEBOOK_VARIABLE)
}

/// Returns the text that the kernel would print for the widget probe.
///
/// VS Code searches all stream outputs for the prefix and `7.` or `8.` behind it, and reads nothing else.
pub(super) fn widget_probe_stdout(version: &str) -> String {
    format!("{WIDGETS_PREFIX}{version}\n")
}

/// The version of ipywidgets that VS Code assumes if it knows none.
pub(super) const WIDGETS_DEFAULT: &str = "8.";

/// Reads the version of ipywidgets from what a kernel printed for the widget probe.
pub(super) fn widget_version(stdout: &str) -> Option<&str> {
    let (_, after) = stdout.split_once(WIDGETS_PREFIX)?;
    let version = after.lines().next().unwrap_or_default().trim();
    (!version.is_empty()).then_some(version)
}

/// A text without what differs from user to user.
struct NormalizedCode {
    /// The path in the line that names the notebook.
    notebook: Option<String>,
    /// Whether a line turns Jedi off.
    jedi_off: bool,
    /// The remaining lines, each with a newline.
    rest: String,
}

impl NormalizedCode {
    fn of(code: &str) -> Self {
        let mut notebook = None;
        let mut jedi_off = false;
        let mut rest = String::with_capacity(code.len());
        for line in code.lines().map(str::trim_end) {
            match line {
                "" => {}
                JEDI_OFF if !jedi_off => jedi_off = true,
                _ => match notebook_path(line) {
                    Some(path) if notebook.is_none() => notebook = Some(path),
                    _ => {
                        rest.push_str(line);
                        rest.push('\n');
                    }
                },
            }
        }
        Self {
            notebook,
            jedi_off,
            rest,
        }
    }

    fn fingerprint(&self) -> String {
        hex::encode(Sha256::digest(&self.rest))
    }
}

/// Returns the path in the line that names the notebook.
///
/// VS Code doubles backslashes and leaves quotes unescaped, so the literal ends at the line's last quote. A
/// path that is a Python literal with escaped quotes gives the same result.
fn notebook_path(line: &str) -> Option<String> {
    let literal = line.strip_prefix(NOTEBOOK_VARIABLE)?.strip_prefix(" = ")?;
    let raw = literal.strip_prefix('r');
    let inner = raw.unwrap_or(literal);
    let quote = inner.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inner = inner.strip_prefix(quote)?.strip_suffix(quote)?;
    if raw.is_some() {
        return Some(inner.to_owned());
    }
    let mut path = String::with_capacity(inner.len());
    let mut chars = inner.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = chars.next_if(|next| c == '\\' && matches!(next, '\\' | '"' | '\''));
        path.push(escaped.unwrap_or(c));
    }
    Some(path)
}

/// Returns whether this is the path of a notebook that has a file.
pub(super) fn is_notebook(path: &str) -> bool {
    let path = std::path::Path::new(path);
    path.is_absolute()
        && path
            .extension()
            .is_some_and(|ending| ending.eq_ignore_ascii_case("ipynb"))
}

// SHA-256 of the normalised texts that microsoft/vscode-jupyter sends, from its sources at each release up to
// 2026.6.

/// The widget probe, 2023.2 to 2026.6.
const KNOWN_PROBE: &str = "1a3f117ca2f3fffa4c221b5958861f2406fe3a0ed23f53239e84b8dd6b9f46f3";

/// The set-up code. A plot theme is sent only with `jupyter.themeMatplotlibPlots`.
const KNOWN_SETUPS: [&str; 5] = [
    // The helper module, 2024.2 to 2026.6.
    "f8f50d2b4606fd5ab2fd35d4617923bff1b7a498ec2eb6f3b80cf2c9e7509fef",
    // The same with a dark theme for plots.
    "e83d9795235c093399a6749ef57ccab6ee68bc94412cbdab419a903aaaa441e5",
    // The same with a light one.
    "e7c6e4de3d7ff00f0ca43345331ec1769e48971f4abc76771821aef79b4254eb",
    // A dark theme without the helper module, 2023.2 to 2024.1.
    "c2c05a12b9722c874905fd7d83e08b445c9d9154da19ad09b2eaf723c171811b",
    // A light one.
    "004f70cac597a9cbed238102f6c32efcbc3c5d3c9281b7ebdf2e5467e1a0ca33",
];

/// The variable that holds the notebook's path.
const NOTEBOOK_VARIABLE: &str = "__vsc_ipynb_file__";
/// The function that defines the helper module.
pub(super) const HELPER_FUNCTION: &str = "__VSCODE_inject_module";
/// The name under which the widget probe imports ipywidgets.
pub(super) const WIDGETS_ALIAS: &str = "_VSCODE_ipywidgets";
/// The line that turns off Jedi, IPython's slower completer.
pub(super) const JEDI_OFF: &str = "%config Completer.use_jedi = False";
/// The prefix that VS Code searches for in the widget probe's stdout.
const WIDGETS_PREFIX: &str = "e976ee50-99ed-4aba-9b6b-9dcd5634d07d:IPyWidgets:";

#[cfg(test)]
mod tests {
    use super::*;

    /// A block in the form of VS Code's; its text is made up for this test.
    fn block(path: &str) -> String {
        format!(
            "\ndef __VSCODE_inject_module():\n    pass\n\n\n__VSCODE_inject_module()\n\n\
             __vsc_ipynb_file__ = {path}\n{JEDI_OFF}"
        )
    }

    fn fingerprints(code: &str) -> [String; 1] {
        [fingerprint(code)]
    }

    fn setup(notebook: &str) -> Option<Startup> {
        Some(Startup::Setup {
            notebook: Some(notebook.to_owned()),
            jedi_off: true,
        })
    }

    #[test]
    fn known_code_is_recognised_without_the_lines_that_differ_between_users() {
        let code = block("\"/work/a b/n.ipynb\"");
        let known = fingerprints(&code);
        assert_eq!(recognise(&code, &known), setup("/work/a b/n.ipynb"));
        for same in [
            code.replace('\n', "\r\n"),
            code.replace('\n', "  \n"),
            code.trim().to_owned(),
        ] {
            assert_eq!(recognise(&same, &known), setup("/work/a b/n.ipynb"));
        }
        let with_jedi = Some(Startup::Setup {
            notebook: Some("/work/a b/n.ipynb".to_owned()),
            jedi_off: false,
        });
        assert_eq!(recognise(&code.replace(JEDI_OFF, ""), &known), with_jedi);
        let code_of_path = block("\"/ö/m.IPYNB\"");
        assert_eq!(recognise(&code_of_path, &known), setup("/ö/m.IPYNB"));
    }

    #[test]
    fn other_code_is_not_recognised() {
        let code = block("\"/work/n.ipynb\"");
        let known = fingerprints(&code);
        for other in [
            code.clone() + "\nimport os",
            code.clone() + "\n__vsc_ipynb_file__ = \"/work/m.ipynb\"",
            code.clone() + "\n" + JEDI_OFF,
            code.replace("    pass", "  pass"),
            code.replace("pass", "pass  # really"),
            code.replace("__VSCODE_inject_module()\n\n", ""),
        ] {
            assert_eq!(recognise(&other, &known), None, "{other}");
            assert!(looks_like_startup(&other));
        }
        assert_eq!(recognise(&code, &[]), None);
        for users in [
            "",
            "import numpy as np",
            JEDI_OFF,
            "%load_ext autoreload\n%autoreload 2",
        ] {
            assert_eq!(recognise(users, &known), None, "{users}");
            assert!(!looks_like_startup(users));
        }
    }

    #[test]
    fn unknown_start_up_code_names_its_notebook() {
        let newer = block("\"/work/n.ipynb\"").replace("pass", "return 2027");
        assert_eq!(recognise(&newer, &[]), None);
        assert_eq!(notebook_in(&newer).as_deref(), Some("/work/n.ipynb"));
        for other in ["x = 1", &block("\"Untitled-1.ipynb\""), &block("path")] {
            assert_eq!(notebook_in(other), None);
        }
    }

    #[test]
    fn the_start_up_code_of_2023_is_two_lines() {
        let code = format!("__vsc_ipynb_file__ = \"/work/n.ipynb\"\n{JEDI_OFF}");
        assert_eq!(recognise(&code, &[]), setup("/work/n.ipynb"));
        assert_eq!(recognise(&(code + "\nprint(1)"), &[]), None);
    }

    #[test]
    fn a_path_is_read_as_python_reads_it() {
        for (literal, path) in [
            (r#""/a/n.ipynb""#, "/a/n.ipynb"),
            (r"'/a/n.ipynb'", "/a/n.ipynb"),
            (r#""/a\\b/n.ipynb""#, r"/a\b/n.ipynb"),
            (r#""/a\"b/n.ipynb""#, "/a\"b/n.ipynb"),
            // As VS Code writes it: invalid Python, but the path is clear.
            (r#""/a"b/n.ipynb""#, "/a\"b/n.ipynb"),
            (r#""/a\\\"b/n.ipynb""#, "/a\\\"b/n.ipynb"),
            (r#"r"/a\b/n.ipynb""#, r"/a\b/n.ipynb"),
        ] {
            let code = block(literal);
            assert_eq!(
                recognise(&code, &fingerprints(&code)),
                setup(path),
                "{literal}"
            );
        }
    }

    #[test]
    fn a_notebook_without_a_file_is_not_named() {
        for literal in ["\"Untitled-1.ipynb\"", "\"/work/script.py\"", "\"\""] {
            let code = block(literal);
            let nameless = Some(Startup::Setup {
                notebook: None,
                jedi_off: true,
            });
            assert_eq!(
                recognise(&code, &fingerprints(&code)),
                nameless,
                "{literal}"
            );
        }
        // Not a string literal, so not VS Code's line.
        let known = fingerprints(&block("\"/work/n.ipynb\""));
        for broken in ["/work/n.ipynb", "\"", "f\"/work/n.ipynb\"", "None"] {
            assert_eq!(recognise(&block(broken), &known), None, "{broken}");
        }
    }

    #[test]
    fn a_widgets_version_is_read_from_the_probes_stdout() {
        let code = "try:\n    import ipywidgets as _VSCODE_ipywidgets\nexcept:\n    pass";
        assert_eq!(recognise(code, &[]), None);
        assert_eq!(
            recognise(code, &fingerprints(code)),
            Some(Startup::WidgetProbe)
        );

        let printed = widget_probe_stdout("8.1.7");
        assert_eq!(widget_version(&printed), Some("8.1.7"));
        for other in [
            "",
            "8.1.7\n",
            WIDGETS_PREFIX,
            &format!("{WIDGETS_PREFIX} \n8.1.7"),
        ] {
            assert_eq!(widget_version(other), None, "{other}");
        }
    }

    #[test]
    fn the_known_fingerprints_are_sha_256() {
        for known in KNOWN_SETUPS.iter().chain([&KNOWN_PROBE]) {
            assert_eq!(hex::decode(known).map(|bytes| bytes.len()), Ok(32));
        }
    }
}
