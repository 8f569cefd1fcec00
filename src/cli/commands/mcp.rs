//! `nb mcp`: serves the notebooks to an agent over the Model Context Protocol.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::api::problem::Problem;
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::mcp::{AnswerForm, Listening, McpOptions, serve, serve_http};

/// Serve notebooks to agents over MCP, on stdin and stdout or over HTTP
///
/// The agent's program starts it: in its settings the command is `nb` with the argument `mcp`. The
/// tools do what these commands do, on the same kernels and with the same history; what other servers
/// call them works too. Each call names its notebook, which must be below the root. That keeps paths
/// inside, and confines no code. A cancelled call interrupts what it runs; where the agent's program
/// ends, what runs goes on.
///
/// With --http it serves any number of clients on this machine. Each request must have the header
/// `Authorization: Bearer TOKEN`; the file that has the token is printed. Requests of other
/// machines' web pages are refused.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Mcp {
    /// The folder whose notebooks the agent may name
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    root: PathBuf,
    /// Offer no tool that changes a notebook or runs code
    #[arg(long)]
    read_only: bool,
    /// Offer only these tools
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    allow: Vec<String>,
    /// Refuse an agent's calls beyond so many in a minute
    #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// What answers have: what a model reads, the JSON that the command prints with --json, or both; else what the client
    /// asks for, and text if it asks for nothing
    #[arg(long, value_enum)]
    answers: Option<Answers>,
    /// Serve over HTTP on a port of this machine; 0 is a free one
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "8642")]
    http: Option<u16>,
}

/// What answers have.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Answers {
    /// Text and images
    Text,
    /// Images, and structured content
    Structured,
    /// Text, images and structured content
    Both,
}

const EXAMPLES: &str = "\
Examples:
  claude mcp add nb -- nb mcp                  Claude Code
  codex mcp add nb -- nb mcp                   Codex
  nb mcp --root ~/work --read-only
  nb mcp --allow notebooks,get_notebook_state,read_cell
  nb mcp --http                                for any client on this machine";

impl Command for Mcp {
    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let options = McpOptions {
            root: self.root,
            name: context.name.clone(),
            read_only: self.read_only,
            tools: self.allow,
            rate: self.rate.map(|rate| rate as usize),
            answers: self.answers.map(|answers| match answers {
                Answers::Text => AnswerForm::Text,
                Answers::Structured => AnswerForm::Structured,
                Answers::Both => AnswerForm::Both,
            }),
            progress: print::note,
        };
        match self.http {
            Some(port) => serve_http(options, port, print_address).await?,
            None => serve(options).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints where a server listens.
fn print_address(listening: &Listening) -> io::Result<()> {
    print::line(&listening.url)?;
    let token = listening.token_file.display();
    print::note(&format!(
        "send the header \"Authorization: Bearer TOKEN\"; {token} has the token"
    ));
    Ok(())
}
