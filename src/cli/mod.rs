//! The `nb` command line, one file a command; printing lives only here.
//!
//! Arguments are read twice: as typed (clap's structs) and as meant (`Context`, and what each
//! command makes of its own). Data goes to stdout, everything else to stderr. What goes wrong is
//! a `fault::Fault`: what was being done, why it failed, what mends it, and the exit code.

mod adopt;
mod apply;
mod cell;
mod cells;
mod change;
mod choosing;
mod clear;
mod columns;
mod commands;
mod conflict;
mod consent;
mod demo;
mod diff;
mod doctor;
mod edit;
mod exec;
mod fault;
mod fmt;
mod follow;
mod gc;
mod harmless;
mod help;
mod insert;
mod interrupt;
mod jobs;
mod kept;
mod kernels;
mod log;
mod metadata;
mod moment;
mod move_cell;
mod news;
mod open;
mod outputs;
mod page;
mod preview;
mod print;
mod progress;
mod quick;
mod replay;
mod report;
mod restart;
mod restore;
mod rm;
mod run;
mod sandboxing;
mod save;
mod search;
mod serve;
mod shutdown;
mod source;
mod status;
mod status_watch;
mod tail;
mod terminal;
mod undo;
mod until;
mod vars;
mod versions;
mod which;

use std::cell::{Cell, OnceCell};
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use serde_json::{Value, json};

use crate::activity::actor::Actor;
use crate::activity::since::{self, Doings};
use crate::editing::history::{self, Overwritten};
use crate::execution::lost::{self, Lost};
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::death;
use crate::lifecycle::target::{self, Target};
use crate::project::{Config, ConfigError, Ended, Project, Status};
use commands::as_typed;
use fault::Fault;

/// People and AI agents on one live Jupyter kernel and one notebook
///
/// `nb open analysis.ipynb` keeps a kernel alive for the notebook; `nb run` uses it from the
/// command line, and VS Code and JupyterLab join it by choosing the kernel "nb shared kernel".
#[derive(Debug, Parser)]
#[command(name = "nb", version, after_help = EXIT_CODES, max_term_width = 100, arg_required_else_help = true, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// The options of every command.
#[derive(Debug, Args)]
struct Common {
    /// The notebook that the command means; without it, the only open one [env: NB_NOTEBOOK]
    // An id of its own: a command's positional NOTEBOOK would hide a global one of the same id.
    #[arg(short = 'n', long = "notebook", id = "global notebook", global = true, value_name = "NOTEBOOK", help_heading = GLOBAL)]
    notebook: Option<PathBuf>,
    /// Act under this name [env: NB_AS]
    #[arg(long = "as", id = "global name", global = true, value_name = "NAME", help_heading = GLOBAL)]
    name: Option<String>,
}

const GLOBAL: &str = "Options of every command";

const EXIT_CODES: &str = "\
nb help all lists all commands, nb help COMMAND tells more of one, with examples.

Exit codes: 0 done · 1 nb failed · 2 usage · 3 the code raised · 4 still running (no failure) ·
5 conflict or refused · 6 no kernel, or it died · 7 the code asks (no failure) · 130 interrupted

A command means the notebook that is named first, else -n, else NB_NOTEBOOK, else the only one
that is open in the project at or above the working directory.";

// The first screen of the help shows those that one begins with, `nb help all` the rest. The other
// names are those of nb-cli and of the shell.
#[derive(Debug, Subcommand)]
enum Command {
    Open(open::Open),
    Status(status::Status),
    #[command(hide = true)]
    Interrupt(interrupt::Interrupt),
    #[command(hide = true)]
    Restart(restart::Restart),
    Shutdown(shutdown::Shutdown),
    #[command(hide = true)]
    Gc(gc::Gc),
    #[command(hide = true)]
    Adopt(adopt::Adopt),
    #[command(hide = true)]
    Kernels(kernels::Kernels),
    #[command(hide = true)]
    Doctor(doctor::Doctor),
    #[command(hide = true)]
    Serve(serve::Serve),
    #[command(hide = true)]
    Unserve(serve::Unserve),
    #[command(aliases = ["list", "ls"])]
    Cells(cells::Cells),
    Cell(cell::Cell),
    #[command(alias = "add")]
    Insert(insert::Insert),
    #[command(alias = "update")]
    Edit(edit::Edit),
    #[command(aliases = ["remove", "delete"])]
    Rm(rm::Rm),
    #[command(hide = true, alias = "mv")]
    Move(move_cell::MoveCell),
    #[command(hide = true)]
    Clear(clear::Clear),
    #[command(aliases = ["grep", "find"])]
    Search(search::Search),
    #[command(hide = true)]
    Diff(diff::Diff),
    #[command(hide = true)]
    Apply(apply::Apply),
    Undo(undo::Undo),
    #[command(hide = true)]
    Restore(restore::Restore),
    #[command(hide = true)]
    Save(save::Save),
    #[command(hide = true)]
    Fmt(fmt::Fmt),
    #[command(alias = "execute")]
    Exec(exec::Exec),
    Run(run::Run),
    #[command(hide = true)]
    Vars(vars::Vars),
    Wait(jobs::Wait),
    #[command(hide = true)]
    Jobs(jobs::Jobs),
    #[command(hide = true)]
    Reply(jobs::Reply),
    #[command(hide = true)]
    Log(log::Log),
    #[command(hide = true)]
    Demo(demo::Demo),
    /// Print a completion script for a shell
    ///
    /// For bash: nb completions bash > ~/.local/share/bash-completion/completions/nb
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    Help(help::Help),
}

/// What every command is told beside its own arguments.
struct Context {
    /// Named with `-n`, else, where `NB_NOTEBOOK` names none, by the project's settings.
    notebook: Option<PathBuf>,
    /// Who asks.
    by: String,
    /// Whether that is a person at a terminal: [`Actor::is_person`].
    is_person: bool,
    /// The working directory.
    here: PathBuf,
    /// The project that the command means: its notebook's, else the one at or above the working
    /// directory.
    project: Option<Project>,
    /// How many seconds to wait where the command line does not say.
    timeout: Option<f64>,
    /// The notebook as the command line names it, if it does: hints name it too.
    typed: Option<PathBuf>,
    /// The notebook that the command acts on, by its own key, once that is known.
    concerns: OnceCell<(Project, String)>,
    /// What others did there, once it was asked for: it is told only once.
    since: OnceCell<Vec<Doings>>,
    /// Recorders that were killed, as far as this name was not told.
    lost: OnceCell<Vec<Lost>>,
    /// Edits of this name that saves of others wiped out; told only once, too.
    overwritten: OnceCell<Vec<Overwritten>>,
    /// Whether the command itself has told how the kernel went.
    told_death: Cell<bool>,
}

/// How a kernel went.
struct Death {
    text: String,
    /// The command that starts another.
    next: String,
    ended: Ended,
}

impl Context {
    /// Returns the session that a command means.
    async fn target(&self, positional: Option<PathBuf>, command: &str) -> Result<Target, Fault> {
        let given = positional.or_else(|| self.notebook.clone());
        let target = target::resolve(given.as_deref(), &self.here, &ProcessVariables)
            .await
            .map_err(|error| Fault::of_target(&error, &as_typed(command)))?;
        self.concerns(&target.project, &target.notebook_key);
        Ok(target)
    }

    /// Says which notebook the command acts on: what others did there is told at its end.
    fn concerns(&self, project: &Project, key: &str) {
        let _ = self.concerns.set((project.clone(), key.to_owned()));
    }

    /// Returns what others did on the command's kernel since this name's last command.
    fn since(&self) -> &[Doings] {
        self.since.get_or_init(|| match self.concerns.get() {
            Some((project, key)) => since::look(project, key, &self.by),
            None => Vec::new(),
        })
    }

    /// Returns this name's edits of the command's notebook that saves of others wiped out.
    fn overwritten(&self) -> &[Overwritten] {
        self.overwritten.get_or_init(|| match self.concerns.get() {
            Some((project, key)) => history::overwritten(project, key, &self.by),
            None => Vec::new(),
        })
    }

    /// Notices recorders that were killed in the project that the command means, and has others go on
    /// with what they recorded.
    async fn notice(&self) {
        if let Some(project) = &self.project {
            let _ = self.lost.set(lost::notice(project, &self.by).await);
        }
    }

    /// Prints the command's answer as one JSON object, with what others did meanwhile.
    fn answer(&self, mut answer: Value) -> io::Result<()> {
        if let Some(lost) = self.lost.get().filter(|lost| !lost.is_empty()) {
            answer["lost"] = json!(lost);
        }
        if let Some((project, key)) = self.concerns.get() {
            if answer.get("kernel_generation").is_none() {
                let state = project.state().ok();
                let session = state.and_then(|state| state.session(&state.owner_key(key)));
                answer["kernel_generation"] = json!(session.map(|it| it.generation));
            }
            if let Some(death) = self.death() {
                answer["kernel_ended"] =
                    json!({ "text": death.text, "next": death.next, "how": death.ended });
            }
            answer["since"] = json!(self.since());
            answer["overwritten"] = json!(self.overwritten());
        }
        print::json(&answer)
    }

    /// Returns how the kernel of the command's notebook went, if it did and no other was started.
    fn death(&self) -> Option<Death> {
        let (project, key) = self.concerns.get()?;
        let session = project.state().ok()?.session(key)?;
        let ended = session.ended.filter(|_| session.status == Status::Died)?;
        Some(Death {
            text: death::words(key, &ended),
            next: death::mend(&project.notebook(key)),
            ended,
        })
    }

    /// Takes what the command has told: how the kernel went may be in it.
    fn has_told(&self, notes: &[String]) {
        let death = self.death();
        let told = death.is_some_and(|death| notes.iter().any(|it| it.contains(&death.text)));
        self.told_death.set(self.told_death.get() || told);
    }

    /// Returns the `.nb` of the command's notebook that is passed over, since this user's `nb` did not
    /// make it; none where another program left word of a kernel there, which is used.
    fn passed_over(&self) -> Option<PathBuf> {
        let concerned = self.concerns.get();
        let notebook = concerned.map(|(project, key)| project.notebook(key));
        let notebook = notebook.as_deref().or(self.typed.as_deref());
        let from = notebook.or(self.notebook.as_deref()).unwrap_or(&self.here);
        Project::passed_over(from)
    }

    /// Ends a command: tells what others did meanwhile, and what went wrong.
    fn end(&self, done: Result<ExitCode, Fault>, json: bool) -> ExitCode {
        let commands = self.commands();
        let done = done.map_err(|fault| fault.completed(&commands));
        let said = |death: &Death| match &done {
            Ok(_) => self.told_death.get(),
            Err(fault) => self.told_death.get() || fault.says(&death.text),
        };
        if let Some(dir) = self.passed_over() {
            print::note(&format!(
                "{} was not made by your nb on this machine: it is not used; what it holds: nb adopt {}",
                dir.display(),
                crate::kernel::shell::quote(dir.parent().unwrap_or(&dir))
            ));
        }
        let went_well = done.is_ok();
        let death = self.death().filter(|death| !json && !said(death));
        let code = match done {
            Ok(code) => code,
            Err(fault) if json => {
                let _ = self.answer(fault.object());
                fault.code()
            }
            Err(fault) => fault.report(false),
        };
        if !json {
            if let Some(death) = death {
                // A fault has said what mends it.
                let next = commands.complete(&format!(" next: {}", death.next));
                let next = if went_well { &*next } else { "" };
                print::note(&format!("{}{next}", death.text));
            }
            for lost in self.lost.get().into_iter().flatten() {
                print::note(&commands.complete(&lost.text));
            }
            for line in history::words(self.overwritten()) {
                print::note(&commands.complete(&line));
            }
            for doings in self.since() {
                print::note(&doings.text);
            }
        }
        if let (Some(lost), Some((project, key))) = (self.overwritten.get(), self.concerns.get()) {
            history::told(project, key, lost);
        }
        code
    }
}

/// Runs `nb` with this process's arguments.
pub fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let cli = quick::read(&arguments).unwrap_or_else(|| Cli::parse_from(arguments));
    let json = cli.command.json();
    let command = match cli.command {
        // They make their own runtime, or need none.
        Command::Demo(demo) => return demo.main(),
        Command::Help(help) => return help.main(),
        Command::Completions { shell } => {
            // Through a buffer: the generator panics where it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut help::unhidden(), "nb", &mut script);
            let _ = print::raw(&script);
            return ExitCode::SUCCESS;
        }
        command => command,
    };
    let context = match context(&command, cli.common) {
        Ok(context) => context,
        Err(fault) => return fault.report(json),
    };
    let done = runtime().and_then(|runtime| {
        runtime.block_on(async {
            context.notice().await;
            command.run(&context).await
        })
    });
    context.end(done, json)
}

impl Command {
    async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        match self {
            Self::Open(open) => open.run(context).await,
            Self::Exec(exec) => exec.run(context).await,
            Self::Run(run) => run.run(context).await,
            Self::Vars(vars) => vars.run(context).await,
            Self::Wait(wait) => wait.run(context).await,
            Self::Jobs(jobs) => jobs.run(context).await,
            Self::Reply(reply) => reply.run(context).await,
            Self::Status(status) => status.run(context).await,
            Self::Interrupt(interrupt) => interrupt.run(context).await,
            Self::Gc(gc) => gc.run(context).await,
            Self::Restart(restart) => restart.run(context).await,
            Self::Shutdown(shutdown) => shutdown.run(context).await,
            Self::Adopt(adopt) => adopt.run(context),
            Self::Kernels(kernels) => kernels.run(context),
            Self::Doctor(doctor) => doctor.run(context),
            Self::Serve(serve) => serve.run(context),
            Self::Unserve(unserve) => unserve.run(context),
            Self::Log(log) => log.run(context).await,
            Self::Cells(it) => it.run(context).await,
            Self::Cell(it) => it.run(context).await,
            Self::Insert(it) => it.run(context).await,
            Self::Edit(it) => it.run(context).await,
            Self::Rm(it) => it.run(context).await,
            Self::Move(it) => it.run(context).await,
            Self::Clear(it) => it.run(context).await,
            Self::Search(it) => it.run(context).await,
            Self::Diff(it) => it.run(context).await,
            Self::Apply(it) => it.run(context).await,
            Self::Save(it) => it.run(context).await,
            Self::Undo(it) => it.run(context).await,
            Self::Restore(it) => it.run(context).await,
            Self::Fmt(it) => it.run(context).await,
            Self::Demo(_) | Self::Completions { .. } | Self::Help(_) => {
                unreachable!("main has run them")
            }
        }
    }

    /// Returns the notebook that stands among the command's own words, if one does.
    fn notebook(&self) -> Option<PathBuf> {
        let path = match self {
            Self::Open(it) => it.notebook.as_ref(),
            Self::Status(it) => it.notebook.as_ref(),
            Self::Restart(it) => it.notebook.as_ref(),
            Self::Shutdown(it) => it.notebook.as_ref(),
            Self::Kernels(it) => it.notebook.as_ref(),
            Self::Doctor(it) => it.notebook.as_ref(),
            Self::Fmt(it) => it.paths.first(),
            _ => None,
        };
        let words: &[String] = match self {
            Self::Interrupt(it) => it.what.as_slice(),
            Self::Cells(it) => &it.words,
            Self::Cell(it) => &it.words,
            Self::Insert(it) => &it.words,
            Self::Edit(it) => &it.words,
            Self::Rm(it) => &it.words,
            Self::Move(it) => &it.words,
            Self::Clear(it) => &it.words,
            Self::Search(it) => &it.words,
            Self::Diff(it) => &it.words,
            Self::Apply(it) => &it.words,
            Self::Undo(it) => &it.words,
            Self::Restore(it) => &it.words,
            Self::Save(it) => &it.words,
            Self::Exec(it) => &it.words,
            Self::Vars(it) => &it.words,
            Self::Jobs(it) => &it.words,
            Self::Log(it) => &it.words,
            // What follows is code.
            Self::Run(it) if it.words.len() > 1 => &it.words,
            _ => &[],
        };
        let mut words = words.iter();
        let is_first = !matches!(self, Self::Jobs(_));
        let word = match is_first {
            true => words.next().filter(|word| word.ends_with(".ipynb")),
            false => words.find(|word| word.ends_with(".ipynb")),
        };
        path.cloned().or_else(|| word.map(PathBuf::from))
    }

    /// Returns whether the answer, and so a fault too, is to be JSON.
    fn json(&self) -> bool {
        match self {
            Self::Open(open) => open.json,
            Self::Exec(exec) => exec.form.json,
            Self::Run(run) => run.form.json,
            Self::Vars(vars) => vars.json,
            Self::Wait(wait) => wait.form.json,
            Self::Jobs(jobs) => jobs.json,
            Self::Reply(reply) => reply.json,
            Self::Status(status) => status.json,
            Self::Interrupt(interrupt) => interrupt.json,
            Self::Gc(gc) => gc.json,
            Self::Restart(restart) => restart.json,
            Self::Shutdown(shutdown) => shutdown.json,
            Self::Adopt(adopt) => adopt.json,
            Self::Kernels(kernels) => kernels.json,
            Self::Doctor(doctor) => doctor.json,
            Self::Serve(serve) => serve.json,
            Self::Unserve(unserve) => unserve.json,
            Self::Log(log) => log.json,
            Self::Cells(it) => it.json,
            Self::Cell(it) => it.json,
            Self::Insert(it) => it.manner.json,
            Self::Edit(it) => it.manner.json,
            Self::Rm(it) => it.manner.json,
            Self::Move(it) => it.manner.json,
            Self::Clear(it) => it.manner.json,
            Self::Search(it) => it.json,
            Self::Diff(it) => it.json,
            Self::Apply(it) => it.manner.json,
            Self::Save(it) => it.json,
            Self::Undo(it) => it.manner.json,
            Self::Restore(it) => it.manner.json,
            Self::Fmt(it) => it.json,
            Self::Demo(_) | Self::Completions { .. } | Self::Help(_) => false,
        }
    }
}

/// How long commands wait that are not told: agents' shells end calls without a word.
const PATIENCE: Duration = Duration::from_secs(45);

impl Context {
    /// Returns how long is to be waited for a kernel; 0 seconds are for ever.
    fn patience(&self, given: Option<f64>) -> Result<Duration, Fault> {
        let for_ever = Duration::from_secs(u64::from(u32::MAX));
        Ok(match self.wait(given)? {
            Some(wait) => wait.unwrap_or(for_ever),
            None => PATIENCE,
        })
    }

    /// Returns how long the user wants to wait: none where nothing is said, `Some(None)` for ever.
    #[allow(
        clippy::option_option,
        reason = "nothing said and no limit are different"
    )]
    fn wait(&self, given: Option<f64>) -> Result<Option<Option<Duration>>, Fault> {
        let Some(seconds) = given.or(self.timeout) else {
            return Ok(None);
        };
        if seconds == 0.0 {
            return Ok(Some(None));
        }
        match Duration::try_from_secs_f64(seconds) {
            Ok(wait) => Ok(Some(Some(wait))),
            Err(_) => {
                let text = format!("--timeout {seconds} is no number of seconds");
                Err(Fault::new(fault::Kind::Usage, text))
            }
        }
    }
}

fn context(command: &Command, common: Common) -> Result<Context, Fault> {
    let here = std::env::current_dir().map_err(|error| {
        Fault::failed("tell the working directory", &error).hint("cd to a folder that exists")
    })?;
    // The settings are those of the notebook's project, wherever the command is typed.
    let given = command.notebook().or_else(|| common.notebook.clone());
    let named = target::named(given.as_deref(), &ProcessVariables);
    let project = Project::find(named.as_deref().unwrap_or(&here));
    let settings = match &project {
        Some(project) => project.settings(),
        None => Config::default().with(|name| std::env::var_os(name)),
    };
    let settings = settings.map_err(|error| {
        let kind = match error {
            ConfigError::Variable { .. } => fault::Kind::Usage,
            _ => fault::Kind::Failed,
        };
        Fault::new(kind, fault::causes(&error))
    })?;
    let on_terminal = io::stdout().is_terminal();
    let configured = settings.name.as_deref();
    let name = common.name.as_deref();
    let typed = given;
    let actor = Actor::of(name, &ProcessVariables, configured, on_terminal);
    // A variable's path counts from here, which whoever resolves it knows; the file's from its
    // project.
    let configured = settings.notebook.filter(|_| named.is_none());
    let root = project.as_ref().map(Project::root);
    let configured = root.and_then(|root| Some(root.join(configured?)));
    Ok(Context {
        notebook: common.notebook.or(configured),
        by: actor.name,
        is_person: actor.is_person,
        here,
        typed,
        project,
        timeout: settings.timeout,
        concerns: OnceCell::new(),
        since: OnceCell::new(),
        lost: OnceCell::new(),
        overwritten: OnceCell::new(),
        told_death: Cell::new(false),
    })
}

/// Says whether the runtime can wait for sockets and signals.
///
/// It does so with a pair of sockets, and panics where an agent's sandbox allows none. No socket
/// is used there, see `lifecycle::life`.
fn can_wait() -> bool {
    std::os::unix::net::UnixStream::pair().is_ok()
}

fn runtime() -> Result<tokio::runtime::Runtime, Fault> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time();
    if can_wait() {
        builder.enable_io();
    }
    builder
        .build()
        .map_err(|error| Fault::failed("start", &error))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_takes_the_global_options() {
        for (command, more) in [
            ("open", ""),
            ("status", ""),
            ("run", "1"),
            ("log", ""),
            ("shutdown", ""),
        ] {
            let words = ["nb", command, "-n", "a.ipynb", "--as", "ada", more];
            let cli = Cli::try_parse_from(words.into_iter().filter(|word| !word.is_empty()))
                .unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(
                cli.common.notebook.as_deref(),
                Some("a.ipynb".as_ref()),
                "{command}"
            );
            assert_eq!(cli.common.name.as_deref(), Some("ada"), "{command}");
        }
    }
}
