//! A message's header: read lazily, never written again.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What is read of a header; a field that is missing is empty.
///
/// Fields that are not named here (`version`, a vendor's own) pass unread.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Header<'a> {
    /// Unique in its session.
    #[serde(borrow)]
    pub msg_id: Cow<'a, str>,
    /// `execute_request`, `status`, …
    #[serde(borrow)]
    pub msg_type: Cow<'a, str>,
    /// The sender's session.
    #[serde(borrow)]
    pub session: Cow<'a, str>,
    /// The sender's name for itself.
    #[serde(borrow)]
    pub username: Cow<'a, str>,
    /// The subshell that a request is for; none is the kernel's main shell.
    #[serde(borrow)]
    pub subshell_id: Option<Cow<'a, str>>,
}

/// A session's id, as a header names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(pub String);

/// A header that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the header cannot be read")]
pub struct HeaderError(#[from] serde_json::Error);

/// The header of a message of our own.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs, reason = "the fields are the protocol's")]
pub struct NewHeader<'a> {
    pub msg_id: &'a str,
    pub session: &'a str,
    pub username: &'a str,
    /// ISO 8601 with a time zone.
    pub date: &'a str,
    pub msg_type: &'a str,
}

impl<'a> Header<'a> {
    /// Reads a header's bytes.
    ///
    /// # Errors
    /// When they are no JSON object or a field that is read is no string.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        // serde would read a list as a struct's fields in order.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(HeaderError(serde::de::Error::custom(
                "it is no JSON object",
            )));
        }
        Ok(serde_json::from_slice(bytes)?)
    }
}

impl NewHeader<'_> {
    /// `subshell` names the part of the kernel that is to take the request; none is the main one.
    pub(super) fn to_bytes(self, subshell: Option<&str>) -> Bytes {
        #[derive(Serialize)]
        struct Versioned<'a> {
            #[serde(flatten)]
            header: NewHeader<'a>,
            version: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            subshell_id: Option<&'a str>,
        }
        serde_json::to_vec(&Versioned {
            header: self,
            version: "5.3",
            subshell_id: subshell,
        })
        .expect("strings are always JSON")
        .into()
    }
}

/// Returns the header with another `session`; every other byte stays.
///
/// Kernels that restart speak with a new session; a client of JupyterLab's services drops queued
/// messages when the session changes (5 of 10 alternating stream messages were lost).
///
/// # Errors
/// When the header cannot be read or has no session.
pub fn splice_session(header: &Bytes, session: &str) -> Result<Bytes, HeaderError> {
    let span = session_span(header)?;
    let mut spliced = BytesMut::with_capacity(header.len() + session.len() + 2);
    spliced.put_slice(header.get(..span.start).unwrap_or_default());
    spliced.put_slice(&serde_json::to_vec(session)?);
    spliced.put_slice(header.get(span.end..).unwrap_or_default());
    Ok(spliced.freeze())
}

/// Finds the value of the top-level `session`, quotes included.
fn session_span(header: &[u8]) -> Result<Range<usize>, HeaderError> {
    #[derive(Deserialize)]
    struct Session<'a> {
        #[serde(borrow)]
        session: &'a RawValue,
    }
    let found: Session<'_> = serde_json::from_slice(header)?;
    let text = found.session.get();
    // The raw value is borrowed from `header`, so the distance of their addresses is its place.
    let start = text.as_ptr() as usize - header.as_ptr() as usize;
    Ok(start..start + text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_without_its_unknown_fields() {
        let header =
            Header::parse(br#"{"msg_id":"a\n","msg_type":"status","subshell_id":null,"x":[1]}"#)
                .expect("JSON");
        assert_eq!(
            (&*header.msg_id, &*header.msg_type, &*header.session),
            ("a\n", "status", "")
        );
        assert!(
            Header::parse(b"[]").is_err_and(|error| error.to_string().contains("cannot be read"))
        );
        assert!(Header::parse(b"{\"msg_id\":1}").is_err());
    }

    #[test]
    fn a_spliced_session_changes_nothing_else() {
        let header = Bytes::from_static(
            b"{ \"x\":{\"session\":\"in\"}, \"session\" : \"o\\u00e9ld\" ,\"n\":1.0}",
        );
        let spliced = splice_session(&header, "new\"").expect("a header with a session");
        assert_eq!(
            spliced,
            Bytes::from_static(
                b"{ \"x\":{\"session\":\"in\"}, \"session\" : \"new\\\"\" ,\"n\":1.0}"
            )
        );
        assert!(splice_session(&Bytes::from_static(b"{}"), "s").is_err());
    }

    #[test]
    fn our_own_header_is_whole() {
        let header = NewHeader {
            msg_id: "m",
            session: "s",
            username: "u",
            date: "d",
            msg_type: "status",
        };
        assert_eq!(
            header.to_bytes(None),
            Bytes::from_static(
                br#"{"msg_id":"m","session":"s","username":"u","date":"d","msg_type":"status","version":"5.3"}"#
            )
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Header::parse(&bytes);
            let _ = splice_session(&bytes.into(), "s");
        }
    }
}
