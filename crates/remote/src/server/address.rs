//! A server's URL as a person pastes it.

use reqwest::Url;

use super::error::ServerErrorKind;
use super::secret::Secret;

/// A URL that was taken apart.
#[derive(Debug)]
pub struct ServerAddress {
    /// The base URL, with a slash at the end.
    pub base: Url,
    /// The token that stood in the URL.
    pub token: Option<Secret>,
}

/// The pages of front ends: what a pasted URL has after the server's base.
const PAGES: [&str; 8] = [
    "lab",
    "tree",
    "notebooks",
    "nbclassic",
    "edit",
    "login",
    "api",
    "voila",
];

/// Takes a pasted URL apart: the token leaves it, and so does the page of a front end.
///
/// # Errors
/// The text is no URL of `http` or `https`, or has a user name or a password.
pub fn parse_address(text: &str) -> Result<ServerAddress, ServerErrorKind> {
    // The text may have a token, so no message repeats it.
    let invalid = |reason: &str| ServerErrorKind::Url(reason.to_owned());
    let text = text.trim();
    let text = if text.contains("://") {
        text.to_owned()
    } else {
        return Err(invalid("it does not begin with http:// or https://"));
    };
    let mut url = Url::parse(&text).map_err(|error| invalid(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("it does not begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid(
            "a user name and a password do not belong in it: give a token by --token-file or --token-command",
        ));
    }
    let token = url
        .query_pairs()
        .find(|(key, value)| key == "token" && !value.is_empty())
        .map(|(_, value)| Secret::new(value));
    url.set_query(None);
    url.set_fragment(None);
    let parts: Vec<_> = url
        .path()
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    // The page of a hub is `hub/…`; a user's server is below `user/NAME`, whose name may be that of a page.
    let first_page_part = match parts.iter().position(|part| *part == "user") {
        Some(at) => at + 2,
        None => 0,
    };
    let is_page = |(at, part): (usize, &&str)| {
        at >= first_page_part && (PAGES.contains(part) || (*part == "hub" && first_page_part == 0))
    };
    let end = parts.iter().enumerate().position(is_page);
    let base_path = parts[..end.unwrap_or(parts.len())].join("/");
    let path = match base_path.is_empty() {
        true => "/".to_owned(),
        false => format!("/{base_path}/"),
    };
    url.set_path(&path);
    Ok(ServerAddress { base: url, token })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pasted_url_loses_its_token_and_its_page() {
        for (pasted, base) in [
            (
                "http://127.0.0.1:8888/lab?token=abc",
                "http://127.0.0.1:8888/",
            ),
            ("https://h.org/hub/home?token=abc", "https://h.org/"),
            ("https://h.org/x/hub/token?token=abc", "https://h.org/x/"),
            (
                "https://h.org/user/ann/lab/tree/a.ipynb?token=abc",
                "https://h.org/user/ann/",
            ),
            (
                "https://h.org/user/lab/?token=abc",
                "https://h.org/user/lab/",
            ),
            (" https://h.org/j?token=abc#x ", "https://h.org/j/"),
        ] {
            let address = parse_address(pasted).unwrap();
            assert_eq!(address.base.as_str(), base, "{pasted}");
            assert_eq!(address.token, Some(Secret::new("abc")), "{pasted}");
        }
        assert_eq!(parse_address("http://h/").unwrap().token, None);
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_token() {
        for invalid in [
            "localhost:8888?token=sesame",
            "ftp://h/?token=sesame",
            "http://ann:sesame@h/",
            "http://:99999?token=sesame",
            "http://[::1?token=sesame",
        ] {
            let error = parse_address(invalid).unwrap_err();
            assert!(
                !format!("{error} {error:?}").contains("sesame"),
                "{invalid}"
            );
        }
    }
}
