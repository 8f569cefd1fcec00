//! The pages for users: `README.md` and `docs/`.
//!
//! Each `console` block of a page is run: all blocks of a page in the order in which they are printed, in
//! one shell, in a fresh folder, with an empty home. The output is compared with the page; times, ids,
//! paths, versions and sizes may differ. `docs/cli.md` is compared with the output of `nb help`. This
//! command writes the output into the pages:
//!
//! ```sh
//! NB_WRITE_DOCS=1 cargo test --test it docs
//! ```
//!
//! A line of a block that begins with `$ ` is a command. It continues on the next line while a quote `'` or
//! a `<<'EOF'` is open. `console as=NAME` runs the block as that actor; without it, as `human`. A command
//! that does not end with 0 must show that: `; echo "exit $?"`. A printed line `...` stands for any number
//! of lines.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use regex::Regex;

use crate::python;
use crate::world::{World, succeed};

#[test]
fn the_readme_prints_what_it_says() {
    check("README.md");
}

#[test]
fn the_page_on_collaboration_prints_what_it_says() {
    check("docs/collaboration.md");
}

#[test]
fn the_page_on_chats_prints_what_it_says() {
    check("docs/chat.md");
}

#[test]
fn the_page_on_failures_prints_what_it_says() {
    check("docs/failures.md");
}

#[test]
fn the_page_on_stale_cells_prints_what_it_says() {
    check("docs/reactive.md");
}

#[test]
fn the_page_on_the_sandbox_prints_what_it_says() {
    if crate::skipped::has_bubblewrap() {
        check("docs/sandbox.md");
    }
}

#[test]
fn the_page_for_the_first_five_minutes_prints_what_it_says() {
    check("docs/start.md");
}

#[test]
fn no_other_page_has_commands_that_are_not_run() {
    let checked = [
        "README.md",
        "docs/chat.md",
        "docs/collaboration.md",
        "docs/failures.md",
        "docs/reactive.md",
        "docs/sandbox.md",
        "docs/start.md",
    ];
    for page in pages() {
        let text = std::fs::read_to_string(root().join(&page)).expect("read the page");
        let is_checked = checked.contains(&page.as_str());
        assert_eq!(text.contains("```console"), is_checked, "{page}");
    }
}

#[test]
fn links_between_pages_lead_to_a_file_and_a_heading() {
    let link = Regex::new(r"\]\(([^)#]*)(?:#([^)]*))?\)").expect("a pattern");
    for page in pages() {
        let text = std::fs::read_to_string(root().join(&page)).expect("read the page");
        for found in link.captures_iter(&without_blocks(&text)) {
            let [target, heading] = [1, 2].map(|at| found.get(at).map_or("", |it| it.as_str()));
            if target.starts_with("http") {
                continue;
            }
            let folder = root().join(&page).parent().expect("a folder").to_owned();
            let file = match target {
                "" => root().join(&page),
                target => folder.join(target),
            };
            assert!(file.exists(), "{page}: {target} is not there");
            if !heading.is_empty() {
                let text = std::fs::read_to_string(&file).expect("read the other page");
                let has_heading = without_blocks(&text)
                    .lines()
                    .any(|line| line.starts_with('#') && anchor(line) == heading);
                assert!(has_heading, "{page}: {target} has no heading #{heading}");
            }
        }
    }
}

#[test]
fn files_and_tests_that_the_pages_name_are_there() {
    let sources = sources(&["src", "crates", "tests"].map(|folder| root().join(folder)));
    let crates = std::fs::read_dir(root().join("crates")).expect("read crates");
    let crates = crates.map(|entry| entry.expect("an entry").path().join("src"));
    let crates: Vec<_> = crates.collect();
    let file = Regex::new(r"`([a-z_/.-]+\.(?:rs|py|md|toml))`").expect("a pattern");
    let item = Regex::new(r"`[a-z_]+(?:::[a-z_]+)*::([a-z_]+)`").expect("a pattern");
    for page in pages().iter().filter(|page| *page != "CHANGELOG.md") {
        let text = without_blocks(&std::fs::read_to_string(root().join(page)).expect("read it"));
        for found in file.captures_iter(&text) {
            let folders = ["", "src", "docs", "tests/python"].map(|folder| root().join(folder));
            let mut folders = folders.iter().chain(&crates);
            let is_there = folders.any(|folder| folder.join(&found[1]).exists());
            let is_the_users = found[1].starts_with('.') || found[1].ends_with("config.toml");
            assert!(is_the_users || is_there, "{page}: {}", &found[1]);
        }
        for found in item.captures_iter(&text) {
            let names = ["fn", "mod"].map(|kind| Regex::new(&format!(r"\b{kind} {}\b", &found[1])));
            let is_there = names.map(|name| name.expect("a pattern").is_match(&sources));
            assert!(is_there.contains(&true), "{page}: {}", &found[0]);
        }
    }
}

/// Returns the text of all Rust files in these folders.
fn sources(folders: &[PathBuf]) -> String {
    let files = folders.iter().flat_map(walkdir::WalkDir::new);
    files
        .map(|entry| entry.expect("an entry").into_path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| std::fs::read_to_string(path).expect("read a file"))
        .collect()
}

#[test]
fn the_readme_is_short() {
    let text = std::fs::read_to_string(root().join("README.md")).expect("read the README");
    assert!(text.lines().count() <= 150, "{}", text.lines().count());
}

#[test]
fn the_reference_of_commands_is_what_help_prints() {
    compare_or_write("docs/cli.md", &reference());
}

/// Runs the blocks of a page, and compares or writes the page.
fn check(page: &str) {
    let text = std::fs::read_to_string(root().join(page)).expect("read the page");
    let mut run = Run::new();
    let mut now = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        now.push_str(line);
        now.push('\n');
        let Some(words) = line.strip_prefix("```console") else {
            continue;
        };
        let actor = words.trim().strip_prefix("as=").unwrap_or("human");
        let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        for step in steps(&block) {
            now.push_str(&run.step(&step, actor));
        }
        now.push_str("```\n");
    }
    compare_or_write(page, &now);
}

/// Checks that a page has this text; with `NB_WRITE_DOCS`, writes it.
fn compare_or_write(page: &str, now: &str) {
    let path = root().join(page);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    if text == now {
        return;
    }
    if std::env::var_os("NB_WRITE_DOCS").is_some() {
        std::fs::write(&path, now).expect("write the page");
        return;
    }
    let [page_lines, now_lines] = [&text, now].map(|text| text.lines().collect::<Vec<_>>());
    let same = page_lines
        .iter()
        .zip(&now_lines)
        .take_while(|(page, now)| page == now);
    let at = same.count();
    let from = |lines: &[&str]| {
        lines
            .iter()
            .skip(at)
            .take(12)
            .fold(String::new(), |text, line| text + line + "\n")
    };
    panic!(
        "{page}, line {}, is not what the program prints; NB_WRITE_DOCS=1 cargo test --test it docs writes it\n\
         --- the page\n{}--- the program\n{}",
        at + 1,
        from(&page_lines),
        from(&now_lines)
    );
}

/// A command of a page, with the output that the page has for it.
#[derive(Debug)]
struct Step<'a> {
    typed: Vec<&'a str>,
    printed: Vec<&'a str>,
}

/// Makes the program `echo-agent` in a folder: the example agent of the protocol's Python library.
fn echo_agent(folder: &Path) {
    let (python, agent) = python::with_acp();
    let program = folder.join("echo-agent");
    let script = format!("#!/bin/sh\nexec {} {}\n", python.display(), agent.display());
    std::fs::create_dir(folder).expect("make the folder");
    std::fs::write(&program, script).expect("write the program");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("make it a program");
}

fn steps<'a>(block: &[&'a str]) -> Vec<Step<'a>> {
    let mut steps = Vec::<Step>::new();
    let mut open = false;
    for line in block {
        match steps.last_mut() {
            Some(step) if open => step.typed.push(line),
            _ if line.starts_with("$ ") => steps.push(Step {
                typed: vec![line],
                printed: Vec::new(),
            }),
            Some(step) => step.printed.push(line),
            None => panic!("a block begins with a command, not with {line:?}"),
        }
        open = steps.last().is_some_and(|step| {
            let typed = step.typed.join("\n");
            let here = typed.contains("<<'EOF'") && step.typed.last() != Some(&"EOF");
            let quoted = !typed.contains("<<'EOF'") && typed.matches('\'').count() % 2 == 1;
            step.printed.is_empty() && (here || quoted)
        });
    }
    steps
}

/// The run of one page: a shell in a separate world.
struct Run {
    shell: Shell,
    // Dropped after the shell, which runs in it.
    _world: World,
    /// Pairs of an id in the page and the id in this run.
    ids: Vec<(String, String)>,
    /// Pairs of a path in this run and the path that a page shows.
    paths: Vec<(String, &'static str)>,
}

impl Run {
    fn new() -> Run {
        let world = World::new();
        let project = world.project();
        let top = project.parent().expect("the world's folder").to_owned();
        let environment = python::interpreter()
            .ancestors()
            .nth(2)
            .expect("the environment's folder")
            .to_owned();
        let binaries = Path::new(env!("CARGO_BIN_EXE_nb")).parent();
        let binaries = binaries.expect("the folder of the program").to_owned();
        let programs = top.join("programs");
        echo_agent(&programs);
        let path = [&binaries, &environment.join("bin"), &programs]
            .map(|folder| folder.display().to_string())
            .join(":");
        let mut command = world.command(Path::new("bash"));
        command
            .args(["--noprofile", "--norc"])
            .env("PATH", format!("{path}:/usr/local/bin:/usr/bin:/bin"))
            .env("VIRTUAL_ENV", &environment)
            .env("TZ", "UTC");
        for name in ["DATA", "RUNTIME", "CONFIG"] {
            command.env_remove(format!("JUPYTER_{name}_DIR"));
        }
        let name = |path: PathBuf| path.display().to_string();
        Run {
            shell: Shell::new(&mut command, &top),
            paths: vec![
                (name(project), "/home/ada/project"),
                (name(top.join("home")), "/home/ada"),
                (name(environment), "/home/ada/venv"),
                (name(binaries), "/home/ada/.cargo/bin"),
            ],
            _world: world,
            ids: Vec::new(),
        }
    }

    /// Runs a command, and returns it with its output in the form in which the page has it.
    fn step(&mut self, step: &Step, actor: &str) -> String {
        let typed = step.typed.join("\n");
        let command = self.as_here(&typed[2..]);
        let (code, printed) = self.shell.run(&command, actor);
        assert!(!printed.contains("panicked at"), "{command}\n{printed}");
        assert_eq!(code, "0", "{command}\n{printed}");
        let mut printed = self.as_shown(&printed);
        let shown = step.printed.join("\n");
        self.learn(&shown, &printed);
        let id = Regex::new(ID).expect("a pattern");
        let as_on_page = |found: &regex::Captures| {
            let known = self.ids.iter().find(|(_, here)| *here == found[0]);
            known.map_or_else(|| found[0].to_owned(), |(page, _)| page.clone())
        };
        printed = id.replace_all(&printed, as_on_page).into_owned();
        if is_alike(&shown, printed.trim_end()) {
            printed = shown;
        }
        let printed = printed.trim_end();
        let end = if printed.is_empty() { "" } else { "\n" };
        format!("{typed}\n{printed}{end}")
    }

    /// Records which ids of this run correspond to the page's ids.
    fn learn(&mut self, page: &str, here: &str) {
        let id = Regex::new(ID).expect("a pattern");
        let [page, here] = [page, here].map(|text| id.find_iter(text).collect::<Vec<_>>());
        if page.len() == here.len() {
            for (page, here) in page.iter().zip(here) {
                if page.as_str() != here.as_str() {
                    self.ids
                        .push((page.as_str().to_owned(), here.as_str().to_owned()));
                }
            }
        }
    }

    /// Returns a command of the page with this run's ids and paths.
    fn as_here(&self, command: &str) -> String {
        let id = Regex::new(r"\b[0-9a-f]{3,}\b").expect("a pattern");
        let command = id.replace_all(command, |found: &regex::Captures| {
            let shown = &found[0];
            let known = self.ids.iter().find(|(page, _)| page.starts_with(shown));
            known.map_or(shown.to_owned(), |(_, here)| here[..shown.len()].to_owned())
        });
        let mut command = command.into_owned();
        for (here, shown) in &self.paths {
            command = command.replace(shown, here);
        }
        command
    }

    fn as_shown(&self, printed: &str) -> String {
        let mut printed = printed.to_owned();
        for (here, shown) in &self.paths {
            printed = printed.replace(here, shown);
        }
        printed
    }
}

/// A shell that runs one command after the other.
struct Shell {
    child: Child,
    input: ChildStdin,
    ends: Receiver<String>,
    printed: PathBuf,
}

impl Shell {
    fn new(command: &mut Command, folder: &Path) -> Shell {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start bash");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (ended, ends) = channel();
        // The thread ends with the shell, whose stdout no command inherits.
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = ended.send(line);
            }
        });
        Shell {
            child,
            input,
            ends,
            printed: folder.join("printed"),
        }
    }

    /// Runs a command as an actor; returns its exit code, and its stdout and stderr together, as a terminal
    /// shows them.
    fn run(&mut self, command: &str, actor: &str) -> (String, String) {
        let printed = self.printed.display();
        let script = format!(
            "export NB_AS={actor}\n{{\n{command}\n}} >'{printed}' 2>&1 </dev/null\necho $?\n"
        );
        let written = self.input.write_all(script.as_bytes());
        written.expect("write the command");
        let code = self.ends.recv_timeout(TIMEOUT);
        let text = std::fs::read(&self.printed).expect("read what was printed");
        let text = String::from_utf8(text).expect("UTF-8");
        let code = code.unwrap_or_else(|_| panic!("no end of: {command}\n{text}"));
        (code, text)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says whether the output of a run is the page's, apart from what differs in every run.
fn is_alike(page: &str, here: &str) -> bool {
    let mut pattern = String::from("^");
    for line in normalised(page).lines() {
        match line.trim() {
            "..." => pattern.push_str("(?:.*\n)*?"),
            line => pattern.push_str(&format!("{}\n", regex::escape(line))),
        }
    }
    pattern.push('$');
    let here = normalised(here);
    Regex::new(&pattern).expect("a pattern").is_match(&here)
}

/// Returns a text without what differs in every run; each line ends with a newline.
///
/// Messages that a slow command prints while it waits are left out: on a fast machine there are none.
fn normalised(text: &str) -> String {
    let waits = Regex::new(WAITS).expect("a pattern");
    let lines = text.lines().filter(|line| !waits.is_match(line));
    let mut text = lines.collect::<Vec<_>>().join("\n");
    for (pattern, instead) in VOLATILE {
        let pattern = Regex::new(pattern).expect("a pattern");
        text = pattern.replace_all(&text, instead).into_owned();
    }
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n")
        .collect()
}

const VOLATILE: [(&str, &str); 9] = [
    // The age of an idle kernel is printed from 2 s on.
    (r"\bidle for \d+ s\b", "idle"),
    // The time of a cell is printed from 0.1 s on.
    (r"ok, no output, \d+(\.\d+)? s", "ok, no output"),
    (r"\d{4}-\d\d-\d\d", "DATE"),
    (r"\b\d\d:\d\d(:\d\d)?\b", "TIME"),
    (r"\b(pid|process) \d+", "$1 N"),
    (ID, "ID"),
    (r"\b\d+(\.\d+)? (µs|ms|s|bytes|KB|MB|GB)\b", "N $2"),
    (r"\b\d+\.\d+\.\d+\b", "VERSION"),
    (r"(python|Python) 3\.\d+", "$1 3"),
];

const WAITS: &str =
    r"^‣ (job [0-9a-f]+ · .* · (queued|running)|waiting behind .*|.* has not answered yet; .*)$";

/// The pattern of an id, a revision, or a prefix of one.
const ID: &str = r"\b[0-9a-f]{4,}\b";

/// How long a command of a page may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the text of `docs/cli.md`.
fn reference() -> String {
    let world = World::new();
    let help = |word: &str| {
        let mut command = world.nb();
        // `nb help agent` is the page for agents.
        let words = if word == "agent" {
            [word, "--help"]
        } else {
            ["help", word]
        };
        succeed(command.args(words).env_remove("COLUMNS"))
    };
    let mut list = String::new();
    let mut commands = String::new();
    for line in help("all").lines() {
        if let Some(group) = line.strip_suffix(':') {
            list.push_str(&format!("\n{group}:\n\n"));
            commands.push_str(&format!("\n## {group}\n"));
        } else if let Some((name, about)) = line
            .strip_prefix("  ")
            .and_then(|line| line.split_once(' '))
        {
            list.push_str(&format!("- [`nb {name}`](#nb-{name}): {}\n", about.trim()));
            commands.push_str(&section(name, &help(name)));
        }
    }
    format!("{PREFACE}{list}{commands}")
}

/// Returns the reference's section about one command.
fn section(name: &str, help: &str) -> String {
    let (about, rest) = help.split_once("\nUsage:").expect("the help has a usage");
    let mut kept = format!("Usage:{rest}");
    if let Some(at) = kept.find("\nOptions of every command:") {
        // The text after the options begins at the left margin again.
        let after = kept[at + 1..]
            .match_indices("\n\n")
            .map(|(end, _)| at + 1 + end + 2)
            .find(|end| kept[*end..].starts_with(|first| first != ' '));
        kept.replace_range(at..after.map_or(kept.len(), |after| after - 1), "");
    }
    let kept = kept.replace(
        "  -h, --help\n          Print help (see a summary with '-h')\n",
        "",
    );
    let help = Regex::new(r"\n(Options:\n)?  -h, --help\n +Print help.*\n").expect("a pattern");
    let kept = help.replace(&kept, "");
    let kept: Vec<_> = kept.trim_end().lines().map(str::trim_end).collect();
    format!(
        "\n### nb {name}\n\n{}\n\n```text\n{}\n```\n",
        about.trim_end(),
        kept.join("\n")
    )
}

const PREFACE: &str = "\
# The commands of nb

This page is made from `nb help`; a test compares them. `nb help COMMAND` prints the same.

Every command takes two options beside its own: `-n NOTEBOOK` names the notebook, `--as NAME` the actor
(`NB_NOTEBOOK` and `NB_AS` do the same). Where its answer is data, a command takes `--json` and prints one
object. Data goes to stdout, everything else to stderr.

| exit code | means |
|---|---|
| 0 | done |
| 1 | nb failed |
| 2 | the command line is wrong |
| 3 | the code raised an error |
| 4 | the code is still running; this is no failure |
| 5 | a conflict, or refused |
| 6 | there is no kernel, or it died |
| 7 | the code asks for input; this is no failure |
| 130 | interrupted |

A command acts on the notebook that is named first, else on that of `-n`, else on that of `NB_NOTEBOOK`, else on
the only open one of the project. Where several are open, a command that ends nothing acts on the one that the actor used
last. A cell is named by its index from 0 (or from the end: `-1`), its id or the first three or more characters of
it, its count `In[12]`, or in a range (`2..5` without 5, `2..=5` with it).
";

/// Returns a page without its blocks of code.
fn without_blocks(text: &str) -> String {
    let mut is_block = false;
    let outside = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        is_block ^= fence;
        !is_block && !fence
    });
    outside.flat_map(|line| [line, "\n"]).collect()
}

/// Returns the name that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    words
        .chars()
        .filter(|character| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_'))
        .map(|character| if character == ' ' { '-' } else { character })
        .collect()
}

/// The pages for users and contributors, by their paths in the repository.
fn pages() -> Vec<String> {
    let mut pages = ["README", "CHANGELOG", "CONTRIBUTING", "SECURITY"]
        .map(|name| format!("{name}.md"))
        .to_vec();
    for entry in std::fs::read_dir(root().join("docs")).expect("list docs") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".md") {
            pages.push(format!("docs/{name}"));
        }
    }
    pages
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
