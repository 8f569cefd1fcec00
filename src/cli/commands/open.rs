//! `nb open`: a notebook with a live kernel.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::api::SandboxSummary;
use crate::api::problem::{Problem, ProblemKind, causes};
use crate::cli::Context;
use crate::cli::args::sandbox::Sandboxing;
use crate::cli::commands::open_choice::Choosing;
use crate::cli::commands::shutdown::age;
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;
use crate::cli::render::problem;
use crate::cli::render::sandbox as sandboxing;
use crate::editing::unsaved::AUTO_SAVE;
use crate::editing::{language, rename};
use crate::kernel::confine::container;
use crate::kernel::process::limits;
use crate::kernel::shell::quote;
use crate::kernel::spec;
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::attach::{self, Running};
use crate::lifecycle::create::create_notebook;
use crate::lifecycle::open::{How, Idle, OpenOptions, Opened, ensure_kernel};
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::sandbox::WantedConfinement;
use crate::lifecycle::serve::{self, Health, Level};
use crate::lifecycle::trust_again::trust_again;
use crate::lifecycle::{death, target};
use crate::project::{self, Container, Limits, Project};

/// Open a notebook: create it if needed, and keep a kernel alive for it
///
/// The kernel is nobody's child: it survives this command, the shell, the agent and the editor,
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
    #[arg(long, conflicts_with = "kernel")]
    install: bool,
    /// Share the kernel of this notebook of the project, and its variables
    #[arg(long, value_name = "NOTEBOOK", conflicts_with_all = ["kernel", "python", "transport"])]
    kernel_of: Option<PathBuf>,
    /// Use a kernel that another program started: a connection file, or its name or a part of it
    /// in Jupyter's runtime folder
    #[arg(long, value_name = "CONNECTION_FILE", conflicts_with_all = ["kernel", "python", "transport", "kernel_of"])]
    attach: Option<PathBuf>,
    /// Share no kernel any more: start one of the notebook's own
    #[arg(long, conflicts_with_all = ["kernel_of", "attach"])]
    own: bool,
    /// How the kernel is reached: Unix sockets (ipc, the default) or TCP on this machine
    #[arg(long, value_enum)]
    transport: Option<Transport>,
    /// Let the kernel use at most this much memory, now and after restarts: 800M, 1.5G, 2GiB; none
    /// takes the limit away
    ///
    /// A systemd user scope keeps it to that with all that it starts; where there is none, the
    /// address space of each of its processes is bounded.
    #[arg(long, value_name = "SIZE", value_parser = memory, conflicts_with_all = ["kernel_of", "attach"])]
    memory: Option<Limits>,
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
    /// Do not install the kernelspec for front ends
    #[arg(long)]
    no_serve: bool,
    /// Create the notebook and its project, and start nothing
    #[arg(long, conflicts_with_all = ["kernel", "python", "transport", "kernel_of", "attach", "own", "memory", "idle_timeout", "select"])]
    no_kernel: bool,
    /// Start a kernel here although one is recorded on another host or in a container
    #[arg(long)]
    force: bool,
    /// Wait at most this long for the kernel, which goes on starting; 0 is for ever [default: 45]
    #[arg(long, value_name = "SECONDS", env = "NB_TIMEOUT")]
    timeout: Option<f64>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    // Last: its heading stands over all that follows.
    #[command(flatten)]
    sandbox: Sandboxing,
}

/// Returns the container that a kernel is to run in.
fn container(
    notebook: &Path,
    image: &str,
    python: Option<&Path>,
    options: &[String],
) -> Result<Container, Problem> {
    let notebook = quote(notebook);
    let refused = |why: &str, mend: String| {
        let text = format!("cannot start a kernel in a container of {image}: {why}");
        Problem::new(ProblemKind::Refused, text).hint(mend)
    };
    if image.is_empty() || image.starts_with('-') {
        let mend = format!("nb open {notebook} --container IMAGE");
        return Err(refused("that is no image's name", mend));
    }
    let program = container::program(image, &ProcessVariables);
    let program = program.map_err(|(why, mend)| {
        let instead = format!("to confine a kernel of this machine: nb open {notebook} --sandbox");
        refused(&why, mend).hint(instead)
    })?;
    Ok(Container {
        program,
        image: image.to_owned(),
        python: python.map(|python| python.to_string_lossy().into_owned()),
        options: options.to_vec(),
    })
}

/// Reads an age, or that there is none.
fn idle(text: &str) -> Result<Idle, String> {
    match text {
        "never" => Ok(Idle::Never),
        _ => match age(text)?.as_secs() {
            0 => Err("wanted is an age such as 30m, 12h or 3d, or never".to_owned()),
            seconds => Ok(Idle::After(seconds)),
        },
    }
}

/// Reads an amount of memory, or that there is no limit.
fn memory(text: &str) -> Result<Limits, String> {
    let memory_bytes = match text {
        "none" => None,
        _ => Some(limits::read_bytes(text)?),
    };
    Ok(Limits { memory_bytes })
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Transport {
    Ipc,
    Tcp,
}

impl Command for Open {
    const NAME: &'static str = "open";
    const GROUP: Group = Group::Kernel;
    const IS_FIRST: bool = true;

    fn notebook(&self) -> Option<PathBuf> {
        self.notebook.clone()
    }

    fn json(&self) -> bool {
        self.json
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let notebook = self.meant(context).await?;
        if notebook.extension().is_none_or(|ending| ending != "ipynb") {
            let text = format!(
                "{} is no notebook: its name does not end in .ipynb",
                notebook.display()
            );
            let named = notebook.with_extension("ipynb");
            return Err(
                Problem::new(ProblemKind::Usage, text).hint(format!("nb open {}", quote(&named)))
            );
        }
        if std::path::absolute(&notebook).is_ok_and(|whole| whole.to_str().is_none()) {
            let text = format!("cannot open {}: its path is not UTF-8", notebook.display());
            return Err(Problem::new(ProblemKind::Usage, text).hint("rename it"));
        }
        let confinement = match &self.container {
            Some(image) => {
                let python = self.python.as_deref();
                let container = container(&notebook, image, python, &self.container_option)?;
                WantedConfinement::Container(Box::new(container))
            }
            None => self.sandbox.meant()?,
        };
        for folder in &self.trust {
            trust_again(folder).await.map_err(|error| {
                let problem = Problem::new(ProblemKind::Refused, causes(&error));
                error.hints().into_iter().fold(problem, Problem::hint)
            })?;
        }
        let patience = context.caller.patience(self.timeout)?;
        let attach = match &self.attach {
            Some(wanted) => Some(running(wanted, patience).await?),
            None => None,
        };
        let mut options = OpenOptions {
            kernel: self.kernel.clone(),
            python: self.python.clone().filter(|_| self.container.is_none()),
            transport: self.transport.map(|transport| match transport {
                Transport::Ipc => project::Transport::Ipc,
                Transport::Tcp => project::Transport::Tcp,
            }),
            patience,
            by: context.by().to_owned(),
            force: self.force,
            language: None,
            front_end_python: None,
            kernel_of: self.kernel_of.clone(),
            attach,
            own: self.own,
            limits: self.memory,
            confinement,
            idle: self.idle_timeout,
        };
        let project = || {
            let made = Project::for_notebook(&notebook);
            made.map_err(|error| Problem::failed("open the project", &error))
        };
        if self.no_kernel {
            let created = create_notebook(&notebook, &options, false)?;
            let project = project()?;
            self.tell_project(&project, &project.key(&notebook), created)?;
            return Ok(ExitCode::SUCCESS);
        }
        // Of what is in the way it tells itself.
        context.told_death.set(true);
        let mut created = false;
        let mut choosing = Choosing::new(&notebook, self.install, !self.json && context.can_ask());
        let opened = loop {
            let done = match create_notebook(&notebook, &options, true) {
                Ok(made) => {
                    created |= made;
                    ensure_kernel(&project()?, &notebook, &options).await
                }
                Err(error) => Err(error),
            };
            match done {
                Ok(opened) => break opened,
                Err(error) => choosing.again(error, &mut options).await?,
            }
        };
        context.concerns(&opened.project, &opened.key);
        if created && let Err(error) = language::write(&notebook) {
            // The first cell that runs brings it.
            tracing::warn!(%error, "the notebook does not name its language's files");
        }
        let real = opened.session.kernelspec.as_ref();
        let language = real.map_or("python", |spec| spec.language.as_str());
        let served = (!self.no_serve).then(|| install(language));
        if self.select {
            let selected = real.map(|real| rename::select(&notebook, real));
            if let Some(Err(error)) = selected {
                return Err(Problem::failed(
                    &format!("name the kernelspec in {}", notebook.display()),
                    &error,
                ));
            }
        }
        self.tell(context, &opened, created, served);
        Ok(ExitCode::SUCCESS)
    }
}

impl Open {
    async fn meant(&self, context: &Context) -> Result<PathBuf, Problem> {
        let named = self
            .notebook
            .clone()
            .or_else(|| context.caller.notebook.clone());
        match target::named(named.as_deref(), &ProcessVariables) {
            Some(notebook) => Ok(notebook),
            None => Ok(context.target(None).await?.session.notebook),
        }
    }

    fn tell_project(&self, project: &Project, key: &str, created: bool) -> Result<(), Problem> {
        let state = project.state()?;
        let session = state.sessions.get(key);
        let _ = if self.json {
            print::json(&json!({
                "notebook": key,
                "project": project.root(),
                "created": created,
                "how": null,
                "status": session.map(|session| session.status.as_str()),
                "kernel_generation": session.map(|session| session.generation),
                "notes": project.notice().into_iter().collect::<Vec<_>>(),
            }))
        } else {
            let what = if created { "created" } else { "is there" };
            print::line(&format!(
                "{key}: {what}, in the project {}; no kernel was started",
                project.root().display()
            ))
        };
        Ok(())
    }

    fn tell(
        &self,
        context: &Context,
        opened: &Opened,
        created: bool,
        served: Option<Result<Installed, Problem>>,
    ) {
        let session = &opened.session;
        let (how, word) = match opened.how {
            How::Started => ("started", "started"),
            How::Attached => ("attached", "attached"),
            How::Finished => ("started by another call", "finished"),
            How::Joined => ("attached, which another program started", "attached"),
        };
        let (served, problem) = match served {
            Some(Ok(served)) => (Some(served), None),
            Some(Err(problem)) => (None, Some(problem)),
            None => (None, None),
        };
        let name = session
            .kernelspec
            .as_ref()
            .map_or("?", |spec| spec.display_name.as_str());
        if self.json {
            let _ = context.answer(&json!({
                "notebook": opened.key,
                "project": opened.project.root(),
                "created": created,
                "how": word,
                "status": session.status.as_str(),
                "kernel": session.kernelspec.as_ref().map(|spec| &spec.name),
                "kernel_pid": session.pid(),
                "kernel_generation": session.generation,
                "connection_file": session.connection_file,
                "kernel_of": opened.kernel_of,
                "owned": session.is_owned(),
                "container": session.confinement().container(),
                "sandbox": session.sandbox().map(SandboxSummary::of),
                "shared_with": opened.shared_with,
                "before": opened.before,
                "selected": self.select,
                "spec": served.as_ref().map(|served| served.word),
                "notes": opened.notes,
                "took_ms": u64::try_from(opened.took.as_millis()).unwrap_or(u64::MAX),
            }));
        } else {
            let created = if created { "created; " } else { "" };
            let pid = session
                .pid()
                .map(|pid| format!(", pid {pid}"))
                .unwrap_or_default();
            let whose = opened.kernel_of.as_ref();
            let whose = whose.map_or(String::new(), |owner| {
                format!("shares the kernel of {owner}; ")
            });
            let _ = print::line(&format!(
                "{}: {created}{whose}kernel {how} ({name}{pid}) in {}",
                opened.key,
                print::took(opened.took)
            ));
            if let Some(sandbox) = session.sandbox() {
                print::note(&sandboxing::text(sandbox, opened.project.root()));
            }
            if let Some(before) = &opened.before {
                print::note(&format!(
                    "note: {} Its variables are gone.",
                    death::words(&opened.key, before)
                ));
            }
            opened
                .notes
                .iter()
                .for_each(|note| print::note(&format!("note: {note}")));
            if let Some(served) = served {
                served.tell();
            }
        }
        if let Some(problem) = problem {
            // The kernel runs; only front ends do not find it yet.
            problem::report(&problem, false);
        }
    }
}

async fn running(wanted: &Path, patience: Duration) -> Result<Running, Problem> {
    let file = attach::locate(wanted, &ProcessVariables).map_err(OpenError::from)?;
    Ok(attach::ask(file, patience, &ProcessVariables).await?)
}

/// What became of the kernelspec.
struct Installed {
    word: &'static str,
    display_name: String,
}

impl Installed {
    /// Tells the clicks, where the spec is new to the user.
    fn tell(&self) {
        let name = &self.display_name;
        match self.word {
            "installed" => print::note(&format!(
                "The kernelspec \"{name}\" is installed.\n{}",
                clicks(name)
            )),
            "mended" => {
                print::note(&format!(
                    "The kernelspec \"{name}\" was out of date and is mended."
                ));
            }
            _ => {}
        }
    }
}

/// How a front end joins. No setting picks a kernel in VS Code; JupyterLab lists it by itself.
pub(crate) fn clicks(name: &str) -> String {
    format!(
        "VS Code:    open the notebook, then Select Kernel > Jupyter Kernel... > {name}\n            \
         {AUTO_SAVE} in its settings keeps an unsaved tab from hiding what others write\n\
         JupyterLab: open the notebook, then Kernel > Change Kernel... > {name}"
    )
}

/// Installs the user's spec for a language where it is missing, and mends stale ones.
fn install(language: &str) -> Result<Installed, Problem> {
    let display_name = spec::shared_display_name(language);
    let word = match serve::health_for(language, &ProcessVariables)? {
        Health::Good => "good",
        Health::Missing => "installed",
        Health::Stale(_) => "mended",
    };
    if word != "good" {
        serve::serve(&Level::User, language, &ProcessVariables)?;
    }
    Ok(Installed { word, display_name })
}
