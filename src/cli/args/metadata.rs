//! Metadata on the command line: `tags=["draft"]`, `jupyter.source_hidden=true`.

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::notebook::Json;

/// Values to set and to remove.
#[derive(Args, Debug, Default)]
pub(crate) struct Metadata {
    /// Set a value of the metadata: JSON where it is some, else a string; null removes
    ///
    /// A dot leads into an object: jupyter.source_hidden=true. A key with dots of its own stands in
    /// double quotes.
    #[arg(long = "meta", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    set: Vec<String>,
    /// Remove a value of the metadata
    #[arg(long = "meta-rm", value_name = "KEY")]
    remove: Vec<String>,
}

impl Metadata {
    /// Returns the values with their paths of keys, outermost key first. A null removes the key.
    pub(crate) fn values(&self) -> Result<Vec<(Vec<String>, Json)>, Problem> {
        let mut values = Vec::new();
        for pair in &self.set {
            let problem = || {
                let message = format!("{pair:?} is not metadata: write KEY=VALUE");
                Problem::new(ProblemKind::Usage, message)
            };
            let (path, value) = keys(pair).ok_or_else(problem)?;
            let value = value.strip_prefix('=').ok_or_else(problem)?;
            let value = Json::parse(value).unwrap_or_else(|_| Json::string(value));
            values.push((path, value));
        }
        let null = || Json::parse("null").expect("null is JSON");
        for key in &self.remove {
            let path = keys(key).filter(|(_, rest)| rest.is_empty());
            let (path, _) = path.ok_or_else(|| {
                Problem::new(ProblemKind::Usage, format!("{key:?} is not a metadata key"))
            })?;
            values.push((path, null()));
        }
        Ok(values)
    }

    /// Returns the values as one object; `None` if no option is given.
    pub(crate) fn object(&self) -> Result<Option<Json>, Problem> {
        let values = self.values()?;
        let mut object = Json::parse("{}").expect("an empty object is JSON");
        for (path, value) in values.iter().filter(|(_, value)| !value.is_null()) {
            let path: Vec<_> = path.iter().map(String::as_str).collect();
            object.set(&path, value);
        }
        Ok((!values.is_empty()).then_some(object))
    }
}

/// Parses a path of keys joined by dots; returns it and the rest of the text.
fn keys(text: &str) -> Option<(Vec<String>, &str)> {
    let (mut keys, mut rest) = (Vec::new(), text);
    loop {
        let (key, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_at(rest.find(['.', '=']).unwrap_or(rest.len())),
        };
        if key.is_empty() {
            return None;
        }
        keys.push(key.to_owned());
        rest = match after.strip_prefix('.') {
            Some(rest) => rest,
            None => return Some((keys, after)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_json_where_they_can_be() {
        let metadata = Metadata {
            set: [
                "tags=[\"a\"]",
                "jupyter.source_hidden=true",
                "jupyter.x=1e-05",
                "name=a=b.c",
                "\"application/x+cell\".y=",
            ]
            .map(str::to_owned)
            .into(),
            remove: vec!["gone.too".to_owned()],
        };
        let object = metadata.object().unwrap().unwrap();
        assert_eq!(
            object.text(),
            r#"{"application/x+cell": {"y": ""}, "jupyter": {"source_hidden": true, "x": 1e-05}, "name": "a=b.c", "tags": ["a"]}"#
        );
        let values = metadata.values().unwrap();
        let (path, value) = values.last().unwrap();
        assert_eq!(path.join("|"), "gone|too");
        assert!(value.is_null());
    }

    #[test]
    fn what_is_no_pair_is_an_error() {
        for pair in ["tags", "=1", "a..b=1", "\"a=1", "\"a\"b=1"] {
            let metadata = Metadata {
                set: vec![pair.to_owned()],
                remove: Vec::new(),
            };
            assert!(metadata.values().is_err(), "{pair}");
        }
    }
}
