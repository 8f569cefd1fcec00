//! The HTTP proxy on the way to a server, as the variables `HTTPS_PROXY` and others name it.

use hyper::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;

/// A proxy, and the variable that names it.
pub(super) struct NamedProxy {
    /// Its host and port, without a password.
    pub(super) at: String,
    pub(super) variable: &'static str,
}

/// Returns the proxy through which requests to a URL go.
pub(super) fn proxy_to(url: &Url) -> Option<NamedProxy> {
    // A tunnel ends on this machine, where a proxy elsewhere does not reach it.
    if url.host_str().is_some_and(is_loopback) {
        return None;
    }
    let target: Uri = url.as_str().parse().ok()?;
    let found = Matcher::from_env().intercept(&target)?;
    let names = match url.scheme() {
        "https" => ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
        _ => ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"],
    };
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let host = found.uri().host()?;
    let port = found.uri().port_u16().map(|port| format!(":{port}"));
    Some(NamedProxy {
        at: format!("{host}{}", port.unwrap_or_default()),
        variable: names.into_iter().find(is_set)?,
    })
}

pub(super) fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
