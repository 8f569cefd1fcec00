//! Checks requests: their host, the page that sends them, and their secret.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::jupyter;
use super::reply::field;
use crate::http::{ClientSecret, LONGEST_BODY, LOOPBACK_NAMES, host_name};

/// How long the body of a request may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// The page may load only its own files, and images that are in its outputs: the address of an image could be a request.
/// `frame-src` follows.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data: blob:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; frame-src";

/// Where the paths of outputs in frames begin.
pub(super) const FRAMES: &str = "/frames/";

/// An output in a frame may run scripts. It has no origin, so it reads nothing of the page and sends no cookie, and it
/// loads nothing.
const FRAME_POLICY: &str = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; \
     style-src 'unsafe-inline'; img-src data: blob:; font-src data:; media-src data: blob:; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'self'; webrtc 'block'";

/// The headers of all responses.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_DNS_PREFETCH_CONTROL, "off"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// The secrets and the address that requests must have.
#[derive(Debug)]
pub(super) struct Access {
    /// The token in the printed address.
    token: ClientSecret,
    /// The token in an address that this program opens. Other programs have it in their arguments, which every user of
    /// the machine can read, so it is accepted once.
    single_use_token: Mutex<Option<ClientSecret>>,
    /// The cookie for which the token is exchanged.
    cookie: ClientSecret,
    /// The header that sets the cookie.
    set_cookie_header: HeaderValue,
    /// The cookie's name: browsers send a cookie to all ports of a machine.
    name: String,
    /// The address at which the server listens.
    address: IpAddr,
}

/// Why a request is refused.
type Refusal = (StatusCode, &'static str);

impl Access {
    /// Makes new secrets, except for a token that is kept; returns the token too, and one that counts once.
    pub(super) fn new(
        address: IpAddr,
        port: u16,
        stored_token: Option<Zeroizing<String>>,
    ) -> (Self, [Zeroizing<String>; 2]) {
        let (token, text) = match stored_token {
            Some(text) => (ClientSecret::of(&text), text),
            None => ClientSecret::random(),
        };
        let (single_use_token, single_use_text) = ClientSecret::random();
        let (cookie, value) = ClientSecret::random();
        let name = format!("nb-{port}");
        let cookie_text = format!(
            "{name}={}; Path=/; HttpOnly; SameSite=Strict",
            value.as_str()
        );
        let mut set_cookie_header =
            HeaderValue::from_str(&cookie_text).expect("hexadecimal digits are ASCII");
        set_cookie_header.set_sensitive(true);
        let access = Self {
            token,
            single_use_token: Mutex::new(Some(single_use_token)),
            cookie,
            set_cookie_header,
            name,
            address,
        };
        (access, [text, single_use_text])
    }

    /// Checks a request. The token in the address of the page is exchanged for the cookie.
    fn check(&self, request: &Request) -> Result<Option<Response>, Refusal> {
        let (headers, uri) = (request.headers(), request.uri());
        let host = self.host(headers, uri)?;
        let has_origin = has_own_origin(headers, host)?;
        if uri.path() == "/"
            && request.method() == Method::GET
            && let Some(token) = field(uri.query(), "token")
        {
            return match self.is_token(token.as_bytes()) {
                true => Ok(Some(self.with_cookie())),
                false => Err(UNKNOWN),
            };
        }
        if self.has_token(headers) || (jupyter::serves(uri.path()) && self.is_token_in(uri)) {
            return Ok(None);
        }
        if !self.has_cookie(headers) {
            return Err(UNKNOWN);
        }
        // A browser sends the cookie by itself. It names the page in each request that changes something, and for each
        // websocket.
        let is_safe = matches!(*request.method(), Method::GET | Method::HEAD)
            && !headers.contains_key(header::UPGRADE);
        match is_safe || has_origin {
            true => Ok(None),
            false => Err((
                StatusCode::FORBIDDEN,
                "the page that sends this must be named: Origin",
            )),
        }
    }

    /// Returns the `Host` header, if it names this machine as this server may be named: the name of another machine
    /// whose address is made to be this one's is refused.
    fn host<'a>(&self, headers: &'a HeaderMap, uri: &Uri) -> Result<&'a str, Refusal> {
        let refusal = (StatusCode::FORBIDDEN, "this Host is not served here");
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(refusal);
        };
        let host = host.to_str().map_err(|_| refusal)?;
        let is_other = uri.authority().is_some_and(|it| it.as_str() != host);
        let name = host_name(host).filter(|name| !is_other && self.is_named(name));
        name.map(|_| host).ok_or(refusal)
    }

    fn is_named(&self, name: &str) -> bool {
        let address = name.parse::<IpAddr>();
        LOOPBACK_NAMES.contains(&name)
            || address.is_ok_and(|address| address == self.address || self.address.is_unspecified())
    }

    fn is_token(&self, sent: &[u8]) -> bool {
        let mut single_use_token = self
            .single_use_token
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.token.is(sent)
            || single_use_token
                .take_if(|single_use_token| single_use_token.is(sent))
                .is_some()
    }

    /// Returns whether a request has the token in a header; `token` is the word of Jupyter's clients, in any case.
    fn has_token(&self, headers: &HeaderMap) -> bool {
        let sent = headers.get(header::AUTHORIZATION);
        let sent = sent.and_then(|sent| sent.to_str().ok()?.split_once(' '));
        sent.is_some_and(|(word, token)| {
            let known = ["bearer", "token"];
            known.iter().any(|it| word.eq_ignore_ascii_case(it))
                && self.token.is(token.trim_start().as_bytes())
        })
    }

    /// Returns whether a request has the token in its query, as Jupyter's clients send it for a websocket.
    fn is_token_in(&self, uri: &Uri) -> bool {
        let sent = field(uri.query(), "token");
        sent.is_some_and(|sent| self.token.is(sent.as_bytes()))
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let sent = headers.get_all(header::COOKIE).iter();
        let sent = sent.filter_map(|sent| sent.to_str().ok());
        let mut cookies = sent.flat_map(|sent| sent.split(';'));
        cookies.any(|cookie| {
            let pair = cookie.trim().split_once('=');
            pair.is_some_and(|(name, value)| name == self.name && self.cookie.is(value.as_bytes()))
        })
    }

    fn with_cookie(&self) -> Response {
        let to_page = (header::LOCATION, HeaderValue::from_static("/"));
        let cookie = (header::SET_COOKIE, self.set_cookie_header.clone());
        (StatusCode::SEE_OTHER, [to_page, cookie]).into_response()
    }
}

const UNKNOWN: Refusal = (
    StatusCode::UNAUTHORIZED,
    "open the address that `nb web` has printed; without --keep-token it is another one after each start",
);

/// Returns whether a page of this server sends the request; a request of another page is refused.
fn has_own_origin(headers: &HeaderMap, host: &str) -> Result<bool, Refusal> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let (Some(origin), others) = (origins.next(), origins.next()) else {
        return Ok(false);
    };
    let origin = origin.as_bytes().strip_prefix(b"http://");
    match others.is_none() && origin == Some(host.as_bytes()) {
        true => Ok(true),
        false => Err((
            StatusCode::FORBIDDEN,
            "a page of another origin has sent this",
        )),
    }
}

/// Returns a request once its whole body has arrived.
async fn with_body(request: Request) -> Result<Request, Refusal> {
    const LONG: Refusal = (
        StatusCode::PAYLOAD_TOO_LARGE,
        "a request has at most 16 MiB",
    );
    let (head, body) = request.into_parts();
    let length = head.headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|it| it.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > LONGEST_BODY) {
        return Err(LONG);
    }
    match timeout(BODY_TIMEOUT, to_bytes(body, LONGEST_BODY)).await {
        Ok(Ok(bytes)) => Ok(Request::from_parts(head, bytes.into())),
        Ok(Err(_)) => Err(LONG),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the request came too slowly")),
    }
}

/// Returns the policy of a response. The page has frames of no other path, also when a frame goes elsewhere by itself.
fn policy(path: &str, headers: &HeaderMap) -> HeaderValue {
    if path.starts_with(FRAMES) {
        return HeaderValue::from_static(FRAME_POLICY);
    }
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let own = match host.filter(|host| host_name(host).is_some()) {
        // The grammar of policies has no such addresses.
        Some(host) if host.starts_with('[') => "'self'".to_owned(),
        Some(host) => format!("http://{host}{FRAMES}"),
        None => "'none'".to_owned(),
    };
    let policy = HeaderValue::from_str(&format!("{POLICY} {own}"));
    policy.unwrap_or(HeaderValue::from_static("default-src 'none'"))
}

/// Passes on the accepted requests, and sets the headers of all responses.
pub(super) async fn guard(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let is_frame = path.starts_with(FRAMES);
    let is_stored = !(path.starts_with("/api/") || is_frame || jupyter::serves(path));
    let policy = policy(path, request.headers());
    let mut response = match access.check(&request) {
        Ok(None) => match with_body(request).await {
            Ok(request) => next.run(request).await,
            Err(refusal) => refusal.into_response(),
        },
        Ok(Some(response)) => response,
        Err((status, text)) => (status, format!("{text}\n")).into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in &HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    let frame_options = if is_frame { "SAMEORIGIN" } else { "DENY" };
    headers.insert(
        header::X_FRAME_OPTIONS,
        HeaderValue::from_static(frame_options),
    );
    let cache_control = if is_stored { "no-cache" } else { "no-store" };
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static(cache_control),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_before_a_token_is_written_in_any_case() {
        let (access, [token, _]) = Access::new(IpAddr::from([127, 0, 0, 1]), 1, None);
        let has_token = |word: &str| {
            let sent = HeaderValue::from_str(&format!("{word} {}", token.as_str())).unwrap();
            access.has_token(&HeaderMap::from_iter([(header::AUTHORIZATION, sent)]))
        };
        for (word, is_known) in [
            ("token", true),
            ("Token", true),
            ("Bearer", true),
            ("BEARER ", true),
            ("Basic", false),
            ("", false),
        ] {
            assert_eq!(has_token(word), is_known, "{word}");
        }
    }
}
