//! A person's message: its text, and what it names: images, figures of cells, files.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use regex::Regex;
use serde_json::Value;

use super::protocol::Capabilities;
use super::update::Content;
use super::workspace::Workspace;
use crate::notebook::Document;

/// The largest image that is sent, in bytes.
const LARGEST_IMAGE: u64 = 8 << 20;

/// How many things of one message are sent beside its text.
const ATTACHMENTS_MAX: usize = 16;

static IMAGE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"!\[[^\]\n]*\]\(([^)\s]+)\)").expect("it is a pattern"));

static FILE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:^|\s)@([^\s@,;]+)").expect("it is a pattern"));

/// A message, ready to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatMessage {
    /// The text, and what it names.
    pub content: Vec<Content>,
    /// What is not sent, and why.
    pub notes: Vec<String>,
}

impl ChatMessage {
    /// Makes a message. `![](fig.png)` sends an image, `@analysis.ipynb#3f2c` the last figure of a cell, and
    /// `@file` the file's address. Paths are relative to `folder`.
    pub async fn of(
        text: &str,
        workspace: &Workspace,
        folder: &Path,
        capabilities: &Capabilities,
        notebook: Option<&Path>,
    ) -> Self {
        let mut message = Self {
            content: vec![Content::Text(text.to_owned())],
            notes: Vec::new(),
        };
        if let Some(notebook) = notebook {
            message.content.push(link(workspace, notebook));
        }
        let images = IMAGE
            .captures_iter(text)
            .map(|capture| capture[1].to_owned());
        for name in images.take(ATTACHMENTS_MAX) {
            // A page's address stays for the agent to follow.
            if !name.contains("://") && !name.starts_with("data:") {
                let image = image(workspace, &folder.join(&name)).await;
                message.add_image(&name, image, capabilities);
            }
        }
        let files = FILE
            .captures_iter(text)
            .map(|capture| capture[1].to_owned());
        for name in files.take(ATTACHMENTS_MAX) {
            let (path, cell) = match name.split_once('#') {
                Some((path, cell)) => (path, Some(cell)),
                None => (name.as_str(), None),
            };
            let path = folder.join(path.trim_end_matches(['.', ':', '?', '!', ')']));
            let Some(resolved) = workspace
                .resolve(&path)
                .ok()
                .filter(|resolved| resolved.is_file())
            else {
                continue;
            };
            match cell {
                Some(cell) => {
                    let figure = figure(workspace, &resolved, cell).await;
                    message.add_image(&name, figure, capabilities);
                }
                None => message.content.push(link(workspace, &resolved)),
            }
        }
        message
    }

    fn add_image(
        &mut self,
        name: &str,
        image: Result<Content, String>,
        capabilities: &Capabilities,
    ) {
        match image {
            Ok(image) if capabilities.images => self.content.push(image),
            Ok(_) => {
                let note = format!("{name} is not sent: the agent takes no images");
                self.notes.push(note);
            }
            Err(why) => self.notes.push(format!("{name} is not sent: {why}")),
        }
    }
}

fn link(workspace: &Workspace, path: &Path) -> Content {
    Content::Link {
        name: workspace.shown(path),
        uri: format!("file://{}", path.display()),
    }
}

async fn image(workspace: &Workspace, path: &Path) -> Result<Content, String> {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let mime = match extension.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        _ => return Err("it is no PNG, JPEG, GIF or WebP file".to_owned()),
    };
    let resolved: PathBuf = workspace.resolve(path)?;
    let read = tokio::task::spawn_blocking(move || {
        let file = crate::project::beneath::open(&resolved)?;
        crate::project::beneath::read_from(&file, LARGEST_IMAGE)
    });
    let bytes = read.await.map_err(|error| error.to_string())?;
    let bytes = bytes.map_err(|error| error.to_string())?;
    Ok(Content::Media {
        mime: mime.to_owned(),
        data: BASE64_STANDARD.encode(bytes),
    })
}

/// Returns the last image among the outputs of a cell.
async fn figure(workspace: &Workspace, notebook: &Path, cell: &str) -> Result<Content, String> {
    let path = notebook.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        crate::project::beneath::read(&path, crate::project::beneath::LARGE)
    });
    let text = read.await.map_err(|error| error.to_string())?;
    let text = text.map_err(|error| error.to_string())?;
    let document = Document::parse(text).map_err(|error| error.to_string())?;
    let mut cells = document.cells().iter();
    let cell = cells.find(|it| it.id().starts_with(cell));
    let cell = cell.ok_or_else(|| format!("{} has no such cell", workspace.shown(notebook)))?;
    let outputs = cell.outputs().filter_map(|output| {
        let output: Value = serde_json::from_str(&output.text()).ok()?;
        let data = output.get("data")?;
        ["image/png", "image/jpeg"].into_iter().find_map(|mime| {
            let text = match data.get(mime)? {
                Value::String(text) => text.clone(),
                Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
                _ => return None,
            };
            let data = text.split_whitespace().collect();
            let mime = mime.to_owned();
            Some(Content::Media { mime, data })
        })
    });
    let last = outputs.last();
    last.ok_or_else(|| "the cell has no figure among its outputs".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn images_figures_and_files_are_sent_beside_the_text() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        std::fs::write(root.join("fig.png"), b"png").unwrap();
        std::fs::write(root.join("data.csv"), "a").unwrap();
        let cell = serde_json::json!({
            "id": "3f2c1a00", "cell_type": "code", "metadata": {}, "source": "", "execution_count": 1,
            "outputs": [{"output_type": "display_data", "metadata": {}, "data": {"image/png": "QUJD\n"}}],
        });
        let notebook = serde_json::json!({
            "cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5,
        });
        std::fs::write(root.join("a.ipynb"), notebook.to_string()).unwrap();
        let workspace = Workspace::of(&root).unwrap();
        let capabilities = Capabilities {
            images: true,
            ..Capabilities::default()
        };
        let text = "see ![x](fig.png), @a.ipynb#3f2c and @data.csv. ![y](../out.png) @nobody";
        let message = ChatMessage::of(text, &workspace, &root, &capabilities, None).await;
        let media = |data: &str| Content::Media {
            mime: "image/png".to_owned(),
            data: data.to_owned(),
        };
        let csv = Content::Link {
            name: "data.csv".to_owned(),
            uri: format!("file://{}", root.join("data.csv").display()),
        };
        let expected = [
            Content::Text(text.to_owned()),
            media("cG5n"),
            media("QUJD"),
            csv,
        ];
        assert_eq!(message.content, expected);
        assert_eq!(message.notes.len(), 1, "{:?}", message.notes);
        let unable = Capabilities::default();
        let message = ChatMessage::of("![](fig.png)", &workspace, &root, &unable, None).await;
        assert_eq!(
            message.notes,
            ["fig.png is not sent: the agent takes no images"]
        );
    }
}
