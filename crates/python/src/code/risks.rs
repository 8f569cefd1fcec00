//! Risky actions of code, for a reviewer of an agent's work: it starts programs, evaluates text as code, deletes
//! files, or uses the network.
//!
//! The findings come from the code's structure, so a word in a comment or a string is none. They protect nothing:
//! code can do the same in ways that its text does not show. A sandbox protects.

use std::collections::HashMap;
use std::fmt;

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ExprCall, IpyEscapeKind, Stmt};
use ruff_text_size::Ranged;

use super::parse::{self, Lines, count_lines};

/// How many findings of one text are returned.
const FINDINGS_MAX: usize = 20;

/// How much of a command or a name is shown, in characters.
const LONGEST_SHOWN: usize = 80;

/// A kind of risky action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Risk {
    /// It runs a command of the shell.
    Shell,
    /// It starts a program.
    Program,
    /// It runs text as code.
    Evaluation,
    /// It deletes files or folders.
    Deletion,
    /// It uses the network.
    Network,
}

impl fmt::Display for Risk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Shell => "runs a shell command",
            Self::Program => "starts a program",
            Self::Evaluation => "runs text as code",
            Self::Deletion => "deletes files",
            Self::Network => "uses the network",
        })
    }
}

/// A risky action at a line of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of action.
    pub risk: Risk,
    /// The line, from 1.
    pub line: usize,
    /// The function that is called, or the command.
    pub name: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { risk, line, name } = self;
        write!(formatter, "line {line} {risk}: {name}")
    }
}

/// Functions by the kind of action. A name that ends with `*` means all that begin so: `os.execv`, `os.execlp`.
const FUNCTIONS: [(Risk, &[&str]); 4] = [
    (
        Risk::Program,
        &[
            "subprocess.*",
            "os.system",
            "os.popen",
            "os.exec*",
            "os.spawn*",
            "os.posix_spawn*",
            "os.fork",
            "pty.spawn",
            "asyncio.create_subprocess_exec",
            "asyncio.create_subprocess_shell",
        ],
    ),
    (
        Risk::Evaluation,
        &[
            "eval",
            "exec",
            "compile",
            "__import__",
            "builtins.eval",
            "builtins.exec",
            "runpy.*",
        ],
    ),
    (
        Risk::Deletion,
        &[
            "os.remove",
            "os.removedirs",
            "os.rmdir",
            "os.unlink",
            "shutil.rmtree",
            "send2trash.*",
        ],
    ),
    (
        Risk::Network,
        &[
            "aiohttp.*",
            "boto3.*",
            "ftplib.*",
            "http.client.*",
            "httpx.*",
            "paramiko.*",
            "requests.*",
            "smtplib.*",
            "socket.*",
            "urllib.request.*",
            "urllib3.*",
            "websockets.*",
        ],
    ),
];

/// Methods that delete files, of objects whose type is not known: a path's.
const DELETING_METHODS: [&str; 2] = ["unlink", "rmdir"];

/// Magics whose cell is a program of the shell.
const SHELL_MAGICS: [&str; 8] = ["!", "bash", "cmd", "script", "sh", "sx", "system", "zsh"];

/// Cell magics whose cell is Python code.
const PYTHON_MAGICS: [&str; 5] = ["capture", "memit", "prun", "time", "timeit"];

/// Returns the risky actions in a Python cell. If the text has syntax errors, it returns those that it finds; if the
/// text has more than 4 MiB or is nested too deeply for Python, none.
pub fn risks(source: &str) -> Vec<Finding> {
    let first = source.trim_start();
    let Some(magic) = first.strip_prefix("%%") else {
        return of_python(source, 1);
    };
    let above = source.len() - first.len();
    let line = 1 + count_lines(&source[..above]);
    let (head, body) = magic.split_once('\n').unwrap_or((magic, ""));
    let name = head.split_whitespace().next().unwrap_or_default();
    if SHELL_MAGICS.contains(&name) {
        let name = shown(&format!("%%{head}"));
        let risk = Risk::Shell;
        return vec![Finding { risk, line, name }];
    }
    match PYTHON_MAGICS.contains(&name) {
        true => of_python(body, line + 1),
        false => Vec::new(),
    }
}

/// Finds risks in Python code whose first line has this number.
fn of_python(source: &str, first_line: usize) -> Vec<Finding> {
    let lines = Lines::of(source, first_line);
    let read = parse::parsed(source, |parsed| {
        let mut finder = Finder {
            lines,
            names: HashMap::new(),
            findings: Vec::new(),
        };
        finder.visit_body(&parsed.syntax().body);
        finder.findings.dedup();
        finder.findings.truncate(FINDINGS_MAX);
        finder.findings
    });
    read.unwrap_or_default()
}

/// Returns the beginning of a text as it may be printed.
fn shown(text: &str) -> String {
    let printed = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printed.take(LONGEST_SHOWN).collect()
}

struct Finder {
    lines: Lines,
    /// The full names of imported names: `{"sp": "subprocess", "run": "subprocess.run"}`.
    names: HashMap<String, String>,
    findings: Vec<Finding>,
}

impl Finder {
    fn add(&mut self, risk: Risk, node: &impl Ranged, name: &str) {
        self.findings.push(Finding {
            risk,
            line: self.lines.line(node),
            name: shown(name),
        });
    }

    fn escape(&mut self, kind: IpyEscapeKind, value: &str, node: &impl Ranged) {
        let name = value.split_whitespace().next().unwrap_or_default();
        let is_shell = match kind {
            IpyEscapeKind::Shell | IpyEscapeKind::ShCap => true,
            IpyEscapeKind::Magic | IpyEscapeKind::Magic2 => SHELL_MAGICS.contains(&name),
            _ => false,
        };
        if is_shell {
            self.add(Risk::Shell, node, &format!("{kind}{value}"));
        }
    }

    fn call(&mut self, call: &ExprCall) {
        let Some(name) = self.full_name(&call.func) else {
            return;
        };
        if let Some(risk) = risk_of(&name) {
            self.add(risk, call, &name);
        } else if let Some((_, method)) = name.rsplit_once('.')
            && DELETING_METHODS.contains(&method)
        {
            self.add(Risk::Deletion, call, &name);
        }
        let reads = name
            .rsplit('.')
            .next()
            .is_some_and(|name| name.starts_with("read_"));
        let mut arguments = call.arguments.args.iter();
        if reads && arguments.any(is_url) {
            self.add(Risk::Network, call, &name);
        }
    }

    /// Returns the whole name of a function: `sp.run` is `subprocess.run` after `import subprocess as sp`. The
    /// object of a method may be any expression, which is then `…`.
    fn full_name(&self, function: &Expr) -> Option<String> {
        match function {
            Expr::Name(name) => {
                let imported = self.names.get(name.id.as_str()).cloned();
                Some(imported.unwrap_or_else(|| name.id.to_string()))
            }
            Expr::Attribute(attribute) => {
                let object = self.full_name(&attribute.value);
                let object = object.unwrap_or_else(|| "…".to_owned());
                Some(format!("{object}.{}", attribute.attr))
            }
            _ => None,
        }
    }
}

/// Says whether an expression is a string with a URL.
fn is_url(expression: &Expr) -> bool {
    let text = expression.as_string_literal_expr();
    let text = text.map_or("", |text| text.value.to_str());
    ["http://", "https://", "s3://", "ftp://"]
        .iter()
        .any(|scheme| text.starts_with(scheme))
}

fn risk_of(name: &str) -> Option<Risk> {
    let matches = |known: &str| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == known,
    };
    let mut all = FUNCTIONS.iter();
    let entry = all.find(|(_, functions)| functions.iter().any(|known| matches(known)));
    entry.map(|(risk, _)| *risk)
}

impl<'a> Visitor<'a> for Finder {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Import(import) => {
                for alias in &import.names {
                    if let Some(name) = &alias.asname {
                        self.names.insert(name.to_string(), alias.name.to_string());
                    }
                }
            }
            Stmt::ImportFrom(import) => {
                if let Some(module) = &import.module {
                    for alias in &import.names {
                        let name = alias.asname.as_ref().unwrap_or(&alias.name);
                        let full = format!("{module}.{}", alias.name);
                        self.names.insert(name.to_string(), full);
                    }
                }
            }
            Stmt::IpyEscapeCommand(command) => {
                self.escape(command.kind, &command.value, command);
            }
            _ => {}
        }
        walk_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Call(call) => self.call(call),
            Expr::IpyEscapeCommand(command) => {
                self.escape(command.kind, &command.value, command);
            }
            _ => {}
        }
        walk_expr(self, expression);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(source: &str) -> Vec<String> {
        risks(source).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn risks_are_found_by_the_codes_structure() {
        for (source, finding) in [
            ("x = 1\n!ls -la", "line 2 runs a shell command: !ls -la"),
            (
                "!printf \u{1b}[2J",
                "line 1 runs a shell command: !printf  [2J",
            ),
            ("files = !ls", "line 1 runs a shell command: !ls"),
            ("%system ls", "line 1 runs a shell command: %system ls"),
            ("\n%%bash\nrm -r x", "line 2 runs a shell command: %%bash"),
            (
                "%%time\nimport os\nos.system('ls')",
                "line 3 starts a program: os.system",
            ),
            (
                "import subprocess as sp\nsp.run(['ls'])",
                "line 2 starts a program: subprocess.run",
            ),
            (
                "from os import execv as e\ndef f():\n    e('a', [])",
                "line 3 starts a program: os.execv",
            ),
            ("print(eval('1'))", "line 1 runs text as code: eval"),
            (
                "import shutil\nshutil.rmtree('x')",
                "line 2 deletes files: shutil.rmtree",
            ),
            ("Path('a').unlink()", "line 1 deletes files: ….unlink"),
            (
                "import requests\nr = requests.get(u)",
                "line 2 uses the network: requests.get",
            ),
            (
                "import pandas as pd\npd.read_csv('https://a.b/c')",
                "line 2 uses the network: pandas.read_csv",
            ),
        ] {
            assert_eq!(findings(source), [finding], "{source}");
        }
    }

    #[test]
    fn words_are_no_findings() {
        for source in [
            "",
            "# eval('1')\ntext = 'os.system(1)'",
            "df.eval('a + b')",
            "print('https://a.b')",
            "model.compile()",
            "import re\nre.compile('a')",
            "%matplotlib inline\n%timeit 1 + 1",
            "%%html\n<script>eval(1)</script>",
            "def f(:\n",
        ] {
            assert_eq!(findings(source), [""; 0], "{source}");
        }
    }

    #[test]
    fn there_is_an_end_to_what_is_found() {
        assert_eq!(findings(&"eval(1)\n".repeat(1000)).len(), FINDINGS_MAX);
        for nested in [
            "(",
            "-",
            "[",
            "not ",
            "lambda:",
            "a.",
            "1+",
            "if x: ",
            "x if y else ",
        ] {
            let text = nested.repeat((64 << 10) / nested.len());
            assert_eq!(findings(&text).len(), 0, "{nested}");
            assert_eq!(findings(&(text + "1")).len(), 0, "{nested}");
        }
        assert_eq!(findings(&"eval(".repeat(1000)).len(), 1);
        assert_eq!(findings(&"eval(".repeat(100_000)).len(), 0);
        assert_eq!(findings(&"eval(1)\n".repeat(1 << 20)).len(), 0);
    }
}
