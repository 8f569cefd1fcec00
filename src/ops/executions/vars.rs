//! The user's variables: one look into the kernel that leaves nothing behind.
//!
//! A silent request whose answer is the value of an expression: no output, no count, no history, no
//! name in the user's namespace, and no line in the journal, since nobody's code ran. A kernel that
//! runs a cell is asked on a subshell, where it has them; elsewhere it is busy.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::run::{RunError, Runner};
use crate::client::{Client, ClientError, Execute};
use crate::project::past::Cell;
use crate::project::{Project, Session};
use crate::wire::Channel;

/// What looks, inside a Python kernel.
const LOOK: &str = include_str!("vars.py");

/// How long an idle kernel may take to say so.
const IDLE_ANSWER: Duration = Duration::from_millis(300);

/// How long a kernel may take to make or end a subshell.
const SUBSHELL: Duration = Duration::from_secs(2);

/// How long the look may take. Code that holds Python's global lock can delay it on a subshell.
const ANSWER: Duration = Duration::from_secs(5);

/// How long a start or restart that others began is awaited.
const SETTLES: Duration = Duration::from_secs(20);

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
    /// The kernel cannot be asked.
    #[error(transparent)]
    Run(#[from] RunError),
    /// It is no Python kernel.
    #[error("only the variables of Python kernels can be listed; this one runs {language}")]
    Language {
        /// Its language.
        language: String,
    },
    /// It runs a cell and cannot look meanwhile.
    #[error("the kernel is busy")]
    Busy {
        /// Whose, where that is known.
        behind: Option<Cell>,
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
    let mut runner = Runner::join(project, key, session, by, Some(SETTLES)).await?;
    let (client, session) = runner.parts();
    let language = language(session);
    if !language.eq_ignore_ascii_case("python") {
        return Err(VarsError::Language { language });
    }
    let reply = match client.kernel_info(Channel::Shell, IDLE_ANSWER).await {
        Ok(_) => {
            let request = request(wanted, false);
            ask(client, None, &request).await
        }
        Err(ClientError::NoAnswer { .. }) if has_subshells(session) => {
            meanwhile(client, wanted).await
        }
        Err(error) => Err(error),
    };
    let reply = match reply {
        Ok(reply) => reply,
        Err(ClientError::NoAnswer { .. }) => {
            let behind = project.present(key, session.generation).running;
            return Err(VarsError::Busy { behind });
        }
        Err(error) => return Err(RunError::from(error).into()),
    };
    runner.leave().await;
    let found = read(&reply).map_err(VarsError::Refused)?;
    match &wanted.name {
        Some(name) if found.variables.is_empty() => Err(VarsError::Unknown {
            name: name.clone(),
            near: found.near,
        }),
        _ => Ok(found),
    }
}

/// Asks on a subshell of its own, while the kernel runs a cell.
async fn meanwhile(client: &mut Client, wanted: &Wanted) -> Result<Vec<u8>, ClientError> {
    let create = "create_subshell_request";
    let made = client
        .request(Channel::Control, create, &json!({}), SUBSHELL)
        .await?;
    let made: Value = serde_json::from_slice(made.content()).unwrap_or_default();
    let Some(id) = made["subshell_id"].as_str() else {
        return Err(ClientError::NoAnswer {
            request: create.to_owned(),
            channel: Channel::Control,
            after: SUBSHELL,
        });
    };
    let reply = ask(client, Some(id), &request(wanted, true)).await;
    let end = json!({ "subshell_id": id });
    let ended = client
        .request(Channel::Control, "delete_subshell_request", &end, SUBSHELL)
        .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a subshell was not seen to end");
    }
    reply
}

async fn ask(
    client: &mut Client,
    subshell: Option<&str>,
    request: &Execute,
) -> Result<Vec<u8>, ClientError> {
    let reply = client
        .request_in(subshell, Channel::Shell, "execute_request", request, ANSWER)
        .await?;
    Ok(reply.content().to_vec())
}

/// Makes the request. While a cell runs, `running`, IPython's own doings round it are held off.
fn request(wanted: &Wanted, running: bool) -> Execute {
    let asked = json!({
        "name": wanted.name, "all": wanted.all, "most": wanted.most, "limit": wanted.limit,
        "running": running,
    });
    let code = if running {
        calling("guard()")
    } else {
        String::new()
    };
    let mut request = Execute::new(code);
    request.silent = true;
    request.store_history = false;
    // It is the whole kernel's flag until the next request: the running cell may ask.
    request.allow_stdin = running;
    let look = calling(&format!("look({})", literal(&asked.to_string())));
    request
        .user_expressions
        .insert("nb".to_owned(), look.into());
    request
}

/// Returns an expression that calls a function of the look, in a namespace that goes with it.
fn calling(call: &str) -> String {
    let (look, call) = (literal(LOOK), literal(call));
    // The user may have a variable of the name of any builtin.
    format!(
        "(lambda b, g: (b.exec({look}, g), b.eval({call}, g))[1])\
         (__import__(\"builtins\"), {{\"__name__\": \"nb\"}})"
    )
}

/// Writes a text as Python's literal: JSON's strings in ASCII mean the same there.
fn literal(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 16);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            c => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}

/// Reads the content of the reply.
fn read(content: &[u8]) -> Result<Found, String> {
    let reply: Value = serde_json::from_slice(content).map_err(|error| error.to_string())?;
    let value = &reply["user_expressions"]["nb"];
    let said = [value, &reply]
        .into_iter()
        .find_map(|it| Some((it["ename"].as_str()?, it["evalue"].as_str().unwrap_or(""))));
    if let Some((ename, evalue)) = said {
        return Err(format!("{ename}: {evalue}"));
    }
    let text = value["data"]["text/plain"].as_str();
    let text = text.ok_or_else(|| "it evaluates no expressions".to_owned())?;
    serde_json::from_str(text).map_err(|error| format!("its answer is unreadable: {error}"))
}

fn language(session: &Session) -> String {
    let info = session.kernel_info.as_ref();
    let said = info.and_then(|info| info["language_info"]["name"].as_str());
    let spec = session.kernelspec.as_ref();
    match (said, spec) {
        (Some(name), _) => name.to_owned(),
        (None, Some(spec)) if !spec.language.is_empty() => spec.language.clone(),
        // An attached kernel of which nothing is known: it will say.
        (None, _) => "python".to_owned(),
    }
}

fn has_subshells(session: &Session) -> bool {
    let info = session.kernel_info.as_ref();
    let features = info.and_then(|info| info["supported_features"].as_array());
    features.is_some_and(|them| them.iter().any(|it| it == "kernel subshells"))
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn text_becomes_a_literal_of_python() {
        assert_eq!(
            literal("a \"b\"\\\n…"),
            r#""a \"b\"\\\U0000000a\U00002026""#
        );
    }

    #[test]
    fn what_is_sent_is_silent() {
        let wanted = Wanted {
            name: None,
            all: false,
            most: 10,
            limit: 80,
        };
        for running in [false, true] {
            let sent = serde_json::to_value(request(&wanted, running)).expect("it is JSON");
            assert_eq!(sent["silent"], true);
            assert_eq!(sent["store_history"], false);
            assert_eq!(sent["stop_on_error"], false);
            assert_eq!(sent["code"] == "", !running);
        }
    }
}
