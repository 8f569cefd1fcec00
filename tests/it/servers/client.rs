//! The REST client against real servers.

use std::collections::BTreeMap;

use nb::server::credential::StoredSecrets;
use nb::server::gateway::kernel_variables;
use nb::server::{
    CredentialSource, Secret, SecretPlace, ServerClient, ServerErrorKind, ServerKind, ServerRecord,
};
use reqwest::header::{HeaderMap, HeaderValue, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL};

use super::{HUB_USER, Server};

/// The subprotocol of current servers.
const PROTOCOL: &str = "v1.kernel.websocket.jupyter.org";

fn record(server: &Server) -> ServerRecord {
    ServerRecord {
        name: "test".to_owned(),
        url: server.url(),
        kind: ServerKind::Jupyter,
        credential: CredentialSource::Stored { token_file: None },
        headers: Vec::new(),
        secrets: SecretPlace::Nowhere,
        ca_file: None,
        max_kernels: None,
        other: serde_json::Map::new(),
    }
}

/// Returns a client with the record that it has found out itself.
async fn client(server: &Server) -> ServerClient {
    let secrets = StoredSecrets::new(Some(&Secret::new(server.token())), &[]);
    let asking = ServerClient::open_with(record(server), &secrets).await;
    let found = asking.expect("make a client").discover().await;
    let client = ServerClient::open_with(found.expect("find the kind"), &secrets).await;
    client.expect("make a client")
}

async fn lives(client: &ServerClient, id: &str) {
    let kernel = client.kernel(id).await.expect("ask for the kernel");
    assert_eq!(kernel.expect("it runs").id, id);
    let mut headers = HeaderMap::new();
    let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
    headers.insert(SEC_WEBSOCKET_KEY, key);
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    let path = format!("api/kernels/{id}/channels?session_id=s1");
    let upgraded = client.upgrade(&path, headers).await.expect("upgrade");
    assert_eq!(
        upgraded.headers["sec-websocket-accept"],
        "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    );
    drop(upgraded);
    client.interrupt(id).await.expect("interrupt");
    client.restart(id).await.expect("restart");
    let kernel = client.kernel(id).await.expect("ask for the kernel");
    assert_eq!(kernel.expect("it runs again").id, id);
}

async fn ends(client: &ServerClient, id: &str) {
    client.delete_kernel(id).await.expect("end the kernel");
    assert!(client.kernel(id).await.expect("ask for it").is_none());
    client.delete_kernel(id).await.expect("it has ended");
    let error = client.interrupt(id).await.expect_err("it has ended");
    assert!(
        matches!(error.kind, ServerErrorKind::NotFound { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_jupyter_server_has_sessions() {
    let server = Server::jupyter();
    let client = client(&server).await;
    assert_eq!(client.record().kind, ServerKind::Jupyter);
    assert_eq!(
        client.version().await.expect("its version").version,
        "2.21.1"
    );
    let specs = client.kernelspecs().await.expect("its kernelspecs");
    assert_eq!(specs.default.as_deref(), Some("python3"));
    let made = client
        .create_session("a.ipynb", "a.ipynb", Some("python3"))
        .await;
    let session = made.expect("make a session");
    let again = client.create_session("a.ipynb", "a.ipynb", None).await;
    assert_eq!(again.expect("it is there").id, session.id);
    let kernel = session.kernel.expect("it has a kernel").id;
    let sessions = client.sessions().await.expect("list the sessions");
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].path, "a.ipynb");
    lives(&client, &kernel).await;
    client.delete_session(&session.id).await.expect("end it");
    client
        .delete_session(&session.id)
        .await
        .expect("it has ended");
    assert!(client.kernels().await.expect("list the kernels").is_empty());
}

#[tokio::test]
async fn a_server_that_restarts_has_lost_its_kernels() {
    let mut server = Server::jupyter();
    let client = client(&server).await;
    let kernel = client.start_kernel(None, &BTreeMap::new()).await;
    let id = kernel.expect("start a kernel").id;
    server.restart();
    assert!(client.kernel(&id).await.expect("ask for it").is_none());
}

#[tokio::test]
async fn gateways_have_kernels_only() {
    for server in [Server::kernel_gateway(), Server::enterprise_gateway()] {
        let client = client(&server).await;
        assert_eq!(client.record().kind, ServerKind::Gateway);
        client.version().await.expect("its version");
        let env = [("KERNEL_USERNAME".to_owned(), "tester".to_owned())];
        let env: BTreeMap<_, _> = kernel_variables(env, || None);
        let kernel = client.start_kernel(Some("python3"), &env).await;
        let id = kernel.expect("start a kernel").id;
        lives(&client, &id).await;
        ends(&client, &id).await;
    }
}

#[tokio::test]
async fn a_gateway_starts_no_kernels_for_some_users() {
    let server = Server::enterprise_gateway();
    let client = client(&server).await;
    let env = [("KERNEL_USERNAME".to_owned(), "mallory".to_owned())];
    let refused = client.start_kernel(None, &env.into()).await;
    let error = refused.expect_err("mallory may not");
    assert!(
        error.to_string().contains("no kernel for mallory"),
        "{error}"
    );
}

#[tokio::test]
async fn a_hub_starts_and_stops_its_users_server() {
    let Some(server) = Server::hub() else { return };
    let client = client(&server).await;
    let user = HUB_USER.to_owned();
    assert_eq!(client.record().kind, ServerKind::Hub { user: user.clone() });
    let error = client.version().await.expect_err("it does not run");
    assert_eq!(error.kind, ServerErrorKind::NotRunning { user });
    let mut lines = Vec::new();
    let mut show = |line: &str| lines.push(line.to_owned());
    client.ensure_running(&mut show).await.expect("start it");
    assert_eq!(
        lines.first().map(String::as_str),
        Some("the hub starts the server of ann")
    );
    assert_eq!(
        client.version().await.expect("its version").version,
        "2.21.1"
    );
    let made = client.create_session("a.ipynb", "a.ipynb", None).await;
    let kernel = made.expect("make a session").kernel.expect("it has one").id;
    lives(&client, &kernel).await;
    ends(&client, &kernel).await;
    // It runs already.
    client
        .ensure_running(&mut |line| panic!("{line}"))
        .await
        .expect("ask");
    assert!(client.stop_user_server().await.expect("stop it"));
    assert!(!client.stop_user_server().await.expect("it is stopped"));
    assert!(client.version().await.is_err());
}

#[tokio::test]
async fn an_expired_token_is_renewed_by_its_command_also_for_a_websocket() {
    let server = Server::jupyter();
    let folder = tempfile::tempdir().expect("make a folder");
    let file = folder.path().join("now");
    std::fs::copy(server.token_file(), &file).expect("write the token");
    let mut record = record(&server);
    let command = format!("cat {}", file.display());
    record.credential = CredentialSource::Command { command };
    let none = StoredSecrets::new(None, &[]);
    let client = ServerClient::open_with(record.clone(), &none).await;
    let client = client.expect("make a client");
    let kernel = client.start_kernel(None, &BTreeMap::new()).await;
    let id = kernel.expect("start a kernel").id;

    std::fs::write(&file, "expired").expect("write another token");
    let late = ServerClient::open_with(record.clone(), &none).await;
    let late = late.expect("make a client");
    let error = late.kernels().await.expect_err("the token has expired");
    let ServerErrorKind::Unauthorized { status: 403, .. } = error.kind else {
        panic!("{error}")
    };
    std::fs::copy(server.token_file(), &file).expect("renew the token");
    lives(&late, &id).await;

    std::fs::write(&file, "expired").expect("write another token");
    let late = ServerClient::open_with(record, &none).await;
    let late = late.expect("make a client");
    std::fs::copy(server.token_file(), &file).expect("renew the token");
    let mut headers = HeaderMap::new();
    let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
    headers.insert(SEC_WEBSOCKET_KEY, key);
    let path = format!("api/kernels/{id}/channels?session_id=s2");
    let upgraded = late.upgrade(&path, headers).await.expect("upgrade");
    assert_eq!(upgraded.protocol, None);
    ends(&client, &id).await;
}
