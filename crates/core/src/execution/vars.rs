//! Lists the user's variables by an inspection of the kernel that changes nothing.
//!
//! A silent execute request evaluates an expression, whose value is the answer. It makes no output, no
//! execution count, no history, no name in the user's namespace, and no event in the journal, since no user's
//! code runs.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::inspect::{self, InspectError, Inspector};
use crate::client::Execute;
use crate::kernel::witness::literal;
use crate::project::{Project, Session};

/// How long the answer may take. Code that holds Python's global interpreter lock can delay it on a
/// subshell.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The variables to list.
#[derive(Clone, Debug)]
pub struct VariablesRequest {
    /// The name of one variable, to describe in detail; `None` lists all.
    pub name: Option<String>,
    /// Whether to include modules, functions, classes and IPython's own names.
    pub all: bool,
    /// How many variables are listed at most.
    pub most: usize,
    /// About how many characters of a value are returned.
    pub limit: usize,
}

/// The variables of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FoundVariables {
    /// The variables, sorted by name.
    pub variables: Vec<Variable>,
    /// How many were left out.
    pub more: u64,
    /// Names that differ only in case from the requested one, which does not exist.
    #[serde(default, skip_serializing)]
    near: Vec<String>,
}

/// One variable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its class.
    #[serde(rename = "type")]
    pub class: String,
    /// The module of its class.
    pub module: String,
    /// The shape of an array or a table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<u64>>,
    /// The length of a container or a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub len: Option<u64>,
    /// The type of an array's items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// The first columns of a table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<Column>>,
    /// The size in bytes, without objects that a container only refers to.
    pub size: Option<u64>,
    /// The beginning of its value.
    pub value: Option<String>,
}

/// A table's column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The type of its items.
    pub dtype: String,
}

/// Why the variables cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum VarsError {
    /// The kernel cannot be inspected.
    #[error(transparent)]
    Inspector(#[from] InspectError),
    /// It is not a Python kernel.
    #[error("only the variables of Python kernels can be listed; this one runs {language}")]
    Language {
        /// Its language.
        language: String,
    },
    /// The kernel gave an unexpected answer.
    #[error("the kernel did not list its variables: {0}")]
    Refused(String),
    /// There is no such variable.
    #[error("there is no variable {name}")]
    Unknown {
        /// The name.
        name: String,
        /// Names that differ only in case.
        near: Vec<String>,
    },
}

/// Returns the variables of a session's kernel, whose key in the project is `key`.
///
/// # Errors
/// [`VarsError`]; a busy kernel is reported within seconds, however long its cell runs.
pub async fn list_variables(
    project: &Project,
    key: &str,
    session: &Session,
    by: &str,
    wanted: &VariablesRequest,
) -> Result<FoundVariables, VarsError> {
    let mut inspector = Inspector::join(project, key, session, by).await?;
    let language = inspector.session().language();
    if !language.eq_ignore_ascii_case("python") {
        inspector.leave().await;
        return Err(VarsError::Language { language });
    }
    let request = request(wanted, inspector.is_beside());
    let found: FoundVariables = ask(inspector, &request).await?;
    match &wanted.name {
        Some(name) if found.variables.is_empty() => Err(VarsError::Unknown {
            name: name.clone(),
            near: found.near,
        }),
        _ => Ok(found),
    }
}

/// Sends a request for a value, and disconnects from the kernel.
pub(super) async fn ask<T: DeserializeOwned>(
    mut inspector: Inspector,
    request: &Execute,
) -> Result<T, VarsError> {
    let answer = inspector
        .ask(request, Some(ANSWER_TIMEOUT), std::future::pending())
        .await;
    inspector.leave().await;
    let answer = answer?;
    match answer.failed {
        Some(why) => Err(VarsError::Refused(why)),
        None => parse(&answer.reply).map_err(VarsError::Refused),
    }
}

/// Makes the request for variables.
fn request(wanted: &VariablesRequest, beside: bool) -> Execute {
    let arguments = json!({
        "name": wanted.name, "all": wanted.all, "most": wanted.most, "limit": wanted.limit,
        "running": beside,
    });
    let call = format!("look({})", literal(&arguments.to_string()));
    inspect::request(&call, beside)
}

/// Parses the content of the reply.
fn parse<T: DeserializeOwned>(content: &[u8]) -> Result<T, String> {
    let text = inspect::value(content)?;
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
        let value = json!({
            "variables": [
                { "name": "df", "type": "DataFrame", "module": "pandas.core.frame", "shape": [3, 2],
                  "columns": [{ "name": "a", "dtype": "int64" }], "size": 180, "len": null },
                { "name": "x", "type": "int", "module": "builtins", "value": "1" },
            ],
            "more": 4,
        });
        let value = json!({ "status": "ok", "data": { "text/plain": value.to_string() } });
        let found: FoundVariables = parse(&answer(&value)).expect("it is an answer");
        assert_eq!(found.more, 4);
        let [df, x] = &found.variables[..] else {
            panic!("{found:?}");
        };
        assert_eq!((df.shape.clone(), df.size), (Some(vec![3, 2]), Some(180)));
        assert_eq!(x.value.as_deref(), Some("1"));
        assert_eq!(x.shape, None);
    }

    #[test]
    fn an_unexpected_answer_is_described() {
        let raised =
            json!({ "status": "error", "ename": "NameError", "evalue": "no", "traceback": [] });
        assert_eq!(
            parse::<FoundVariables>(&answer(&raised)),
            Err("NameError: no".to_owned())
        );
        for unexpected in [json!(null), json!({ "data": {} }), json!([1])] {
            let why = parse::<FoundVariables>(&answer(&unexpected)).expect_err("no answer");
            assert!(why.contains("evaluates no expressions"), "{why}");
        }
        assert!(parse::<FoundVariables>(b"[").is_err());
        let other = json!({ "data": { "text/plain": "'other'" } });
        assert!(parse::<FoundVariables>(&answer(&other)).is_err());
    }
}
