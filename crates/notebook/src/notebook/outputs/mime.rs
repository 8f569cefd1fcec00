//! The data of one MIME type of an output, as bytes of a file.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::size::size;
use crate::notebook::document::joined_strings;

/// The bytes of one form of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MimeBytes {
    /// The bytes themselves: decoded from base64, text in UTF-8, or JSON as it is written.
    pub bytes: Vec<u8>,
    /// The extension of a file with these bytes.
    pub ending: String,
}

/// One form of an output's data.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MimeData {
    /// Its type: `image/png`.
    pub mime: String,
    /// How many bytes it has, decoded if it is base64.
    pub bytes: usize,
    /// Width and height of a PNG or GIF, in pixels.
    pub pixels: Option<(u32, u32)>,
}

impl MimeBytes {
    /// Reads a form from its value.
    pub fn of_value(mime: &str, value: &serde_json::Value) -> Self {
        Self::of(value.to_string().as_bytes(), mime)
    }

    /// Reads a form from its JSON in a notebook.
    pub(super) fn of(raw: &[u8], mime: &str) -> Self {
        let is_text = raw.starts_with(b"\"") || (raw.starts_with(b"[") && !is_json(mime));
        let bytes = match (is_text, is_binary(mime)) {
            (false, _) => raw.to_vec(),
            (true, false) => joined_strings(raw).into_owned(),
            (true, true) => decoded(&joined_strings(raw)),
        };
        Self {
            bytes,
            ending: ending(mime),
        }
    }
}

impl MimeData {
    /// Measures a form by its JSON.
    pub(super) fn of(mime: String, value: &[u8]) -> Self {
        let binary = is_binary(&mime) && matches!(value.first(), Some(b'"' | b'['));
        if !binary {
            let bytes = match value.first() {
                Some(b'"' | b'[') if !mime.contains("json") => joined_strings(value).len(),
                _ => value.len(),
            };
            return Self {
                mime,
                bytes,
                pixels: None,
            };
        }
        let value = joined_strings(value);
        let text = value.trim_ascii_end();
        let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
        // The header is at the beginning; 44 base64 characters are 33 bytes.
        let head = STANDARD
            .decode(text.get(..44).unwrap_or_default())
            .unwrap_or_default();
        let number = |at: usize, big: bool, width: usize| {
            let bytes = head.get(at..at + width)?;
            let digit = |number: u32, byte: &u8| number << 8 | u32::from(*byte);
            Some(match big {
                true => bytes.iter().fold(0, digit),
                false => bytes.iter().rev().fold(0, digit),
            })
        };
        let (at, big, width) = match mime.as_str() {
            "image/png" => (16, true, 4),
            _ => (6, false, 2),
        };
        let known = head.starts_with(b"\x89PNG") || head.starts_with(b"GIF8");
        let pixels = number(at, big, width).zip(number(at + width, big, width));
        Self {
            mime,
            bytes: (text.len() * 3 / 4).saturating_sub(padding),
            pixels: pixels.filter(|_| known),
        }
    }

    /// Says whether no terminal can show the data: an image, a sound, a document.
    pub fn is_media(&self) -> bool {
        is_media(&self.mime)
    }

    /// Measures a form by its value.
    pub fn of_value(mime: &str, value: &serde_json::Value) -> Self {
        Self::of(mime.to_owned(), value.to_string().as_bytes())
    }
}

impl std::fmt::Display for MimeData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.mime)?;
        if let Some((width, height)) = self.pixels {
            write!(f, " {width}x{height}")?;
        }
        write!(f, ", {}", size(self.bytes as u64))
    }
}

/// Says whether no terminal can show this type: an image, a sound, a document.
pub fn is_media(mime: &str) -> bool {
    is_binary(mime) || mime.starts_with("image/")
}

/// Says whether notebooks store this type as base64.
pub(in crate::notebook) fn is_binary(mime: &str) -> bool {
    let kinds = ["image/", "audio/", "video/", "font/"];
    let others = [
        "application/pdf",
        "application/octet-stream",
        "application/zip",
    ];
    (kinds.iter().any(|kind| mime.starts_with(kind)) && !mime.ends_with("+xml"))
        || others.contains(&mime)
}

/// Says whether this type is JSON: a list is then a value, not lines of text.
pub(in crate::notebook) fn is_json(mime: &str) -> bool {
    mime == "application/json" || (mime.starts_with("application/") && mime.ends_with("+json"))
}

/// Returns the MIME type for a short name of format 3; an empty text for other fields.
pub(super) fn old_mime(key: &str) -> &str {
    match key {
        "text" => "text/plain",
        "html" => "text/html",
        "latex" => "text/latex",
        "png" => "image/png",
        "jpeg" => "image/jpeg",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        "javascript" => "application/javascript",
        _ => "",
    }
}

/// Decodes base64 as leniently as browsers do; other text is returned unchanged.
fn decoded(text: &[u8]) -> Vec<u8> {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let mut digits = text.to_vec();
    digits.retain(|byte| !byte.is_ascii_whitespace());
    let read = GeneralPurpose::new(&alphabet::STANDARD, config).decode(&digits);
    read.unwrap_or_else(|_| text.to_vec())
}

fn ending(mime: &str) -> String {
    let known = match mime {
        "image/jpeg" => "jpg",
        "image/svg+xml" => "svg",
        "text/plain" => "txt",
        "text/markdown" => "md",
        "text/latex" => "tex",
        "text/javascript" | "application/javascript" => "js",
        "audio/mpeg" => "mp3",
        "application/octet-stream" => "bin",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    let kind = mime.split_once('/').map_or(mime, |(_, kind)| kind);
    // There are many JSON types, and one output may have several.
    let kind = kind.replace('+', ".");
    let plain = |c: &char| c.is_ascii_alphanumeric() || ".-_".contains(*c);
    let kind: String = kind.chars().filter(plain).take(64).collect();
    match kind.trim_matches('.') {
        "" => "bin".to_owned(),
        kind => kind.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use crate::notebook::{Json, Output};

    #[test]
    fn each_form_is_what_a_file_of_it_has() {
        for (value, mime, bytes, ending) in [
            (r#""aGk=\n""#, "image/png", "hi", "png"),
            (r#"["aG\n","k"]"#, "image/jpeg", "hi", "jpg"),
            (r#""!!""#, "image/gif", "!!", "gif"),
            (
                r#"["<svg>\n","</svg>"]"#,
                "image/svg+xml",
                "<svg>\n</svg>",
                "svg",
            ),
            (r#""\u00e9""#, "text/html", "é", "html"),
            (r#"["a"]"#, "application/json", "[\"a\"]", "json"),
            (
                r#"{"a": NaN}"#,
                "application/vnd.plotly.v1+json",
                "{\"a\": NaN}",
                "vnd.plotly.v1.json",
            ),
            (r#""x""#, "weird/../../x", "x", "x"),
        ] {
            let json = format!(r#"{{"output_type":"display_data","data":{{"{mime}":{value}}}}}"#);
            let form = Output::form(&Json::parse(&json).unwrap(), mime);
            let form = form.unwrap_or_else(|| panic!("{mime}"));
            assert_eq!(
                (form.bytes.as_slice(), form.ending.as_str()),
                (bytes.as_bytes(), ending)
            );
            assert_eq!(
                Output::form(&Json::parse(&json).unwrap(), "text/none"),
                None
            );
        }
        let old = Json::parse(r#"{"output_type":"pyout","png":"aGk="}"#).unwrap();
        assert_eq!(Output::form(&old, "image/png").unwrap().bytes, b"hi");
    }
}
