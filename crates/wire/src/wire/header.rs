//! A message's header: parsed lazily, never serialised again.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The type of the messages on iopub in which a kernel says what an execution changed: only `nb` asks for them.
pub const FACTS: &str = "nb_facts";

/// The fields of a header that nb uses; a missing field is empty.
///
/// Other fields (`version`, a vendor's own) are ignored and passed on.
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
    /// The subshell that a request is for; `None` for the kernel's main shell.
    #[serde(borrow)]
    pub subshell_id: Option<Cow<'a, str>>,
}

/// A header that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("the header cannot be read")]
pub struct HeaderError(#[from] serde_json::Error);

/// The header of a message that nb itself makes.
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
    /// Parses a header.
    ///
    /// # Errors
    /// If the bytes are not a JSON object, or a field that nb uses is not a string.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        // serde would accept a list as a struct's fields in order.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(HeaderError(serde::de::Error::custom(
                "it is not a JSON object",
            )));
        }
        Ok(serde_json::from_slice(bytes)?)
    }
}

impl Header<'_> {
    /// Returns the number of a message and the part of its id before it, if the id has `jupyter_client`'s
    /// form: `<session>_<pid>_<number>`. A sender numbers its messages on all channels together.
    pub fn numbered(&self) -> Option<(&str, u64)> {
        let (prefix, number) = self.msg_id.rsplit_once('_')?;
        let pid = prefix.strip_prefix(&*self.session)?.strip_prefix('_')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        let number: u64 = number.parse().ok().filter(|_| is_number(pid))?;
        // No sender reaches such a number; it is rejected so that sums cannot overflow.
        (number < u64::MAX / 2).then_some((prefix, number))
    }
}

/// The positions of a parsed header's fields in its bytes, so that it need not be parsed again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FieldPositions {
    msg_id: Position,
    msg_type: Position,
    session: Position,
    username: Position,
}

/// The start and the end of a field's text; both are equal if it is empty.
type Position = (u16, u16);

impl FieldPositions {
    /// Returns `None` if a field's text differs from its bytes because of escapes, and for a header with a
    /// subshell, of which serde makes a copy.
    pub(super) fn of(header: &Header<'_>, bytes: &[u8]) -> Option<Self> {
        if header.subshell_id.is_some() {
            return None;
        }
        let position = |field: &Cow<'_, str>| match field {
            _ if field.is_empty() => Some((0, 0)),
            Cow::Borrowed(text) => {
                // The text is borrowed from `bytes`, so the distance of their addresses is its position.
                let start = text.as_ptr() as usize - bytes.as_ptr() as usize;
                let end = u16::try_from(start + text.len()).ok()?;
                Some((u16::try_from(start).ok()?, end))
            }
            Cow::Owned(_) => None,
        };
        Some(Self {
            msg_id: position(&header.msg_id)?,
            msg_type: position(&header.msg_type)?,
            session: position(&header.session)?,
            username: position(&header.username)?,
        })
    }

    /// Returns the header; `bytes` are those from which it was parsed.
    pub(super) fn header<'a>(&self, bytes: &'a [u8]) -> Option<Header<'a>> {
        let text = |(start, end): Position| {
            let field = bytes.get(usize::from(start)..usize::from(end))?;
            std::str::from_utf8(field).ok().map(Cow::Borrowed)
        };
        Some(Header {
            msg_id: text(self.msg_id)?,
            msg_type: text(self.msg_type)?,
            session: text(self.session)?,
            username: text(self.username)?,
            subshell_id: None,
        })
    }
}

impl NewHeader<'_> {
    /// `subshell` is the id of the subshell that must handle the request; `None` is the main shell.
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

/// Returns the header with another `session`; all other bytes stay the same.
///
/// A restarted kernel has a new session, and a client of JupyterLab's services drops queued messages when the
/// session changes (5 of 10 alternating stream messages were lost).
///
/// # Errors
/// If the header cannot be parsed or has no session.
pub fn splice_session(header: &Bytes, session: &str) -> Result<Bytes, HeaderError> {
    let range = session_range(header)?;
    let mut spliced = BytesMut::with_capacity(header.len() + session.len() + 2);
    spliced.put_slice(header.get(..range.start).unwrap_or_default());
    spliced.put_slice(&serde_json::to_vec(session)?);
    spliced.put_slice(header.get(range.end..).unwrap_or_default());
    Ok(spliced.freeze())
}

/// Finds the value of the top-level `session`, including the quotes.
fn session_range(header: &[u8]) -> Result<Range<usize>, HeaderError> {
    #[derive(Deserialize)]
    struct Session<'a> {
        #[serde(borrow)]
        session: &'a RawValue,
    }
    let parsed: Session<'_> = serde_json::from_slice(header)?;
    let text = parsed.session.get();
    // The raw value is borrowed from `header`, so the distance of their addresses is its position.
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

    #[test]
    fn a_header_read_by_its_positions_is_the_same() {
        for text in [
            r#"{}"#,
            r#"{"msg_id":"a","msg_type":"","session":"s\u00e9","username":"\u00fc"}"#,
            r#"{"msg_id":"é","msg_type":"status","session":"s","username":"ü","x":[1]}"#,
            r#"{"msg_id":"a","subshell_id":"\u0073"}"#,
            r#"{"username":"u","x":{"session":"in"},"subshell_id":null}"#,
        ] {
            let read = Header::parse(text.as_bytes()).expect("JSON");
            let positions = FieldPositions::of(&read, text.as_bytes());
            assert_eq!(positions.is_none(), text.contains("\\u"), "{text}");
            let Some(positions) = positions else { continue };
            let reread = positions.header(text.as_bytes()).expect("the same bytes");
            assert_eq!(format!("{reread:?}"), format!("{read:?}"));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Header::parse(&bytes);
            let _ = splice_session(&bytes.into(), "s");
        }
    }
}
