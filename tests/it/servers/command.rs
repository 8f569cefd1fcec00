//! `nb server` on real servers, and on what is no server.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use super::Server;
use crate::world::{World, finish};

struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

fn nb(world: &World, words: &[&str]) -> Ended {
    nb_with(world, words, &[])
}

fn nb_with(world: &World, words: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = world.nb();
    command.args(words).envs(variables.iter().copied());
    let (status, stdout, stderr) = finish(&mut command);
    Ended {
        code: status.code().expect("it was not killed"),
        stdout,
        stderr,
    }
}

impl Ended {
    #[track_caller]
    fn with(self, code: i32, text: &str) -> Ended {
        let all = format!("{}{}", self.stdout, self.stderr);
        assert_eq!(self.code, code, "{all}");
        assert!(all.contains(text), "no {text:?} in {all}");
        assert!(!all.contains("sesame"), "a token is shown: {all}");
        self
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).expect("stdout is JSON")
    }
}

fn state(world: &World) -> PathBuf {
    let home = world.project().parent().expect("it has one").join("home");
    home.join(".local/state/nb/servers")
}

#[test]
fn servers_are_added_listed_and_removed() {
    let (world, server, gateway) = (World::new(), Server::jupyter(), Server::kernel_gateway());
    nb(&world, &["server", "list"]).with(0, "no server was added");
    let pasted = format!("{}lab/tree?token={}", server.url(), server.token());
    let added = nb(
        &world,
        &["server", "add", "one", &pasted, "--max-kernels", "3"],
    );
    added.with(0, "0 kernels of 3");
    gateway.add_to(&world, "two");
    let listed = nb(&world, &["server", "list", "--json"]).with(0, "").json();
    let [one, two] = listed["servers"].as_array().expect("a list").as_slice() else {
        panic!("{listed}")
    };
    assert_eq!(one["state"], "up");
    assert_eq!(one["url"], server.url());
    assert_eq!(one["kind"], "jupyter");
    assert_eq!(one["max_kernels"], 3);
    assert!(one["latency_ms"].as_f64().expect("a time") > 0.0);
    assert_eq!(two["kind"], "gateway");
    // This gateway lists no kernels.
    assert_eq!(two["kernels"], Value::Null);
    nb(&world, &["kernels", "--server", "two"]).with(0, "list_kernels");
    nb(&world, &["server", "add", "one", &pasted]).with(2, "--replace");
    nb(&world, &["server", "check", "one"]).with(0, "python3");

    for entry in std::fs::read_dir(state(&world)).expect("list the files") {
        let entry = entry.expect("read an entry");
        let mode = entry.metadata().expect("its metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", entry.path().display());
        let text = std::fs::read_to_string(entry.path()).expect("read it");
        let is_secret = entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "secret");
        assert_eq!(
            text.contains("sesame"),
            is_secret,
            "{}",
            entry.path().display()
        );
    }
    nb(&world, &["server", "rm", "one"]).with(0, "is forgotten");
    nb(&world, &["server", "check", "one"]).with(2, "known are two");
    nb(&world, &["server", "rm", "two"]).with(0, "is forgotten");
    let left: Vec<_> = std::fs::read_dir(state(&world)).expect("list").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_server_that_restarts_is_down_and_up_again() {
    let (world, mut server) = (World::new(), Server::jupyter());
    server.add_to(&world, "one");
    server.stop();
    nb(&world, &["server", "list"]).with(0, "nothing listens at 127.0.0.1");
    nb(&world, &["server", "check", "one"]).with(1, "check that the server runs there");
    server.start();
    nb(&world, &["server", "check", "one"]).with(0, "up");
}

#[test]
fn a_wrong_token_is_refused_and_nothing_is_stored() {
    let (world, server) = (World::new(), Server::jupyter());
    let url = format!("{}?token=sesame-wrong", server.url());
    nb(&world, &["server", "add", "one", &url]).with(1, "refuses the token (403)");
    let header = ["server", "add", "one", &server.url(), "--header", "sesame"];
    nb(&world, &header).with(2, "'NAME: VALUE'");
    let failing = [
        "server",
        "add",
        "one",
        &server.url(),
        "--token-command",
        "exit 3",
    ];
    nb(&world, &failing).with(1, "run it by hand: exit 3");
    std::fs::set_permissions(server.token_file(), PermissionsExt::from_mode(0o644)).expect("chmod");
    let file = server.token_file();
    let file = file.to_str().expect("a path of the test");
    let readable = ["server", "add", "one", &server.url(), "--token-file", file];
    nb(&world, &readable).with(1, "chmod 600");
    let left: Vec<_> = std::fs::read_dir(state(&world)).expect("list").collect();
    assert!(left.is_empty(), "{left:?}");
    let value = format!("Authorization: token {}", server.token());
    let right = ["server", "add", "one", &server.url(), "--header", &value];
    nb(&world, &right).with(0, "up");
    let again = nb(&world, &["server", "check", "one", "--json"]).with(0, "");
    assert_eq!(again.json()["server"]["state"], "up");
}

#[test]
fn a_token_that_has_expired_is_made_anew_by_its_command() {
    let (world, server) = (World::new(), Server::jupyter());
    let folder = world.project();
    // The command's first token is refused, its second one is good.
    let command = format!(
        "cd '{}'; echo x >> runs; if [ -e good ]; then cat '{}'; else touch good; echo sesame-old; fi",
        folder.display(),
        server.token_file().display()
    );
    let add = [
        "server",
        "add",
        "one",
        &server.url(),
        "--token-command",
        &command,
    ];
    nb(&world, &add).with(0, "up");
    let runs = std::fs::read_to_string(folder.join("runs")).expect("it ran");
    // Two for the first client, one for the second.
    assert_eq!(runs.lines().count(), 3);
    let record = std::fs::read_to_string(state(&world).join("one.json")).expect("the record");
    assert!(!record.contains(server.token()));
    assert!(!state(&world).join("one.secret").exists());
}

#[test]
fn a_token_file_that_changes_is_read_again() {
    let (world, server) = (World::new(), Server::jupyter());
    let file = world.project().join("token");
    std::fs::copy(server.token_file(), &file).expect("copy the token");
    let path = file.to_str().expect("a path of the test");
    nb(
        &world,
        &["server", "add", "one", &server.url(), "--token-file", path],
    )
    .with(0, "up");
    let secret = state(&world).join("one.secret");
    std::fs::write(&secret, r#"{"token": "sesame-old"}"#).expect("store an old token");
    nb(&world, &["server", "check", "one"]).with(0, "up");
    std::fs::remove_file(&file).expect("remove the file");
    nb(&world, &["server", "check", "one"]).with(1, "refuses the token");
    nb(&world, &["server", "list"]).with(0, "refused");
}

#[test]
fn the_gateway_clients_variables_give_a_server() {
    let (world, server) = (World::new(), Server::enterprise_gateway());
    let variables = [
        ("JUPYTER_GATEWAY_URL", &*server.url()),
        ("JUPYTER_GATEWAY_AUTH_TOKEN", server.token()),
    ];
    let listed = nb_with(&world, &["server", "list", "--json"], &variables);
    let listed = listed.with(0, "").json();
    assert_eq!(listed["servers"][0]["name"], "gateway");
    assert_eq!(listed["servers"][0]["state"], "up");
    assert_eq!(listed["servers"][0]["kernels"], 0);
    let kernels = nb_with(&world, &["kernels", "--server", "gateway"], &variables);
    kernels.with(0, "runs no kernel");
    let removal = nb_with(&world, &["server", "rm", "gateway"], &variables);
    removal.with(2, "unset JUPYTER_GATEWAY_URL");
    nb(&world, &["server", "check", "gateway"]).with(2, "no server is known");
}

#[test]
fn a_hub_is_found_started_and_stopped() {
    let Some(server) = Server::hub() else { return };
    let world = World::new();
    server.add_to(&world, "hub");
    let listed = nb(&world, &["server", "list", "--json"]).with(0, "").json();
    assert_eq!(listed["servers"][0]["kind"], "hub");
    assert_eq!(listed["servers"][0]["user"], "ann");
    assert_eq!(listed["servers"][0]["state"], "stopped");
    nb(&world, &["server", "check", "hub"]).with(0, "the hub starts the server of ann");
    nb(&world, &["server", "list"]).with(0, "up");
    nb(&world, &["server", "stop", "hub"]).with(0, "was stopped");
    nb(&world, &["server", "stop", "hub"]).with(0, "did not run");
    // The URL of the user's own server leads to the hub too.
    let url = format!("{}user/ann/lab?token={}", server.url(), server.token());
    let again = nb(&world, &["server", "add", "again", &url, "--json"]).with(0, "");
    assert_eq!(again.json()["server"]["url"], server.url());
    let mut other = World::nb(&world);
    other.args(["server", "stop", "none"]);
    let (_, _, err) = finish(&mut other);
    assert!(err.contains("nobody added a server of this name"), "{err}");
}
