//! `nb run`: scratch code on the shared kernel.

use std::cell::{Cell, RefCell};
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::fault::{Fault, Kind};
use super::outputs::{self, Text};
use super::terminal::{CtrlC, Lines, can_ask};
use super::{Context, print};
use crate::kernel::python::quote;
use crate::ops::company::whose;
use crate::ops::executions::fold::Outputs;
use crate::ops::executions::run::{Audience, Event, Options, Output, Prompt, Ran, Status};
use crate::project;

/// How many characters of output are printed.
const LIMIT: usize = 6000;

/// Run code on the notebook's kernel, outside the notebook
///
/// The variables stay in the kernel; the code and its outputs are written nowhere. Waits until
/// others' cells are done, runs, and prints the outputs once at the end.
#[derive(Args, Debug)]
pub(super) struct Run {
    /// The code, or `-` to read it from stdin; a notebook may stand before it
    #[arg(required = true, num_args = 1..=2, value_name = "CODE")]
    words: Vec<String>,
    /// Print outputs as they come, whole
    #[arg(long, conflicts_with = "json")]
    stream: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    /// Print at most this many characters, head and tail; 0 is no limit
    #[arg(long, value_name = "CHARACTERS", default_value_t = LIMIT)]
    limit: usize,
    /// Wait at most this long, 0 is for ever; the code then runs on in the kernel
    #[arg(long, value_name = "SECONDS", env = "NB_TIMEOUT")]
    timeout: Option<f64>,
}

/// The arguments as they are meant.
struct Meant {
    notebook: Option<PathBuf>,
    options: Options,
    limit: Option<usize>,
}

impl Run {
    fn meant(&self, context: &Context) -> Result<Meant, Fault> {
        let (notebook, code) = match self.words.as_slice() {
            [code] => (None, code),
            [notebook, code] if notebook.ends_with(".ipynb") => (Some(notebook.into()), code),
            _ => {
                let text = "one piece of code is wanted; put it in quotes";
                return Err(Fault::new(Kind::Usage, text));
            }
        };
        let from_stdin = code == "-";
        let code = if from_stdin {
            let mut text = String::new();
            io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| Fault::failed("read the code from stdin", &error))?;
            text
        } else {
            code.clone()
        };
        let wait = match context.wait(self.timeout)? {
            Some(wait) => wait,
            None if io::stdout().is_terminal() => None,
            None => Some(super::PATIENCE),
        };
        Ok(Meant {
            notebook,
            options: Options {
                code,
                cell: None,
                wait,
                asks: !from_stdin && can_ask(),
            },
            limit: (self.limit > 0).then_some(self.limit),
        })
    }
}

impl Run {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let meant = self.meant(context)?;
        let target = context.target(meant.notebook, "nb run CODE").await?;
        let terminal = Terminal {
            ctrl_c: CtrlC::listen().map_err(|error| Fault::failed("handle Ctrl-C", &error))?,
            lines: Lines::new(),
            streams: Cell::new(self.stream),
            unsaid: (meant.options.asks && !self.json).then(RefCell::default),
            limit: meant.limit,
        };
        let (project, key, session) = (&target.project, &target.key, &target.session);
        if matches!(
            session.status,
            project::Status::Stopped | project::Status::Died
        ) {
            let what = if session.status == project::Status::Died {
                "died"
            } else {
                "was shut down"
            };
            return Err(
                Fault::new(Kind::NoKernel, format!("the kernel of {key} {what}"))
                    .hint(format!("nb open {}", quote(&session.notebook))),
            );
        }
        let ran = crate::ops::executions::run::run(
            project,
            key,
            session,
            &context.by,
            &meant.options,
            &terminal,
        )
        .await?;
        let code = exit_code(ran.status);
        let _ = tell(&self, ran, &terminal, &session.notebook, context);
        Ok(ExitCode::from(code))
    }
}

/// The terminal that the command runs in.
struct Terminal {
    ctrl_c: CtrlC,
    lines: Lines,
    /// Outputs are printed as they come.
    streams: Cell<bool>,
    /// Until then: what a question would leave unsaid. None where no question may print.
    unsaid: Option<RefCell<Outputs>>,
    limit: Option<usize>,
}

impl Terminal {
    /// Shows what the code has said, since its question may make no sense without.
    fn catch_up(&self) -> io::Result<()> {
        let Some(unsaid) = &self.unsaid else {
            return Ok(());
        };
        self.streams.set(true);
        let outputs = unsaid.take().read();
        show(&outputs::text(&outputs, self.limit))
    }
}

impl Audience for Terminal {
    fn sees(&self, event: &Event) {
        let written = match event {
            Event::Told(told) if self.streams.get() => {
                told.output().map_or(Ok(()), |it| stream(&it))
            }
            Event::Prompt(_) if !self.streams.get() => self.catch_up(),
            event => {
                if let Some(unsaid) = self.unsaid.as_ref().filter(|_| !self.streams.get()) {
                    unsaid.borrow_mut().take(event);
                }
                Ok(())
            }
        };
        if written.is_err() {
            // Nobody reads any more: a quiet end. The code runs on in the kernel.
            std::process::exit(0);
        }
    }

    async fn answers(&self, prompt: Prompt) -> Option<String> {
        self.lines.ask(&prompt.prompt, prompt.password).await
    }

    fn waits(&self, behind: Option<&project::past::Cell>) {
        print::note(&match behind {
            Some(cell) => format!(
                "waiting behind {}, running for {}",
                whose(cell),
                print::age(cell.since)
            ),
            None => "waiting: the kernel is busy".to_owned(),
        });
    }

    async fn interrupts(&self) {
        self.ctrl_c.pressed().await;
    }
}

/// Prints one output as it comes.
fn stream(output: &Output) -> io::Result<()> {
    match output {
        Output::Stream(it) if it.name == "stderr" => err(&it.text),
        Output::Stream(it) => out(&it.text),
        Output::Display(it) | Output::Result(it) => out(&format!("{}\n", outputs::bundle(it))),
        Output::Error(it) => err(&format!("{}\n", outputs::traceback(it))),
        // What it replaces is printed already.
        Output::Update(_) => Ok(()),
    }
}

/// Prints folded outputs.
fn show(text: &Text) -> io::Result<()> {
    err(&text.err)?;
    out(&text.out)
}

/// Writes to stdout at once; colours only on a terminal.
fn out(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn err(text: &str) -> io::Result<()> {
    let mut stderr = anstream::stderr().lock();
    stderr.write_all(text.as_bytes())?;
    stderr.flush()
}

/// Prints what came of it, outputs that were not streamed included.
fn tell(
    run: &Run,
    mut ran: Ran,
    terminal: &Terminal,
    notebook: &Path,
    context: &Context,
) -> io::Result<()> {
    let told = told(&ran, notebook);
    if run.json {
        outputs::for_json(&mut ran.outputs, terminal.limit);
        ran.notes.extend(told);
        return context.answer(serde_json::to_value(&ran)?);
    }
    if !terminal.streams.get() {
        show(&outputs::text(&ran.outputs, terminal.limit))?;
    }
    for note in ran.notes.iter().chain(&told) {
        err(&format!("{note}\n"))?;
    }
    Ok(())
}

/// Says what the exit code means, where the outputs do not.
fn told(ran: &Ran, notebook: &Path) -> Option<String> {
    let seconds = ran.took.as_secs_f64();
    let notebook = quote(notebook);
    match ran.status {
        Status::Error if asked_nobody(ran) => Some(
            "nobody is here to answer input(): run it on a terminal, or put the value into the \
             code"
                .to_owned(),
        ),
        Status::Ok | Status::Error | Status::Interrupted => None,
        Status::StillRunning => Some(format!(
            "still running after {seconds:.0} s: the code runs on in the kernel, what it prints \
             from now on is not kept\nnext: nb interrupt -n {notebook}"
        )),
        Status::Busy => Some(format!(
            "the kernel ran others' cells for {seconds:.0} s; the code was not sent\n\
             next: nb status | nb run --timeout SECONDS …"
        )),
        Status::Aborted => Some(
            "another client's failing cell emptied the kernel's queue each time; the code did \
             not run"
                .to_owned(),
        ),
        Status::NoReply => Some("the kernel went idle without a reply".to_owned()),
        Status::KernelDied => Some(format!(
            "the variables are gone\nnext: nb status -n {notebook} | nb log --kernel"
        )),
    }
}

/// Says whether the code failed because it asked where nobody can answer.
fn asked_nobody(ran: &Ran) -> bool {
    ran.outputs
        .iter()
        .any(|output| matches!(output, Output::Error(it) if it.ename == "StdinNotImplementedError"))
}

/// What each end means to the caller.
fn exit_code(status: Status) -> u8 {
    match status {
        Status::Ok => 0,
        Status::NoReply => 1,
        Status::Error => 3,
        Status::StillRunning => 4,
        Status::Busy | Status::Aborted => 5,
        Status::KernelDied => 6,
        Status::Interrupted => 130,
    }
}
