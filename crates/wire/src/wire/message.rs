//! One message: its frames, before and after its signature has been checked.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::header::FieldPositions;
use super::{BadSignature, Header, HeaderError, NewHeader, SigningKey, splice_session};

/// The frame between the routing identities and the signature.
pub const DELIMITER: &[u8] = b"<IDS|MSG>";

/// The number of frames from the delimiter on: delimiter, signature, header, parent header, metadata,
/// content.
const FIXED: usize = 6;
const SIGNATURE: usize = 1;
const HEADER: usize = 2;
const PARENT: usize = 3;
const METADATA: usize = 4;
const CONTENT: usize = 5;

/// A message as a peer sent it. Nothing in it may be acted on before it is verified.
pub struct Unverified(Parts);

/// A message whose signature was checked, or one that nb itself made.
///
/// It keeps the frames in which it arrived; [`Verified::into_frames`] replaces only the signature.
#[derive(Clone)]
pub struct Verified(Parts);

#[derive(Clone)]
struct Parts {
    /// All frames, unchanged.
    frames: Vec<Bytes>,
    /// The index of the delimiter; at least [`FIXED`] frames begin there.
    delimiter: usize,
    /// The field positions of the header and the parent header, if they were parsed.
    header: Option<FieldPositions>,
    parent: Option<FieldPositions>,
}

/// Frames that are not a Jupyter message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Malformed {
    #[error("no <IDS|MSG> frame among {frames} frames")]
    NoDelimiter { frames: usize },
    #[error("{0} frames after the identities, at least 6 are needed")]
    TooShort(usize),
}

impl Unverified {
    /// Parses a message: `identities…, <IDS|MSG>, signature, header, parent_header,
    /// metadata, content, buffers…`.
    ///
    /// A ROUTER's own identity frame must be removed before: an identity may equal the delimiter.
    ///
    /// # Errors
    /// [`Malformed`] if the delimiter or a part is missing.
    pub fn parse(frames: Vec<Bytes>) -> Result<Self, Malformed> {
        let delimiter =
            frames
                .iter()
                .position(|frame| frame == DELIMITER)
                .ok_or(Malformed::NoDelimiter {
                    frames: frames.len(),
                })?;
        if frames.len() - delimiter < FIXED {
            return Err(Malformed::TooShort(frames.len() - delimiter));
        }
        Ok(Self(Parts::new(frames, delimiter)))
    }

    pub(super) fn signature(&self) -> &Bytes {
        self.0.part(SIGNATURE)
    }

    pub(super) fn signed_parts(&self) -> impl Iterator<Item = &Bytes> {
        self.0.signed_parts()
    }
}

impl Verified {
    /// Returns the signature frame with which it arrived.
    pub(super) fn signature(&self) -> &Bytes {
        self.0.part(SIGNATURE)
    }

    pub(super) fn signed_parts(&self) -> impl Iterator<Item = &Bytes> {
        self.0.signed_parts()
    }

    /// Makes a new message. `parent_header` is the request's header, unchanged, or `{}`.
    ///
    /// # Panics
    /// If `content` cannot be written as JSON (a map whose keys are not strings).
    pub fn new(header: &NewHeader<'_>, parent_header: Bytes, content: &impl Serialize) -> Self {
        Self::to_subshell(None, header, parent_header, content)
    }

    /// Makes a new message for the kernel's subshell with this id.
    ///
    /// # Panics
    /// Like [`Verified::new`].
    pub fn to_subshell(
        subshell: Option<&str>,
        header: &NewHeader<'_>,
        parent_header: Bytes,
        content: &impl Serialize,
    ) -> Self {
        let content = serde_json::to_vec(content).expect("content of our own is JSON");
        let frames = vec![
            Bytes::from_static(DELIMITER),
            Bytes::new(),
            header.to_bytes(subshell),
            parent_header,
            Bytes::from_static(b"{}"),
            content.into(),
        ];
        Self(Parts::new(frames, 0))
    }

    /// Parses the header; the bytes stay unchanged.
    ///
    /// # Errors
    /// If it is not a JSON object, or a field that nb uses has another type.
    pub fn header(&self) -> Result<Header<'_>, HeaderError> {
        self.0.header_at(HEADER, self.0.header)
    }

    /// Parses the parent header; an empty one (`{}`) has empty fields.
    ///
    /// # Errors
    /// Like [`Verified::header`].
    pub fn parent(&self) -> Result<Header<'_>, HeaderError> {
        self.0.header_at(PARENT, self.0.parent)
    }

    /// Returns whether header, parent header and metadata are JSON objects. Their parsed fields are stored
    /// for [`Verified::header`] and [`Verified::parent`].
    ///
    /// A message without this property ends the reader of a whole channel in VS Code. The content is not
    /// checked, since it may be very long.
    pub fn read_headers(&mut self) -> bool {
        self.0.header = self.0.positions(HEADER);
        self.0.parent = self.0.positions(PARENT);
        let is_header = self.0.header.is_some() || self.is_object_at(HEADER);
        let is_parent = self.0.parent.is_some() || self.is_object_at(PARENT);
        is_header && is_parent && self.is_object_at(METADATA)
    }

    fn is_object_at(&self, part: usize) -> bool {
        match &**self.0.part(part) {
            b"{}" => true,
            bytes => is_object(bytes),
        }
    }

    /// Returns the header, unchanged.
    pub fn header_bytes(&self) -> &Bytes {
        self.0.part(HEADER)
    }

    /// Returns the parent header, unchanged.
    pub fn parent_bytes(&self) -> &Bytes {
        self.0.part(PARENT)
    }

    /// Returns the metadata, unchanged.
    pub fn metadata(&self) -> &Bytes {
        self.0.part(METADATA)
    }

    /// Returns the content, unchanged.
    pub fn content(&self) -> &Bytes {
        self.0.part(CONTENT)
    }

    /// Parses the content as JSON; `None` if it does not have this type.
    pub fn read_content<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_slice(self.content()).ok()
    }

    /// Returns the `execution_state` of a `status` message.
    pub fn execution_state(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Status {
            execution_state: String,
        }
        let status: Status = self.read_content()?;
        Some(status.execution_state)
    }

    /// Returns the binary buffers after the content. They are not signed.
    pub fn buffers(&self) -> &[Bytes] {
        self.0
            .frames
            .get(self.0.delimiter + FIXED..)
            .unwrap_or_default()
    }

    /// Returns the frames before the delimiter: a topic on iopub, further hops on other channels.
    pub fn identities(&self) -> &[Bytes] {
        self.0.frames.get(..self.0.delimiter).unwrap_or_default()
    }

    /// Appends buffers, which are not signed.
    #[must_use]
    pub fn with_buffers(mut self, buffers: impl IntoIterator<Item = Bytes>) -> Self {
        self.0.frames.extend(buffers);
        self
    }

    /// Replaces the frames before the delimiter.
    #[must_use]
    pub fn with_identities(mut self, identities: Vec<Bytes>) -> Self {
        let count = identities.len();
        self.0.frames.splice(..self.0.delimiter, identities);
        self.0.delimiter = count;
        self
    }

    /// Replaces the metadata.
    #[cfg(test)]
    #[must_use]
    pub fn with_metadata(mut self, metadata: &serde_json::Value) -> Self {
        let index = self.0.delimiter + METADATA;
        if let Some(frame) = self.0.frames.get_mut(index) {
            *frame = metadata.to_string().into();
        }
        self
    }

    /// Returns the size of all frames together, in bytes.
    pub fn size(&self) -> usize {
        self.0.frames.iter().map(Bytes::len).sum()
    }

    /// Replaces `header.session`; all other bytes stay the same.
    ///
    /// # Errors
    /// If the header cannot be parsed, or has no session.
    pub fn set_session(&mut self, session: &str) -> Result<(), HeaderError> {
        let spliced = splice_session(self.header_bytes(), session)?;
        if let Some(header) = self.0.frames.get_mut(self.0.delimiter + HEADER) {
            *header = spliced;
        }
        self.0.header = None;
        Ok(())
    }

    /// Returns the frames for a peer that has this key; only the signature is replaced.
    pub fn into_frames(self, key: &SigningKey) -> Vec<Bytes> {
        let signature = key.sign(self.0.signed_parts());
        let Parts {
            mut frames,
            delimiter,
            ..
        } = self.0;
        if let Some(frame) = frames.get_mut(delimiter + SIGNATURE) {
            *frame = signature;
        }
        frames
    }
}

impl SigningKey {
    /// Checks a message's signature, in constant time.
    ///
    /// # Errors
    /// [`BadSignature`] if it is missing, malformed or belongs to another key or message. An empty key
    /// accepts every message, as ipykernel and jupyter_client do.
    pub fn verify(&self, message: Unverified) -> Result<Verified, BadSignature> {
        self.check(message.signature(), message.signed_parts())?;
        Ok(Verified(message.0))
    }
}

/// Parses to the end without storing anything; strings that are not valid Unicode are still JSON.
fn is_object(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().first() == Some(&b'{')
        && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
}

impl fmt::Debug for Verified {
    /// Shows what a log may: the type and the size, never a user's code or output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = self.header().unwrap_or_default();
        write!(
            f,
            "Verified({} {}, {} bytes)",
            header.msg_type,
            header.msg_id,
            self.size()
        )
    }
}

impl fmt::Debug for Unverified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unverified({} frames)", self.0.frames.len())
    }
}

impl Parts {
    fn new(frames: Vec<Bytes>, delimiter: usize) -> Self {
        Self {
            frames,
            delimiter,
            header: None,
            parent: None,
        }
    }

    fn part(&self, index: usize) -> &Bytes {
        self.frames
            .get(self.delimiter + index)
            .expect("a message has its six parts since it was parsed or made")
    }

    /// Parses a header; returns the positions of its fields, if it is an object.
    fn positions(&self, index: usize) -> Option<FieldPositions> {
        let bytes = self.part(index);
        if *bytes == b"{}"[..] {
            return Some(FieldPositions::default());
        }
        FieldPositions::of(&Header::parse(bytes).ok()?, bytes)
    }

    fn header_at(
        &self,
        index: usize,
        positions: Option<FieldPositions>,
    ) -> Result<Header<'_>, HeaderError> {
        let bytes = self.part(index);
        match positions.and_then(|positions| positions.header(bytes)) {
            Some(header) => Ok(header),
            None => Header::parse(bytes),
        }
    }

    fn signed_parts(&self) -> impl Iterator<Item = &Bytes> {
        self.frames
            .iter()
            .skip(self.delimiter + HEADER)
            .take(FIXED - HEADER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::BadSignature;

    fn frames(texts: &[&'static str]) -> Vec<Bytes> {
        texts
            .iter()
            .map(|text| Bytes::from_static(text.as_bytes()))
            .collect()
    }

    fn key() -> SigningKey {
        SigningKey::new(b"a0436f6c-1916-498b-8eb9-e81ab9368e84")
    }

    /// Signed with Python's `hmac.new(key, b'{"a":1}{}{}{"b":2}', 'sha256').hexdigest()`.
    const SIGNATURE: &str = "a8393c9b46dc75412c34bfbce1f4b48de7e37f440f91caf4171dffe957b3e15f";

    #[test]
    fn a_signature_of_pythons_hmac_is_accepted() {
        let good = frames(&[
            "<IDS|MSG>",
            SIGNATURE,
            "{\"a\":1}",
            "{}",
            "{}",
            "{\"b\":2}",
            "buffer",
        ]);
        let message = key()
            .verify(Unverified::parse(good.clone()).expect("whole"))
            .expect("rightly signed");
        assert_eq!(message.buffers(), frames(&["buffer"]));
        assert_eq!(message.into_frames(&key()), good);
    }

    #[test]
    fn a_wrong_missing_or_short_signature_is_refused() {
        for signature in [
            "",
            "00",
            "zz",
            "a8393c9b46dc75412c34bfbce1f4b48de7e37f440f91caf4171dffe957b3e15f0",
        ] {
            let bad = frames(&["<IDS|MSG>", signature, "{\"a\":1}", "{}", "{}", "{\"b\":2}"]);
            assert_eq!(
                key().verify(Unverified::parse(bad).expect("whole")).err(),
                Some(BadSignature)
            );
        }
        let changed = frames(&["<IDS|MSG>", SIGNATURE, "{\"a\":1}", "{}", "{}", "{\"b\":3}"]);
        assert_eq!(
            key()
                .verify(Unverified::parse(changed).expect("whole"))
                .err(),
            Some(BadSignature)
        );
    }

    #[test]
    fn signing_for_another_replaces_the_signature_alone() {
        let sent = frames(&[
            "topic",
            "<IDS|MSG>",
            "",
            "{ \"odd\" : 1.0 }",
            "{}",
            "{}",
            "{\"NaN\": NaN}",
            "b1",
            "",
        ]);
        let message = SigningKey::new(b"")
            .verify(Unverified::parse(sent.clone()).expect("whole"))
            .expect("no key");
        let resigned = message.into_frames(&key());
        for (index, (before, after)) in sent.iter().zip(&resigned).enumerate() {
            assert_eq!(before == after, index != 2, "frame {index}");
        }
        key()
            .verify(Unverified::parse(resigned).expect("whole"))
            .expect("signed with the other key");
    }

    #[test]
    fn an_empty_key_signs_nothing() {
        let sent = frames(&["<IDS|MSG>", "anything", "{}", "{}", "{}", "{}"]);
        let message = SigningKey::new(b"")
            .verify(Unverified::parse(sent).expect("whole"))
            .expect("no key");
        assert_eq!(
            message.into_frames(&SigningKey::new(b"")).get(1),
            Some(&Bytes::new())
        );
    }

    #[test]
    fn frames_that_are_no_message_are_refused() {
        assert_eq!(
            Unverified::parse(Vec::new()).err(),
            Some(Malformed::NoDelimiter { frames: 0 })
        );
        assert_eq!(
            Unverified::parse(frames(&["id", "<IDS|MSG>", "", "{}", "{}", "{}"])).err(),
            Some(Malformed::TooShort(5))
        );
    }

    #[test]
    fn a_message_whose_small_parts_are_no_objects_is_malformed() {
        let message = |header, parent, metadata| {
            let sent = frames(&["<IDS|MSG>", "", header, parent, metadata, "anything"]);
            SigningKey::new(b"")
                .verify(Unverified::parse(sent).expect("whole"))
                .expect("no key")
        };
        assert!(message("{\"username\":\"\\ud800\"}", "{}", " {}").read_headers());
        for (header, parent, metadata) in [
            ("", "{}", "{}"),
            ("{}", "[]", "{}"),
            ("{}", "{}", "{\"a\":1"),
            ("{}x", "{}", "{}"),
        ] {
            assert!(message("{}", "{}", "{}").read_headers());
            assert!(!message(header, parent, metadata).read_headers());
        }
    }

    #[test]
    fn parsed_headers_stay_the_same_and_a_new_session_replaces_the_old() {
        let message_of = |id: &str, parent: &str| {
            let header = format!("{{\"msg_id\":\"{id}\",\"session\":\"s\"}}");
            let mut sent = frames(&["<IDS|MSG>", ""]);
            sent.extend([header, parent.to_owned(), "{}".into(), "{}".into()].map(Bytes::from));
            let key = SigningKey::new(b"");
            key.verify(Unverified::parse(sent).expect("whole"))
                .expect("no key")
        };
        for (id, parent) in [
            ("1", "p"),
            ("2", "p"),
            ("3\\u0041", "p"),
            ("4", "q\\n"),
            ("5", "q\\n"),
        ] {
            let parent = format!("{{\"msg_id\":\"{parent}\"}}");
            let mut message = message_of(id, &parent);
            let unread = message.clone();
            assert!(message.read_headers());
            let read = |message: &Verified| {
                let (header, parent) = (message.header(), message.parent());
                format!("{:?} {:?}", header.expect("JSON"), parent.expect("JSON"))
            };
            assert_eq!(read(&message), read(&unread));
            message.set_session("another").expect("it has a session");
            assert_eq!(message.header().expect("JSON").session, "another");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_frames_are_parsed_or_refused(parts: Vec<Vec<u8>>, at in 0_usize..4) {
            let mut frames: Vec<Bytes> = parts.into_iter().map(Bytes::from).collect();
            frames.insert(at.min(frames.len()), Bytes::from_static(DELIMITER));
            if let Ok(message) = Unverified::parse(frames) {
                let _ = key().verify(message);
            }
        }
    }
}
