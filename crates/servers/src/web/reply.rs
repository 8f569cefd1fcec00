//! Answers and problems as responses.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::envelope::ProblemAnswer;
use crate::api::problem::{Problem, ProblemKind};
use crate::notebook::Revision;

/// What a request is answered with.
#[derive(Debug)]
pub(super) struct Reply {
    status: StatusCode,
    /// The revision of what is in the answer.
    revision: Option<Revision>,
    mime: &'static str,
    body: Vec<u8>,
}

const JSON: &str = "application/json";

/// A notebook's file.
pub(super) const NOTEBOOK: &str = "application/x-ipynb+json";

impl Reply {
    /// Puts an answer into a reply.
    pub(super) fn of(answer: &impl Serialize) -> Result<Self, Problem> {
        let body = serde_json::to_vec(answer);
        Ok(Self {
            status: StatusCode::OK,
            revision: None,
            mime: JSON,
            body: body.map_err(|error| Problem::failed("write the answer", &error))?,
        })
    }

    /// Puts a notebook's file into a reply, which a browser saves.
    pub(super) fn of_file(body: Vec<u8>) -> Self {
        Self {
            status: StatusCode::OK,
            revision: None,
            mime: NOTEBOOK,
            body,
        }
    }

    /// Puts HTML into a reply.
    pub(super) fn of_html(body: Vec<u8>) -> Self {
        Self {
            status: StatusCode::OK,
            revision: None,
            mime: "text/html; charset=utf-8",
            body,
        }
    }

    /// Sets the status.
    pub(super) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Returns the status.
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// Sets the revision.
    pub(super) fn with_revision(mut self, revision: Option<Revision>) -> Self {
        self.revision = revision;
        self
    }

    /// Puts a problem into a reply.
    pub(super) fn of_problem(problem: &Problem) -> Self {
        let status = match problem.kind {
            ProblemKind::Failed => StatusCode::UNPROCESSABLE_ENTITY,
            ProblemKind::Usage => StatusCode::BAD_REQUEST,
            ProblemKind::Refused => StatusCode::FORBIDDEN,
            ProblemKind::Conflict => StatusCode::CONFLICT,
            ProblemKind::StillRunning | ProblemKind::NoKernel => StatusCode::SERVICE_UNAVAILABLE,
        };
        let body = serde_json::to_vec(&ProblemAnswer { error: problem });
        Self {
            status,
            revision: None,
            mime: JSON,
            body: body.unwrap_or_default(),
        }
    }

    /// Says that there is no such notebook or cell.
    pub(super) fn of_missing(text: String) -> Self {
        Self::of_problem(&Problem::new(ProblemKind::Failed, text))
            .with_status(StatusCode::NOT_FOUND)
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let mime = HeaderValue::from_static(self.mime);
        let mut response = (self.status, self.body).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, mime);
        if self.mime == NOTEBOOK {
            let attachment = HeaderValue::from_static("attachment");
            response
                .headers_mut()
                .insert(header::CONTENT_DISPOSITION, attachment);
        }
        let tag = self
            .revision
            .and_then(|revision| HeaderValue::from_str(&format!("\"{revision}\"")).ok());
        if let Some(tag) = tag {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response
    }
}

/// Returns a field of a query.
pub(super) fn field(query: Option<&str>, name: &str) -> Option<String> {
    let fields = query.unwrap_or_default().split('&');
    let mut fields = fields.filter_map(|field| field.split_once('='));
    let (_, value) = fields.find(|(known, _)| *known == name)?;
    let value = percent_decode_str(value).decode_utf8().ok()?;
    Some(value.into_owned())
}

/// Reads the body of a request; a missing one counts as an empty object.
///
/// # Errors
/// The body is another one than expected, or its type is not JSON: a form of another page could send any text.
pub(super) fn read<T: DeserializeOwned>(headers: &HeaderMap, body: &Bytes) -> Result<T, Problem> {
    let value = headers.get(header::CONTENT_TYPE);
    let value = value.and_then(|value| value.to_str().ok()?.split(';').next());
    match value.map(str::trim) {
        Some("application/json") => {}
        _ if body.is_empty() => {}
        _ => {
            let text = "Content-Type: application/json is meant";
            return Err(Problem::new(ProblemKind::Usage, text));
        }
    }
    parse(body)
}

/// Reads the body of a request, whatever its type; a missing one counts as an empty object.
///
/// # Errors
/// The request is another one than expected.
pub(super) fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Problem> {
    let body: &[u8] = if body.is_empty() { b"{}" } else { body };
    let read = serde_json::from_slice(body);
    read.map_err(|error| Problem::new(ProblemKind::Usage, error.to_string()))
}

/// Reads which revision a change is made from; `*` is any.
///
/// # Errors
/// The header is missing or malformed.
pub(super) fn if_match(headers: &HeaderMap) -> Result<Option<Revision>, Reply> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        let text = "a change says what it is made from: If-Match with the ETag, or *";
        let problem = Problem::new(ProblemKind::Usage, text);
        let reply = Reply::of_problem(&problem);
        return Err(reply.with_status(StatusCode::PRECONDITION_REQUIRED));
    };
    let value = value.to_str().unwrap_or_default().trim();
    if value == "*" {
        return Ok(None);
    }
    let revision = value
        .strip_prefix('"')
        .and_then(|it| it.strip_suffix('"')?.parse().ok());
    revision.map(Some).ok_or_else(|| {
        let text = format!("If-Match: {value} is no revision");
        Reply::of_problem(&Problem::new(ProblemKind::Usage, text))
    })
}
