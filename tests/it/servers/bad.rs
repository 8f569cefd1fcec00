//! What answers wrongly, or not at all: each case is a line that names the fault and its fix.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::ScriptedServer;
use crate::python;
use crate::world::{World, finish, succeed};

const TOKEN: &str = "sesame-open";

/// Adds a server, and returns the exit code and the output of `nb`.
fn add(world: &World, url: &str, more: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
    let mut command = world.nb();
    let url = format!("{url}?token={TOKEN}");
    command.args(["server", "add", "one", &url]).args(more);
    for name in [
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "SSL_CERT_FILE",
    ] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command.envs(variables.iter().copied());
    let (status, out, err) = finish(&mut command);
    let output = format!("{out}{err}");
    assert!(!output.contains("sesame"), "the token is shown: {output}");
    assert!(!output.contains("panicked"), "{output}");
    (status.code().expect("it was not killed"), output)
}

/// Adds a server that cannot be added: `nb` prints `message` on one line.
#[track_caller]
fn refused(world: &World, url: &str, variables: &[(&str, &str)], message: &str) {
    let (code, output) = add(world, url, &[], variables);
    assert!(output.contains(message), "no {message:?} in {output}");
    assert_ne!(code, 0, "{output}");
    assert_eq!(output.lines().count(), 1, "{output}");
}

#[test]
fn answers_that_are_none() {
    let world = World::new();
    let html = "200 OK\r\nContent-Type: text/html";
    let json = "Content-Type: application/json";
    let long = format!("{{\"version\": \"{}\"}}", "x".repeat(17 << 20));
    let echo = format!(r#"{{"message": "no {TOKEN} here"}}"#);
    for (head, body, message) in [
        (html, "<html>Log in</html>", "login page"),
        ("302 Found\r\nLocation: /login?next=%2F", "", "login page"),
        (
            "301 Moved\r\nLocation: https://a.org/x?token=sesame",
            "",
            "https://a.org/x",
        ),
        (
            "200 OK",
            "{\"version\": 3}",
            "check that the URL is that of a Jupyter server",
        ),
        (
            "200 OK",
            "",
            "check that the URL is that of a Jupyter server",
        ),
        ("200 OK", &long, "more than 16777216 bytes"),
        (
            &format!("200 OK\r\n{json}"),
            r#"{"version": "0.9.1"}"#,
            "version 0.9.1, which is too old",
        ),
        (
            "401 Unauthorized",
            &echo,
            "refuses the token (401): no … here",
        ),
        ("403 Forbidden", "", "refuses the token (403)"),
        (
            "404 Not Found",
            "",
            "does the URL lack the server's base_url",
        ),
        (
            "407 Proxy Authentication Required",
            "",
            "write it into HTTPS_PROXY",
        ),
        ("409 Conflict", "", "in the way (409)"),
        ("429 Too Many\r\nRetry-After: 17", "", "try again in 17 s"),
        (
            "500 Oops",
            r#"{"message": "no room"}"#,
            "the server failed (500): no room",
        ),
        ("503 Unavailable", "<html>", "the server failed (503)"),
        ("418 Teapot", "", "refuses the request (418)"),
    ] {
        let server = ScriptedServer::answering(head, body);
        refused(&world, &server.url(), &[], message);
        let requests = server.requests();
        let header = format!("authorization: token {TOKEN}");
        assert!(requests[0].contains(&header), "{requests:?}");
        assert!(!requests[0].contains("?token"), "{requests:?}");
    }
}

#[test]
fn answers_that_break_off() {
    let world = World::new();
    let half = ScriptedServer::sending("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"vers");
    refused(&world, &half.url(), &[], "the connection to 127.0.0.1");
    let other = ScriptedServer::sending("220 mail.example.org ESMTP\r\n");
    refused(&world, &other.url(), &[], "the connection to 127.0.0.1");
}

#[test]
fn a_server_of_http_is_asked_for_by_https() {
    let world = World::new();
    let silent = ScriptedServer::sending("");
    let url = silent.url().replace("http:", "https:");
    refused(&world, &url, &[], "is it a server of http://?");
    let plain = ScriptedServer::answering("400 Bad Request", "");
    let url = plain.url().replace("http:", "https:");
    refused(&world, &url, &[], "is it a server of http://?");
}

#[test]
fn a_server_that_wants_a_token_and_gets_none() {
    let world = World::new();
    let server = ScriptedServer::answering("403 Forbidden", "");
    let mut command = world.nb();
    let (_, out, err) = finish(command.args(["server", "add", "one", &server.url()]));
    assert!(err.contains("the server wants a token"), "{out}{err}");
    assert!(err.contains("--token-file"), "{out}{err}");
    assert!(err.contains("cannot log in with a password"), "{out}{err}");
}

#[test]
fn a_silent_server_does_not_hold_up_the_list() {
    let world = World::new();
    let silent = ScriptedServer::sending("");
    let mut command = world.nb();
    command
        .args(["server", "list", "--json"])
        .env("JUPYTER_GATEWAY_URL", silent.url());
    let (status, out, err) = finish(&mut command);
    assert!(status.success(), "{err}");
    let listed: serde_json::Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!(listed["servers"][0]["state"], "down");
    let problem = listed["servers"][0]["problem"].as_str().expect("a problem");
    assert!(
        problem.contains("no answer from 127.0.0.1 within 10 s"),
        "{problem}"
    );
}

#[test]
fn servers_that_are_not_there() {
    let world = World::new();
    refused(
        &world,
        "http://server.invalid/",
        &[],
        "no host has the name server.invalid",
    );
    refused(
        &world,
        "http://127.0.0.1:1/",
        &[],
        "nothing listens at 127.0.0.1:1",
    );
    refused(
        &world,
        "127.0.0.1:8888/",
        &[],
        "does not begin with http://",
    );
    refused(&world, "ftp://h.org/", &[], "does not begin with http://");
    refused(
        &world,
        "http://ann:sesame@h.org/",
        &[],
        "do not belong in it",
    );
}

#[test]
fn a_proxy_that_is_down_is_not_taken_for_the_server() {
    let world = World::new();
    let proxy = "http://ann:sesame@127.0.0.1:1";
    for (name, url, variable) in [
        ("HTTP_PROXY", "http://server.invalid/", "HTTP_PROXY"),
        ("HTTPS_PROXY", "https://server.invalid/", "HTTPS_PROXY"),
        ("ALL_PROXY", "https://server.invalid/", "ALL_PROXY"),
    ] {
        let message = format!(
            "the proxy 127.0.0.1:1, which the variable {variable} names, cannot be reached: nothing listens there"
        );
        refused(&world, url, &[(name, proxy)], &message);
    }
}

#[test]
fn a_proxy_that_wants_a_password() {
    let world = World::new();
    let proxy = ScriptedServer::answering("407 Proxy Authentication Required", "");
    let url = proxy.url();
    let variables = [("HTTP_PROXY", url.as_str()), ("HTTPS_PROXY", url.as_str())];
    let message = "the proxy on the way wants a password";
    refused(&world, "http://server.invalid/", &variables, message);
    refused(&world, "https://server.invalid/", &variables, message);
    assert!(
        proxy
            .requests()
            .iter()
            .any(|it| it.starts_with("CONNECT server.invalid:443"))
    );
    let around = [variables[0], ("NO_PROXY", "server.invalid")];
    refused(
        &world,
        "http://server.invalid/",
        &around,
        "no host has the name",
    );
    // A tunnel's end on this machine is asked directly.
    refused(
        &world,
        "http://127.0.0.1:1/",
        &variables,
        "nothing listens at",
    );
}

/// A server of HTTPS; it ends on drop.
struct TlsServer {
    process: Child,
    url: String,
}

impl TlsServer {
    fn start(folder: &Path, when: &str) -> TlsServer {
        let mut process = Command::new(python::with_servers())
            .arg(python::script("tls_server.py"))
            .arg(folder)
            .arg(when)
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the server");
        let mut port = String::new();
        let output = process.stdout.take().expect("it is piped");
        let read = BufReader::new(output).read_line(&mut port);
        read.expect("read the port");
        let url = format!("https://127.0.0.1:{}/", port.trim());
        TlsServer { process, url }
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn certificates_are_checked() {
    let world = World::new();
    let folder = world.project();
    let ca = folder.join("ca.pem");
    let ca = ca.to_str().expect("a path of the test");
    let server = TlsServer::start(&folder, "valid");
    refused(&world, &server.url, &[], "comes from an unknown authority");
    let wrong = server.url.replace("127.0.0.1", "localhost");
    let trusted = [("SSL_CERT_FILE", ca)];
    refused(
        &world,
        &wrong,
        &trusted,
        "check that the URL has the certificate's name",
    );
    refused(
        &world,
        &server.url.replace("https", "http"),
        &[],
        "is it a server of https://?",
    );
    let (code, output) = add(&world, &server.url, &["--ca", "nothing.pem"], &[]);
    assert!(output.contains("nothing.pem cannot be read"), "{output}");
    assert_eq!(code, 1, "{output}");
    let (code, output) = add(&world, &server.url, &["--ca", ca], &[]);
    assert_eq!((code, output.contains("up")), (0, true), "{output}");
    let (code, output) = add(&world, &server.url, &["--replace"], &trusted);
    assert_eq!((code, output.contains("up")), (0, true), "{output}");
    succeed(world.nb().args(["server", "rm", "one"]));
    let server = TlsServer::start(&folder, "self-signed");
    let (code, output) = add(&world, &server.url, &["--ca", ca], &[]);
    assert_eq!((code, output.contains("up")), (0, true), "{output}");
    succeed(world.nb().args(["server", "rm", "one"]));
    let server = TlsServer::start(&folder, "self-signed-ca");
    let (code, output) = add(&world, &server.url, &["--ca", ca], &[]);
    assert!(output.contains("basicConstraints=CA:FALSE"), "{output}");
    assert_eq!(code, 1, "{output}");
    for (when, message) in [("expired", "(expired)"), ("early", "(not valid yet)")] {
        let server = TlsServer::start(&folder, when);
        refused(&world, &server.url, &trusted, message);
        refused(&world, &server.url, &trusted, "check this machine's clock");
    }
}
