//! The files of the page, which are part of the program.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// A file of the page: its name, its type, and what is in it.
type PageFile = (&'static str, &'static str, &'static [u8]);

const JS: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";

const INDEX: PageFile = (
    "index.html",
    "text/html; charset=utf-8",
    include_bytes!("page/built/index.html"),
);

/// Files that are compressed by gzip, and are sent so. The page loads all but the first two only for outputs that need
/// them.
const COMPRESSED: [PageFile; 8] = [
    ("page.js", JS, include_bytes!("page/built/page.js.gz")),
    ("page.css", CSS, include_bytes!("page/built/page.css.gz")),
    ("math.js", JS, include_bytes!("page/built/math.js.gz")),
    (
        "plotly.css",
        CSS,
        include_bytes!("page/built/plotly.css.gz"),
    ),
    ("plotly.js", JS, include_bytes!("page/built/plotly.js.gz")),
    ("vega.js", JS, include_bytes!("page/built/vega.js.gz")),
    ("widgets.js", JS, include_bytes!("page/built/widgets.js.gz")),
    (
        "widgets.css",
        CSS,
        include_bytes!("page/built/widgets.css.gz"),
    ),
];

/// The description of the REST interface: `openapi` writes it.
const OPENAPI: PageFile = (
    "openapi.json",
    "application/json",
    include_bytes!("../../../../docs/openapi.json"),
);

pub(super) async fn index() -> Response {
    response(&INDEX)
}

pub(super) async fn openapi() -> Response {
    response(&OPENAPI)
}

pub(super) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match COMPRESSED.iter().find(|(known, ..)| *known == name) {
        Some(file) => compressed(file, &headers),
        None => (StatusCode::NOT_FOUND, "there is no such file\n").into_response(),
    }
}

fn response((_, mime, bytes): &PageFile) -> Response {
    let mime = HeaderValue::from_static(mime);
    ([(header::CONTENT_TYPE, mime)], *bytes).into_response()
}

/// Sends a compressed file, unless the browser has it.
fn compressed(file: &PageFile, headers: &HeaderMap) -> Response {
    // A gzip file ends with the checksum and the length of its contents.
    let end = file.2.last_chunk::<8>().copied().unwrap_or_default();
    let tag = format!("\"{}\"", hex::encode(end));
    let known = headers.get(header::IF_NONE_MATCH);
    let mut response = match known.is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => {
            let gzip = HeaderValue::from_static("gzip");
            ([(header::CONTENT_ENCODING, gzip)], response(file)).into_response()
        }
    };
    let tag = HeaderValue::from_str(&tag).expect("hexadecimal digits are ASCII");
    response.headers_mut().insert(header::ETAG, tag);
    response
}
