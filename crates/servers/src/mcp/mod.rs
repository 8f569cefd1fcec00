//! An MCP server: the commands of `nb` as tools for agents, on stdin and stdout or over HTTP.
//!
//! A tool reads its arguments, calls one function of `api`, and returns the answer as text and images; clients that wish
//! it get the JSON object that the command's `--json` prints ([`AnswerForm`]). `handler` receives requests, on any
//! thread; their work is done on one thread of its own, because the futures of `api` stay on the thread that made them.
//!
//! Source of the protocol: <https://modelcontextprotocol.io/specification/2025-11-25>.

mod arguments;
mod audit;
mod calls;
mod commands;
mod handler;
mod http;
mod lines;
mod positions;
mod preview;
mod questions;
mod requests;
mod resources;
mod result;
mod run;
mod session;
mod tools;
mod turns;
mod verify;

use std::sync::atomic::Ordering;

use rmcp::ServiceExt;

use self::handler::Handler;
pub use self::http::{Listening, serve_http};
use self::lines::BoundedLines;
pub use self::result::AnswerForm;
pub use self::session::McpOptions;
use self::session::Sessions;
use crate::api::problem::{Problem, ProblemKind};

/// Serves one client until it closes stdin. Only protocol messages go to stdout.
///
/// # Errors
/// The root is not a folder, a tool does not exist, the client does not speak the protocol, or a message is too big.
pub async fn serve(options: McpOptions) -> Result<(), Problem> {
    let handler = Handler::new(Sessions::new(options)?.begin());
    let (stdin, stdout) = rmcp::transport::io::stdio_pipes();
    let (stdin, is_over) = BoundedLines::of(stdin);
    let served = async {
        let service = handler.serve((stdin, stdout)).await;
        let service = service.map_err(|error| Problem::failed("serve the client", &error))?;
        let ended = service.waiting().await;
        ended.map_err(|error| Problem::failed("serve the client", &error))
    };
    let served = served.await;
    if is_over.load(Ordering::Relaxed) {
        let text = "the client sent a message of more than 16 MiB, which cannot be answered";
        let problem = Problem::new(ProblemKind::Failed, text);
        return Err(problem.hint("send less in one call, and start nb mcp again"));
    }
    served.map(drop)
}
