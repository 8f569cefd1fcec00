//! `nb web` as a Jupyter server for VS Code and JupyterLab: who is served, the REST interface, the websockets of
//! kernels. The scripts in `tests/node` use the front ends' own library; a real Jupyter server stands between in one.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nb::server::websocket::Framing;
use nb::wire::{Channel, NewHeader, Verified};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Message, WebSocket};

use crate::nb::until;
use crate::web::{Response, WebServer, notebook};
use crate::world::{World, succeed};

const SUBPROTOCOL: &str = "v1.kernel.websocket.jupyter.org";

/// Runs a scenario of `tests/node` with the address of a server.
fn scenario(world: &World, server: &WebServer, name: &str) {
    if let Some(mut command) = world.node(name) {
        command
            .env("NB_WEB_URL", format!("http://{}/", server.host()))
            .env("NB_WEB_TOKEN", &server.token);
        succeed(&mut command);
    }
}

/// The websocket of a kernel, in the JSON framing.
struct Channels(WebSocket<TcpStream>);

impl Channels {
    fn send(&mut self, msg_id: &str, msg_type: &str, content: &Value) {
        let message = json!({
            "channel": "shell", "parent_header": {}, "metadata": {}, "content": content, "buffers": [],
            "header": {"msg_id": msg_id, "msg_type": msg_type, "session": "s", "username": "u",
                "version": "5.3", "date": "2026-01-01T00:00:00Z"},
        });
        let message = Message::text(message.to_string());
        self.0.send(message).expect("send a message");
    }

    fn run(&mut self, msg_id: &str, code: &str) {
        let content = json!({"code": code, "silent": false, "store_history": true, "allow_stdin": false,
            "stop_on_error": false, "user_expressions": {}});
        self.send(msg_id, "execute_request", &content);
    }

    /// Sends a request in the framing of byte ranges, and waits for its reply there.
    fn asks_and_is_answered(&mut self) {
        let header = NewHeader {
            msg_id: "r1",
            session: "s",
            username: "u",
            date: "2026-01-01T00:00:00Z",
            msg_type: "kernel_info_request",
        };
        let request = Verified::new(&header, Bytes::from_static(b"{}"), &json!({}));
        let frame = Framing::V1.write(Channel::Shell, &request);
        self.0.send(frame.expect("it is JSON")).expect("send it");
        loop {
            let received = self.0.read().expect("a message comes");
            let read = Framing::V1.read(received).expect("it is a message");
            let Some((Channel::Shell, reply)) = read else {
                continue;
            };
            let header = reply.header().expect("a header");
            assert_eq!(header.msg_type, "kernel_info_reply");
            assert_eq!(reply.parent().expect("a parent").msg_id, "r1");
            return;
        }
    }

    /// Returns the next message, or how the server has closed.
    fn next(&mut self) -> Result<Value, (u16, String)> {
        loop {
            match self.0.read() {
                Ok(Message::Text(text)) => {
                    return Ok(serde_json::from_str(&text).expect("it is JSON"));
                }
                Ok(Message::Close(Some(frame))) => {
                    return Err((frame.code.into(), frame.reason.to_string()));
                }
                Ok(_) => {}
                Err(error) => panic!("no message comes: {error}"),
            }
        }
    }

    /// Reads until the server closes; returns how.
    fn closed(&mut self) -> (u16, String) {
        loop {
            if let Err(closed) = self.next() {
                return closed;
            }
        }
    }

    /// Returns the text that a request prints, up to a text.
    fn printed(&mut self, msg_id: &str, until: &str) -> String {
        let mut text = String::new();
        while !text.contains(until) {
            let message = self.next().expect("it is not closed");
            if message["parent_header"]["msg_id"] == msg_id && message["msg_type"] == "stream" {
                text += message["content"]["text"].as_str().expect("a text");
            }
        }
        text
    }
}

/// Asks for the websocket of a kernel, with these headers besides; the response is not 101 if it is refused.
fn open(
    server: &WebServer,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<(Channels, String), Response> {
    let mut stream = server.connect();
    let mut head = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        server.host()
    );
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream
        .write_all(format!("{head}\r\n").as_bytes())
        .expect("write the head");
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
    let socket = WebSocket::from_raw_socket(stream, Role::Client, None);
    Ok((Channels(socket), head))
}

/// Returns the path of the only kernel's websocket, with the token.
fn channels_path(server: &WebServer) -> String {
    format!(
        "/api/kernels/{}/channels?token={}",
        kernel_id(server),
        server.token
    )
}

/// Returns the id of the only kernel.
fn kernel_id(server: &WebServer) -> String {
    let kernels = server.get("/api/kernels").is(200).json();
    let kernels = kernels.as_array().expect("a list");
    assert_eq!(kernels.len(), 1, "{kernels:?}");
    kernels[0]["id"].as_str().expect("an id").to_owned()
}

#[test]
fn the_token_opens_and_nothing_else_does() {
    let world = World::opened();
    let server = WebServer::start(&world);
    let (host, token) = (server.host(), server.token.clone());
    let id = kernel_id(&server);
    let channels = format!("/api/kernels/{id}/channels");
    let paths = [
        "/api",
        "/api/status",
        "/api/kernels",
        "/api/kernelspecs",
        "/api/sessions",
    ];
    let get = |path: &str, headers: &[(&str, &str)]| {
        let mut all = vec![("Host", host.as_str())];
        all.extend(headers);
        let response = server.send("GET", path, &all, "");
        assert!(response.header("Access-Control-Allow-Origin").is_none());
        response
    };
    for path in paths {
        for words in ["token", "Bearer"] {
            let good = format!("{words} {token}");
            get(path, &[("Authorization", &good)]).is(200);
            let wrong = format!("{words} {}", token.replace(char::is_numeric, "0"));
            get(path, &[("Authorization", &wrong)]).is(401);
        }
        get(&format!("{path}?a=b&token={token}"), &[]).is(200);
        get(&format!("{path}?token=0{token}"), &[]).is(401);
        get(path, &[]).is(401);
        let evil = ("Origin", "http://evil.example");
        get(&format!("{path}?token={token}"), &[evil]).is(403);
    }
    // Elsewhere the token in an address opens nothing.
    get(&format!("/api/notebooks?token={token}"), &[]).is(401);
    get(&format!("/api/ws?token={token}"), &[]).is(401);
    let other = server.send(
        "GET",
        &format!("/api/kernels?token={token}"),
        &[("Host", "evil.example")],
        "",
    );
    other.is(403);

    // A browser sends the cookie by itself: a websocket must come from the page.
    let cookie = server.cookie();
    let refused = |path: &str, headers: &[(&str, &str)], status: u16| {
        let refused = open(&server, path, headers).err().expect("it is refused");
        assert_eq!(refused.status, status, "{headers:?}");
    };
    refused(&channels, &[], 401);
    refused(&format!("{channels}?token=0"), &[], 401);
    refused(&channels, &[("Cookie", &cookie)], 403);
    let evil = [
        ("Cookie", cookie.as_str()),
        ("Origin", "http://evil.example"),
    ];
    refused(&channels, &evil, 403);
    let authorization = format!("token {token}");
    let authorized = [("Authorization", authorization.as_str())];
    refused("/api/kernels/0-0-0-0-0/channels", &authorized, 404);
    // A request of the cookie's that changes something must come from the page too.
    let restart = format!("/api/kernels/{id}/restart");
    let headers = [("Host", host.as_str()), ("Cookie", &cookie)];
    server.send("POST", &restart, &headers, "").is(403);

    let by_query = format!("{channels}?token={token}");
    let (mut json, head) = open(&server, &by_query, &[]).expect("it opens");
    let head = head.to_ascii_lowercase();
    assert!(!head.contains("sec-websocket-protocol"), "{head}");
    json.run("r1", "print('as JSON')");
    assert_eq!(json.printed("r1", "JSON\n"), "as JSON\n");
    let offer = ("Sec-WebSocket-Protocol", SUBPROTOCOL);
    let (mut ranges, head) = open(&server, &channels, &[authorized[0], offer]).expect("it opens");
    assert!(head.contains(SUBPROTOCOL), "{head}");
    ranges.asks_and_is_answered();
}

#[test]
fn kernels_and_sessions_are_those_of_the_notebooks() {
    let world = World::opened();
    notebook(&world, "other.ipynb", &[("cell0001", "1")]);
    let server = WebServer::start(&world);
    let version = server.get("/api").is(200).json();
    assert_eq!(version, json!({"version": env!("CARGO_PKG_VERSION")}));
    let id = kernel_id(&server);
    let kernel = server.get(&format!("/api/kernels/{id}")).is(200).json();
    assert_eq!(kernel["name"], "nb-shared");
    assert_eq!(kernel["connections"], 0);
    let time = kernel["last_activity"].as_str().expect("a time");
    let form = regex::Regex::new(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$").expect("a pattern");
    assert!(form.is_match(time), "{time}");
    let sessions = server.get("/api/sessions").is(200).json();
    assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{sessions}");
    let session = &sessions[0];
    assert_eq!(
        (&session["path"], &session["type"]),
        (&json!("t.ipynb"), &json!("notebook"))
    );
    assert_eq!(session["kernel"]["id"], id.as_str());
    let session_path = format!("/api/sessions/{}", session["id"].as_str().expect("an id"));
    server.get(&session_path).is(200);
    server.get("/api/sessions/none").is(404);
    server.get("/api/kernels/none").is(404);
    server.get("/api/kernelspecs/nb-shared").is(200);
    let missing = server.get("/api/kernelspecs/python3").is(404).json();
    assert!(
        missing["message"]
            .as_str()
            .is_some_and(|it| it.contains("python3")),
        "{missing}"
    );
    assert_eq!(server.get("/api/status").is(200).json()["kernels"], 1);

    // A session is made for a notebook below the root only.
    let wanted =
        json!({"path": "t.ipynb", "name": "", "type": "notebook", "kernel": {"name": "nb-shared"}});
    let made = server.post("/api/sessions", wanted).is(201).json();
    assert_eq!(made["kernel"]["id"], id.as_str());
    for path in ["none.ipynb", "../t2.ipynb", "/etc/passwd", "console 1"] {
        server.post("/api/sessions", json!({"path": path})).is(400);
    }
    server
        .post(
            "/api/sessions",
            json!({"path": "x", "kernel": {"id": "none"}}),
        )
        .is(400);
    server
        .rest(
            "PATCH",
            &session_path,
            None,
            Some(json!({"path": "renamed.ipynb"})),
        )
        .is(200);
    let another = json!({"kernel": {"id": "none"}});
    server
        .rest("PATCH", &session_path, None, Some(another))
        .is(400);

    // jupyter_server's gateway client names the notebook in a variable; the only kernel needs no name.
    let unnamed = json!({"name": "nb-shared", "env": {"KERNEL_WORKING_DIR": "/home/ann"}});
    let only = server.post("/api/kernels", unnamed.clone()).is(201).json();
    assert_eq!(only["id"], id.as_str());
    let mut open = world.nb();
    succeed(
        open.args(["open", "other.ipynb", "--python"])
            .arg(crate::python::interpreter()),
    );
    let several = server.post("/api/kernels", unnamed).is(409).json();
    let message = several["message"].as_str().expect("a message");
    assert!(message.contains("other.ipynb, t.ipynb"), "{message}");
    let named = json!({"env": {"JPY_SESSION_NAME": "/home/ann/other.ipynb"}});
    let other = server.post("/api/kernels", named).is(201).json();
    assert_ne!(other["id"], id.as_str());

    // A front end ends no kernel.
    server.rest("DELETE", &session_path, None, None).is(204);
    server
        .rest("DELETE", &format!("/api/kernels/{id}"), None, None)
        .is(204);
    server
        .rest("DELETE", "/api/kernels/none", None, None)
        .is(404);
    server.get(&format!("/api/kernels/{id}")).is(200);
    let stdout = succeed(world.nb().args(["run", "-n", "t.ipynb", "print(6 * 7)"]));
    assert!(stdout.contains("42"), "{stdout}");
    succeed(world.nb().args(["shutdown", "t.ipynb"]));
    server.get(&format!("/api/kernels/{id}")).is(404);
}

/// The front end waits for the client, and so does what the kernel says meanwhile.
#[test]
fn a_lost_connection_is_taken_up_again() {
    let world = World::opened();
    let server = WebServer::start(&world);
    let path = channels_path(&server) + "&session_id=window-1";
    let (mut first, _) = open(&server, &path, &[]).expect("it opens");
    first.run("r1", "import os\nopen('go', 'w').close()\nprint('one', flush=True)\nwhile os.path.exists('go'): pass\nprint('two', flush=True)");
    assert_eq!(first.printed("r1", "one"), "one\n");
    // As a tunnel that breaks: no word of closing. What is on its way then may be lost, so the cell goes on once the
    // server has closed its end too.
    let cut = first.0.get_mut();
    cut.shutdown(Shutdown::Write).expect("cut the connection");
    while let Ok(1..) = cut.read(&mut [0; 1024]) {}
    let go = world.project().join("go");
    std::fs::remove_file(go).expect("let the cell go on");
    let (mut second, _) = open(&server, &path, &[]).expect("it opens again");
    assert_eq!(second.printed("r1", "two"), "two\n");
    loop {
        let message = second.next().expect("it is not closed");
        if message["msg_type"] == "execute_reply" {
            assert_eq!(message["parent_header"]["msg_id"], "r1");
            assert_eq!(message["content"]["status"], "ok");
            break;
        }
    }
    // A third one of the same session takes the second one's place.
    let (mut third, _) = open(&server, &path, &[]).expect("it opens again");
    assert_eq!(
        second.closed(),
        (1000, "the same session has connected again".to_owned())
    );
    third.run("r2", "print('three')");
    assert_eq!(third.printed("r2", "three\n"), "three\n");
}

#[test]
fn a_message_has_a_limit() {
    let world = World::opened();
    let server = WebServer::start(&world);
    let path = channels_path(&server);
    let (mut channels, _) = open(&server, &path, &[]).expect("it opens");
    // The server closes before it has read all.
    channels.run("r1", &"#".repeat(64 << 20));
    assert_eq!(
        channels.closed(),
        (1009, "a message has at most 64 MiB".to_owned())
    );
    // No message at all is dropped.
    let (mut channels, _) = open(&server, &path, &[]).expect("it opens");
    channels.0.send(Message::text("{}")).expect("send it");
    channels.run("r2", "print('here')");
    assert_eq!(channels.printed("r2", "here\n"), "here\n");
}

#[test]
fn a_front_end_above_the_limit_is_refused_until_another_has_left() {
    let world = World::opened();
    let server = WebServer::start(&world);
    let path = channels_path(&server);
    let mut all: Vec<_> = (0..32)
        .map(|_| open(&server, &path, &[]).expect("it opens").0)
        .collect();
    let refused = open(&server, &path, &[]).err().expect("it is refused");
    assert_eq!(refused.status, 503);
    let mut first = all.pop().expect("there are some");
    first.0.close(None).expect("close it");
    let mut next = until("a place", || open(&server, &path, &[]).ok()).0;
    next.run("r1", "print('here')");
    assert_eq!(next.printed("r1", "here\n"), "here\n");
}

#[test]
fn a_front_end_that_closes_gets_its_close_frame_back() {
    let world = World::opened();
    let server = WebServer::start(&world);
    let path = channels_path(&server);
    let (mut channels, _) = open(&server, &path, &[]).expect("it opens");
    channels.run("r1", "print('here')");
    assert_eq!(channels.printed("r1", "here\n"), "here\n");
    channels.0.close(None).expect("close it");
    let is_answer = |message: &Message| matches!(message, Message::Close(_));
    while !is_answer(&channels.0.read().expect("an answer")) {}
}

#[test]
fn a_front_end_whose_proxy_was_killed_is_told_and_may_connect_again() {
    let world = World::opened();
    let server = WebServer::start(&world);
    let path = channels_path(&server) + "&session_id=window-1";
    let (mut channels, _) = open(&server, &path, &[]).expect("it opens");
    channels.run("r1", "print('here')");
    assert_eq!(channels.printed("r1", "here\n"), "here\n");
    let proxy = world.processes().into_iter();
    let mut proxy = proxy.filter(|(_, words)| words.starts_with("nb-proxy "));
    let (pid, _) = proxy.next().expect("there is one");
    succeed(Command::new("kill").arg("-9").arg(pid.to_string()));
    assert_eq!(channels.closed(), (1011, "nb-proxy has ended".to_owned()));
    let (mut channels, _) = open(&server, &path, &[]).expect("it opens again");
    channels.run("r2", "print('again')");
    assert_eq!(channels.printed("r2", "again\n"), "again\n");
}

#[test]
#[ignore = "takes two minutes: cargo test --test it -- --ignored a_client_that_takes_nothing"]
fn a_client_that_takes_nothing_or_sends_nothing_is_given_up() {
    let world = World::opened();
    let server = WebServer::start(&world);
    let path = channels_path(&server);
    let (_silent, _) = open(&server, &path, &[]).expect("it opens");
    let (mut slow, _) = open(&server, &path, &[]).expect("it opens");
    until("two proxies", || (proxies(&world) == 2).then_some(()));
    slow.run(
        "r1",
        "for i in range(60): print('x' * 1_000_000, flush=True)",
    );
    let began = Instant::now();
    while proxies(&world) > 0 {
        assert!(began.elapsed() < Duration::from_secs(150), "they are kept");
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(
        began.elapsed() > Duration::from_secs(85),
        "they may be slow"
    );
    let stdout = succeed(world.nb().args(["run", "-n", "t.ipynb", "print(6 * 7)"]));
    assert!(stdout.contains("42"), "{stdout}");
}

#[test]
fn the_front_ends_library_uses_the_kernel() {
    let world = World::opened();
    let server = WebServer::start(&world);
    scenario(&world, &server, "web_jupyter.js");
}

#[test]
fn a_jupyter_server_uses_the_kernel() {
    let world = World::opened();
    let server = WebServer::start(&world);
    scenario(&world, &server, "web_jupyter_gateway.js");
}

/// Ctrl-C ends the server and its proxies; cells and kernels go on.
#[test]
fn the_servers_end_is_no_kernels_end() {
    let world = World::opened();
    let mut server = WebServer::start(&world);
    let path = channels_path(&server);
    let (mut channels, _) = open(&server, &path, &[]).expect("it opens");
    channels.run("r1", "print('on', flush=True)\nopen('go', 'w').close()\nimport os\nwhile os.path.exists('go'): pass\nkept = 1");
    assert_eq!(channels.printed("r1", "on\n"), "on\n");
    assert_eq!(proxies(&world), 1);
    let status = server.interrupt();
    assert!(status.success(), "{status}");
    assert_eq!(proxies(&world), 0);
    let left = std::fs::read_dir(world.temporary()).expect("read the folder");
    let left = left.flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left
        .filter(|name| name.to_string_lossy().starts_with("nb-web-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    std::fs::remove_file(world.project().join("go")).expect("let the cell go on");
    let stdout = succeed(world.nb().args(["run", "-n", "t.ipynb", "print(kept)"]));
    assert!(stdout.starts_with("1\n"), "{stdout}");
}

/// Returns how many proxies run.
fn proxies(world: &World) -> usize {
    let all = world.processes().into_iter();
    all.filter(|(_, words)| words.starts_with("nb-proxy "))
        .count()
}
