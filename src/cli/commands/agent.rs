//! `nb agent`: configures the programs of agents to use `nb`.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, AgentPart, AgentProgram, AgentSetupAnswer, AgentSetupRequest};
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::cli::terminal::Lines;
use crate::notebook::DiffLine;

/// Tell an agent's program of nb: a guide and the MCP server, in the files in which it looks
///
/// The files are in the working directory. It shows what would differ, and asks. Off a terminal only --yes
/// writes: without it the exit code is 2 if something would differ. What you have in these files stays; another server named "nb" is shown. Running it again
/// changes nothing; --remove takes out what it has added. The programs are claude (Claude Code), codex,
/// copilot (in VS Code), cursor and gemini.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Agent {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Add nb to the files of these programs, or take it out again
    Install(Install),
}

#[derive(Args, Debug)]
struct Install {
    /// The programs
    #[arg(required = true, value_name = "PROGRAM")]
    programs: Vec<Program>,
    /// Only the guide, or only the MCP server
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Take out what was added
    #[arg(long)]
    remove: bool,
    /// Write without a question
    #[arg(short, long)]
    yes: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Program {
    /// Claude Code: .claude/skills/nb/SKILL.md, .mcp.json
    Claude,
    /// Codex: AGENTS.md, .codex/config.toml
    Codex,
    /// GitHub Copilot in VS Code: .github/copilot-instructions.md, .vscode/mcp.json
    Copilot,
    /// Cursor: .cursor/rules/nb.mdc, .cursor/mcp.json
    Cursor,
    /// Gemini CLI: GEMINI.md, .gemini/settings.json
    Gemini,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Part {
    /// The guide
    Skill,
    /// The MCP server
    Mcp,
}

const EXAMPLES: &str = "\
Examples:
  nb agent install claude
  nb agent install codex cursor --yes
  nb agent install gemini --only mcp
  nb agent install claude --remove";

impl Command for Agent {
    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let Action::Install(install) = self.action;
        let programs = install.programs.into_iter().map(|program| match program {
            Program::Claude => AgentProgram::Claude,
            Program::Codex => AgentProgram::Codex,
            Program::Copilot => AgentProgram::Copilot,
            Program::Cursor => AgentProgram::Cursor,
            Program::Gemini => AgentProgram::Gemini,
        });
        let mut request = AgentSetupRequest {
            programs: programs.collect(),
            removes: install.remove,
            only: install.only.map(|part| match part {
                Part::Skill => AgentPart::Skill,
                Part::Mcp => AgentPart::Mcp,
            }),
            writes: install.yes,
        };
        let asks_first = !install.yes && !context.json && context.can_ask();
        if asks_first {
            let preview = api::set_up_agents(&context.caller, request.clone()).await?;
            name_others(context, &preview);
            context.printed(&show(context, &preview))?;
            request.writes =
                !preview.files.is_empty() && Lines::confirm("Write this? [y/N] ").await;
            if !request.writes {
                return Err(Problem::new(ProblemKind::Refused, "nothing was written"));
            }
        }
        let answer = api::set_up_agents(&context.caller, request).await?;
        if !asks_first {
            name_others(context, &answer);
        }
        let printed = context.print(&answer, |answer| match asks_first {
            true => print::line(&summary(context, answer)),
            false => show(context, answer),
        })?;
        match answer.written || answer.files.is_empty() {
            true => Ok(printed),
            false => Ok(ExitCode::from(2)),
        }
    }
}

/// Names the servers that the folder's files call `nb`, and that are others.
fn name_others(context: &Context, answer: &AgentSetupAnswer) {
    for other in &answer.other_servers {
        print::note(&format!(
            "{} names another server \"nb\", which is not `nb mcp` and stays: {}; take it out if you did not write it",
            shown_path(context, &other.path),
            other.entry
        ));
    }
}

fn show(context: &Context, answer: &AgentSetupAnswer) -> io::Result<()> {
    for file in &answer.files {
        let path = shown_path(context, &file.path);
        print::line(&format!("{path}: {}", file.change))?;
        for line in &file.lines {
            match line {
                DiffLine::Same(_) => {}
                DiffLine::Removed(text) => print::line(&format!("  - {text}"))?,
                DiffLine::Added(text) => print::line(&format!("  + {text}"))?,
            }
        }
    }
    print::line(&summary(context, answer))
}

/// Returns a path relative to the working directory.
fn shown_path(context: &Context, path: &Path) -> String {
    let below = context.caller.working_dir.canonicalize();
    let below = below.as_deref().unwrap_or(&context.caller.working_dir);
    let path = path.strip_prefix(below).unwrap_or(path);
    path.display().to_string()
}

fn summary(context: &Context, answer: &AgentSetupAnswer) -> String {
    let files = print::count(answer.files.len(), "file");
    match (answer.files.len(), answer.written) {
        (0, _) => "nothing to change".to_owned(),
        (_, true) => format!("{files} written"),
        (_, false) if context.can_ask() => format!("{files} to write"),
        (_, false) => format!("{files} to write; nothing was written: --yes writes"),
    }
}
