//! One form of an output's data, as a program would have it in a file.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::cell::joined;
use super::json::Json;
use super::output::{MimeData, Output};

/// The bytes of one form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The bytes themselves: decoded from base64, text in UTF-8, or JSON as it is written.
    pub bytes: Vec<u8>,
    /// How a file's name ends that holds them.
    pub ending: String,
}

impl Output {
    /// Returns a form of an output's data; none where the output, one of
    /// [`Cell::outputs`](super::Cell::outputs), does not have it.
    pub fn form(output: &Json, mime: &str) -> Option<Form> {
        let raw = super::output::form(output.bytes(), mime)?;
        let is_text = raw.starts_with(b"\"") || (raw.starts_with(b"[") && !is_json(mime));
        let bytes = match (is_text, is_binary(mime)) {
            (false, _) => raw.to_vec(),
            (true, false) => joined(raw).into_owned(),
            (true, true) => decoded(&joined(raw)),
        };
        Some(Form {
            bytes,
            ending: ending(mime),
        })
    }
}

impl MimeData {
    /// Returns whether it is something that no terminal shows: an image, a sound, a document.
    pub fn is_media(&self) -> bool {
        is_binary(&self.mime) || self.mime.starts_with("image/")
    }
}

/// Whether a notebook has it in base64.
pub(super) fn is_binary(mime: &str) -> bool {
    let kinds = ["image/", "audio/", "video/", "font/"];
    let others = [
        "application/pdf",
        "application/octet-stream",
        "application/zip",
    ];
    (kinds.iter().any(|kind| mime.starts_with(kind)) && !mime.ends_with("+xml"))
        || others.contains(&mime)
}

/// Whether a list is a value, not lines of text.
pub(super) fn is_json(mime: &str) -> bool {
    mime == "application/json" || (mime.starts_with("application/") && mime.ends_with("+json"))
}

/// Reads base64 as leniently as browsers do; what is none stays what it is.
fn decoded(text: &[u8]) -> Vec<u8> {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let mut digits = text.to_vec();
    digits.retain(|byte| !byte.is_ascii_whitespace());
    let read = GeneralPurpose::new(&STANDARD, config).decode(&digits);
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
    // The kinds of JSON are many, and one output may have several.
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
    use super::*;

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
