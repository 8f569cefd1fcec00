//! The key that signs a kernel's messages.

use std::fmt;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// A connection's `hmac-sha256` key; an empty one leaves messages unsigned.
///
/// The keyed hash state is made once and cloned for each message (1.3 times faster than keying each). `Debug`
/// shows nothing of it, and its memory is wiped on drop.
#[derive(Clone)]
pub struct SigningKey {
    text: Zeroizing<String>,
    mac: Option<Hmac<Sha256>>,
}

/// A message whose signature is wrong: it must not be acted on.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the signature does not match the message")]
pub struct BadSignature;

impl SigningKey {
    /// Makes a key from the bytes in the connection file.
    pub fn new(key: &[u8]) -> Self {
        let mac = (!key.is_empty())
            .then(|| Hmac::new_from_slice(key).expect("a key for HMAC may have any length"));
        Self {
            text: Zeroizing::new(String::from_utf8_lossy(key).into_owned()),
            mac,
        }
    }

    /// Returns whether messages are signed.
    pub fn signs(&self) -> bool {
        self.mac.is_some()
    }

    /// Checks the signature of message parts, in constant time.
    ///
    /// # Errors
    /// [`BadSignature`], as [`SigningKey::verify`] says.
    pub(super) fn check<'a>(
        &self,
        signature: &[u8],
        parts: impl Iterator<Item = &'a Bytes>,
    ) -> Result<(), BadSignature> {
        let Some(mac) = &self.mac else {
            return Ok(());
        };
        let signature = digest(signature).ok_or(BadSignature)?;
        let mut mac = mac.clone();
        for part in parts {
            mac.update(part);
        }
        mac.verify_slice(&signature).map_err(|_| BadSignature)
    }

    /// Returns the signature frame for four message parts: 64 hex characters, or nothing for an empty key.
    pub(super) fn sign<'a>(&self, parts: impl Iterator<Item = &'a Bytes>) -> Bytes {
        let Some(mac) = &self.mac else {
            return Bytes::new();
        };
        let mut mac = mac.clone();
        for part in parts {
            mac.update(part);
        }
        Bytes::copy_from_slice(&hex(&mac.finalize().into_bytes().into()))
    }

    /// Returns the key itself, for the only code that writes it: the connection file.
    pub(super) fn expose(&self) -> &str {
        &self.text
    }
}

/// Decodes 64 hex characters.
///
/// It has no branch for each character: a signature's characters are random, and the mispredicted branches of
/// `hex::decode_to_slice` took a twelfth of the time that a short message costs the proxy. The compiler
/// vectorises these two loops to sixteen or more bytes at a time.
fn digest(text: &[u8]) -> Option<[u8; 32]> {
    let text: &[u8; 64] = text.try_into().ok()?;
    let mut nibbles = [0; 64];
    let mut invalid = 0;
    for (nibble, character) in nibbles.iter_mut().zip(text) {
        let digit = character.wrapping_sub(b'0');
        let letter = (character | 0x20).wrapping_sub(b'a');
        invalid |= u8::from(digit > 9) & u8::from(letter > 5);
        *nibble = if digit <= 9 {
            digit
        } else {
            letter.wrapping_add(10)
        };
    }
    let mut digest = [0; 32];
    for (byte, [high, low]) in digest.iter_mut().zip(nibbles.as_chunks().0) {
        *byte = (high << 4) | (low & 0xf);
    }
    (invalid == 0).then_some(digest)
}

/// Encodes 64 hex characters.
fn hex(digest: &[u8; 32]) -> [u8; 64] {
    let character = |nibble: u8| nibble + if nibble <= 9 { b'0' } else { b'a' - 10 };
    let mut text = [0; 64];
    for ([high, low], byte) in text.as_chunks_mut().0.iter_mut().zip(digest) {
        *high = character(byte >> 4);
        *low = character(byte & 0xf);
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_read_and_written_as_the_crate_does_it() {
        let valid = b"00ffAbcDEF0123456789abcdef0123456789ABCDEF0123456789abcdef01239a";
        let mut expected = [0; 32];
        ::hex::decode_to_slice(valid, &mut expected).expect("it is hex");
        assert_eq!(digest(valid), Some(expected));
        assert_eq!(hex(&expected).to_vec(), valid.to_ascii_lowercase());
        assert_eq!(digest(&valid[..62]), None);
        assert_eq!(digest(b""), None);
        for at in 0..valid.len() {
            for character in 0..=u8::MAX {
                let mut text = *valid;
                text[at] = character;
                let mut expected = [0; 32];
                let read = ::hex::decode_to_slice(text, &mut expected).is_ok();
                assert_eq!(
                    digest(&text),
                    read.then_some(expected),
                    "{character} at {at}"
                );
            }
        }
        for byte in 0..=u8::MAX {
            let digest = [byte; 32];
            assert_eq!(hex(&digest).to_vec(), ::hex::encode(digest).into_bytes());
        }
    }
}
