//! The user's variables: one look into the kernel that leaves nothing behind.
//!
//! A silent request whose answer is the value of an expression: no output, no count, no history, no
//! name in the user's namespace, and no line in the journal, since nobody's code ran.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::look::{self, Look, LookError, language};
use crate::client::Execute;
use crate::project::{Project, Session};

/// How long the look may take. Code that holds Python's global lock can delay it on a subshell.
const ANSWER: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// One variable, in detail; none is all of them.
    pub name: Option<String>,
    /// Modules, functions, classes and IPython's own names too.
    pub all: bool,
    /// How many at most.
    pub most: usize,
    /// About how many characters of a value.
    pub limit: usize,
}

/// What the kernel holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The variables, by name.
    pub variables: Vec<Variable>,
    /// How many were left out.
    pub more: u64,
    /// Names that differ in case only from the one that is not there.
    #[serde(default, skip_serializing)]
    near: Vec<String>,
}

/// One variable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its class.
    #[serde(rename = "type")]
    pub class: String,
    /// The module of its class.
    pub module: String,
    /// An array's or a table's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<u64>>,
    /// A container's or a text's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub len: Option<u64>,
    /// Of an array's items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// A table's, the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<Column>>,
    /// In bytes; what a container only refers to is not counted.
    pub size: Option<u64>,
    /// A beginning of its value.
    pub value: Option<String>,
}

/// A table's column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Of its items.
    pub dtype: String,
}

/// Why nothing was seen.
#[derive(Debug, thiserror::Error)]
pub enum VarsError {
    /// The kernel cannot be looked into.
    #[error(transparent)]
    Look(#[from] LookError),
    /// It is no Python kernel.
    #[error("only the variables of Python kernels can be listed; this one runs {language}")]
    Language {
        /// Its language.
        language: String,
    },
    /// The kernel answered with something else.
    #[error("the kernel does not tell its variables: {0}")]
    Refused(String),
    /// There is no such variable.
    #[error("there is no variable {name}")]
    Unknown {
        /// The name.
        name: String,
        /// Names that differ in case only.
        near: Vec<String>,
    },
}

/// Returns the variables of a session's kernel, whose key in the project is `key`.
///
/// # Errors
/// [`VarsError`]; a busy kernel says so within seconds, however long its cell runs.
pub async fn look(
    project: &Project,
    key: &str,
    session: &Session,
    by: &str,
    wanted: &Wanted,
) -> Result<Found, VarsError> {
    let mut look = Look::join(project, key, session, by).await?;
    let language = language(look.session());
    if !language.eq_ignore_ascii_case("python") {
        look.leave().await;
        return Err(VarsError::Language { language });
    }
    let request = request(wanted, look.is_beside());
    let answer = look
        .ask(&request, Some(ANSWER), std::future::pending())
        .await;
    look.leave().await;
    let answer = answer?;
    if let Some(why) = answer.failed {
        return Err(VarsError::Refused(why));
    }
    let found = read(&answer.reply).map_err(VarsError::Refused)?;
    match &wanted.name {
        Some(name) if found.variables.is_empty() => Err(VarsError::Unknown {
            name: name.clone(),
            near: found.near,
        }),
        _ => Ok(found),
    }
}

/// Makes the request.
fn request(wanted: &Wanted, beside: bool) -> Execute {
    let asked = json!({
        "name": wanted.name, "all": wanted.all, "most": wanted.most, "limit": wanted.limit,
        "running": beside,
    });
    let call = format!("look({})", look::literal(&asked.to_string()));
    look::request(&call, beside)
}

/// Reads the content of the reply.
fn read(content: &[u8]) -> Result<Found, String> {
    let text = look::value(content)?;
    serde_json::from_str(&text).map_err(|error| format!("its answer is unreadable: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn answer(value: &Value) -> Vec<u8> {
        json!({ "status": "ok", "user_expressions": { "nb": value } })
            .to_string()
            .into_bytes()
    }

    #[test]
    fn an_answer_is_read() {
        let told = json!({
            "variables": [
                { "name": "df", "type": "DataFrame", "module": "pandas.core.frame", "shape": [3, 2],
                  "columns": [{ "name": "a", "dtype": "int64" }], "size": 180, "len": null },
                { "name": "x", "type": "int", "module": "builtins", "value": "1" },
            ],
            "more": 4,
        });
        let value = json!({ "status": "ok", "data": { "text/plain": told.to_string() } });
        let found = read(&answer(&value)).expect("it is an answer");
        assert_eq!(found.more, 4);
        let [df, x] = &found.variables[..] else {
            panic!("{found:?}");
        };
        assert_eq!((df.shape.clone(), df.size), (Some(vec![3, 2]), Some(180)));
        assert_eq!(x.value.as_deref(), Some("1"));
        assert_eq!(x.shape, None);
    }

    #[test]
    fn other_answers_say_what_they_are() {
        let raised =
            json!({ "status": "error", "ename": "NameError", "evalue": "no", "traceback": [] });
        assert_eq!(read(&answer(&raised)), Err("NameError: no".to_owned()));
        for strange in [json!(null), json!({ "data": {} }), json!([1])] {
            let why = read(&answer(&strange)).expect_err("no answer");
            assert!(why.contains("evaluates no expressions"), "{why}");
        }
        assert!(read(b"[").is_err());
        let other = json!({ "data": { "text/plain": "'other'" } });
        assert!(read(&answer(&other)).is_err());
    }
}
