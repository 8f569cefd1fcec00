//! `nb web`: a page of the notebooks.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::web::{AssistantChoice, PageAddress, WebOptions, open_in_browser, serve};

/// Show notebooks as they are now in a browser, and edit and run them there
///
/// It serves one page until it is ended, and prints the page's address. Whoever has the address can do what
/// you can: it has a token, which the browser exchanges for a cookie. Both end with the server. Over SSH,
/// `ssh -L 8643:localhost:8643 HOST` makes the page appear on your own machine.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Web {
    /// The notebook to show first
    notebook: Option<PathBuf>,
    /// The folder whose notebooks are served
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    root: PathBuf,
    /// The port; 0 is a free one
    #[arg(long, value_name = "PORT", default_value_t = 8643)]
    port: u16,
    /// Listen at another address of this machine: others on the network can reach the page, unencrypted
    #[arg(long, value_name = "ADDRESS")]
    host: Option<IpAddr>,
    /// Use the same token at each start, so that servers saved in VS Code or JupyterLab go on. Only you may
    /// read its file, web-token in nb's state folder; whoever has it can do what you can
    #[arg(long)]
    keep_token: bool,
    /// Open the page in the browser
    #[arg(long)]
    open: bool,
    /// The assistant: `anthropic`, `openai`, or the name or command of a coding agent that speaks ACP; else the
    /// provider whose key is there, in ANTHROPIC_API_KEY or OPENAI_API_KEY
    #[arg(long, value_name = "NAME|COMMAND")]
    assistant: Option<String>,
    /// The assistant's model
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Let the assistant ask before it deletes cells or files, restarts the kernel, or starts programs
    #[arg(long)]
    approve: bool,
    /// What a million tokens cost in dollars, read and written, such as 3/15: the page shows the sum
    #[arg(long, value_name = "IN/OUT", value_parser = price)]
    price: Option<(f64, f64)>,
}

fn price(text: &str) -> Result<(f64, f64), String> {
    let read = |text: &str| text.trim().parse().ok().filter(|it| *it >= 0.0);
    let both = text.split_once('/');
    let both = both.and_then(|(input, output)| read(input).zip(read(output)));
    both.ok_or_else(|| "give two numbers, such as 3/15".to_owned())
}

const EXAMPLES: &str = "\
Examples:
  nb web --open                                in the browser of this machine
  nb web analysis.ipynb --port 0               this notebook, on a free port
  nb web --assistant claude                    with a coding agent as the assistant";

impl Command for Web {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        self.notebook.take()
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let host = self.host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let options = WebOptions {
            root: self.root,
            notebook: context.typed.clone(),
            name: context.name.clone(),
            host,
            port: self.port,
            keeps_token: self.keep_token,
            assistant: AssistantChoice {
                assistant: self.assistant,
                model: self.model,
                approves: self.approve,
                price: self.price,
            },
            progress: print::note,
        };
        serve(options, |address| print_address(address, host, self.open)).await?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the address of the page, and opens it.
fn print_address(address: &PageAddress, host: IpAddr, opens: bool) -> io::Result<()> {
    print::line(&address.url)?;
    if !host.is_loopback() {
        print::note(
            "others on the network can reach this page, and read what is sent: there is no encryption; \
             `ssh -L` to a page of the machine itself is safe",
        );
    }
    if opens && !open_in_browser(&address.once) {
        print::note("no browser was found: open the address yourself");
    }
    Ok(())
}
