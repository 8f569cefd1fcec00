//! Finds the kind of the server at a URL, once, when the server is added.

use reqwest::{Method, Url};
use serde_json::Map;

use super::client::ServerClient;
use super::error::{ServerError, ServerErrorKind};
use super::models::{HubUserModel, ServerVersion};
use super::record::{ServerKind, ServerRecord};

impl ServerClient {
    /// Returns the record with the URL and the kind of the server there: a Jupyter server, a gateway, or a hub
    /// with the user of the token. The URL may be that of a hub's user.
    ///
    /// # Errors
    /// Nothing of these answers, or it refuses the token.
    pub async fn discover(&self) -> Result<ServerRecord, ServerError> {
        let mut record = self.record().clone();
        record.other = Map::new();
        let version = self.version().await;
        // The server of a hub's user need not run now, so it is the hub that counts.
        let path = self.base().path().to_owned();
        let before_user = path.find("/user/").map(|at| &path[..=at]);
        let hub = before_user.unwrap_or(&path);
        let may_be_hub = before_user.is_some() || version.as_ref().is_err_and(may_be_a_hub);
        if may_be_hub && let Some(url) = self.hub_at(hub).await {
            let request = self.request_of(Method::GET, of_hub(&url, "user"));
            let user: HubUserModel = self.json(request).await?;
            record.url = url.into();
            record.kind = ServerKind::Hub { user: user.name };
            return Ok(record);
        }
        let version = version.map_err(|error| self.of_other_scheme(error))?;
        // The version is sent without a token.
        self.kernelspecs().await?;
        record.kind = match version.gateway_version.is_none() && self.has_contents().await? {
            true => ServerKind::Jupyter,
            false => ServerKind::Gateway,
        };
        Ok(record)
    }

    /// Adds to a failure that the server may have the other scheme, if one of it fails this way.
    fn of_other_scheme(&self, error: ServerError) -> ServerError {
        let scheme = match (self.base().scheme(), &error.kind) {
            // A server of HTTP waits for the end of a line, which the first message of TLS does not have.
            ("https", ServerErrorKind::Timeout { .. }) => "http",
            ("https", ServerErrorKind::Tls { reason, .. })
                if reason.starts_with("received corrupt message") =>
            {
                "http"
            }
            ("http", ServerErrorKind::Connection { .. }) => "https",
            _ => return error,
        };
        let problem = error.kind.to_string();
        self.error(ServerErrorKind::OtherScheme { problem, scheme })
    }

    /// Returns the hub's base URL if a hub answers below this path.
    async fn hub_at(&self, path: &str) -> Option<Url> {
        let mut url = self.base().clone();
        url.set_path(path);
        let request = self.request_of(Method::GET, of_hub(&url, ""));
        let version: Result<ServerVersion, _> = self.json(request).await;
        version.is_ok().then_some(url)
    }
}

fn of_hub(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}hub/api/{path}", base.path()));
    url
}

/// Returns whether a hub gives this answer where a Jupyter server would answer otherwise.
fn may_be_a_hub(error: &ServerError) -> bool {
    use ServerErrorKind::{LoginPage, NoServer, NotJson, Redirected, Unauthorized};
    matches!(
        error.kind,
        LoginPage { .. }
            | NoServer { .. }
            | NotJson { .. }
            | Redirected { .. }
            | Unauthorized { .. }
    )
}
