//! `nb server`: Jupyter servers elsewhere.

use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, AddServerRequest, ListedServer, RequestedToken, ServerState};
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::{columns, print};
use crate::server::Secret;
use crate::server::credential::token_in;

/// Name Jupyter servers, gateways and hubs elsewhere, whose kernels a notebook may use
///
/// A token goes into a private file, or is printed by a command each time; nb prints it nowhere. The
/// variables JUPYTER_GATEWAY_URL, JUPYTER_GATEWAY_AUTH_TOKEN and the others of Jupyter's gateway client
/// give the server gateway, which need not be added.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Server {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Add a server, after it has answered
    Add(Add),
    /// List the servers: how they are, how many kernels run there, how fast they answer
    #[command(alias = "ls")]
    List,
    /// Look at a server closely, and start that of a hub's user
    Check(Named),
    /// Forget a server and its token; its kernels run on
    #[command(alias = "remove")]
    Rm(Named),
    /// Stop the server of a hub's user, with all its kernels
    Stop(Named),
}

#[derive(Args, Debug)]
struct Named {
    /// The name of the server
    name: String,
}

#[derive(Args, Debug)]
struct Add {
    /// The name for it: letters, digits, '-', '_' and '.'
    name: String,
    /// The URL of the server, of the hub, or of a page of theirs; a token in it is taken out
    url: String,
    /// Read the token from this file, and again when the server refuses it; - reads it from stdin
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Take the token that this command prints, and run it anew when the server refuses the token
    #[arg(long, value_name = "COMMAND", conflicts_with = "token_file")]
    token_command: Option<String>,
    /// Send this header with each request: 'NAME: VALUE', or 'NAME: @FILE' with a private file
    #[arg(long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// Open at most this many kernels there
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    max_kernels: Option<u32>,
    /// Trust the authorities in this file (PEM) too
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Change the server of this name, if there is one
    #[arg(long)]
    replace: bool,
}

const EXAMPLES: &str = "\
Examples:
  nb server add gpu http://localhost:8888 --token-file ~/gpu.token
  nb server add lab https://hub.example.org --token-command 'pass show hub'
  nb server add cloud https://runtime.example.com/p --token-command 'cloud auth print-token'
  nb server list
  nb kernels --server gpu
  nb server stop lab";

impl Command for Server {
    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let caller = &context.caller;
        match self.action {
            Action::Add(add) => {
                let answer = api::add_server(caller, request(add)?).await?;
                context.print(&answer, |answer| {
                    print::lines(rows(std::slice::from_ref(&answer.server)))?;
                    print::notes(&answer.notes);
                    Ok(())
                })
            }
            Action::List => {
                let answer = api::servers(caller).await?;
                context.print(&answer, |answer| match answer.servers.is_empty() {
                    true => print::line("no server was added; nb server add NAME URL"),
                    false => print::lines(rows(&answer.servers)),
                })
            }
            Action::Check(Named { name }) => {
                let answer = api::check_server(caller, &name).await?;
                context.print(&answer, |answer| {
                    let mut lines = rows(std::slice::from_ref(&answer.server));
                    let specs = answer.kernelspecs.iter();
                    let specs = specs.map(|spec| {
                        let mark = if spec.is_default { "*" } else { " " };
                        let name = format!("{mark} {}", spec.name);
                        [name, spec.language.clone(), spec.display_name.clone()]
                    });
                    lines.extend(columns::lines(&specs.collect::<Vec<_>>()));
                    print::lines(&lines)?;
                    print::notes(&answer.notes);
                    Ok(())
                })
            }
            Action::Rm(Named { name }) => {
                let answer = api::remove_server(caller, &name).await?;
                context.print(&answer, |answer| {
                    print::line(&format!("{} ({}) is forgotten", answer.name, answer.url))
                })
            }
            Action::Stop(Named { name }) => {
                let answer = api::stop_server(caller, &name).await?;
                context.print(&answer, |answer| {
                    let outcome = match answer.ran {
                        true => "was stopped",
                        false => "did not run",
                    };
                    print::line(&format!("the server of {} {outcome}", answer.name))
                })
            }
        }
    }
}

fn request(add: Add) -> Result<AddServerRequest, Problem> {
    let token = match (add.token_file, add.token_command) {
        (Some(file), _) if file == Path::new("-") => RequestedToken::Given(of_stdin()?),
        (Some(file), _) => RequestedToken::File(file),
        (None, Some(command)) => RequestedToken::Command(command),
        (None, None) => RequestedToken::InUrl,
    };
    let headers = add
        .headers
        .iter()
        .map(|header| of_header(header, &add.name));
    Ok(AddServerRequest {
        token,
        headers: headers.collect::<Result<_, _>>()?,
        name: add.name,
        url: add.url,
        max_kernels: add.max_kernels,
        ca_file: add.ca,
        replace: add.replace,
    })
}

fn of_stdin() -> Result<Secret, Problem> {
    /// The longest token, in bytes.
    const TOKEN_BYTES_MAX: u64 = 64 << 10;
    if io::stdin().is_terminal() {
        print::note("the token, then Enter and Ctrl-D:");
    }
    let mut text = String::new();
    let read = io::stdin().take(TOKEN_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| Problem::failed("read the token from stdin", &error))?;
    match text.trim() {
        "" => Err(Problem::new(ProblemKind::Usage, "stdin has no token")),
        token => Ok(Secret::new(token)),
    }
}

fn of_header(header: &str, server: &str) -> Result<(String, Secret), Problem> {
    let wrong = || {
        // Its value may be a secret.
        Problem::new(ProblemKind::Usage, "a --header has the form 'NAME: VALUE'")
    };
    let (name, value) = header.split_once(':').ok_or_else(wrong)?;
    let value = match value.trim().strip_prefix('@') {
        Some(file) => token_in(Path::new(file)).map_err(|kind| kind.of(server))?,
        None => Secret::new(value.trim()),
    };
    Ok((name.trim().to_owned(), value))
}

/// Returns a line for each server, and one below for what is wrong with it.
fn rows(servers: &[ListedServer]) -> Vec<String> {
    let cells = servers.iter().map(|server| {
        let state = match server.state {
            ServerState::Up => "up",
            ServerState::Down => "down",
            ServerState::Refused => "refused",
            ServerState::Stopped => "stopped",
            ServerState::Starting => "starting",
            ServerState::Failed => "failed",
        };
        let version = server.version.as_deref().unwrap_or_default();
        let latency = server.latency_ms.map(|it| format!("{it:.1} ms"));
        [
            server.name.clone(),
            state.to_owned(),
            format!("{} {version}", server.kind).trim().to_owned(),
            kernels(server),
            latency.unwrap_or_default(),
            server.url.clone(),
        ]
    });
    let cells: Vec<_> = cells.collect();
    let mut lines = Vec::new();
    for (line, server) in columns::lines(&cells).into_iter().zip(servers) {
        lines.push(line);
        lines.extend(
            server
                .problem
                .iter()
                .map(|problem| format!("    {problem}")),
        );
    }
    lines
}

fn kernels(server: &ListedServer) -> String {
    let Some(count) = server.kernels else {
        return String::new();
    };
    let limit = server
        .max_kernels
        .map_or(String::new(), |most| format!(" of {most}"));
    let idle = match server.idle_kernels {
        Some(idle) if idle > 0 => format!(" ({idle} idle)"),
        _ => String::new(),
    };
    format!("{}{limit}{idle}", print::count(count, "kernel"))
}
