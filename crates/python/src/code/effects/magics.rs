//! IPython's magics, and cells that are in another language.

use regex::Regex;
use ruff_python_ast::IpyEscapeKind;
use std::sync::LazyLock;

use super::reader::Reader;
use super::{
    Binder, Effect, EffectStep, Effects, Name, Unknown, Value, ValueKind, ValueOrigin, VariableRef,
};
use crate::code::parse::{self, Lines, count_lines};

/// Cell magics whose cell is run as the body of a Python function: its names are local.
const FUNCTION_BODY_MAGICS: [&str; 2] = ["memit", "timeit"];

/// Cell magics whose cell is no Python code and does nothing to the kernel's names.
const OTHER_LANGUAGE_MAGICS: [&str; 21] = [
    "HTML",
    "SVG",
    "bash",
    "cmd",
    "file",
    "html",
    "javascript",
    "js",
    "latex",
    "markdown",
    "perl",
    "pypy",
    "python",
    "python2",
    "python3",
    "ruby",
    "script",
    "sh",
    "svg",
    "system",
    "writefile",
];

/// Line magics that do nothing to the kernel's names.
const HARMLESS: [&str; 42] = [
    "alias",
    "alias_magic",
    "autocall",
    "automagic",
    "autosave",
    "bookmark",
    "cat",
    "colors",
    "conda",
    "config",
    "connect_info",
    "debug",
    "dhist",
    "dirs",
    "doctest_mode",
    "gui",
    "hist",
    "history",
    "ls",
    "lsmagic",
    "magic",
    "mamba",
    "man",
    "matplotlib",
    "notebook",
    "page",
    "pdb",
    "pdef",
    "pdoc",
    "pfile",
    "pinfo",
    "pinfo2",
    "pip",
    "precision",
    "psearch",
    "psource",
    "pwd",
    "quickref",
    "uv",
    "who",
    "who_ls",
    "whos",
];

/// Line magics that depend on the kernel's surroundings, or change them.
const OUTSIDE: [&str; 9] = [
    "cd", "env", "mkdir", "popd", "pushd", "rm", "set_env", "sx", "system",
];

static PLACEHOLDER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\{\{?\s*([^\W\d]\w*)|(?:^|[^:\w]):([^\W\d]\w*)").ok());
static TABLE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)\b(?:from|join)\s+([^\W\d]\w*)").ok());
static SHELL_NAME: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\$\{?([^\W\d]\w*)").ok());
static BRACED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\{([^{}]+)\}").ok());

pub(super) fn effects_of_cell(source: &str) -> Effects {
    let first = source.trim_start();
    let above = source.len() - first.len();
    let line = 1 + count_lines(source.get(..above).unwrap_or_default());
    let Some(magic) = first.strip_prefix("%%") else {
        return of_python(source, 1, false);
    };
    let (head, body) = magic.split_once('\n').unwrap_or((magic, ""));
    let (name, options) = split_word(head);
    match name {
        "capture" => {
            let to = options
                .split_whitespace()
                .find(|word| !word.starts_with('-'));
            let mut effects = of_python(body, line + 1, false);
            effects.steps.extend(to.map(|to| bind(line, to)));
            effects
        }
        "time" | "timeit" | "prun" | "memit" | "mprun" | "snakeviz" => {
            let code = without_options(options);
            let is_function_body = FUNCTION_BODY_MAGICS.contains(&name);
            let mut effects = of_python(code, line, is_function_body);
            let cell = of_python(body, line + 1, is_function_body);
            effects.steps.extend(cell.steps);
            effects.problem = effects.problem.or(cell.problem);
            effects
        }
        "sql" => Effects {
            steps: sql(line, options, body),
            problem: None,
        },
        _ if OTHER_LANGUAGE_MAGICS.contains(&name) => {
            let words: Vec<_> = options.split_whitespace().collect();
            let pairs = words.windows(2).filter_map(|pair| match pair {
                ["--out" | "--err" | "--proc", name] => Some(bind(line, name)),
                _ => None,
            });
            let mut steps = read_by_expansion(options, line);
            steps.extend(pairs);
            Effects {
                steps,
                problem: None,
            }
        }
        _ => Effects {
            steps: vec![unknown(line, Unknown::AnyName(format!("%%{name}")))],
            problem: None,
        },
    }
}

/// Reads Python code whose first line has this number.
fn of_python(source: &str, first_line: usize, is_function_body: bool) -> Effects {
    let read = parse::parsed(source, |parsed| {
        let lines = Lines::of(source, first_line);
        let mut reader = Reader::new(&lines, line);
        let body = &parsed.syntax().body;
        let problem = parse::problem(source, parsed).map(|mut problem| {
            problem.line += first_line - 1;
            problem
        });
        // Python runs nothing of a text with an error.
        if problem.is_none() {
            match is_function_body {
                true => reader.function_body(body),
                false => reader.body(body),
            }
        }
        Effects {
            steps: reader.into_steps(),
            problem,
        }
    });
    read.unwrap_or_else(|problem| Effects {
        steps: Vec::new(),
        problem: Some(problem),
    })
}

/// Reads a line magic, a command of the shell, or a question about an object.
pub(super) fn line(reader: &mut Reader, kind: IpyEscapeKind, value: &str, line: usize) {
    match kind {
        IpyEscapeKind::Help | IpyEscapeKind::Help2 => {}
        IpyEscapeKind::Shell | IpyEscapeKind::ShCap => shell(reader, value, line),
        IpyEscapeKind::Magic | IpyEscapeKind::Magic2 => magic(reader, value, line),
        IpyEscapeKind::Quote | IpyEscapeKind::Quote2 | IpyEscapeKind::Paren => {
            let (function, _) = split_word(value);
            read_code(reader, function, line);
        }
    }
}

fn magic(reader: &mut Reader, value: &str, line: usize) {
    let (name, options) = split_word(value);
    match name {
        "time" | "timeit" | "prun" | "memit" | "lprun" | "mprun" => {
            read_code(reader, without_options(options), line);
        }
        "sql" => {
            for step in sql(line, "", options) {
                reader.push_of_line(step);
            }
            let mut words = options.split_whitespace();
            if let (Some(name), Some("<<")) = (words.next(), words.next()) {
                reader.push_of_line(bind(line, name));
            }
        }
        "load_ext" | "reload_ext" => {
            // An extension defines magics, and seldom names.
            let cause = Unknown::Outside(format!("%{value}"));
            reader.push_of_line(unknown(line, cause));
        }
        _ if HARMLESS.contains(&name) => {}
        _ if OUTSIDE.contains(&name) => {
            shell(reader, value, line);
        }
        _ => {
            let cause = Unknown::AnyName(format!("%{name}"));
            reader.push_of_line(unknown(line, cause));
        }
    }
}

/// Returns what IPython reads when it expands a line: `$name` and `{code}` in it are the kernel's.
fn read_by_expansion(text: &str, line: usize) -> Vec<EffectStep> {
    let mut steps = Vec::new();
    if let Some(pattern) = &*SHELL_NAME {
        for found in pattern.captures_iter(text) {
            if let Some(name) = found.get(1) {
                // It may be a variable of the shell.
                let variable = VariableRef::Global(Name::new(name.as_str()));
                let effect = Effect::Read {
                    variable,
                    need: ValueOrigin::Perhaps,
                    member: None,
                };
                steps.push(EffectStep { line, effect });
            }
        }
    }
    if let Some(pattern) = &*BRACED {
        for found in pattern.captures_iter(text) {
            if let Some(code) = found.get(1) {
                steps.extend(of_python(code.as_str(), line, false).steps);
            }
        }
    }
    steps
}

/// Reads a command of the shell.
fn shell(reader: &mut Reader, command: &str, line: usize) {
    for step in read_by_expansion(command, line) {
        reader.push_of_line(step);
    }
    let (program, _) = split_word(command);
    let cause = Unknown::Outside(format!("!{program}"));
    reader.push_of_line(unknown(line, cause));
}

/// Reads code within a line; what is no code is passed over.
fn read_code(reader: &mut Reader, code: &str, line: usize) {
    for step in of_python(code, line, false).steps {
        reader.push_of_line(step);
    }
}

/// Reads SQL: `{name}`, `{{name}}` and `:name` are read, and so may be a table's name; `name <<` and what
/// `--save` names is written.
fn sql(line: usize, options: &str, text: &str) -> Vec<EffectStep> {
    let mut steps = Vec::new();
    let mut read = |name: &str, need: ValueOrigin, line: usize| {
        steps.push(EffectStep {
            line,
            effect: Effect::Read {
                variable: VariableRef::Global(Name::new(name)),
                need,
                member: None,
            },
        });
    };
    for (at, row) in [options].into_iter().chain(text.lines()).enumerate() {
        if let Some(pattern) = &*PLACEHOLDER {
            for found in pattern.captures_iter(row) {
                if let Some(name) = found.get(1).or_else(|| found.get(2)) {
                    read(name.as_str(), ValueOrigin::Before, line + at);
                }
            }
        }
        if let Some(pattern) = &*TABLE {
            for found in pattern.captures_iter(row) {
                if let Some(name) = found.get(1) {
                    // It may be a table of the database.
                    read(name.as_str(), ValueOrigin::Perhaps, line + at);
                }
            }
        }
    }
    let words: Vec<_> = options.split_whitespace().collect();
    for pair in words.windows(2) {
        match pair {
            [name, "<<"] => steps.push(bind(line, name)),
            ["--save" | "-S", name] => steps.push(bind(line, name)),
            _ => {}
        }
    }
    steps.push(unknown(line, Unknown::Outside("%%sql".to_owned())));
    steps
}

fn bind(line: usize, name: &str) -> EffectStep {
    EffectStep {
        line,
        effect: Effect::Bind {
            name: Name::new(name),
            value: Value::of(ValueKind::Unknown),
            certain: true,
            by: Binder::Statement,
        },
    }
}

fn unknown(line: usize, unknown: Unknown) -> EffectStep {
    EffectStep {
        line,
        effect: Effect::Unknown(unknown),
    }
}

fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (word, rest.trim())
}

/// Returns the code after the options of `%timeit -n 10 -r3 f(x)`.
fn without_options(mut text: &str) -> &str {
    while let Some(option) = text.strip_prefix('-') {
        let (word, rest) = split_word(option);
        let takes_value = word.len() == 1 && !matches!(word, "q" | "o" | "c" | "t" | "i");
        text = match takes_value {
            true => split_word(rest).1,
            false => rest,
        };
    }
    text
}
