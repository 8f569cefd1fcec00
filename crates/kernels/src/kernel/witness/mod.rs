//! The witness: Python code in an IPython kernel that says after each execution what it really read, bound and changed.
//!
//! It says so in one message on iopub for each execution, of the type [`crate::wire::FACTS`]. Whoever can send it to the
//! kernel evaluates the expressions below in a silent request: they leave no output, no history and no name.

/// The code that sees what executions do, for an IPython kernel of Python 3.9 or later.
pub const WITNESS: &str = concat!(include_str!("look.py"), "\n\n", include_str!("witness.py"));

/// The module of the kernel that holds the witness.
const MODULE: &str = "nb_witness";

/// Returns an expression that puts the witness into a kernel.
pub fn begin() -> String {
    let code = literal(&format!("{WITNESS}\nbegin()\n"));
    format!("__import__(\"builtins\").exec({code}, {{\"__name__\": {MODULE:?}}})")
}

/// Returns an expression that deletes variables of the kernel.
pub fn unbind<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| literal(name)).collect();
    let names = names.join(", ");
    format!("__import__(\"sys\").modules[{MODULE:?}].witness.unbind([{names}])")
}

/// Formats a text as a Python string literal in ASCII.
pub fn literal(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 16);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            c => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}
