//! The key that signs a kernel's messages.

use std::fmt;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::{Unverified, Verified};

/// A connection's `hmac-sha256` key; an empty one leaves messages unsigned.
///
/// The keyed hash state is made once and cloned for each message (1.3 times faster than keying
/// each). `Debug` shows nothing of it, and its memory is wiped when it goes.
#[derive(Clone)]
pub struct SigningKey {
    text: Zeroizing<String>,
    keyed: Option<Hmac<Sha256>>,
}

/// A message whose signature does not fit: it must not be acted on.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the signature does not match the message")]
pub struct BadSignature;

impl SigningKey {
    /// Takes the key's bytes as the connection file has them.
    pub fn new(key: &[u8]) -> Self {
        let keyed = (!key.is_empty())
            .then(|| Hmac::new_from_slice(key).expect("a key for HMAC may have any length"));
        Self {
            text: Zeroizing::new(String::from_utf8_lossy(key).into_owned()),
            keyed,
        }
    }

    /// Returns whether messages are signed at all.
    pub fn signs(&self) -> bool {
        self.keyed.is_some()
    }

    /// Checks a message's signature, in constant time.
    ///
    /// # Errors
    /// [`BadSignature`] when it is missing, malformed or of another key or message. An empty key
    /// accepts everything, as ipykernel and jupyter_client do.
    pub fn verify(&self, message: Unverified) -> Result<Verified, BadSignature> {
        if let Some(keyed) = &self.keyed {
            let mut claimed = [0; 32];
            hex::decode_to_slice(message.signature(), &mut claimed).map_err(|_| BadSignature)?;
            let mut mac = keyed.clone();
            for part in message.signed_parts() {
                mac.update(part);
            }
            mac.verify_slice(&claimed).map_err(|_| BadSignature)?;
        }
        Ok(Verified::trusted(message))
    }

    /// Returns the signature frame for four message parts: 64 hex characters, or nothing.
    pub(super) fn sign<'a>(&self, parts: impl Iterator<Item = &'a Bytes>) -> Bytes {
        let Some(keyed) = &self.keyed else {
            return Bytes::new();
        };
        let mut mac = keyed.clone();
        for part in parts {
            mac.update(part);
        }
        let mut text = vec![0; 64];
        hex::encode_to_slice(mac.finalize().into_bytes(), &mut text)
            .expect("32 bytes are 64 hex characters");
        text.into()
    }

    /// Returns the key itself, for the one place that writes it: the connection file.
    pub(super) fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.signs() {
            "SigningKey(…)"
        } else {
            "SigningKey(none)"
        })
    }
}
