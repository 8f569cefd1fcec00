//! `nb mcp`: serves the notebooks to an agent over the Model Context Protocol.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::mcp::{McpOptions, serve};

/// Serve notebooks to an agent over MCP, on stdin and stdout
///
/// The agent's program starts it: in its settings the command is `nb` with the argument `mcp`. The
/// tools do what these commands do, on the same kernels and with the same history; what other servers
/// call them works too. Each call names its notebook, which must be below the root. That keeps paths
/// inside, and confines no code. A cancelled call interrupts what it runs; where the agent's program
/// ends, what runs goes on.
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
}

const EXAMPLES: &str = "\
Examples:
  claude mcp add nb -- nb mcp                  Claude Code
  codex mcp add nb -- nb mcp                   Codex
  nb mcp --root ~/work --read-only
  nb mcp --allow notebooks,get_notebook_state,read_cell";

impl Command for Mcp {
    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let options = McpOptions {
            root: self.root,
            name: context.name.clone(),
            read_only: self.read_only,
            tools: self.allow,
            tell: print::note,
        };
        let tasks = tokio::task::LocalSet::new();
        tasks.run_until(serve(options)).await?;
        Ok(ExitCode::SUCCESS)
    }
}
