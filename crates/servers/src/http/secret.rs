//! A secret that clients send.

use std::fmt;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// A secret that clients send, as its digest: the time that a comparison takes tells nothing.
#[derive(Clone)]
pub struct ClientSecret([u8; 32]);

impl ClientSecret {
    /// Takes a secret.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// Makes a random secret; returns it, and its text for the clients.
    pub fn random() -> (Self, Zeroizing<String>) {
        let part = || uuid::Uuid::new_v4().simple().to_string();
        let text = Zeroizing::new(part() + &part());
        (Self::of(&text), text)
    }

    /// Returns whether a client has sent this secret.
    pub fn is(&self, sent: &[u8]) -> bool {
        Sha256::digest(sent)[..] == self.0
    }
}

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_text_is_the_secret() {
        let (secret, text) = ClientSecret::random();
        assert!(secret.is(text.as_bytes()) && text.len() == 64);
        assert!(!secret.is(b"") && !secret.is(&text.as_bytes()[1..]));
        assert!(!ClientSecret::random().0.is(text.as_bytes()));
        assert!(!format!("{secret:?}").contains(&text[..8]));
    }
}
