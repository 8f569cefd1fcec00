//! The files of a Jupyter Server, by its contents interface.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{HeaderValue, RANGE};
use reqwest::{Method, Response, StatusCode};
use serde_json::json;

use super::client::{ServerClient, escaped};
use super::error::{ServerError, ServerErrorKind};
use super::models::ContentsModel;

/// How long the server may take for a part of a file.
const PART: Duration = Duration::from_secs(120);

impl ServerClient {
    /// Returns a file or a folder. Paths are relative to the server's root.
    ///
    /// # Errors
    /// The request fails.
    pub async fn entry(&self, path: &str) -> Result<Option<ContentsModel>, ServerError> {
        self.get_entry(path, "content=0").await
    }

    /// Returns a file or a folder; a file has its checksum, where the server reports it.
    ///
    /// # Errors
    /// The request fails.
    pub async fn entry_with_hash(&self, path: &str) -> Result<Option<ContentsModel>, ServerError> {
        match self.entry(path).await? {
            // Folders have none: a server fails that is asked for it.
            Some(entry) if !entry.is_folder() => self.get_entry(path, "content=0&hash=1").await,
            entry => Ok(entry),
        }
    }

    async fn get_entry(
        &self,
        path: &str,
        query: &str,
    ) -> Result<Option<ContentsModel>, ServerError> {
        let request = self.get(&format!("{}?{query}", contents(path)));
        match self.json(request.within(PART)).await {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if matches!(error.kind, ServerErrorKind::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a folder whose parent is there.
    ///
    /// # Errors
    /// The request fails.
    pub async fn make_folder(&self, path: &str) -> Result<(), ServerError> {
        let request = self.request(Method::PUT, &contents(path));
        let request = request.json(&json!({ "type": "directory" }));
        self.success(&request).await.map(drop)
    }

    /// Writes a file's first bytes, in place of what it has.
    ///
    /// # Errors
    /// The request fails.
    pub async fn write_first(&self, path: &str, bytes: &[u8]) -> Result<(), ServerError> {
        self.write(path, bytes, 1).await
    }

    /// Appends bytes to a file. A failure does not say whether the server has written them: its size does.
    ///
    /// # Errors
    /// The request fails.
    pub async fn append(&self, path: &str, bytes: &[u8]) -> Result<(), ServerError> {
        self.write(path, bytes, 2).await
    }

    /// The number of the part: the server appends every part but the first.
    async fn write(&self, path: &str, bytes: &[u8], part: u32) -> Result<(), ServerError> {
        let request = self.request(Method::PUT, &contents(path)).within(PART);
        let request = request.json(&json!({
            "type": "file",
            "format": "base64",
            "content": BASE64_STANDARD.encode(bytes),
            "chunk": part,
        }));
        self.success(&request).await.map(drop)
    }

    /// Renames a file; the new name must be free.
    ///
    /// # Errors
    /// The request fails.
    pub async fn rename(&self, from: &str, to: &str) -> Result<(), ServerError> {
        let request = self.request(Method::PATCH, &contents(from));
        self.success(&request.json(&json!({ "path": to })))
            .await
            .map(drop)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The request fails.
    pub async fn remove_file(&self, path: &str) -> Result<(), ServerError> {
        let request = self.request(Method::DELETE, &contents(path));
        self.success(&request).await.map(drop)
    }

    /// Asks for a file's bytes from an offset on; returns the answer, whose body is unread, and the offset at
    /// which it begins.
    pub(super) async fn bytes_from(
        &self,
        path: &str,
        offset: u64,
    ) -> Result<(Response, u64), ServerError> {
        let mut request = self.get(&format!("files/{}", parts(path))).within(PART);
        if offset > 0 {
            let range = HeaderValue::try_from(format!("bytes={offset}-"));
            request
                .headers
                .extend(range.ok().map(|range| (RANGE, range)));
        }
        let response = self.success(&request).await?;
        let is_part = response.status() == StatusCode::PARTIAL_CONTENT;
        Ok((response, if is_part { offset } else { 0 }))
    }
}

fn contents(path: &str) -> String {
    format!("api/contents/{}", parts(path))
}

fn parts(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.map(escaped).collect::<Vec<_>>().join("/")
}
