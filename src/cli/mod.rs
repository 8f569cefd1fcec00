//! The `nb` command line: parsing, words, colours and exit codes.
//!
//! Arguments are read twice: as typed (clap's structs), and as the requests of `api`. A command
//! parses, calls one function of `api`, prints its answer, and picks the exit code. Data goes to stdout,
//! everything else to stderr.

mod args;
mod commands;
mod parser;
mod render;
mod terminal;

use std::cell::{Cell, OnceCell};
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::api::caller::{Caller, CallerSettings};
use crate::api::envelope::{Answer, Envelope, KernelEnded, Meanwhile, ProblemAnswer};
use crate::api::problem::{Problem, ProblemKind};
use crate::hint;
use crate::lifecycle::target::unused_folder;
use crate::project::Project;
use crate::text;
use parser::CommandLine;
use render::hints::{Commands, as_typed};
use render::{print, problem};

/// The parts that every command has beside its own arguments.
struct Context {
    /// The caller of the command's requests.
    caller: Caller,
    /// Whether the answer is to be one JSON object.
    json: bool,
    /// The notebook as the command line names it, if it does. Hints name it in the same way.
    typed: Option<PathBuf>,
    /// The name that the command line gives the actor.
    name: Option<String>,
    /// What happened meanwhile, once it has been read.
    meanwhile: OnceCell<Meanwhile>,
    /// Whether the command itself has printed how the kernel ended.
    death_printed: Cell<bool>,
    /// Whether part of the answer could not be printed.
    is_cut: Cell<bool>,
}

impl Context {
    fn of(line: &mut CommandLine) -> Result<Self, Problem> {
        let working_dir = std::env::current_dir().map_err(|error| {
            let problem = Problem::failed("tell the working directory", &error);
            problem.hint("cd to a folder that exists")
        })?;
        let typed = line.command.take_notebook();
        let typed = typed.or_else(|| line.common.notebook.take());
        let number = typed
            .as_ref()
            .and_then(|it| it.to_str()?.parse::<u64>().ok());
        if let Some(number) = number {
            let text = format!("-n names a notebook, and {number} is none");
            let problem = Problem::new(ProblemKind::Usage, text);
            return Err(problem.hint(format!("nb log --lines {number} shows as many lines")));
        }
        let name = line.common.name.take();
        let caller = Caller::of(CallerSettings {
            notebook: typed.clone(),
            name: name.clone(),
            on_terminal: io::stdout().is_terminal(),
            working_dir,
            command: as_typed(&line.summary),
            progress: print::note,
            gets_json: line.json,
            has_own_thread: true,
        })?;
        Ok(Self {
            caller,
            json: line.json,
            typed,
            name,
            meanwhile: OnceCell::new(),
            death_printed: Cell::new(false),
            is_cut: Cell::new(false),
        })
    }

    /// Returns what happened beside the command. It is read only once.
    fn meanwhile(&self) -> &Meanwhile {
        self.meanwhile.get_or_init(|| self.caller.meanwhile())
    }

    /// Returns how the kernel of the command's notebook ended, if it did and no other was started.
    fn kernel_ended(&self) -> Option<&KernelEnded> {
        let notebook = self.meanwhile().notebook.as_ref()?;
        notebook.kernel_ended.as_ref()
    }

    /// Prints the command's answer: with `text`, or as one JSON object that includes what happened
    /// meanwhile.
    fn print<A: Answer>(
        &self,
        answer: &A,
        text: impl FnOnce(&A) -> io::Result<()>,
    ) -> Result<ExitCode, Problem> {
        self.printed(&match self.json {
            true => self.print_json(answer),
            false => text(answer),
        })
    }

    /// Prints the command's answer as one JSON object, with what happened meanwhile.
    fn print_json(&self, answer: &impl Answer) -> io::Result<()> {
        print::json(&Envelope::of(answer, self.meanwhile()))
    }

    /// Records whether the answer was printed. A failure has been reported already, and does not change the
    /// exit code of a command that has done its work nevertheless; see [`CommandLine::only_prints`].
    fn printed(&self, printed: &io::Result<()>) -> Result<ExitCode, Problem> {
        self.is_cut.set(self.is_cut.get() || printed.is_err());
        Ok(ExitCode::SUCCESS)
    }

    /// Records notes that the command has printed, which may say how the kernel ended.
    fn note_printed(&self, notes: &[String]) {
        let death = self.kernel_ended();
        let is_printed = death.is_some_and(|death| notes.iter().any(|it| it.contains(&death.text)));
        self.death_printed
            .set(self.death_printed.get() || is_printed);
    }

    /// Returns the `.nb` of the command's notebook that is ignored because this user's `nb` did not make
    /// it. A `.nb` in which another program recorded a kernel is used, so it is not returned.
    fn ignored_folder(&self) -> Option<PathBuf> {
        let target = self.caller.target_notebook();
        let notebook = target.map(|it| it.project.notebook(&it.key));
        let notebook = notebook.as_deref().or(self.typed.as_deref());
        let from = notebook.or(self.caller.notebook.as_deref());
        Project::ignored_folder(from.unwrap_or(&self.caller.working_dir))
    }

    /// Ends a command: prints its problem, if any, and what others did meanwhile.
    fn end(&self, result: Result<ExitCode, Problem>) -> ExitCode {
        let commands = self.commands();
        let result = result.map_err(|problem| problem::completed(problem, &commands));
        if let Some(dir) = self.ignored_folder() {
            print::note(&unused_folder(&dir));
        }
        let code = match &result {
            Ok(code) => *code,
            Err(problem) if self.json => {
                let _ = self.print(&ProblemAnswer { error: problem }, |_| Ok(()));
                problem::code(problem.kind)
            }
            Err(problem) => problem::report(problem, false),
        };
        if !self.json {
            self.tell_meanwhile(&commands, result.as_ref().err());
        }
        if let Some(meanwhile) = self.meanwhile.get().filter(|_| !self.is_cut.get()) {
            self.caller.delivered(meanwhile);
        }
        code
    }

    /// Prints what happened meanwhile, without the parts that the problem has printed already.
    fn tell_meanwhile(&self, commands: &Commands, problem: Option<&Problem>) {
        let is_told = |death: &&KernelEnded| {
            self.death_printed.get()
                || problem.is_some_and(|problem| problem.message.contains(&death.text))
        };
        if let Some(death) = self.kernel_ended().filter(|death| !is_told(death)) {
            // The problem has hints of its own.
            let next = match problem {
                None => commands.complete(&hint![" next: ", death.next.clone()]),
                Some(_) => String::new(),
            };
            print::note(&format!("{}{next}", death.text));
        }
        let lines = text::meanwhile::lines(self.meanwhile());
        let lines = lines.iter().map(|line| commands.complete(line));
        lines.for_each(|line| print::note(&line));
    }
}

/// Returns the parser of all commands, for pages of the manual and completion scripts.
pub fn parser() -> clap::Command {
    parser::parser()
}

/// Runs `nb` with this process's arguments.
pub fn main() -> ExitCode {
    let mut line = parser::read(&std::env::args_os().collect::<Vec<_>>());
    if let Some(code) = line.command.alone(parser::parser) {
        return code;
    }
    let context = match Context::of(&mut line) {
        Ok(context) => context,
        Err(problem) => return problem::report(&problem, line.json),
    };
    let result = runtime().and_then(|runtime| {
        runtime.block_on(async {
            context.caller.notice().await;
            line.command.run(&context).await
        })
    });
    let is_lost = line.only_prints && context.is_cut.get();
    let result = result.map(|code| if is_lost { ExitCode::FAILURE } else { code });
    context.end(result)
}

/// Says whether the runtime can wait for sockets and signals.
///
/// Tokio waits for them with a socket pair, and panics if an agent's sandbox forbids sockets. In such a
/// sandbox `nb` uses no sockets, see `lifecycle::liveness`.
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
