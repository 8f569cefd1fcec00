//! `nb open`: opens a notebook with a live kernel.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::api::problem::{ConfirmationQuestion, Problem, ProblemKind};
use crate::api::{
    self, AgentFile, CreatedNotebook, Idle, OpenAnswer, OpenRequest, OpenedNotebook,
    RequestedConfinement, SettingsChange, SpecChange, WantedServer,
};
use crate::cli::Context;
use crate::cli::args::sandbox::{LastingSandbox, Sandboxing};
use crate::cli::args::time::seconds;
use crate::cli::commands::Command;
use crate::cli::commands::shutdown::age;
use crate::cli::render::hints::Commands;
use crate::cli::render::print;
use crate::cli::render::problem;
use crate::cli::terminal::Lines;
use crate::editing::unsaved::AUTO_SAVE;
use crate::kernel::process::limits;
use crate::lifecycle::death;
use crate::notebook::DiffLine;
use crate::project::ResourceLimits;
use crate::text::open::opened;
use crate::text::sandbox::text as sandbox_text;
use crate::wire;

/// Open a notebook: create it if needed, and keep a kernel alive for it
///
/// The kernel belongs to no process: it survives this command, the shell, the agent and the editor,
/// until `nb shutdown`. Where it runs already, this attaches. The kernelspec "nb shared kernel"
/// is installed for VS Code and JupyterLab when it is missing or out of date.
#[derive(Args, Debug)]
pub(crate) struct Open {
    /// The notebook; without it, the one that was opened here before
    pub(crate) notebook: Option<PathBuf>,
    /// Start this kernelspec; without it, the notebook's or the environment's own
    #[arg(long, value_name = "NAME", conflicts_with = "python")]
    kernel: Option<String>,
    /// Start this Python; it needs ipykernel
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Where the Python has no ipykernel, install it, by its environment's own manager
    #[arg(long, conflicts_with_all = ["kernel", "sandbox"])]
    install: bool,
    /// Share the kernel of this notebook of the project, and its variables
    #[arg(long, value_name = "NOTEBOOK", conflicts_with_all = ["kernel", "python", "transport", "sandbox", "no_sandbox"])]
    kernel_of: Option<PathBuf>,
    /// Use a kernel that another program started: a connection file, or its name or a part of it
    /// in Jupyter's runtime folder
    #[arg(long, value_name = "CONNECTION_FILE", conflicts_with_all = ["kernel", "python", "transport", "kernel_of", "sandbox", "no_sandbox"])]
    attach: Option<PathBuf>,
    /// Share no kernel any more: start one of the notebook's own
    #[arg(long, conflicts_with_all = ["kernel_of", "attach"])]
    own: bool,
    /// Run the kernel on this server: one that `nb server add` named; the notebook stays here
    ///
    /// The kernel stays on the server over restarts and `nb shutdown`; --own takes that back. With
    /// --kernel NAME it is a kernelspec of the server.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["python", "transport", "install", "kernel_of", "attach", "own", "memory", "container", "sandbox", "no_kernel"])]
    server: Option<String>,
    /// Use a kernel that runs on the server, by its id: `nb kernels --server NAME` lists them
    ///
    /// `nb` neither restarts nor ends it.
    #[arg(
        long,
        value_name = "ID",
        requires = "server",
        conflicts_with = "kernel"
    )]
    kernel_id: Option<String>,
    /// How the kernel is reached: Unix sockets (ipc, the default) or TCP on this machine
    #[arg(long, value_enum)]
    transport: Option<Transport>,
    /// Let the kernel use at most this much memory, now and after restarts: 800M, 1.5G, 2GiB; none
    /// takes the limit away
    ///
    /// A systemd user scope keeps it to that with all that it starts; where there is none, the
    /// address space of each of its processes is bounded.
    #[arg(long, value_name = "SIZE", value_parser = memory, conflicts_with_all = ["kernel_of", "attach"])]
    memory: Option<ResourceLimits>,
    /// End the kernel when nobody has used it for this long: 30m, 12h, 3d; never takes that back
    ///
    /// The time that the machine sleeps does not count, and a kernel that a front end has joined is
    /// in use.
    #[arg(long, value_name = "AGE", value_parser = idle, conflicts_with_all = ["kernel_of", "attach"])]
    idle_timeout: Option<Idle>,
    /// Trust a folder again that a sandboxed kernel was allowed to write
    ///
    /// What such a kernel may have put there is not run outside a sandbox: an environment, a
    /// kernelspec, modules beside a notebook. Look at it first, or make it anew.
    #[arg(long, value_name = "DIR", conflicts_with = "no_kernel")]
    trust: Vec<PathBuf>,
    /// Start the kernel in a container of this image, by podman or docker
    ///
    /// The image must be there and have ipykernel for its python3, or for --python PATH, a path
    /// inside. The project's folder is mounted at its own path, and the kernel stays in containers
    /// of the image over restarts. It is no sandbox: it may write the project's folder and use the
    /// network. --no-sandbox takes it back.
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["kernel", "transport", "install", "kernel_of", "attach", "no_kernel", "sandbox", "no_sandbox"])]
    container: Option<String>,
    /// Give podman run or docker run this option too: --container-option=--network=none
    #[arg(
        long,
        value_name = "OPTION",
        requires = "container",
        allow_hyphen_values = true
    )]
    container_option: Vec<String>,
    /// Name the shared kernelspec in the notebook, so that JupyterLab starts it by itself
    #[arg(long, conflicts_with = "no_serve")]
    select: bool,
    /// Add two settings to the folder's .vscode/settings.json, or take them out again: save automatically, and hide .nb
    ///
    /// On a terminal, nb open asks once in a folder where VS Code is used.
    #[arg(long, value_enum, value_name = "CHANGE", conflicts_with = "no_kernel")]
    vscode_settings: Option<Settings>,
    /// Do not install the kernelspec for front ends
    #[arg(long)]
    no_serve: bool,
    /// Create the notebook and its project, and start nothing
    #[arg(long, conflicts_with_all = ["kernel", "python", "transport", "kernel_of", "attach", "own", "memory", "idle_timeout", "select", "sandbox", "no_sandbox"])]
    no_kernel: bool,
    /// Start a kernel here although one is recorded on another host or in a container
    #[arg(long)]
    force: bool,
    /// Wait at most this long for the kernel, which goes on starting; 0 is for ever [default: 45]
    #[arg(long, value_name = "SECONDS", env = "NB_TIMEOUT", value_parser = seconds)]
    timeout: Option<f64>,
    #[command(flatten)]
    sandbox: Sandboxing,
    #[command(flatten)]
    lasting: LastingSandbox,
}

/// Parses the duration without use after which a kernel is ended, or `never`.
fn idle(text: &str) -> Result<Idle, String> {
    match text {
        "never" => Ok(Idle::Never),
        _ => match age(text)?.as_secs() {
            0 => Err("wanted is an age such as 30m, 12h or 3d, or never".to_owned()),
            seconds => Ok(Idle::After(seconds)),
        },
    }
}

/// Parses an amount of memory, or `none`.
fn memory(text: &str) -> Result<ResourceLimits, String> {
    let memory_bytes = match text {
        "none" => None,
        _ => Some(limits::read_bytes(text)?),
    };
    Ok(ResourceLimits { memory_bytes })
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Settings {
    Add,
    Remove,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Transport {
    Ipc,
    Tcp,
}

impl Command for Open {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        self.notebook.take()
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        // `open` itself reports how an earlier kernel ended.
        context.death_printed.set(!self.no_kernel);
        let settings = self.vscode_settings;
        let mut request = self.request();
        let answer = loop {
            let problem = match api::open(&context.caller, request.clone()).await {
                Ok(answer) => break answer,
                Err(problem) => problem,
            };
            let Some(ConfirmationQuestion::Kernel(options)) = problem.question.as_deref() else {
                return Err(problem);
            };
            if context.json || !context.can_ask() {
                return Err(problem);
            }
            match ask(&problem, options).await {
                Some(("--kernel", name)) => request.kernel = Some(name.clone()),
                Some((_, python)) => request.python = Some(python.into()),
                None => return Err(Problem::new(ProblemKind::Usage, "none was chosen")),
            }
            // `open` has marked them as trusted.
            request.trust.clear();
        };
        context.print(&answer, |answer| match answer {
            OpenAnswer::Created(answer) => show_created(answer),
            OpenAnswer::Opened(answer) => show_opened(answer, &context.commands()),
        })?;
        if let OpenAnswer::Opened(answer) = &answer
            && let Some(problem) = &answer.spec_problem
        {
            // The kernel runs; only front ends do not find it yet.
            problem::report(problem, false);
        }
        if let OpenAnswer::Opened(answer) = &answer {
            change_settings(context, &answer.project, settings).await?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Open {
    fn request(self) -> OpenRequest {
        OpenRequest {
            kernel: self.kernel,
            python: self.python,
            install: self.install,
            kernel_of: self.kernel_of,
            attach: self.attach,
            own: self.own,
            server: self.server.map(|name| WantedServer {
                name,
                kernel_id: self.kernel_id,
                spec: None,
            }),
            transport: self.transport.map(|transport| match transport {
                Transport::Ipc => wire::Transport::Ipc,
                Transport::Tcp => wire::Transport::Tcp,
            }),
            limits: self.memory,
            idle: self.idle_timeout,
            confinement: match self.container {
                Some(image) => RequestedConfinement::Container {
                    image,
                    options: self.container_option,
                },
                None => self.sandbox.requested_confinement(&self.lasting),
            },
            trust: self.trust,
            select: self.select,
            no_serve: self.no_serve,
            no_kernel: self.no_kernel,
            force: self.force,
            timeout: self.timeout,
            unchosen: false,
        }
    }
}

/// Changes the settings of VS Code in a project's folder; on a terminal, offers that once.
async fn change_settings(
    context: &Context,
    project: &Path,
    requested: Option<Settings>,
) -> Result<(), Problem> {
    let change = |change| api::vscode_settings(&context.caller, project.to_owned(), change);
    let changed = match requested {
        Some(Settings::Add) => change(SettingsChange::Add).await?,
        Some(Settings::Remove) => change(SettingsChange::Remove).await?,
        None if context.json || !context.can_ask() => return Ok(()),
        None => {
            // A file that is not understood is no reason to fail: nobody has asked for this.
            let Ok(Some(offered)) = change(SettingsChange::Offer).await else {
                return Ok(());
            };
            print::note(
                "In VS Code, a tab with unsaved text hides what others write. This saves automatically, and hides .nb:",
            );
            show(&offered);
            if !Lines::confirm("Write this? [y/N] ").await {
                change(SettingsChange::Decline).await?;
                print::note("nothing was written; nb open --vscode-settings add does it later");
                return Ok(());
            }
            change(SettingsChange::Add).await?
        }
    };
    if !context.json {
        match changed {
            Some(file) => show(&file),
            None => print::note("the settings of VS Code are as wanted"),
        }
    }
    Ok(())
}

/// Prints the lines of a file that differ.
fn show(file: &AgentFile) {
    print::note(&format!("{}: {}", file.path.display(), file.change));
    for line in &file.lines {
        match line {
            DiffLine::Same(_) => {}
            DiffLine::Removed(text) => print::note(&format!("  - {text}")),
            DiffLine::Added(text) => print::note(&format!("  + {text}")),
        }
    }
}

/// Asks which of several kernels is meant; `None` if the answer is empty.
async fn ask<'a>(
    problem: &Problem,
    options: &'a [(&'static str, String)],
) -> Option<(&'static str, &'a String)> {
    print::note(&format!("{}:", problem.message));
    for (at, line) in problem.lines.iter().enumerate() {
        print::note(&format!("  {}  {line}", at + 1));
    }
    let lines = Lines::new();
    let question = format!(
        "Which one is meant? [1-{}, nothing for none] ",
        options.len()
    );
    loop {
        let answer = lines.ask(&question, false).await?;
        let answer = answer.trim();
        if answer.is_empty() {
            return None;
        }
        let number: Option<usize> = answer.parse().ok();
        let chosen = number.and_then(|number| options.get(number.checked_sub(1)?));
        if let Some((option, value)) = chosen {
            return Some((option, value));
        }
    }
}

fn show_created(answer: &CreatedNotebook) -> io::Result<()> {
    let state = match answer.created {
        true => "created",
        false => "is there",
    };
    print::line(&format!(
        "{}: {state}, in the project {}; no kernel was started",
        answer.notebook,
        answer.project.display()
    ))
}

fn show_opened(answer: &OpenedNotebook, commands: &Commands) -> io::Result<()> {
    print::line(&opened(answer))?;
    if let Some(sandbox) = answer.session.sandbox() {
        print::note(&sandbox_text(sandbox, &answer.project));
    }
    let previous = answer.before.as_ref();
    let previous = previous.map(|previous| death::description(&answer.notebook, previous));
    print::notes(previous.map(|text| format!("{text} Its variables are gone.")));
    print::notes(answer.notes.iter().map(|note| commands.complete(note)));
    let name = answer.spec_name();
    match answer.spec {
        Some(SpecChange::Installed) => {
            print::note(&format!("The kernelspec \"{name}\" is installed."));
            let [lines @ .., last] = clicks(&name);
            lines.iter().for_each(|line| print::note(line));
            print::note(&format!("{last}; nb open --select does that"));
        }
        Some(SpecChange::Mended) => print::note(&format!(
            "The kernelspec \"{name}\" was out of date and is mended."
        )),
        Some(SpecChange::Good) | None => {}
    }
    Ok(())
}

/// Returns how a front end joins. No setting selects a kernel in VS Code; JupyterLab lists it without one.
pub(crate) fn clicks(name: &str) -> [String; 3] {
    [
        format!("VS Code:    open the notebook, then Select Kernel > Jupyter Kernel... > {name}"),
        format!(
            "            {AUTO_SAVE} in its settings keeps an unsaved tab from hiding what others write"
        ),
        format!("JupyterLab: open the notebook, then Kernel > Change Kernel... > {name}"),
    ]
}
