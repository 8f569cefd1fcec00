//! The files of the page, which are part of the program.

use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// A file of the page: its name, its type, and what is in it.
type PageFile = (&'static str, &'static str, &'static [u8]);

const INDEX: PageFile = (
    "index.html",
    "text/html; charset=utf-8",
    include_bytes!("page/built/index.html"),
);

const FILES: [PageFile; 3] = [
    (
        "page.js",
        "text/javascript; charset=utf-8",
        include_bytes!("page/built/page.js"),
    ),
    (
        "page.css",
        "text/css; charset=utf-8",
        include_bytes!("page/built/page.css"),
    ),
    (
        "icon.svg",
        "image/svg+xml",
        include_bytes!("page/built/icon.svg"),
    ),
];

/// The description of the REST interface: `openapi` writes it.
const OPENAPI: PageFile = (
    "openapi.json",
    "application/json",
    include_bytes!("../../docs/openapi.json"),
);

pub(super) async fn index() -> Response {
    response(&INDEX)
}

pub(super) async fn openapi() -> Response {
    response(&OPENAPI)
}

pub(super) async fn file(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some(file) => response(file),
        None => (StatusCode::NOT_FOUND, "there is no such file\n").into_response(),
    }
}

fn response((_, mime, bytes): &PageFile) -> Response {
    let mime = HeaderValue::from_static(mime);
    ([(header::CONTENT_TYPE, mime)], *bytes).into_response()
}
