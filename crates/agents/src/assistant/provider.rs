//! Which interface, key and model the assistant uses; its requests, and what goes wrong with them.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};
use serde_json::Value;
use sse_stream::SseStream;

use super::anthropic::{self, AnthropicAnswer};
use super::message::{AnswerFault, AnswerPiece, ConversationPart, EndReason, ToolDescription};
use super::openai::{self, OpenAiAnswer};
use crate::kernel::variables::Variables;
use crate::server::{Secret, ServerErrorKind, credential, http_builder};

/// The variables that have keys.
pub(super) const KEYS: [&str; 2] = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"];

/// How long a provider may be silent.
const SILENCE: Duration = Duration::from_secs(180);

/// The longest answer, in bytes of the stream.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The longest answer that only says what went wrong, in bytes.
const LONGEST_FAILURE: usize = 64 << 10;

/// How long is waited before a request that the provider was too busy for is sent again, if it does not say.
const PAUSES: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// The longest pause that a provider can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// An interface of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interface {
    Anthropic,
    OpenAi,
}

/// What is known of an interface.
struct InterfaceFacts {
    /// The name of the provider.
    name: &'static str,
    /// The variable that has the key.
    key: &'static str,
    /// The variable that has a command which prints the key.
    key_command: &'static str,
    /// The variable that has the address of another server.
    base: &'static str,
    default_base: &'static str,
    path: &'static str,
    /// The model unless another one is named.
    model: Option<&'static str>,
}

impl Interface {
    const ALL: [Self; 2] = [Self::Anthropic, Self::OpenAi];

    fn facts(self) -> &'static InterfaceFacts {
        match self {
            Self::Anthropic => &InterfaceFacts {
                name: "anthropic",
                key: KEYS[0],
                key_command: "ANTHROPIC_API_KEY_COMMAND",
                base: "ANTHROPIC_BASE_URL",
                default_base: "https://api.anthropic.com",
                path: "v1/messages",
                model: Some("claude-sonnet-4-5"),
            },
            Self::OpenAi => &InterfaceFacts {
                name: "openai",
                key: KEYS[1],
                key_command: "OPENAI_API_KEY_COMMAND",
                base: "OPENAI_BASE_URL",
                default_base: "https://api.openai.com/v1",
                path: "chat/completions",
                // Which ones there are depends on the server.
                model: None,
            },
        }
    }
}

/// A provider of models.
#[derive(Clone, Debug)]
pub struct Provider {
    interface: Interface,
    url: Url,
    headers: HeaderMap,
    http: reqwest::Client,
    model: String,
}

/// Why a model has not answered.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// No provider is set up.
    #[error("no assistant is set up")]
    None,
    /// No model is named.
    #[error("no model is named")]
    NoModel,
    /// A setting cannot be used.
    #[error("{0}")]
    Setup(String),
    /// The provider cannot be reached, or the connection broke.
    #[error("{host} does not answer: {why}")]
    Connection {
        /// The provider's host.
        host: String,
        /// What went wrong.
        why: String,
    },
    /// The provider does not know the key.
    #[error("{host} refuses the key in {variable}: {text}")]
    Key {
        /// The provider's host.
        host: String,
        /// Where the key comes from.
        variable: &'static str,
        /// What the provider says.
        text: String,
    },
    /// The provider does not know the model.
    #[error("{host} has no model {model:?}: {text}")]
    Model {
        /// The provider's host.
        host: String,
        /// The model.
        model: String,
        /// What the provider says.
        text: String,
    },
    /// There is no such interface at the address.
    #[error("{url} is not where models answer: {text}")]
    Address {
        /// The address.
        url: String,
        /// The variable that sets it.
        variable: &'static str,
        /// What came from there.
        text: String,
    },
    /// The provider is too busy, or the account's limit is reached.
    #[error("{host} takes no more requests now ({status}): {text}")]
    Busy {
        /// The provider's host.
        host: String,
        /// The status, such as 429 or 529.
        status: u16,
        /// What the provider says.
        text: String,
    },
    /// The provider refuses the request.
    #[error("{host} refuses the request ({kind}): {text}")]
    Refused {
        /// The provider's host.
        host: String,
        /// The status or the kind of error.
        kind: String,
        /// What the provider says.
        text: String,
    },
    /// The answer broke off, or is not what the interface says.
    #[error("the answer of {host} broke off: {why}")]
    Broken {
        /// The provider's host.
        host: String,
        /// How.
        why: String,
    },
}

impl ModelError {
    /// Returns what the person can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::None => {
                "set ANTHROPIC_API_KEY, or OPENAI_API_KEY and OPENAI_BASE_URL, before `nb web` is started, or start \
                 it with --assistant COMMAND, a coding agent that speaks ACP"
            }
            Self::NoModel | Self::Model { .. } => "name the model: nb web --model MODEL",
            Self::Setup(_) => "mend it and start `nb web` again",
            Self::Connection { .. } | Self::Busy { .. } | Self::Broken { .. } => {
                "what was done is kept: send the message again"
            }
            Self::Address { variable, .. } => match *variable {
                "OPENAI_BASE_URL" => {
                    "look at OPENAI_BASE_URL, which ends in /v1 at most servers, and start `nb web` again"
                }
                _ => "look at ANTHROPIC_BASE_URL, and start `nb web` again",
            },
            Self::Key { .. } => "set another key and start `nb web` again",
            Self::Refused { .. } => {
                "a new conversation is shorter: DELETE of the chat, or \"New\" on the page"
            }
        }
    }
}

impl Provider {
    /// Returns the provider with this name, or else the one for which a variable gives a key, a command that prints one,
    /// or an address.
    ///
    /// # Errors
    /// There is no key, no model is named, or a setting cannot be used.
    pub async fn find(
        name: Option<&str>,
        model: Option<&str>,
        variables: &dyn Variables,
    ) -> Result<Self, ModelError> {
        let all = Interface::ALL.into_iter();
        let mut candidates = all.filter(|it| name.is_none_or(|name| name == it.facts().name));
        let text = |name: &str| variables.get(name).and_then(|it| it.into_string().ok());
        let is_set = |it: &Interface| {
            let facts = it.facts();
            let given = [facts.key, facts.key_command, facts.base];
            given.into_iter().any(|name| text(name).is_some())
        };
        let interface = candidates.find(is_set);
        let interface = interface.ok_or(ModelError::None)?;
        let facts = interface.facts();
        let key = match (text(facts.key), text(facts.key_command)) {
            (Some(key), _) => Some(Secret::new(key)),
            (None, Some(command)) => {
                let key = credential::secret_of_command(facts.key_command, &command).await;
                Some(key.map_err(|error| ModelError::Setup(error.to_string()))?)
            }
            (None, None) => None,
        };
        let base = text(facts.base);
        let base = base.as_deref().unwrap_or(facts.default_base);
        let model = model.or(facts.model);
        let model = model.ok_or(ModelError::NoModel)?;
        Self::of(interface, base, key.as_ref(), model)
    }

    /// Returns whether a word names a provider.
    pub fn is_name(name: &str) -> bool {
        Interface::ALL.iter().any(|it| it.facts().name == name)
    }

    fn of(
        interface: Interface,
        base: &str,
        key: Option<&Secret>,
        model: &str,
    ) -> Result<Self, ModelError> {
        let setup = |why: String| ModelError::Setup(format!("{}: {why}", interface.facts().base));
        let url = format!("{}/{}", base.trim_end_matches('/'), interface.facts().path);
        let url = Url::parse(&url).map_err(|error| setup(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(setup(format!("{base} is not an HTTP address")));
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if interface == Interface::Anthropic {
            let version = HeaderValue::from_static(anthropic::VERSION);
            headers.insert(HeaderName::from_static("anthropic-version"), version);
        }
        if let Some(key) = key {
            let (name, value) = match interface {
                Interface::Anthropic => ("x-api-key", key.expose().trim().to_owned()),
                Interface::OpenAi => ("authorization", format!("Bearer {}", key.expose().trim())),
            };
            let value = HeaderValue::from_str(&value)
                .map_err(|_| ModelError::Setup(format!("{} is not a key", interface.facts().key)));
            let mut value = value?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        let http = http_builder(&url).read_timeout(SILENCE).build();
        let http = http.map_err(|error| setup(error.to_string()))?;
        Ok(Self {
            interface,
            url,
            headers,
            http,
            model: model.to_owned(),
        })
    }

    /// Returns the model that answers unless a message names another one.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns the host that it is asked at.
    pub fn host(&self) -> String {
        self.url.host_str().unwrap_or_default().to_owned()
    }

    /// Asks a model. What it answers is passed on as it comes.
    ///
    /// # Errors
    /// The provider does not answer, refuses, or breaks off.
    pub(super) async fn ask(
        &self,
        model: &str,
        system: &str,
        tools: &[ToolDescription],
        messages: &[ConversationPart],
        mut take: impl FnMut(AnswerPiece),
        note: impl Fn(String),
    ) -> Result<EndReason, ModelError> {
        let body = match self.interface {
            Interface::Anthropic => anthropic::request(model, system, tools, messages),
            Interface::OpenAi => openai::request(model, system, tools, messages),
        };
        let mut pauses = PAUSES.iter();
        loop {
            let mut is_begun = false;
            let on_piece = |piece| {
                is_begun |= !matches!(piece, AnswerPiece::Usage(_));
                take(piece);
            };
            let error = match self.send(model, &body).await {
                Ok(response) => match self.read(response, on_piece).await {
                    Ok(end) => return Ok(end),
                    Err(error) => (error, None),
                },
                Err(error) => error,
            };
            let (error, pause) = error;
            let (ModelError::Busy { .. }, false, Some(next)) = (&error, is_begun, pauses.next())
            else {
                return Err(error);
            };
            let pause = pause.unwrap_or(*next).min(LONGEST_PAUSE);
            note(format!("{error}; again in {} s", pause.as_secs()));
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends a request; an error may have the pause that the provider asks for.
    async fn send(
        &self,
        model: &str,
        body: &Value,
    ) -> Result<Response, (ModelError, Option<Duration>)> {
        let request = self.http.post(self.url.clone());
        let request = request.headers(self.headers.clone()).body(body.to_string());
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                let why = ServerErrorKind::of_transport(&error, &self.url, SILENCE).to_string();
                let host = self.host();
                return Err((ModelError::Connection { host, why }, None));
            }
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let pause = response.headers().get(RETRY_AFTER);
        let pause = pause.and_then(|it| it.to_str().ok()?.trim().parse().ok());
        let failure = Failure::read(response).await;
        Err((
            self.refusal(status, model, failure),
            pause.map(Duration::from_secs),
        ))
    }

    fn refusal(&self, status: StatusCode, model: &str, failure: Failure) -> ModelError {
        let host = self.host();
        let names_model = failure.names_model();
        let text = failure.text;
        match status.as_u16() {
            401 | 403 => ModelError::Key {
                host,
                variable: self.interface.facts().key,
                text,
            },
            404 if names_model => ModelError::Model {
                host,
                model: model.to_owned(),
                text,
            },
            404 | 405 => self.wrong_address(format!("{}, {text}", status.as_u16())),
            status if is_busy(status) => ModelError::Busy { host, status, text },
            status => ModelError::Refused {
                host,
                kind: status.to_string(),
                text,
            },
        }
    }

    fn wrong_address(&self, text: String) -> ModelError {
        ModelError::Address {
            url: self.url.to_string(),
            variable: self.interface.facts().base,
            text,
        }
    }

    /// Returns the error that an answer is which is no stream of events.
    async fn no_stream(&self, response: Response, content_type: &str) -> ModelError {
        let failure = Failure::read(response).await;
        match failure.error {
            Some(error) => self.model_error(AnswerFault::Reported {
                kind: error,
                text: failure.text,
            }),
            None => self.wrong_address(format!("it answers with {content_type}")),
        }
    }

    async fn read(
        &self,
        response: Response,
        mut take: impl FnMut(AnswerPiece),
    ) -> Result<EndReason, ModelError> {
        let broken = |why: String| ModelError::Broken {
            host: self.host(),
            why,
        };
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|it| it.to_str().ok());
        let content_type = content_type.and_then(|it| it.split(';').next());
        if let Some(other @ ("text/html" | "application/json")) = content_type {
            let other = other.to_owned();
            return Err(self.no_stream(response, &other).await);
        }
        let mut left = ANSWER_BYTES_MAX;
        let parts = futures_util::stream::unfold(response, |mut response| async {
            let part = response.chunk().await.transpose()?;
            Some((part.map_err(std::io::Error::other), response))
        });
        let parts = parts.map(move |part| {
            let part = part?;
            left = left.checked_sub(part.len()).ok_or_else(|| {
                std::io::Error::other(format!("it has more than {} MiB", ANSWER_BYTES_MAX >> 20))
            })?;
            Ok::<_, std::io::Error>(part)
        });
        let mut events = Box::pin(SseStream::from_bytes_stream(parts));
        let mut reader = match self.interface {
            Interface::Anthropic => AnswerReader::Anthropic(AnthropicAnswer::default()),
            Interface::OpenAi => AnswerReader::OpenAi(OpenAiAnswer::default()),
        };
        while let Some(event) = events.next().await {
            let event = event.map_err(|error| broken(error.to_string()))?;
            let Some(data) = event.data else {
                continue;
            };
            let pieces = reader
                .take(&data)
                .map_err(|fault| self.model_error(fault))?;
            if let Some(reason) = pass_on(pieces, &mut take) {
                return Ok(reason);
            }
        }
        let rest = reader.at_end().and_then(|rest| pass_on(rest, &mut take));
        rest.ok_or_else(|| broken("the stream ended before the answer".to_owned()))
    }

    fn model_error(&self, fault: AnswerFault) -> ModelError {
        let host = self.host();
        match fault {
            AnswerFault::Reported { kind, text } => {
                let status = match kind.as_str() {
                    "overloaded_error" => Some(529),
                    "rate_limit_error" => Some(429),
                    other => other.parse().ok().filter(|status| is_busy(*status)),
                };
                match status {
                    Some(status) => ModelError::Busy { host, status, text },
                    None => ModelError::Refused { host, kind, text },
                }
            }
            AnswerFault::Malformed(why) => ModelError::Broken { host, why },
        }
    }
}

/// Returns whether a status means that a later request may succeed.
fn is_busy(status: u16) -> bool {
    matches!(status, 429 | 500 | 502 | 503 | 504 | 529)
}

/// The reader of an answer's events.
enum AnswerReader {
    Anthropic(AnthropicAnswer),
    OpenAi(OpenAiAnswer),
}

impl AnswerReader {
    fn take(&mut self, data: &str) -> Result<Vec<AnswerPiece>, AnswerFault> {
        match self {
            Self::Anthropic(answer) => answer.take(data),
            Self::OpenAi(answer) => answer.take(data),
        }
    }

    /// Returns the last pieces of an answer whose stream has ended without the last event.
    fn at_end(&mut self) -> Option<Vec<AnswerPiece>> {
        match self {
            Self::Anthropic(answer) => answer.at_end(),
            Self::OpenAi(answer) => answer.at_end(),
        }
    }
}

/// Passes pieces on; returns why the answer has ended, if it has.
fn pass_on(pieces: Vec<AnswerPiece>, take: &mut impl FnMut(AnswerPiece)) -> Option<EndReason> {
    for piece in pieces {
        if let AnswerPiece::End(reason) = piece {
            return Some(reason);
        }
        take(piece);
    }
    None
}

/// What a provider says went wrong.
struct Failure {
    /// The text, as one line.
    text: String,
    /// The kind of error, if the answer is a JSON object that reports one; may be empty.
    error: Option<String>,
}

impl Failure {
    async fn read(mut response: Response) -> Self {
        let mut bytes = Vec::new();
        while let Ok(Some(part)) = response.chunk().await {
            let room = LONGEST_FAILURE - bytes.len();
            bytes.extend_from_slice(&part[..part.len().min(room)]);
            if part.len() >= room {
                break;
            }
        }
        Self::of(&bytes)
    }

    fn of(bytes: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let error = &body["error"];
        let texts = [&error["message"], error, &body["message"], &body["detail"]];
        let message = texts.into_iter().find_map(Value::as_str);
        let is_error = !error.is_null() || body["object"] == "error";
        let words = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let kind = [&error["type"], &error["code"], &body["code"]];
        let kind = kind.into_iter().find_map(words).unwrap_or_default();
        let message = message.map_or_else(|| String::from_utf8_lossy(bytes), Into::into);
        let spaced = message
            .split_whitespace()
            .flat_map(|word| [word, " "])
            .collect::<String>();
        let line = spaced.trim_end().chars().filter(|c| !c.is_control());
        Self {
            text: line.take(300).collect(),
            error: is_error.then_some(kind),
        }
    }

    /// Returns whether it is an error about the model, not about the address.
    fn names_model(&self) -> bool {
        self.error.is_some() && self.text.to_ascii_lowercase().contains("model")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[tokio::test]
    async fn the_key_that_is_there_chooses_the_provider() {
        let find = async |variables: &[(&str, &str)], name, model| {
            let variables: HashMap<_, _> = variables.iter().copied().collect();
            Provider::find(name, model, &variables).await
        };
        let anthropic = find(&[("ANTHROPIC_API_KEY", "k")], None, None)
            .await
            .unwrap();
        assert_eq!(
            anthropic.url.as_str(),
            "https://api.anthropic.com/v1/messages"
        );
        assert_eq!(anthropic.headers["x-api-key"], "k");
        let printed = [("ANTHROPIC_API_KEY_COMMAND", "echo p")];
        let printed = find(&printed, None, None).await.unwrap();
        assert_eq!(printed.headers["x-api-key"], "p");
        let fails = [("ANTHROPIC_API_KEY_COMMAND", "false")];
        let error = find(&fails, None, None).await.unwrap_err().to_string();
        assert!(error.contains("ANTHROPIC_API_KEY_COMMAND"), "{error}");
        let local = [("OPENAI_BASE_URL", "http://localhost:1234/v1/")];
        let local = find(&local, None, Some("m")).await.unwrap();
        assert_eq!(
            local.url.as_str(),
            "http://localhost:1234/v1/chat/completions"
        );
        assert_eq!(local.model(), "m");
        let both = [("ANTHROPIC_API_KEY", "a"), ("OPENAI_API_KEY", "o")];
        let openai = find(&both, Some("openai"), Some("m")).await.unwrap();
        assert_eq!(openai.headers["authorization"], "Bearer o");
        assert!(matches!(
            find(&[("OPENAI_API_KEY", "o")], None, None).await,
            Err(ModelError::NoModel)
        ));
        let bad = [
            ("OPENAI_BASE_URL", "file:///etc/passwd"),
            ("OPENAI_API_KEY", "o"),
        ];
        assert!(matches!(
            find(&bad, None, Some("m")).await,
            Err(ModelError::Setup(_))
        ));
    }

    #[test]
    fn a_key_is_shown_nowhere() {
        let key = Secret::new("sk-secret");
        let base = Interface::Anthropic.facts().default_base;
        let provider = Provider::of(Interface::Anthropic, base, Some(&key), "m").unwrap();
        assert!(!format!("{provider:?}").contains("sk-secret"));
    }

    #[test]
    fn only_an_error_about_the_model_names_the_model() {
        let base = "http://localhost:1/v1";
        let provider = Provider::of(Interface::OpenAi, base, None, "m").unwrap();
        let error = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            let failure = Failure::of(body.as_bytes());
            provider.refusal(status, "m", failure).to_string()
        };
        let wrong = "http://localhost:1/v1/chat/completions is not where models answer: 404, ";
        for (body, expected) in [
            (
                r#"{"error": {"message": "The model `m` does not exist"}}"#,
                "localhost has no model \"m\": The model `m` does not exist".to_owned(),
            ),
            (
                r#"{"object": "error", "message": "model m not found", "code": 404}"#,
                "localhost has no model \"m\": model m not found".to_owned(),
            ),
            ("404 page not found", format!("{wrong}404 page not found")),
            (r#"{"detail": "Not Found"}"#, format!("{wrong}Not Found")),
        ] {
            assert_eq!(error(404, body), expected);
        }
    }
}
