//! The kernel's side of a chat: sockets, requests, and the queue of cells.
//!
//! | queue | limit | when it is full |
//! |---|---|---|
//! | cells that wait | [`CELLS_MAX`] | a further one is answered with an error |
//! | a cell | [`CELL_BYTES_MAX`] | it is answered with an error |
//! | the history | [`HISTORY_MAX`] cells | the oldest are dropped |

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};

use super::channels::{ChatChannels, Request};
use super::complete::{self, ChatNames};
use super::conversation::{CellError, Conversation};
use super::front::CellFront;
use super::{cell, conversation};
use crate::agent::Turn;
use crate::kernel::process::Starter;
use crate::setup::serve_chat::LANGUAGE;
use crate::socket::{
    DisconnectReason, EndpointHandler, EndpointLimits, KernelEndpoint, SocketLimits,
};
use crate::wire::{Channel, ConnectionInfo, Verified};

const CELLS_MAX: usize = 1000;
const CELL_BYTES_MAX: usize = 8 << 20;
const HISTORY_MAX: usize = 1000;

/// The longest message of a client.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// How often it is checked whether the program that started this one still runs.
const STARTER_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long the last messages may take to leave.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The kernel of a chat.
pub(super) struct Kernel {
    channels: Rc<ChatChannels>,
    count: Cell<u64>,
    cells: mpsc::UnboundedSender<Request>,
    waiting: Cell<usize>,
    /// Ends the running cell.
    running: RefCell<Option<Rc<Notify>>>,
    history: RefCell<VecDeque<(u64, String)>>,
    names: RefCell<ChatNames>,
    folder: PathBuf,
    stop: Notify,
}

#[derive(Deserialize)]
struct ExecuteRequest {
    code: String,
    #[serde(default)]
    silent: bool,
    store_history: Option<bool>,
    #[serde(default)]
    allow_stdin: bool,
    stop_on_error: Option<bool>,
}

/// Serves a front end until it requests the end, or its program has ended.
///
/// # Errors
/// The ports or the project cannot be opened.
pub(super) async fn serve(connection: &ConnectionInfo, file: &Path) -> anyhow::Result<()> {
    let folder = std::env::current_dir().context("cannot read the working directory")?;
    let (cells, mut queue) = mpsc::unbounded_channel();
    let kernel = Rc::new(Kernel {
        channels: Rc::default(),
        count: Cell::new(0),
        cells,
        waiting: Cell::new(0),
        running: RefCell::default(),
        history: RefCell::default(),
        names: RefCell::default(),
        folder: folder.clone(),
        stop: Notify::new(),
    });
    let limits = SocketLimits {
        max_message: MESSAGE_BYTES_MAX,
        max_unauthenticated_message: MESSAGE_BYTES_MAX,
        max_unauthenticated_bytes: 4 * MESSAGE_BYTES_MAX,
        spares_descriptors: true,
        ..SocketLimits::default()
    };
    let limits = EndpointLimits {
        router: limits,
        iopub: limits,
        spill: None,
    };
    let handler = Rc::new(Requests(Rc::downgrade(&kernel)));
    let endpoint = KernelEndpoint::bind(connection, limits, handler);
    let endpoint = endpoint.map_err(|error| {
        let source = error.source.to_string();
        anyhow::anyhow!("cannot bind {error}: {source}")
    })?;
    kernel.channels.set_endpoint(endpoint);
    kernel
        .channels
        .status(&Bytes::from_static(b"{}"), "starting");

    let name = conversation::name(file);
    let mut conversation = Conversation::open(&folder, &name).context("cannot open the chat")?;
    *kernel.names.borrow_mut() = conversation.names();
    let work = async {
        while let Some(request) = queue.recv().await {
            kernel.waiting.set(kernel.waiting.get().saturating_sub(1));
            let aborts_queue = kernel.execute(&request, &mut conversation).await;
            if aborts_queue {
                while let Ok(request) = queue.try_recv() {
                    kernel.waiting.set(kernel.waiting.get().saturating_sub(1));
                    kernel.abort(&request);
                }
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = kernel.stop.notified() => {}
        () = signals(&kernel) => {}
        () = orphaned() => {}
    }
    conversation.close().await;
    kernel.channels.close(Instant::now() + CLOSE_TIMEOUT).await;
    Ok(())
}

/// Waits for a signal that ends the kernel; SIGINT interrupts the cell.
async fn signals(kernel: &Kernel) {
    let signals = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let [Ok(mut interrupts), Ok(mut ends), Ok(mut hangups)] = signals.map(signal) else {
        return std::future::pending().await;
    };
    loop {
        tokio::select! {
            _ = interrupts.recv() => kernel.interrupt(),
            _ = ends.recv() => return,
            _ = hangups.recv() => return,
        }
    }
}

/// Waits until the program that started this one has ended.
async fn orphaned() {
    let starter = Starter::of_this_process();
    while !starter.is_gone() {
        tokio::time::sleep(STARTER_CHECK_INTERVAL).await;
    }
}

/// The handler of clients' messages.
struct Requests(Weak<Kernel>);

impl EndpointHandler for Requests {
    fn message(&self, channel: Channel, client: &Bytes, message: Verified) {
        if let Some(kernel) = self.0.upgrade() {
            kernel.take(Request {
                channel,
                client: client.clone(),
                message,
            });
        }
    }

    fn left(&self, channel: Channel, client: &Bytes, _: &DisconnectReason) {
        if let Some(kernel) = self.0.upgrade()
            && channel == Channel::Stdin
        {
            kernel.channels.client_left(client);
        }
    }
}

impl Kernel {
    /// Takes a message: answers it, or puts it into the queue of cells.
    fn take(&self, request: Request) {
        let Ok(header) = request.message.header() else {
            return;
        };
        let msg_type = header.msg_type.to_string();
        if request.channel == Channel::Stdin {
            if msg_type == "input_reply" {
                self.channels.take_answer(&request);
            }
            return;
        }
        if msg_type == "execute_request" {
            return self.enqueue(request);
        }
        let Some(name) = msg_type.strip_suffix("_request") else {
            // Comms: the kernel has no targets.
            return;
        };
        let parent = request.message.header_bytes().clone();
        self.channels.status(&parent, "busy");
        let content: Value = request.message.read_content().unwrap_or_default();
        let reply = match name {
            "kernel_info" => kernel_info(),
            "complete" => self.complete(&content),
            "inspect" => inspect(&content),
            "is_complete" => json!({ "status": "complete" }),
            "history" => self.history(&content),
            "comm_info" => json!({ "status": "ok", "comms": {} }),
            "interrupt" => {
                self.interrupt();
                json!({ "status": "ok" })
            }
            "shutdown" => {
                let restart = content.get("restart").cloned().unwrap_or(json!(false));
                json!({ "status": "ok", "restart": restart })
            }
            "connect" => json!({ "status": "ok" }),
            other => json!({
                "status": "error",
                "ename": "NotSupported",
                "evalue": format!("a chat has no {other}"),
                "traceback": [],
            }),
        };
        self.channels
            .reply(&request, &format!("{name}_reply"), &reply);
        if name == "shutdown" {
            self.channels.publish("shutdown_reply", &parent, &reply);
        }
        self.channels.status(&parent, "idle");
        if name == "shutdown" {
            self.stop.notify_one();
        }
    }

    fn enqueue(&self, request: Request) {
        if self.waiting.get() >= CELLS_MAX {
            let error = CellError::new(
                "TooManyCells",
                format!("{CELLS_MAX} cells wait already: run this one again later"),
            );
            let parent = request.message.header_bytes().clone();
            self.channels.status(&parent, "busy");
            self.fail(&request, &error);
            return self.channels.status(&parent, "idle");
        }
        self.waiting.set(self.waiting.get() + 1);
        let _ = self.cells.send(request);
    }

    /// Runs a cell. Returns whether the queued cells after it are aborted.
    async fn execute(self: &Rc<Self>, request: &Request, chat: &mut Conversation) -> bool {
        let parent = request.message.header_bytes().clone();
        self.channels.status(&parent, "busy");
        let Some(execute) = request.message.read_content::<ExecuteRequest>() else {
            let error = CellError::new("BadRequest", "the request has no code".to_owned());
            self.fail(request, &error);
            self.channels.status(&parent, "idle");
            return false;
        };
        let is_stored = execute.store_history.unwrap_or(true) && !execute.silent;
        if is_stored {
            self.count.set(self.count.get() + 1);
            self.remember(&execute.code);
        }
        let count = self.count.get();
        if !execute.silent {
            let input = json!({ "code": execute.code, "execution_count": count });
            self.channels.publish("execute_input", &parent, &input);
        }
        let result = self.run(&execute, request, chat).await;
        *self.names.borrow_mut() = chat.names();
        let failed = result.is_err();
        match result {
            Ok(()) => {
                let reply = json!({
                    "status": "ok",
                    "execution_count": count,
                    "payload": [],
                    "user_expressions": {},
                });
                self.channels.reply(request, "execute_reply", &reply);
            }
            Err(error) => {
                self.fail(request, &error);
            }
        }
        self.channels.status(&parent, "idle");
        failed && execute.stop_on_error.unwrap_or(true)
    }

    async fn run(
        self: &Rc<Self>,
        execute: &ExecuteRequest,
        request: &Request,
        chat: &mut Conversation,
    ) -> Result<(), CellError> {
        if execute.code.len() > CELL_BYTES_MAX {
            let text = format!("the cell has more than {} MiB", CELL_BYTES_MAX >> 20);
            return Err(CellError::new("TooLong", text));
        }
        let cell = cell::read(&execute.code, |name| chat.has(name));
        let mut cell = cell.map_err(|error| CellError::new("NoCommand", error.to_string()))?;
        cell.id = Some(cell_id(request).unwrap_or_else(|| format!("[{}]", self.count.get())));
        let interrupt = Rc::new(Notify::new());
        *self.running.borrow_mut() = Some(interrupt.clone());
        let front = CellFront::new(
            self.channels.clone(),
            request.message.header_bytes().clone(),
            request.client.clone(),
            execute.allow_stdin,
            Turn::new(chat.root()),
        );
        let result = chat.run(cell, &front, &interrupt).await;
        *self.running.borrow_mut() = None;
        result
    }

    /// Answers a cell that is not run, since one before it failed.
    fn abort(&self, request: &Request) {
        let parent = request.message.header_bytes().clone();
        self.channels.status(&parent, "busy");
        let reply = json!({
            "status": "aborted",
            "execution_count": self.count.get(),
            "ename": "Aborted",
            "evalue": "",
            "traceback": [],
        });
        self.channels.reply(request, "execute_reply", &reply);
        self.channels.status(&parent, "idle");
    }

    fn fail(&self, request: &Request, error: &CellError) {
        let parent = request.message.header_bytes();
        let content = json!({
            "ename": error.name,
            "evalue": error.message,
            "traceback": error.traceback(),
        });
        self.channels.publish("error", parent, &content);
        let mut reply = content;
        reply["status"] = "error".into();
        reply["execution_count"] = self.count.get().into();
        self.channels.reply(request, "execute_reply", &reply);
    }

    /// Interrupts the running cell.
    fn interrupt(&self) {
        if let Some(running) = &*self.running.borrow() {
            running.notify_one();
        }
    }

    fn remember(&self, code: &str) {
        let mut history = self.history.borrow_mut();
        history.push_back((self.count.get(), code.to_owned()));
        if history.len() > HISTORY_MAX {
            history.pop_front();
        }
    }

    fn history(&self, request: &Value) -> Value {
        let history = self.history.borrow();
        let text = |name: &str| request.get(name).and_then(Value::as_str);
        let pattern = text("pattern").filter(|_| text("hist_access_type") == Some("search"));
        let number = |name: &str| request.get(name).and_then(Value::as_u64);
        let is_match = |(count, code): &&(u64, String)| match text("hist_access_type") {
            Some("range") => {
                let is_before = number("stop").is_none_or(|stop| *count < stop);
                *count >= number("start").unwrap_or(0) && is_before
            }
            _ => pattern.is_none_or(|pattern| is_like(code, pattern)),
        };
        let entries: Vec<_> = history.iter().filter(is_match).collect();
        let limit = number("n").and_then(|limit| usize::try_from(limit).ok());
        let first = entries.len().saturating_sub(limit.unwrap_or(HISTORY_MAX));
        let with_output = request.get("output").and_then(Value::as_bool) == Some(true);
        let entries = entries[first..]
            .iter()
            .map(|(count, code)| match with_output {
                true => json!([0, count, [code, null]]),
                false => json!([0, count, code]),
            });
        json!({ "status": "ok", "history": entries.collect::<Vec<_>>() })
    }

    fn complete(&self, request: &Value) -> Value {
        let code = request
            .get("code")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let length = code.chars().count();
        let position = request.get("cursor_pos").and_then(Value::as_u64);
        let position = position
            .and_then(|it| usize::try_from(it).ok())
            .unwrap_or(length);
        let position = position.min(length);
        let files = |prefix: &str| complete::files(&self.folder, prefix);
        let completions = complete::complete(code, position, &self.names.borrow(), files);
        json!({
            "status": "ok",
            "matches": completions.matches,
            "cursor_start": completions.start,
            "cursor_end": position,
            "metadata": {},
        })
    }
}

/// Returns the id of a cell, if the front end sends it. VS Code sends a URI of its own instead.
fn cell_id(request: &Request) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        cell_id: String,
    }
    let metadata: Metadata = serde_json::from_slice(request.message.metadata()).ok()?;
    let id = metadata.cell_id;
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    ((1..=64).contains(&id.len()) && id.chars().all(is_part)).then_some(id)
}

fn kernel_info() -> Value {
    json!({
        "status": "ok",
        "protocol_version": "5.3",
        "implementation": "nb-chat",
        "implementation_version": env!("CARGO_PKG_VERSION"),
        "language_info": {
            "name": LANGUAGE,
            "version": "1",
            "mimetype": "text/markdown",
            "file_extension": ".md",
            "pygments_lexer": "markdown",
            "codemirror_mode": "markdown",
        },
        "banner": "A chat with coding agents. %agent help lists the commands.",
        "help_links": [],
        "supported_features": [],
    })
}

fn inspect(request: &Value) -> Value {
    let code = request
        .get("code")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let is_command = code.trim_start().starts_with(['%', '!']);
    let data = match is_command {
        true => json!({ "text/plain": cell::help() }),
        false => json!({}),
    };
    json!({ "status": "ok", "found": is_command, "data": data, "metadata": {} })
}

/// Returns whether a text matches a pattern with `*` and `?`.
fn is_like(text: &str, pattern: &str) -> bool {
    let mut expression = String::from("(?s)^");
    for c in pattern.chars().take(200) {
        match c {
            '*' => expression.push_str(".*"),
            '?' => expression.push('.'),
            c => expression.push_str(&regex::escape(&c.to_string())),
        }
    }
    expression.push('$');
    regex::Regex::new(&expression).is_ok_and(|it| it.is_match(text))
}
