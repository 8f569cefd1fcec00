//! Files that are published for everybody.

use std::time::Duration;

use reqwest::Url;

use super::client::http_builder;
use super::error::ServerErrorKind;

/// How long a download may take.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How many redirections are followed.
const REDIRECTIONS: usize = 5;

/// Downloads a file of at most `limit` bytes. No credential is sent.
///
/// # Errors
/// The URL is none, the server cannot be reached or has no such file, or the file is larger.
pub async fn download(url: &str, limit: u64) -> Result<Vec<u8>, ServerErrorKind> {
    let url = Url::parse(url).map_err(|error| ServerErrorKind::Url(format!("{url}: {error}")))?;
    let failed =
        |error: reqwest::Error| ServerErrorKind::of_transport(&error, &url, DOWNLOAD_TIMEOUT);
    let client = http_builder(&url)
        .redirect(reqwest::redirect::Policy::limited(REDIRECTIONS))
        .timeout(DOWNLOAD_TIMEOUT)
        .build()
        .map_err(failed)?;
    let response = client.get(url.clone()).send().await.map_err(failed)?;
    let mut response = response.error_for_status().map_err(|error| {
        let host = url.host_str().unwrap_or_default();
        let status = error.status().map(|it| it.to_string()).unwrap_or_default();
        ServerErrorKind::Setup(format!("{host} answers {} with {status}", url.path()))
    })?;
    let mut bytes = Vec::new();
    while let Some(part) = response.chunk().await.map_err(failed)? {
        if (bytes.len() + part.len()) as u64 > limit {
            let path = url.path().to_owned();
            return Err(ServerErrorKind::TooLarge { path, limit });
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}
