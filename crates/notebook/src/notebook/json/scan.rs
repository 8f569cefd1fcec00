//! A single pass over JSON text, which reads every byte once and allocates no values.

use super::{JsonError, Span, TEXT_BYTES_MAX, quote_or_backslash};

/// A position in JSON text that steps over values, and fails at the first invalid byte.
pub(in crate::notebook) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// The open brackets of the value that is stepped over; true for an object.
    open: Vec<bool>,
    /// Whether a non-ASCII character was escaped: a writer that escapes one escapes all.
    pub escapes: bool,
}

impl<'a> Scanner<'a> {
    /// Begins at a byte of the text, of which only the first [`TEXT_BYTES_MAX`] bytes are read.
    pub(in crate::notebook) fn new(text: &'a [u8], at: usize) -> Self {
        Self {
            text: text.get(..TEXT_BYTES_MAX).unwrap_or(text),
            at,
            open: Vec::new(),
            escapes: false,
        }
    }

    /// Begins at the start of a file, after its byte-order mark.
    pub(in crate::notebook) fn of_file(text: &'a [u8]) -> Self {
        let mark = b"\xef\xbb\xbf";
        Self::new(
            text,
            if text.starts_with(mark) {
                mark.len()
            } else {
                0
            },
        )
    }

    /// Returns the whole text.
    pub(in crate::notebook) fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Skips white space, and returns the byte after it.
    pub(in crate::notebook) fn next(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    /// Returns the error that something else was expected at this position.
    pub(in crate::notebook) fn fault<T>(&self, expected: &'static str) -> Result<T, JsonError> {
        Err(JsonError {
            at: self.at,
            expected,
        })
    }

    /// Checks that only white space is left.
    pub(in crate::notebook) fn end(&mut self) -> Result<(), JsonError> {
        match self.next() {
            None => Ok(()),
            Some(_) => self.fault("the end of the file"),
        }
    }

    /// Steps over one value of any kind and depth.
    pub(in crate::notebook) fn value(&mut self) -> Result<Span, JsonError> {
        self.open.clear();
        self.next();
        let start = self.at;
        loop {
            match self.next() {
                Some(b'"') => {
                    self.string()?;
                }
                Some(b'{') => {
                    self.at += 1;
                    if self.next() == Some(b'}') {
                        self.at += 1;
                    } else {
                        self.key("a key in double quotes, or }")?;
                        self.open.push(true);
                        continue;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    if self.next() == Some(b']') {
                        self.at += 1;
                    } else {
                        self.open.push(false);
                        continue;
                    }
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.word(b"true")?,
                Some(b'f') => self.word(b"false")?,
                Some(b'n') => self.word(b"null")?,
                Some(b'N') => self.word(b"NaN")?,
                Some(b'I') => self.word(b"Infinity")?,
                _ => return self.fault("a value"),
            }
            loop {
                let Some(is_object) = self.open.last().copied() else {
                    return Ok(Span {
                        start,
                        end: self.at,
                    });
                };
                if self.more(if is_object { b'}' } else { b']' })? {
                    if is_object {
                        self.key("a key in double quotes")?;
                    }
                    break;
                }
                self.open.pop();
            }
        }
    }

    /// Steps over an object. `field` is called with each key's position, and must step over the value.
    pub(in crate::notebook) fn object(
        &mut self,
        mut field: impl FnMut(&mut Self, Span) -> Result<(), JsonError>,
    ) -> Result<Span, JsonError> {
        if self.next() != Some(b'{') {
            return self.fault("an object, which begins with {");
        }
        let start = self.at;
        self.at += 1;
        if self.next() == Some(b'}') {
            self.at += 1;
        } else {
            let mut expected = "a key in double quotes, or }";
            loop {
                let key = self.key(expected)?;
                field(self, key)?;
                if !self.more(b'}')? {
                    break;
                }
                expected = "a key in double quotes";
            }
        }
        let end = self.at;
        Ok(Span::new(start, end))
    }

    /// Steps over an array. `item` is called for each value, and must step over it.
    pub(in crate::notebook) fn array(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), JsonError>,
    ) -> Result<Span, JsonError> {
        if self.next() != Some(b'[') {
            return self.fault("a list, which begins with [");
        }
        let start = self.at;
        self.at += 1;
        if self.next() == Some(b']') {
            self.at += 1;
        } else {
            loop {
                item(self)?;
                if !self.more(b']')? {
                    break;
                }
            }
        }
        let end = self.at;
        Ok(Span::new(start, end))
    }

    /// Steps over a comma, after which another value follows, or over the closing bracket.
    fn more(&mut self, close: u8) -> Result<bool, JsonError> {
        match self.next() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            _ if close == b'}' => self.fault(", or }"),
            _ => self.fault(", or ]"),
        }
    }

    /// Steps over a key and its colon.
    fn key(&mut self, expected: &'static str) -> Result<Span, JsonError> {
        if self.next() != Some(b'"') {
            return self.fault(expected);
        }
        let key = self.string()?;
        if self.next() != Some(b':') {
            return self.fault("a colon after the key");
        }
        self.at += 1;
        Ok(key)
    }

    /// Steps over a string, whose opening quote is at the position.
    fn string(&mut self) -> Result<Span, JsonError> {
        let start = self.at;
        self.at += 1;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(ahead) = quote_or_backslash(rest) else {
                self.at = start;
                return self.fault("a closing quote for this string");
            };
            self.at += ahead;
            if rest.get(ahead) == Some(&b'"') {
                self.at += 1;
                return Ok(Span {
                    start,
                    end: self.at,
                });
            }
            match rest.get(ahead + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
                Some(b'u') => {
                    let digits = rest.get(ahead + 2..ahead + 6).unwrap_or_default();
                    if digits.len() < 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
                        return self.fault("four hexadecimal digits after \\u");
                    }
                    self.escapes |= !digits.starts_with(b"00") || digits.get(2) >= Some(&b'8');
                    self.at += 6;
                }
                _ => return self.fault("an escape: one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u"),
            }
        }
    }

    fn number(&mut self) -> Result<(), JsonError> {
        if self.text.get(self.at) == Some(&b'-') {
            if self.text.get(self.at + 1) == Some(&b'I') {
                self.at += 1;
                return self.word(b"Infinity");
            }
            self.at += 1;
        }
        match self.text.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return self.fault("a digit"),
        }
        if self.text.get(self.at) == Some(&b'.') && self.is_digit(self.at + 1) {
            self.at += 1;
            self.digits();
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            let sign = matches!(self.text.get(self.at + 1), Some(b'+' | b'-'));
            let first = self.at + 1 + usize::from(sign);
            if self.is_digit(first) {
                self.at = first;
                self.digits();
            }
        }
        Ok(())
    }

    fn is_digit(&self, at: usize) -> bool {
        self.text.get(at).is_some_and(u8::is_ascii_digit)
    }

    fn digits(&mut self) {
        while self.is_digit(self.at) {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &'static [u8]) -> Result<(), JsonError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if !rest.starts_with(word) {
            return self.fault("a value");
        }
        self.at += word.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &str) -> Result<(), JsonError> {
        let mut scanner = Scanner::new(text.as_bytes(), 0);
        scanner.value().and_then(|_| scanner.end())
    }

    #[test]
    fn json_that_python_reads_is_accepted() {
        for text in [
            "NaN",
            "-Infinity",
            " [Infinity, 1e-05, -0.50E+7, 0, 12345678901234567890123] ",
            "{\"a\":1,\"a\":[{},[],\"\\ud800 \\u00e9 \\/ \u{1}\n\"]}\r\n",
            "true",
            "\"\"",
        ] {
            assert_eq!(scanned(text), Ok(()), "{text}");
        }
        for (open, close) in [("[{\"a\":", "}]"), ("[", "]"), ("{\"a\":[[", "]]}")] {
            for levels in (1..140).chain([100_000]) {
                let deep = format!("{}1{}", open.repeat(levels), close.repeat(levels));
                assert_eq!(scanned(&deep), Ok(()));
                assert!(scanned(&format!("{deep}]")).is_err());
                let other = if close.ends_with(']') { '}' } else { ']' };
                let wrong = format!("{}{other}", &deep[..deep.len() - 1]);
                assert!(scanned(&wrong).is_err());
            }
        }
    }

    #[test]
    fn an_error_has_the_position_of_the_fault() {
        for (text, at, expected) in [
            ("", 0, "a value"),
            ("[1,]", 3, "a value"),
            ("{\"a\":1,}", 7, "a key in double quotes"),
            ("{a:1}", 1, "a key in double quotes, or }"),
            ("{\"a\" 1}", 5, "a colon after the key"),
            ("[1 2]", 3, ", or ]"),
            ("{\"a\":1]", 6, ", or }"),
            ("01", 1, "the end of the file"),
            ("1.", 1, "the end of the file"),
            ("1e+", 1, "the end of the file"),
            ("-", 1, "a digit"),
            ("-NaN", 1, "a digit"),
            ("+1", 0, "a value"),
            ("nul", 0, "a value"),
            (" \"a", 1, "a closing quote for this string"),
            (
                "\"\\x\"",
                1,
                "an escape: one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u",
            ),
            ("\"\\u12g4\"", 1, "four hexadecimal digits after \\u"),
            ("\"\\u1", 1, "four hexadecimal digits after \\u"),
            ("[[", 2, "a value"),
            ("\u{feff}1", 0, "a value"),
        ] {
            assert_eq!(scanned(text), Err(JsonError { at, expected }), "{text}");
        }
    }
}
