//! `nb web`: its server as an attacker would try it, its REST interface and its websocket. `tests/browser/web.py` is
//! about the page.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Message, WebSocket};

use crate::made;
use crate::world::{World, finish, succeed};

/// Longer than anything may take.
const LONG: Duration = Duration::from_secs(60);

/// A server, until it is dropped.
pub struct WebServer {
    process: Child,
    pub port: u16,
    pub token: String,
}

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Response {
    /// Makes a response without a body.
    pub fn of_head(head: String) -> Self {
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
        Self {
            status: status.unwrap_or_default(),
            head,
            body: String::new(),
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:#?}");
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl WebServer {
    pub fn start(world: &World) -> Self {
        Self::start_at(world, 0)
    }

    fn start_at(world: &World, port: u16) -> Self {
        Self::of(world.nb().args(["web", "--port", &port.to_string()]))
    }

    pub fn of(command: &mut Command) -> Self {
        let mut process = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("start nb web");
        let mut url = String::new();
        BufReader::new(process.stdout.as_mut().expect("it has a stdout"))
            .read_line(&mut url)
            .expect("read the address");
        let parts = url
            .trim()
            .strip_prefix("http://127.0.0.1:")
            .and_then(|it| it.split_once("/?token="));
        let (port, token) = parts.unwrap_or_else(|| panic!("{url:?}"));
        assert_eq!(token.len(), 64, "{url}");
        Self {
            process,
            port: port.parse().expect("a port"),
            token: token.to_owned(),
        }
    }

    /// Ends the server as Ctrl-C does.
    pub fn interrupt(&mut self) -> std::process::ExitStatus {
        let pid = i32::try_from(self.process.id()).ok();
        let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("interrupt it");
        self.process.wait().expect("wait for its end")
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connect");
        stream.set_read_timeout(Some(LONG)).expect("set a limit");
        stream
    }

    /// Sends a request as it is.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let mut stream = self.connect();
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !headers.iter().any(|(name, _)| *name == "Content-Length") {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        stream
            .write_all(format!("{head}\r\n").as_bytes())
            .expect("write the head");
        // A refusal may come before all is written.
        let _ = stream.write_all(body.as_bytes());
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
        Response {
            status: status.unwrap_or_default(),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Exchanges the token for the cookie, as a browser does.
    pub fn cookie(&self) -> String {
        let host = self.host();
        let path = format!("/?token={}", self.token);
        let response = self.send("GET", &path, &[("Host", &host)], "").is(303);
        assert_eq!(response.header("Location"), Some("/"));
        let cookie = response.header("Set-Cookie").expect("a cookie");
        for word in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(word), "{cookie}");
        }
        assert!(!cookie.contains(&self.token));
        cookie.split(';').next().expect("a value").to_owned()
    }

    /// Sends a request of a program that has the token.
    pub fn rest(
        &self,
        method: &str,
        path: &str,
        if_match: Option<&str>,
        body: Option<Value>,
    ) -> Response {
        let (host, bearer) = (self.host(), format!("Bearer {}", self.token));
        let mut headers = vec![("Host", host.as_str()), ("Authorization", &bearer)];
        headers.extend(if_match.map(|tag| ("If-Match", tag)));
        if body.is_some() {
            headers.push(("Content-Type", "application/json"));
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        self.send(method, path, &headers, &body)
    }

    pub fn get(&self, path: &str) -> Response {
        self.rest("GET", path, None, None)
    }

    pub fn post(&self, path: &str, body: Value) -> Response {
        self.rest("POST", path, None, Some(body))
    }

    /// Connects to the websocket; the response is not 101 if that is refused.
    fn socket(&self, query: &str) -> Result<Socket, Response> {
        let mut stream = self.connect();
        let head = format!(
            "GET /api/ws{query} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            self.host(),
            self.token
        );
        stream.write_all(head.as_bytes()).expect("write the head");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("read the head");
            head.extend(byte);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        if !head.starts_with("HTTP/1.1 101 ") {
            return Err(Response::of_head(head));
        }
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        let socket = WebSocket::from_raw_socket(stream, Role::Client, None);
        Ok(Socket(socket))
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connected page.
struct Socket(WebSocket<TcpStream>);

impl Socket {
    fn next(&mut self) -> Value {
        loop {
            match self.0.read().expect("a message comes") {
                Message::Text(text) => return serde_json::from_str(&text).expect("it is JSON"),
                _ => continue,
            }
        }
    }

    fn send(&mut self, message: &Value) {
        let text = Message::text(message.to_string());
        self.0.send(text).expect("the server reads");
    }

    /// Returns the first message for which this is so, and those before it.
    fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let message = self.next();
            all.push(message.clone());
            if is_it(&message) {
                return all;
            }
        }
    }
}

/// Makes a notebook with cells of these ids and sources.
pub fn notebook(world: &World, name: &str, cells: &[(&str, &str)]) {
    let cells = cells.iter().map(|(id, source)| {
        json!({"cell_type": "code", "id": id, "metadata": {}, "source": source, "outputs": [],
            "execution_count": null})
    });
    let cells: Vec<_> = cells.collect();
    let text = json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5});
    std::fs::write(world.project().join(name), text.to_string()).expect("write the notebook");
}

fn agent(world: &World, words: &[&str]) -> String {
    let mut command = world.nb();
    succeed(command.args(words).env("NB_AS", "claude"))
}

#[test]
fn only_who_has_the_secret_is_served() {
    let world = World::new();
    notebook(&world, "a.ipynb", &[("cell0001", "1")]);
    let server = WebServer::start(&world);
    let (host, cookie) = (server.host(), server.cookie());
    let origin = format!("http://{host}");
    let good = [
        ("Host", host.as_str()),
        ("Cookie", &cookie),
        ("Origin", &origin),
    ];
    server.send("GET", "/api/notebooks", &good, "").is(200);
    let page = server.send("GET", "/", &good[..2], "").is(200);
    let policy = page.header("Content-Security-Policy").expect("a policy");
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self';"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("X-Content-Type-Options"), Some("nosniff"));
    assert_eq!(page.header("Referrer-Policy"), Some("no-referrer"));
    assert!(!page.body.contains(&server.token));
    let inline = regex::Regex::new(r"<script[^>]*>[^<]|<style|\son\w+=").expect("a pattern");
    assert!(!inline.is_match(&page.body), "{}", page.body);

    let with = |name: &str, value: &str| {
        let rest = good.iter().filter(|(known, _)| *known != name);
        let mut headers: Vec<_> = rest
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        if !value.is_empty() {
            headers.push((
                ["Host", "Cookie", "Origin"]
                    .into_iter()
                    .find(|known| *known == name)
                    .expect("a name"),
                value.to_owned(),
            ));
        }
        headers
    };
    let wrong = cookie.replace(char::is_numeric, "0");
    let paths = [
        "/",
        "/page.js",
        "/api/notebooks",
        "/api/openapi.json",
        "/api/ws",
        "/frames/a.ipynb/cell0001/0",
        "/nothing",
    ];
    for (headers, status) in [
        (with("Cookie", ""), 401),
        (with("Cookie", &wrong), 401),
        (with("Cookie", "nb=1; nb-0=2"), 401),
        (with("Host", ""), 400),
        (with("Host", "evil.example"), 403),
        (with("Host", &format!("evil.example:{}", server.port)), 403),
        (with("Host", "127.0.0.1.evil.example"), 403),
        (with("Host", "localhost@evil.example"), 403),
        (with("Host", "192.168.0.1"), 403),
        (with("Origin", "https://evil.example"), 403),
        (with("Origin", "null"), 403),
        (with("Origin", "http://127.0.0.1"), 403),
        (with("Origin", &format!("https://{host}")), 403),
        (with("Origin", &format!("{origin}.evil.example")), 403),
    ] {
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        for path in paths {
            let refused = server.send("GET", path, &headers, "");
            let is_so = refused.status == status || (status == 400 && refused.status == 403);
            assert!(is_so, "{path} {headers:?}: {refused:?}");
            assert!(refused.header("Access-Control-Allow-Origin").is_none());
            assert!(!refused.body.contains("a.ipynb"));
        }
    }
    // What the browser sends by itself changes nothing unless the page is named.
    let run = json!({"all": true}).to_string();
    let json = ("Content-Type", "application/json");
    let without = [good[0], good[1], json];
    server
        .send("POST", "/api/notebooks/a.ipynb/run", &without, &run)
        .is(403);
    // A form of another page can send such a body.
    let text = [good[0], good[1], good[2], ("Content-Type", "text/plain")];
    server
        .send("POST", "/api/notebooks/a.ipynb/run", &text, &run)
        .is(400);
    // A wrong token, and the token in another place.
    for path in [
        "/?token=",
        "/?token=0000",
        &format!("/api/notebooks?token={}", server.token),
    ] {
        server.send("GET", path, &good[..1], "").is(401);
    }
    let cross = server.send(
        "OPTIONS",
        "/api/notebooks",
        &[("Host", &host), ("Origin", "http://evil.example")],
        "",
    );
    assert_eq!(cross.status, 403, "{cross:?}");
}

#[test]
fn an_output_in_a_frame_has_no_origin_and_no_network() {
    let world = World::new();
    let outputs = json!([
        {"output_type": "stream", "name": "stdout", "text": "text"},
        {"output_type": "display_data", "metadata": {}, "data": {"text/html": ["<script>", "1</script>"]}},
    ]);
    let cell = json!({"cell_type": "code", "id": "cell0001", "metadata": {}, "source": "1", "outputs": outputs,
        "execution_count": null});
    let text = json!({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5});
    std::fs::write(world.project().join("a.ipynb"), text.to_string()).expect("write the notebook");
    let server = WebServer::start(&world);
    let frame = server.get("/frames/a.ipynb/cell0001/1").is(200);
    assert_eq!(frame.body, "<!doctype html>\n<script>1</script>");
    assert_eq!(
        frame.header("Content-Type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(frame.header("Referrer-Policy"), Some("no-referrer"));
    assert_eq!(frame.header("X-Frame-Options"), Some("SAMEORIGIN"));
    assert!(frame.header("Set-Cookie").is_none());
    let policy = frame.header("Content-Security-Policy").expect("a policy");
    assert!(
        policy.starts_with("sandbox allow-scripts; default-src 'none';"),
        "{policy}"
    );
    assert!(
        !policy.contains("http") && !policy.contains("allow-same-origin"),
        "{policy}"
    );
    for path in ["cell0001/0", "cell0001/2", "cell0001/x", "none0000/1"] {
        let missing = server.get(&format!("/frames/a.ipynb/{path}"));
        assert!(
            [400, 404, 422].contains(&missing.status),
            "{path}: {missing:?}"
        );
        let policy = missing.header("Content-Security-Policy").expect("a policy");
        assert!(policy.starts_with("sandbox"), "{policy}");
    }
    // The page has frames of outputs only, and itself is in none.
    let page = server.get("/").is(200);
    let policy = page.header("Content-Security-Policy").expect("a policy");
    let own = format!("frame-src http://{}/frames/", server.host());
    assert!(
        policy.ends_with(&own) && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    assert_eq!(page.header("X-Frame-Options"), Some("DENY"));
}

#[test]
fn a_cookie_ends_with_its_server() {
    let world = World::new();
    let first = WebServer::start(&world);
    let (port, cookie, token) = (first.port, first.cookie(), first.token.clone());
    let host = first.host();
    let headers = [("Host", host.as_str()), ("Cookie", &cookie)];
    first.send("GET", "/api/notebooks", &headers, "").is(200);
    drop(first);
    let second = WebServer::start_at(&world, port);
    assert_ne!(second.token, token);
    second.send("GET", "/api/notebooks", &headers, "").is(401);
    second
        .send("GET", &format!("/?token={token}"), &headers[..1], "")
        .is(401);
}

#[test]
fn a_kept_token_goes_on_after_its_server_and_the_cookie_does_not() {
    let world = World::new();
    let start = || WebServer::of(world.nb().args(["web", "--port", "0", "--keep-token"]));
    let first = start();
    let (token, cookie) = (first.token.clone(), first.cookie());
    drop(first);
    let second = start();
    assert_eq!(second.token, token);
    second.get("/api/notebooks").is(200);
    let host = second.host();
    let headers = [("Host", host.as_str()), ("Cookie", &cookie)];
    second.send("GET", "/api/notebooks", &headers, "").is(401);
    assert_ne!(
        WebServer::start(&world).token,
        token,
        "only where it is asked for"
    );
}

/// Other users can read the arguments of the program that opens the browser.
#[test]
fn an_address_that_is_opened_counts_once() {
    let world = World::new();
    // A program below the project would not be started.
    let programs = world.temporary().join("programs");
    std::fs::create_dir(&programs).expect("make a folder");
    let fifo = world.project().join("opened");
    succeed(Command::new("mkfifo").arg(&fifo));
    let script = programs.join("xdg-open");
    let text = format!("#!/bin/sh\necho \"$1\" > '{}'\n", fifo.display());
    std::fs::write(&script, text).expect("write a program");
    succeed(Command::new("chmod").arg("+x").arg(&script));
    let mut command = world.nb();
    let path = std::env::var("PATH").expect("a PATH");
    command.env("PATH", format!("{}:{path}", programs.display()));
    let server = WebServer::of(command.args(["web", "--open", "--port", "0"]));
    let opened = std::fs::read_to_string(&fifo).expect("read what was opened");
    let token = opened.trim().split_once("token=").expect("a token").1;
    assert_ne!(token, server.token);
    let host = server.host();
    let open = || server.send("GET", &format!("/?token={token}"), &[("Host", &host)], "");
    open().is(303);
    open().is(401);
    server.cookie();
}

#[test]
fn requests_and_pages_have_limits() {
    let world = World::new();
    notebook(&world, "a.ipynb", &[("cell0001", "1")]);
    let server = WebServer::start(&world);
    let (host, bearer) = (server.host(), format!("Bearer {}", server.token));
    let head = [
        ("Host", host.as_str()),
        ("Authorization", &bearer),
        ("Content-Type", "application/json"),
    ];
    let path = "/api/notebooks/a.ipynb/cells";
    let gigabyte = [head.as_slice(), &[("Content-Length", "1073741824")]].concat();
    server.send("POST", path, &gigabyte, "{").is(413);
    let source = json!({"source": "x".repeat(17 << 20)}).to_string();
    let long = server.send("POST", path, &head, &source);
    assert!(matches!(long.status, 0 | 413), "{}", long.status);
    let most = json!({"source": "x".repeat(1 << 20)});
    server.post(path, most).is(201);
    // Without a length, too.
    let mut stream = server.connect();
    let chunked = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {bearer}\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    );
    stream
        .write_all(chunked.as_bytes())
        .expect("write the head");
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
    let mut sent = 0;
    while sent < 64 && stream.write_all(chunk.as_bytes()).is_ok() {
        sent += 1;
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 413 "),
        "{answer}"
    );

    let mut pages: Vec<_> = (0..32)
        .map(|_| {
            server
                .socket("")
                .unwrap_or_else(|refused| panic!("{refused:?}"))
        })
        .collect();
    for page in &mut pages {
        assert_eq!(page.next()["type"], "hello");
    }
    assert_eq!(server.socket("").err().map(|it| it.status), Some(503));
    server.get("/api/notebooks").is(200);
    pages
        .pop()
        .expect("there are pages")
        .0
        .close(None)
        .expect("close");
    let place = (0..100).find_map(|_| {
        server.get("/api/notebooks").is(200);
        server.socket("").ok()
    });
    assert!(place.is_some(), "the place of a closed page is not free");
    // What is no websocket.
    server.get("/api/ws").is(426);
}

#[test]
fn no_path_leads_out() {
    let world = World::new();
    notebook(&world, "a.ipynb", &[("cell0001", "1")]);
    let outside = world.project().join("../outside");
    std::fs::create_dir(&outside).expect("make a folder");
    for file in ["b.ipynb", "b.txt"] {
        std::fs::copy(world.project().join("a.ipynb"), outside.join(file)).expect("copy");
    }
    symlink(&outside, world.project().join("folder")).expect("make a link");
    symlink(outside.join("b.ipynb"), world.project().join("link.ipynb")).expect("make a link");
    std::fs::write(world.project().join("secret.txt"), "secret").expect("write a file");
    let server = WebServer::start(&world);
    let absolute = outside.join("b.ipynb");
    let absolute = absolute.to_str().expect("a path").replace('/', "%2F");
    for id in [
        "..%2Foutside%2Fb.ipynb",
        "folder%2Fb.ipynb",
        "link.ipynb",
        "secret.txt",
        "%2Fetc%2Fpasswd",
        "..",
        "%2e%2e",
        "a.ipynb%00.txt",
        "%ff.ipynb",
        "none.ipynb",
        &absolute,
        "x%2F..%2F..%2Foutside%2Fb.ipynb",
    ] {
        for (method, rest) in [
            ("GET", ""),
            ("GET", "/log"),
            ("POST", "/run"),
            ("POST", "/open"),
        ] {
            if id == "none.ipynb" && rest == "/open" {
                continue;
            }
            let body = (method == "POST").then(|| json!({}));
            let refused = server.rest(method, &format!("/api/notebooks/{id}{rest}"), None, body);
            assert!(
                matches!(refused.status, 400 | 403 | 404),
                "{id}{rest}: {refused:?}"
            );
            assert!(!refused.body.contains("cell0001"), "{refused:?}");
        }
    }
    for path in [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2Fsecret.txt",
        "/secret.txt",
        "//etc/passwd",
        "/page.js/",
        "/index.html%00",
        "/api/notebooks/",
        "/api/../page.js",
    ] {
        let refused = server.get(path);
        assert!(matches!(refused.status, 400 | 404), "{path}: {refused:?}");
    }
}

#[test]
fn cells_are_read_and_changed() {
    let world = World::new();
    notebook(
        &world,
        "a b.ipynb",
        &[("cell0001", "x = 1"), ("cell0002", "y = 2")],
    );
    let server = WebServer::start(&world);
    let listed = server.get("/api/notebooks").is(200).json();
    assert_eq!(listed["notebooks"], json!(["a b.ipynb"]));
    let base = "/api/notebooks/a%20b.ipynb";
    let path = |rest: &str| format!("{base}{rest}");
    let read = server.get(base).is(200);
    let whole = read.json();
    assert_eq!(
        read.header("ETag"),
        Some(&*format!("{}", whole["revision"]))
    );
    assert_eq!(whole["cells"][1]["source"], "y = 2");
    let cell = server.get(&path("/cells/cell0001")).is(200);
    let tag = cell.header("ETag").expect("an ETag").to_owned();
    assert_eq!(cell.json()["source"], "x = 1");

    // A change says what it is made from.
    let source = |text: &str| Some(json!({"source": text}));
    let put =
        |tag: Option<&str>, text| server.rest("PUT", &path("/cells/cell0001"), tag, source(text));
    put(None, "x = 3").is(428);
    put(Some("\"zz\""), "x = 3").is(400);
    let edited = put(Some(&tag), "x = 3").is(200);
    let newer = edited.header("ETag").expect("an ETag").to_owned();
    assert_ne!(newer, tag);
    let conflict = put(Some(&tag), "x = 4").is(409).json();
    let sides = &conflict["error"]["conflicts"][0];
    assert_eq!(
        [&sides["base"], &sides["yours"], &sides["theirs"]],
        ["x = 1", "x = 4", "x = 3"],
        "{conflict}"
    );
    assert_eq!(format!("{}", sides["revision"]), newer);
    // An agent's edit counts as well.
    agent(&world, &["cells", "a b.ipynb"]);
    agent(&world, &["cell", "a b.ipynb", "cell0001"]);
    agent(&world, &["edit", "a b.ipynb", "cell0001", "x = 5"]);
    let conflict = put(Some(&newer), "x = 6").is(409).json();
    assert_eq!(conflict["error"]["conflicts"][0]["theirs"], "x = 5");
    put(Some("*"), "x = 7").is(200);
    let undone = server.post(&path("/undo"), json!({})).is(200).json();
    assert_eq!(undone["undone"]["command"], "edit", "{undone}");

    let new = json!({"source": "# z", "type": "markdown", "after": "cell0001"});
    let inserted = server.post(&path("/cells"), new).is(201);
    let tag = inserted.header("ETag").expect("an ETag").to_owned();
    let id = inserted.json()["changes"][0]["cell"]
        .as_str()
        .expect("an id")
        .to_owned();
    let to = path(&format!("/cells/{id}/move"));
    let place = || Some(json!({"index": 0}));
    server.rest("POST", &to, None, place()).is(428);
    server
        .rest("POST", &to, Some("\"0000000000\""), place())
        .is(409);
    server.rest("POST", &to, Some(&tag), place()).is(200);
    let first = &server.get(base).json()["cells"][0];
    assert_eq!(
        [&first["id"], &first["type"]],
        [&json!(id), &json!("markdown")]
    );
    let removed = path(&format!("/cells/{id}"));
    server.rest("DELETE", &removed, None, None).is(428);
    server
        .rest("DELETE", &removed, Some("\"0000000000\""), None)
        .is(409);
    server.rest("DELETE", &removed, Some(&tag), None).is(200);
    server.get(&removed).is(404);
    server
        .rest("PUT", &removed, Some(&tag), source("x"))
        .is(404);
    let deleted = server.get(&path("/deleted")).is(200).json();
    assert_eq!(deleted["deleted"][0]["cell"], json!(id), "{deleted}");
    server
        .post(&path(&format!("/cells/{id}/restore")), json!({}))
        .is(200);
    server.get(&removed).is(200);

    let log = server.get(&path("/log?count=0")).is(200).json();
    let log = log["log"].as_array().expect("a list");
    let by = |name: &str| log.iter().filter(|entry| entry["by"] == name).count();
    assert_eq!((by("human (browser)"), by("claude")), (7, 1), "{log:#?}");
    for (bad, status) in [
        (json!({"sauce": "x"}), 400),
        (json!({"source": 1}), 400),
        (json!([]), 400),
        (json!({"source": "x", "after": "none"}), 422),
    ] {
        server.post(&path("/cells"), bad).is(status);
    }
}

#[test]
fn a_page_that_closes_gets_its_close_frame_back() {
    let world = World::new();
    let server = WebServer::start(&world);
    let mut page = server.socket("").expect("connect");
    assert_eq!(page.next()["name"], "human (browser)");
    page.0.close(None).expect("close");
    assert_eq!(page.0.read().expect("an answer"), Message::Close(None));
}

#[test]
fn a_page_says_what_is_typed_and_opens_no_notebook_outside() {
    let world = World::new();
    notebook(&world, "t.ipynb", &[("cell0001", "x = 1")]);
    std::fs::create_dir(world.project().join("in")).expect("make a folder");
    notebook(&world, "in/t.ipynb", &[("cell0001", "x = 1")]);
    world.open("t.ipynb");
    let mut command = world.nb();
    command.args(["web", "--port", "0", "--root", "in"]);
    let server = WebServer::of(&mut command);
    server.get("/api/notebooks/t.ipynb").is(200);
    let mut page = server.socket("").expect("connect");
    assert_eq!(page.next()["type"], "hello");
    let cells =
        json!([{"cell": "cell0001", "id": "cell0001", "cell_type": "code", "source": "x = 1"}]);
    let open = |notebook: &str| json!({"type": "open", "doc": "d", "notebook": notebook, "cells": cells, "dirty": false});
    let is_live = |message: &Value| message["type"] == "live";
    let outside = world.project().join("t.ipynb");
    for bad in [
        "../t.ipynb",
        outside.to_str().expect("a text"),
        "none.txt",
        "",
    ] {
        page.send(&open(bad));
        let ended = page.until(is_live).pop().expect("an answer");
        assert_eq!(ended["message"], Value::Null, "{bad}: {ended}");
    }
    page.send(&json!(["no message"]));
    page.send(&json!({"type": "initialize", "editor": "VS Code"}));
    page.send(&open("t.ipynb"));
    let synced = page.until(|message| message["message"]["type"] == "synced");
    assert!(
        synced
            .iter()
            .any(|it| it["message"]["type"] == "initialized")
    );
    page.send(&json!({"type": "text", "doc": "d", "cell": "cell0001", "source": "typed = 1"}));
    let records = || {
        let folder = std::fs::read_dir(world.project().join(".nb/live"));
        let files = folder.into_iter().flatten().flatten();
        let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
        texts.collect::<String>()
    };
    crate::nb::until("the text is recorded", || {
        records().contains("typed = 1").then_some(())
    });
    let words = [
        "--as",
        "claude",
        "edit",
        "in/t.ipynb",
        "cell0001",
        "agent = 1",
    ];
    let (status, _, said) = finish(world.nb().args(words));
    assert_eq!(status.code(), Some(5), "{said}");
    assert!(
        said.contains("browser has unsaved text of the cell"),
        "{said}"
    );
    drop(page);
    crate::nb::until("the record ends with the page", || {
        records().is_empty().then_some(())
    });
}

#[test]
fn pages_hear_what_happens() {
    let world = World::new();
    notebook(
        &world,
        "t.ipynb",
        &[
            ("cell0001", "print('hello')"),
            ("cell0002", "name = input('who? ')\nprint(name * 2)"),
            (
                "cell0003",
                "import time\nfor i in range(600):\n    print(i, flush=True)\n    time.sleep(0.1)",
            ),
            (
                "cell0004",
                "from IPython.display import clear_output\nprint('one')\nclear_output(wait=True)\nprint('two')\nfor i in range(4):\n    print(f'\\r{i} %', end='', flush=True)\nprint()\nhandle = display('old', display_id=True)\nprint('end')\nhandle.update('new')\ninput()",
            ),
        ],
    );
    world.open("t.ipynb");
    let server = WebServer::start(&world);
    let base = "/api/notebooks/t.ipynb";
    let path = |rest: &str| format!("{base}{rest}");
    let mut page = server.socket("").expect("connect");
    let hello = page.next();
    assert_eq!(hello["type"], "hello");
    server.get(base).is(200);
    let run = |cell: &str| {
        let begun = server.post(&path("/run"), json!({"cells": [cell]})).is(202);
        begun.json()["job"].as_str().expect("a job").to_owned()
    };
    let is_event = |message: &Value, kind: &str| {
        message["type"] == "event" && message["event"]["event"] == kind
    };
    run("cell0001");
    let messages = page.until(|message| is_event(message, "done"));
    assert!(
        messages
            .iter()
            .any(|message| is_event(message, "requested")
                && message["event"]["by"] == "human (browser)"),
        "{messages:#?}"
    );
    let changed =
        |message: &Value| message["type"] == "changed" && message["notebook"] == "t.ipynb";
    let has_output = || {
        let cell = server.get(&path("/cells/cell0001")).json();
        cell["outputs"][0]["text"] == "hello\n" || cell["outputs"][0]["text"] == json!(["hello\n"])
    };
    while !has_output() {
        page.until(changed);
    }

    // A question is asked, and answered.
    let job = run("cell0002");
    let asked = page
        .until(|message| message["type"] == "prompt")
        .pop()
        .expect("it asks");
    assert_eq!(
        [&asked["prompt"]["prompt"], &asked["cell"], &asked["job"]],
        [&json!("who? "), &json!("cell0002"), &json!(job)]
    );
    server
        .post(&path("/reply"), json!({"job": job, "text": "ab"}))
        .is(200);
    let messages = page.until(|message| is_event(message, "done"));
    let rest = page.until(|message| message["type"] == "prompt");
    assert_eq!(
        rest.last().expect("it has been answered")["prompt"],
        Value::Null
    );
    let prints = |messages: &[Value], cell: &str| {
        let of_cell = messages
            .iter()
            .filter(|message| message["type"] == "output" && message["cell"] == cell);
        let outputs =
            of_cell.flat_map(|message| message["outputs"].as_array().cloned().unwrap_or_default());
        outputs
            .filter_map(|output| output["text"].as_str().map(str::to_owned))
            .collect::<String>()
    };
    let all = [messages, rest].concat();
    assert!(prints(&all, "cell0002").contains("abab\n"), "{all:#?}");
    let variables = server.get(&path("/variables")).is(200).json();
    assert!(variables.to_string().contains("\"name\""), "{variables}");

    // They are folded: the rest of a message replaces what is after its place.
    run("cell0004");
    let folds = |messages: &[Value]| {
        let mut outputs: Vec<Value> = Vec::new();
        let of_cell = messages
            .iter()
            .filter(|message| message["type"] == "output" && message["cell"] == "cell0004");
        for message in of_cell {
            let from = message["from"].as_u64().expect("a place");
            outputs.truncate(usize::try_from(from).expect("a place"));
            outputs.extend(message["outputs"].as_array().cloned().expect("a list"));
        }
        outputs
    };
    let mut messages = page.until(|message| message["type"] == "prompt");
    let stream = |text: &str| json!({"output_type": "stream", "name": "stdout", "text": text});
    let folded = folds(&messages);
    assert_eq!(folded[0], stream("two\n3 %\n"), "{folded:#?}");
    assert_eq!(folded[1]["data"]["text/plain"], "'new'");
    assert_eq!(folded[2..], [stream("end\n")]);
    let running = server.get(&path("/cells/cell0004/running")).is(200).json();
    assert_eq!(running["outputs"], json!(folded));
    server
        .post(
            &path("/reply"),
            json!({"job": messages.last().expect("it asks")["job"], "text": ""}),
        )
        .is(200);
    messages.extend(page.until(|message| is_event(message, "done")));

    // Outputs come while the cell runs; an interrupt ends it; an agent's edit arrives as well.
    run("cell0003");
    let mut messages = Vec::new();
    while !prints(&messages, "cell0003").contains("3\n") {
        messages.push(page.next());
    }
    assert!(
        !messages.iter().any(|message| is_event(message, "done")),
        "{messages:#?}"
    );
    let status = server.get(&path("/kernel")).is(200).json();
    assert_eq!(
        status["sessions"][0]["running"]["cell"], "cell0003",
        "{status}"
    );
    server.post(&path("/interrupt"), json!({})).is(200);
    let done = page
        .until(|message| is_event(message, "done"))
        .pop()
        .expect("it ends");
    assert_eq!(done["event"]["status"], "interrupted", "{done}");
    agent(&world, &["insert", "t.ipynb", "z = 1"]);
    let edited = page
        .until(|message| is_event(message, "edited"))
        .pop()
        .expect("an edit");
    assert_eq!(edited["event"]["by"], "claude");

    // A page that connects again misses nothing.
    let number = edited["number"].as_u64().expect("a number");
    let run = hello["run"].as_str().expect("a run");
    let mut again = server
        .socket(&format!("?run={run}&after={}", number - 1))
        .expect("connect");
    assert_eq!(again.next()["type"], "hello");
    assert_eq!(again.next(), edited);
    let mut other = server.socket("?run=other&after=1").expect("connect");
    assert_eq!(other.next()["type"], "hello");
    assert_eq!(other.next(), json!({"type": "reload"}));

    // An agent's work is not ended without a word.
    let mut long = world.nb();
    succeed(long.env("NB_AS", "claude").args([
        "run",
        "-n",
        "t.ipynb",
        "--detach",
        "import time; time.sleep(600)",
    ]));
    page.until(|message| is_event(message, "requested") && message["event"]["by"] == "claude");
    // The kernel helps who writes, also while that cell runs.
    let code = json!({"code": "ä = len([1])\nimport thr", "at": 23});
    let found = server.post(&path("/complete"), code).is(200).json();
    let matches = found["matches"].as_array().expect("a list");
    assert!(
        matches.iter().any(|it| it["text"] == "threading"),
        "{found}"
    );
    assert_eq!((&found["from"], &found["to"]), (&json!(20), &json!(23)));
    let code = json!({"code": "len([1])", "at": 2});
    let found = server.post(&path("/documentation"), code).is(200).json();
    let text = found["text"].as_str().unwrap_or_default();
    assert!(text.contains("number of items"), "{found}");
    let losses = server.get(&path("/losses")).is(200).json();
    assert_eq!(
        losses["would"].as_array().map(Vec::len),
        Some(1),
        "{losses}"
    );
    let would = losses["would"][0].as_str().unwrap_or_default();
    assert!(would.starts_with("end claude's code"), "{would}");
    let refused = server.post(&path("/restart"), json!({})).is(403).json();
    assert_eq!(refused["error"]["kind"], "refused", "{refused}");
    server
        .post(&path("/interrupt"), json!({"force": true}))
        .is(200);
    server
        .post(&path("/restart"), json!({"force": true}))
        .is(200);
    page.until(|message| is_event(message, "restarted"));
    server
        .post(&path("/shutdown"), json!({"force": true}))
        .is(200);
    page.until(|message| is_event(message, "stopped"));
    server.get(&path("/variables")).is(503);
}

/// Each method of the description is served: it is neither 405 nor the router's own 404, which has no body.
#[test]
fn what_is_described_is_there() {
    let world = World::new();
    notebook(&world, "a.ipynb", &[("cell0001", "1")]);
    let server = WebServer::start(&world);
    let described = server.get("/api/openapi.json").is(200).json();
    let paths = described["paths"].as_object().expect("paths");
    assert!(paths.len() > 15, "{}", paths.len());
    for (path, methods) in paths {
        let path = path.replace("{id}", "none.txt").replace("{cell}", "none");
        for method in methods.as_object().expect("methods").keys() {
            let response = server.rest(&method.to_uppercase(), &path, Some("*"), None);
            let is_served = response.status != 405 && !response.body.is_empty();
            assert!(is_served, "{method} {path}: {response:?}");
        }
    }
}

/// The files of the page are made from its sources, byte for byte.
#[test]
fn the_built_page_is_that_of_its_sources() {
    const PACKAGE: &str = include_str!("../../crates/servers/src/web/page/package.json");
    const LOCKED: &str = include_str!("../../crates/servers/src/web/page/package-lock.json");
    let Some(modules) = crate::node::installed("test-web-page", PACKAGE, LOCKED) else {
        return;
    };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/servers/src/web/page");
    // The packages stand where the sources find them, in a folder of their own.
    let home = tempfile::tempdir().expect("make a folder");
    made::run(
        Command::new("cp")
            .arg("-r")
            .arg(page.join("source"))
            .arg(page.join("build.mjs"))
            // Its type decides how packages are imported.
            .arg(page.join("package.json"))
            .arg(home.path()),
    );
    symlink(modules, home.path().join("node_modules")).expect("make a link");
    made::run(
        Command::new("node")
            .arg("build.mjs")
            .current_dir(home.path()),
    );
    let names = |folder: &Path| {
        let entries = std::fs::read_dir(folder.join("built")).expect("read the folder");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("read an entry").file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&page), names(home.path()));
    for name in names(&page) {
        let read =
            |folder: &Path| std::fs::read(folder.join("built").join(&name)).expect("read a file");
        let is_same = read(&page) == read(home.path());
        assert!(
            is_same,
            "{name:?} is out of date: npm ci && node build.mjs in crates/servers/src/web/page writes it"
        );
    }
}

#[test]
fn the_page_draws_what_is_hidden_as_the_program_does() {
    use nb::notebook::{OWN, is_hidden, visible};
    use std::fmt::Write as _;

    if !crate::skipped::has_program("node", "nodejs") {
        return;
    }
    // Every character alone, and all that is hidden beside letters that may need it.
    let characters = || ('\0'..=char::MAX).filter(|c| *c != OWN);
    let mut text: String = characters().flat_map(|c| ['x', c]).collect();
    for c in characters().filter(|c| is_hidden(*c)) {
        for before in [
            "م",
            "क",
            "👩",
            "👨🏽",
            "👩\u{fe0f}",
            "x\u{fe0f}",
            "葛",
            "1",
            "ᠠ",
            "∩",
        ] {
            for after in ["👩", "\u{20e3}", "x", "\u{200d}"] {
                writeln!(text, "{before}{c}{after}").expect("a text grows");
            }
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("text");
    std::fs::write(&file, &text).expect("write the text");
    let module =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/servers/src/web/page/source/visible.js");
    let script = "import { readFileSync } from 'node:fs';
        const { visible } = await import(process.argv[1]);
        process.stdout.write(visible(readFileSync(process.argv[2], 'utf8')));";
    let mut node = Command::new("node");
    node.args(["--input-type=module", "-e", script]);
    let drawn = node.arg(module).arg(file).output().expect("run node");
    assert!(
        drawn.status.success(),
        "{}",
        String::from_utf8_lossy(&drawn.stderr)
    );
    let drawn = String::from_utf8(drawn.stdout).expect("a text");
    let expected = visible(&text);
    for (at, (page, program)) in drawn.lines().zip(expected.lines()).enumerate() {
        assert!(page == program, "line {at}: {page:?}, not {program:?}");
    }
    assert_eq!(drawn.len(), expected.len());
}
