//! The headers of requests that hold secrets.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use zeroize::Zeroizing;

use super::error::ServerErrorKind;
use super::secret::Secret;

/// The headers with secrets that each request gets.
#[derive(Clone, Default, PartialEq)]
pub(super) struct CredentialHeaders(HeaderMap);

impl CredentialHeaders {
    /// Adds a header, in place of one of the same name.
    pub(super) fn add(&mut self, name: &str, value: &str) -> Result<(), ServerErrorKind> {
        let invalid =
            |part: &str| ServerErrorKind::Credential(format!("{part} cannot be a header's"));
        let name = HeaderName::try_from(name.trim()).map_err(|_| invalid("the name"))?;
        let value = HeaderValue::try_from(value.trim());
        let mut value = value.map_err(|_| invalid("the value, or the token,"))?;
        value.set_sensitive(true);
        self.0.insert(name, value);
        Ok(())
    }

    pub(super) fn add_token(&mut self, token: &Secret) -> Result<(), ServerErrorKind> {
        // A text with a space has its scheme: `Bearer …`.
        match token.expose().trim() {
            "" => Err(ServerErrorKind::Credential("the token is empty".to_owned())),
            token if token.contains(' ') => self.add("Authorization", token),
            token => {
                let value = Zeroizing::new(format!("token {token}"));
                self.add("Authorization", &value)
            }
        }
    }

    /// Adds what a server wants that asks for no token: the same value in a cookie and in a header, which a page of
    /// another site could not send.
    pub(super) fn add_xsrf(&mut self) -> Result<(), ServerErrorKind> {
        let value = uuid::Uuid::new_v4().simple().to_string();
        self.add("Cookie", &format!("_xsrf={value}"))?;
        self.add("X-XSRFToken", &value)
    }

    /// Returns whether there is a header by which the server may know the user.
    pub(super) fn has_secret(&self) -> bool {
        !self.0.is_empty() && !self.0.contains_key("X-XSRFToken")
    }

    /// Returns the headers, for a request.
    pub(super) fn map(&self) -> &HeaderMap {
        &self.0
    }

    /// Takes the secrets out of a text that the server sent.
    pub(super) fn redact(&self, text: String) -> String {
        let values = self.0.values().filter_map(|value| value.to_str().ok());
        let words = values.flat_map(str::split_whitespace);
        let secrets = words.filter(|word| word.len() >= 8);
        secrets.fold(text, |text, secret| text.replace(secret, "…"))
    }

    #[cfg(test)]
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok()
    }
}

impl fmt::Debug for CredentialHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Returns the value of `Authorization` for a user name and a password.
pub(super) fn basic(user: &str, password: &str) -> Secret {
    let both = Zeroizing::new(format!("{user}:{password}"));
    Secret::new(format!("Basic {}", BASE64_STANDARD.encode(both.as_bytes())))
}
