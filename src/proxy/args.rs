//! The arguments of `nb-proxy`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Whether to serve a front end or to print a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Invocation {
    /// Serve a front end.
    Serve(Launch),
    /// Print a text and exit.
    Print(String),
}

/// A launch by a front end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Launch {
    /// The connection file that the front end wrote, with the ports to bind.
    pub(super) connection_file: PathBuf,
    /// An explicit `state.json`.
    pub(super) state: Option<PathBuf>,
    /// An explicit notebook.
    pub(super) notebook: Option<PathBuf>,
}

/// Arguments that no front end gives to a kernel.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub(super) enum ArgsError {
    /// ms-python runs `argv[0] -I script` or `-c code` to query what it takes for an interpreter.
    #[error(
        "this is the kernel \"nb shared kernel\", not a Python interpreter; {0:?} is not for it"
    )]
    NotPython(OsString),
    #[error("{0} needs a value")]
    ValueMissing(&'static str),
    #[error(
        "no connection file: front ends launch this as a kernel, with -f FILE (try nb-proxy --help)"
    )]
    NoConnectionFile,
}

/// What `nb-proxy --help` prints.
pub const HELP: &str = "\
Serve a front end with the kernel that `nb` keeps running

Front ends (VS Code, JupyterLab, anything that reads a kernelspec) launch this as the kernel
\"nb shared kernel\"; `nb serve` installs it. The front end's environment or its messages name the
notebook; a notebook whose kernel does not live gets one, as by `nb open`.
What names no notebook (a console) gets the only live kernel of the project at or above the
working directory, else the last opened one.

Usage: nb-proxy -f CONNECTION_FILE [--state STATE_JSON] [--notebook NOTEBOOK]

Options:
  -f, --connection-file FILE  the front end's connection file: the five ports to bind
      --state STATE_JSON      serve the kernel that this state.json names [env: NB_STATE]
      --notebook NOTEBOOK     serve this notebook's kernel [env: NB_NOTEBOOK]
  -V, --version               print the version, the commit and the target
  -h, --help                  print this help

Signals: SIGINT interrupts the running cell; SIGTERM ends nb-proxy and leaves the kernel alive;
SIGUSR1 writes the counters to .nb/proxy.log and .nb/proxies/.
";

impl Invocation {
    /// Reads the arguments. Unknown ones are ignored, since some front ends append their own.
    pub(super) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, ArgsError> {
        let mut args = args.into_iter().peekable();
        let mut launch = Launch::default();
        if let Some(first) = args.peek()
            && [&b"-I"[..], b"-c", b"-m", b"-E", b"-u"].contains(&first.as_bytes())
        {
            return Err(ArgsError::NotPython(first.clone()));
        }
        while let Some(arg) = args.next() {
            let (name, inline) = split(&arg);
            let target = match name {
                b"-h" | b"--help" => return Ok(Self::Print(HELP.into())),
                b"-V" | b"--version" => {
                    return Ok(Self::Print(
                        concat!("nb-proxy ", env!("NB_BUILD"), "\n").into(),
                    ));
                }
                b"-f" | b"--f" | b"--connection-file" => ("-f", &mut launch.connection_file),
                b"--state" => ("--state", launch.state.get_or_insert_default()),
                b"--notebook" => ("--notebook", launch.notebook.get_or_insert_default()),
                _ => continue,
            };
            let value = inline
                .or_else(|| args.next())
                .filter(|value| !value.is_empty());
            *target.1 = without_quotes(value.ok_or(ArgsError::ValueMissing(target.0))?);
        }
        if launch.connection_file.as_os_str().is_empty() {
            return Err(ArgsError::NoConnectionFile);
        }
        Ok(Self::Serve(launch))
    }
}

/// Splits `--name=value`.
fn split(arg: &OsStr) -> (&[u8], Option<OsString>) {
    let bytes = arg.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) if bytes.starts_with(b"-") => {
            let (name, value) = bytes.split_at(at);
            (
                name,
                value
                    .get(1..)
                    .map(|value| OsString::from_vec(value.to_vec())),
            )
        }
        _ => (bytes, None),
    }
}

/// Returns a path without quotes around it; some front ends leave literal quotes round a path that has spaces.
fn without_quotes(value: OsString) -> PathBuf {
    let bytes = value.as_bytes();
    match bytes
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""))
    {
        Some(inner) => OsString::from_vec(inner.to_vec()).into(),
        None => value.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Invocation, ArgsError> {
        Invocation::parse(args.iter().map(OsString::from))
    }

    fn file(args: &[&str]) -> PathBuf {
        match parse(args) {
            Ok(Invocation::Serve(launch)) => launch.connection_file,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_spelling_of_the_connection_file() {
        for args in [
            &["-f", "/a b/k.json"][..],
            &["-f", "\"/a b/k.json\""],
            &["--f=/a b/k.json"],
            &["--connection-file", "/a b/k.json"],
            &["--connection-file=/a b/k.json", "--unknown", "-x"],
            &["--unknown=1", "-f", "/a b/k.json"],
        ] {
            assert_eq!(file(args), PathBuf::from("/a b/k.json"), "{args:?}");
        }
    }

    #[test]
    fn arguments_for_a_python_interpreter_are_rejected() {
        for args in [
            &["-I", "/x/get_output_via_markers.py", "-f", "k"][..],
            &["-c", "import sys"],
        ] {
            assert!(
                matches!(parse(args), Err(ArgsError::NotPython(_))),
                "{args:?}"
            );
        }
        assert_eq!(parse(&[]), Err(ArgsError::NoConnectionFile));
        assert_eq!(parse(&["-f"]), Err(ArgsError::ValueMissing("-f")));
    }

    #[test]
    fn explicit_targets() {
        let Ok(Invocation::Serve(launch)) =
            parse(&["-f", "k", "--state=/s.json", "--notebook", "n.ipynb"])
        else {
            panic!("a launch")
        };
        assert_eq!(
            (launch.state, launch.notebook),
            (Some("/s.json".into()), Some("n.ipynb".into()))
        );
    }
}
