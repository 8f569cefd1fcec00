//! A provider of models whose answers are scripted, in both interfaces.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// An answer of the model.
#[derive(Clone, Debug)]
pub struct Scripted {
    status: u16,
    headers: Vec<(&'static str, String)>,
    /// The body, in pieces.
    pieces: Vec<String>,
    /// Whether the connection stays open after the last piece.
    hangs: bool,
}

/// A piece of an answer.
pub enum Part<'a> {
    Text(&'a str),
    /// A call: its id, the tool, the arguments.
    Call(&'a str, &'a str, Value),
}

impl Scripted {
    /// Returns an answer in Anthropic's interface.
    pub fn anthropic(parts: &[Part<'_>]) -> Self {
        let mut events = vec![json!({
            "type": "message_start",
            "message": {"usage": {"input_tokens": 100, "output_tokens": 1}},
        })];
        let mut reason = "end_turn";
        for (index, part) in parts.iter().enumerate() {
            let (block, delta) = match part {
                Part::Text(text) => (
                    json!({"type": "text", "text": ""}),
                    json!({"type": "text_delta", "text": text}),
                ),
                Part::Call(id, name, arguments) => {
                    reason = "tool_use";
                    (
                        json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
                        json!({"type": "input_json_delta", "partial_json": arguments.to_string()}),
                    )
                }
            };
            events.extend([
                json!({"type": "content_block_start", "index": index, "content_block": block}),
                json!({"type": "content_block_delta", "index": index, "delta": delta}),
                json!({"type": "content_block_stop", "index": index}),
            ]);
        }
        events.push(json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason},
            "usage": {"output_tokens": 10},
        }));
        events.push(json!({"type": "message_stop"}));
        Self::events(&events)
    }

    /// Returns an answer of these events of Anthropic's interface.
    pub fn events(events: &[Value]) -> Self {
        let pieces = events.iter().map(|event| {
            let name = event["type"].as_str().expect("an event has a type");
            format!("event: {name}\ndata: {event}\n\n")
        });
        Self::raw(200, pieces.collect())
    }

    pub fn text(text: &str) -> Self {
        Self::anthropic(&[Part::Text(text)])
    }

    pub fn calls(id: &str, name: &str, arguments: Value) -> Self {
        Self::anthropic(&[Part::Call(id, name, arguments)])
    }

    /// Returns a refusal.
    pub fn fails(status: u16, message: &str) -> Self {
        let error = json!({"type": "error", "error": {"type": "some_error", "message": message}});
        Self::raw(status, vec![error.to_string()])
    }

    pub fn raw(status: u16, pieces: Vec<String>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            pieces,
            hangs: false,
        }
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Leaves out the last pieces; the connection ends there.
    pub fn without_last(mut self, count: usize) -> Self {
        self.pieces.truncate(self.pieces.len() - count);
        self
    }

    /// Leaves out the last pieces; the connection stays open.
    pub fn hangs_before_last(self, count: usize) -> Self {
        Self {
            hangs: true,
            ..self.without_last(count)
        }
    }
}

/// A request that the provider got.
#[derive(Debug)]
pub struct ReceivedRequest {
    pub head: String,
    pub body: Value,
}

impl ReceivedRequest {
    /// Returns the texts of the results in the last message.
    pub fn results(&self) -> Vec<String> {
        let last = self.body["messages"]
            .as_array()
            .and_then(|messages| messages.last());
        let content = last.and_then(|message| message["content"].as_array());
        let results = content.into_iter().flatten();
        results
            .filter(|part| part["type"] == "tool_result")
            .map(|part| {
                part["content"][0]["text"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect()
    }
}

/// A provider, whose thread ends with the test.
pub struct ModelServer {
    pub base: String,
    asked: Receiver<ReceivedRequest>,
}

impl ModelServer {
    /// Starts a provider that gives these answers, one after the other; the last one again and again.
    pub fn start(answers: Vec<Scripted>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a port");
        let port = listener.local_addr().expect("an address").port();
        let (sender, asked) = channel();
        std::thread::spawn(move || {
            let mut answers = answers.into_iter().peekable();
            for stream in listener.incoming() {
                let Some(answer) = answers.peek().cloned() else {
                    return;
                };
                answers.next();
                if answers.peek().is_none() {
                    answers = vec![answer.clone()].into_iter().peekable();
                }
                let stream = stream.expect("a connection");
                let sender = sender.clone();
                std::thread::spawn(move || answer_to(&stream, &answer, &sender));
            }
        });
        Self {
            base: format!("http://127.0.0.1:{port}"),
            asked,
        }
    }

    /// Returns whether there is a request that [`ModelServer::asked`] has not returned.
    pub fn was_asked(&self) -> bool {
        self.asked.try_recv().is_ok()
    }

    /// Returns the next request.
    #[track_caller]
    pub fn asked(&self) -> ReceivedRequest {
        let asked = self.asked.recv_timeout(Duration::from_secs(60));
        asked.expect("the provider is asked")
    }
}

fn answer_to(mut stream: &TcpStream, answer: &Scripted, asked: &Sender<ReceivedRequest>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).expect("read the head") == 0 {
            return;
        }
    }
    let lower = head.to_lowercase();
    let length = lower.split_once("content-length: ").expect("a length").1;
    let length = length.lines().next().and_then(|it| it.parse().ok());
    let mut body = vec![0; length.expect("a number")];
    reader.read_exact(&mut body).expect("read the body");
    let body = serde_json::from_slice(&body).expect("the body is JSON");
    let _ = asked.send(ReceivedRequest { head, body });
    let mut head = format!("HTTP/1.1 {} Status\r\nConnection: close\r\n", answer.status);
    if answer
        .headers
        .iter()
        .all(|(name, _)| *name != "Content-Type")
    {
        head += "Content-Type: text/event-stream\r\n";
    }
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let _ = stream.write_all(format!("{head}\r\n").as_bytes());
    for piece in &answer.pieces {
        let _ = stream.write_all(piece.as_bytes());
    }
    if answer.hangs {
        // Until the client goes.
        let _ = stream.read(&mut [0]);
    }
}
