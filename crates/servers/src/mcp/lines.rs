//! A client's messages on stdin: their size, and characters that JSON has no form for.

use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use rmcp::model::{ClientJsonRpcMessage, RequestId};
use rmcp::transport::async_rw::DEFAULT_MAX_LINE_LENGTH;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, ReadBuf};

/// How many bytes are read at a time.
const PART: usize = 16 << 10;

/// A stream of messages, one a line. It fails at a line that is too long for rmcp. Requests that rmcp would drop or answer
/// without their id are replaced by ones that it answers: nobody waits in vain.
pub(super) struct BoundedLines<R> {
    inner: R,
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// Lines that are still to be returned, and how much of them was.
    lines: Vec<u8>,
    returned: usize,
    /// Whether a line was too long.
    is_over: Arc<AtomicBool>,
}

impl<R> BoundedLines<R> {
    /// Returns the stream, and what becomes true at a line that is too long.
    pub(super) fn of(inner: R) -> (Self, Arc<AtomicBool>) {
        let is_over = Arc::new(AtomicBool::new(false));
        let lines = Self {
            inner,
            line: Vec::new(),
            lines: Vec::new(),
            returned: 0,
            is_over: is_over.clone(),
        };
        (lines, is_over)
    }

    /// Takes in bytes that were read; none are the end. Returns whether a line is too long.
    fn take(&mut self, bytes: &[u8]) -> bool {
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        let end = end.map_or(0, |end| end + 1);
        let (whole, rest) = bytes.split_at(end);
        let mut lines = Vec::new();
        if end > 0 || bytes.is_empty() {
            lines = std::mem::take(&mut self.line);
            lines.extend_from_slice(whole);
        }
        self.line.extend_from_slice(rest);
        let lengths = lines.split(|byte| *byte == b'\n').map(<[u8]>::len);
        if lengths.chain([self.line.len()]).max() > Some(DEFAULT_MAX_LINE_LENGTH) {
            return true;
        }
        replace_half_pairs(&mut lines);
        let lines = lines.split_inclusive(|byte| *byte == b'\n');
        self.lines = lines
            .flat_map(|line| answerable(line).into_owned())
            .collect();
        self.returned = 0;
        false
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut part = [0; PART];
        while self.returned == self.lines.len() {
            let mut read = ReadBuf::new(&mut part);
            ready!(Pin::new(&mut self.inner).poll_read(context, &mut read))?;
            self.lines.clear();
            self.returned = 0;
            if self.take(read.filled()) {
                self.is_over.store(true, Ordering::Relaxed);
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            if read.filled().is_empty() {
                break;
            }
        }
        let left = &self.lines[self.returned..];
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..count]);
        self.returned += count;
        Poll::Ready(Ok(()))
    }
}

/// The method in the place of one that cannot be read: rmcp answers that there is no such method.
const MALFORMED: &str = "malformed request";

/// Returns a line, or one that rmcp answers with an error if it would drop it, or answer it without its id.
fn answerable(line: &[u8]) -> Cow<'_, [u8]> {
    #[derive(Deserialize)]
    struct Request {
        id: Option<RequestId>,
    }
    let is_read = serde_json::from_slice::<ClientJsonRpcMessage>(line).is_ok();
    if is_read || line.trim_ascii().is_empty() {
        return Cow::Borrowed(line);
    }
    // What is too deep or too large to be read is passed over here.
    let request = serde_json::from_slice::<Request>(line);
    let id = request.map_or_else(|_| id_before_params(line), |it| it.id);
    let replaced = match id {
        Some(id) => json!({"jsonrpc": "2.0", "id": id, "method": MALFORMED}),
        None if serde_json::from_slice::<Value>(line).is_ok() => return Cow::Borrowed(line),
        // Any JSON that is no message.
        None => Value::Null,
    };
    Cow::Owned(format!("{replaced}\n").into_bytes())
}

/// Returns the id of a request that is no JSON, as one with NaN among its arguments, if the id stands before these.
fn id_before_params(line: &[u8]) -> Option<RequestId> {
    let head = std::str::from_utf8(line).ok()?.split("\"params\"").next()?;
    let (_, rest) = head.split_once("\"id\"")?;
    let value = rest.trim_ascii_start().strip_prefix(':')?;
    let values = serde_json::Deserializer::from_str(value).into_iter();
    values.into_iter().next()?.ok()
}

/// Replaces each escaped half of a surrogate pair in JSON by U+FFFD.
fn replace_half_pairs(json: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = json[at..].iter().position(|byte| *byte == b'\\') {
        at += found;
        let width = match (
            escaped(&json[at..]),
            escaped(json.get(at + 6..).unwrap_or_default()),
        ) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 12,
            (Some(0xd800..0xe000), _) => {
                json[at + 2..at + 6].copy_from_slice(b"fffd");
                6
            }
            _ => 2,
        };
        at = (at + width).min(json.len());
    }
}

/// Returns the number of an escape like `\u00e4` with which a text begins.
fn escaped(json: &[u8]) -> Option<u16> {
    let digits = json.strip_prefix(b"\\u")?.get(..4)?;
    let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn read(bytes: &[u8]) -> (Option<Vec<u8>>, bool) {
        let (mut lines, is_over) = BoundedLines::of(bytes);
        let mut read = Vec::new();
        let result = lines.read_to_end(&mut read).await;
        (result.ok().map(|_| read), is_over.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn half_a_surrogate_pair_is_replaced_and_all_else_stays() {
        for (line, expected) in [
            (r#"{"a": "\ud83d"}"#, r#"{"a": "\ufffd"}"#),
            (r#"{"a": "\uDE00 x"}"#, r#"{"a": "\ufffd x"}"#),
            (r#"{"a": "\ud83d\ude00"}"#, r#"{"a": "\ud83d\ude00"}"#),
            (
                r#"{"a": "\ud83d\ud83d\ude00"}"#,
                r#"{"a": "\ufffd\ud83d\ude00"}"#,
            ),
            (
                r#"{"a": "\\ud83d \u00e4 \n"}"#,
                r#"{"a": "\\ud83d \u00e4 \n"}"#,
            ),
            (r#"{"a": "\ud83"#, r#"{"a": "\ud83"#),
            ("\\", "\\"),
            ("", ""),
        ] {
            let mut read = line.as_bytes().to_vec();
            replace_half_pairs(&mut read);
            assert_eq!(String::from_utf8(read).unwrap(), expected);
        }
        // Also in the second of two lines, and across parts.
        let before = format!("\"{}\"", "x".repeat(PART - 9));
        let all = format!("{before}\n\"\\ud83d\"\n");
        let (read, is_over) = read(all.as_bytes()).await;
        let expected = format!("{before}\n\"\\ufffd\"\n");
        assert_eq!(String::from_utf8(read.unwrap()).unwrap(), expected);
        assert!(!is_over);
    }

    #[tokio::test]
    async fn a_request_that_cannot_be_read_keeps_its_id() {
        let malformed =
            |id: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{MALFORMED}\"}}");
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"ping","params":{{"a":{}{}}}}}"#,
            "[".repeat(500),
            "]".repeat(500)
        );
        for (line, expected) in [
            (r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#, None),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":7}"#,
                Some(malformed("7")),
            ),
            (
                r#"{"jsonrpc":"2.0","id":"x","method":7}"#,
                Some(malformed("\"x\"")),
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","arguments":{"b":1e999}}}"#,
                Some(malformed("7")),
            ),
            (&deep, Some(malformed("7"))),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                None,
            ),
            (r#"{"jsonrpc":"2.0","method":7}"#, None),
            ("", None),
            ("nonsense", Some("null".to_owned())),
            (r#"{"jsonrpc":"2.0","id":7,"#, Some(malformed("7"))),
            (
                r#"{"jsonrpc": "2.0", "id" : "a", "method": "tools/call", "params": {"arguments": {"cell": NaN}}}"#,
                Some(malformed("\"a\"")),
            ),
            (
                r#"{"method": "tools/call", "params": {"id": NaN}, "id": 7}"#,
                Some("null".to_owned()),
            ),
        ] {
            let (read, _) = read(format!("{line}\n").as_bytes()).await;
            let expected = expected.unwrap_or_else(|| line.to_owned());
            assert_eq!(
                String::from_utf8(read.unwrap()).unwrap(),
                format!("{expected}\n")
            );
        }
        let (read, _) = read(b"\"\xff\"\n").await;
        assert_eq!(read.unwrap(), b"null\n");
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_ends_the_stream() {
        let mut line = vec![b'x'; DEFAULT_MAX_LINE_LENGTH];
        line.push(b'\n');
        assert!(!read(&line).await.1);
        line.insert(0, b'x');
        assert_eq!(read(&line).await, (None, true));
        line.pop();
        assert_eq!(read(&line).await, (None, true));
    }
}
