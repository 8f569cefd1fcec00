//! The `nb` command line: parsing, words, colours and exit codes.
//!
//! Arguments are read twice: as typed (clap's structs) and as meant (the requests of `api`). A command
//! parses, calls one function of `api`, prints its answer, and picks the exit code. Data goes to stdout,
//! everything else to stderr.

mod args;
mod commands;
mod render;
mod terminal;

use std::cell::{Cell, OnceCell};
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::activity::notification::overwritten_words;
use crate::api::caller::{Caller, Given, on_this_thread};
use crate::api::envelope::{Answer, Envelope, KernelEnded, Meanwhile, ProblemAnswer};
use crate::api::problem::Problem;
use crate::editing::notebook_file::NotebookFile;
use crate::lifecycle::target::Target;
use crate::project::Project;
use args::{Common, take_notebook};
use commands::AnyCommand;
use render::hints::as_typed;
use render::{print, problem};

/// What every command has beside its own arguments.
struct Context {
    /// What its requests carry.
    caller: Caller,
    /// The notebook as the command line names it, if it does: hints name it too.
    typed: Option<PathBuf>,
    /// What happened meanwhile, once the answer tells it.
    meanwhile: OnceCell<Meanwhile>,
    /// Whether the command itself has told how the kernel ended.
    told_death: Cell<bool>,
}

impl Context {
    fn of(command: &dyn AnyCommand, common: Common) -> Result<Self, Problem> {
        let here = std::env::current_dir().map_err(|error| {
            let problem = Problem::failed("tell the working directory", &error);
            problem.hint("cd to a folder that exists")
        })?;
        let typed = command.notebook().or_else(|| common.notebook.clone());
        let caller = Caller::of(Given {
            in_words: typed.clone(),
            notebook: common.notebook,
            name: common.name,
            on_terminal: io::stdout().is_terminal(),
            here,
            command: as_typed(&command.summary()),
            tell: print::note,
        })?;
        Ok(Self {
            caller,
            typed,
            meanwhile: OnceCell::new(),
            told_death: Cell::new(false),
        })
    }

    /// Returns the id of the actor that the command acts as.
    fn by(&self) -> &str {
        self.caller.by()
    }

    /// Returns the session that a command means.
    async fn target(&self, notebook: Option<PathBuf>) -> Result<Target, Problem> {
        self.caller.target(notebook).await
    }

    /// Returns the notebook that a command means: the first of its words where that is one, which is
    /// taken from them, else the one that its caller means.
    async fn page(&self, words: &mut Vec<String>) -> Result<NotebookFile, Problem> {
        self.caller.page(take_notebook(words)).await
    }

    /// Says which notebook the command acts on.
    fn concerns(&self, project: &Project, key: &str) {
        self.caller.concerns(project, key);
    }

    /// Returns what happened beside the command.
    fn meanwhile(&self) -> &Meanwhile {
        self.meanwhile.get_or_init(|| self.caller.meanwhile())
    }

    /// Prints the command's answer as one JSON object, with what happened meanwhile.
    fn answer(&self, answer: &impl Answer) -> io::Result<()> {
        print::json(&Envelope::of(answer, self.meanwhile()))
    }

    /// Takes what the command has told: how the kernel ended may be in it.
    fn has_told(&self, notes: &[String]) {
        let death = self.caller.kernel_ended();
        let told = death.is_some_and(|death| notes.iter().any(|it| it.contains(&death.text)));
        self.told_death.set(self.told_death.get() || told);
    }

    /// Returns the `.nb` of the command's notebook that is passed over, since this user's `nb` did not
    /// make it; none where another program left word of a kernel there, which is used.
    fn passed_over(&self) -> Option<PathBuf> {
        let concerned = self.caller.concerned();
        let notebook = concerned.map(|it| it.project.notebook(&it.key));
        let notebook = notebook.as_deref().or(self.typed.as_deref());
        let from = notebook.or(self.caller.notebook.as_deref());
        Project::passed_over(from.unwrap_or(&self.caller.here))
    }

    /// Ends a command: tells what others did meanwhile, and what went wrong.
    fn end(&self, done: Result<ExitCode, Problem>, json: bool) -> ExitCode {
        let commands = self.commands();
        let done = done.map_err(|problem| problem::completed(problem, &commands));
        let said = |death: &KernelEnded| match &done {
            Ok(_) => self.told_death.get(),
            Err(problem) => self.told_death.get() || problem.message.contains(&death.text),
        };
        if let Some(dir) = self.passed_over() {
            print::note(&format!(
                "{} was not made by your nb on this machine: it is not used; what it holds: nb adopt {}",
                dir.display(),
                crate::kernel::shell::quote(dir.parent().unwrap_or(&dir))
            ));
        }
        let went_well = done.is_ok();
        let death = self.caller.kernel_ended();
        let death = death.filter(|death| !json && !said(death));
        let code = match done {
            Ok(code) => code,
            Err(problem) if json => {
                let _ = self.answer(&ProblemAnswer { error: &problem });
                problem::code(problem.kind)
            }
            Err(problem) => problem::report(&problem, false),
        };
        if !json {
            if let Some(death) = death {
                // A problem has said what to do about it.
                let next = commands.complete(&format!(" next: {}", death.next));
                let next = if went_well { &*next } else { "" };
                print::note(&format!("{}{next}", death.text));
            }
            let meanwhile = self.meanwhile();
            for lost in &meanwhile.lost {
                print::note(&commands.complete(&lost.text));
            }
            if let Some(news) = &meanwhile.notebook {
                for line in overwritten_words(&news.notifications.overwritten) {
                    print::note(&commands.complete(&line));
                }
                for entry in &news.notifications.since {
                    print::note(&entry.text);
                }
            }
        }
        if let Some(meanwhile) = self.meanwhile.get() {
            self.caller.delivered(meanwhile);
        }
        code
    }
}

/// Runs `nb` with this process's arguments.
pub fn main() -> ExitCode {
    let (common, command) = args::read(std::env::args_os().collect());
    if let Some(code) = command.alone() {
        return code;
    }
    let json = command.json();
    let context = match Context::of(&*command, common) {
        Ok(context) => context,
        Err(problem) => return problem::report(&problem, json),
    };
    let done = runtime().and_then(|runtime| {
        runtime.block_on(on_this_thread(async {
            context.caller.notice().await;
            command.run(&context).await
        }))
    });
    context.end(done, json)
}

/// Says whether the runtime can wait for sockets and signals.
///
/// It does so with a pair of sockets, and panics where an agent's sandbox allows none. No socket
/// is used there, see `lifecycle::liveness`.
fn can_wait() -> bool {
    std::os::unix::net::UnixStream::pair().is_ok()
}

fn runtime() -> Result<tokio::runtime::Runtime, Problem> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time();
    if can_wait() {
        builder.enable_io();
    }
    builder
        .build()
        .map_err(|error| Problem::failed("start", &error))
}
