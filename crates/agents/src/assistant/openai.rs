//! OpenAI's chat completions, which many providers and local servers understand. Pure.
//!
//! Source: <https://platform.openai.com/docs/api-reference/chat>.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::anthropic::some_text;
use super::message::{
    AnswerFault, AnswerPiece, ConversationPart, EndReason, PartialCall, TokenUsage, ToolDescription,
};

/// How many calls an answer may have.
const MOST_CALLS: usize = 64;

/// The data of the last event.
const END: &str = "[DONE]";

/// Returns the body of a request.
pub(super) fn request(
    model: &str,
    system: &str,
    tools: &[ToolDescription],
    messages: &[ConversationPart],
) -> Value {
    let tools = tools.iter().map(|tool| {
        let function = json!({
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.schema,
        });
        json!({"type": "function", "function": function})
    });
    let tools: Vec<_> = tools.collect();
    let first = json!({"role": "system", "content": system});
    let sent = messages.iter().flat_map(sent);
    let sent: Vec<_> = std::iter::once(first).chain(sent).collect();
    json!({
        "model": model,
        "stream": true,
        "stream_options": {"include_usage": true},
        "tools": tools,
        "messages": sent,
    })
}

fn sent(message: &ConversationPart) -> Vec<Value> {
    match message {
        ConversationPart::Person { text } => vec![json!({"role": "user", "content": text})],
        ConversationPart::Model { text, calls } => {
            let mut sent = json!({"role": "assistant", "content": text});
            let calls = calls.iter().map(|call| {
                let arguments = Value::Object(call.arguments.clone()).to_string();
                let function = json!({"name": call.name, "arguments": arguments});
                json!({"id": call.id, "type": "function", "function": function})
            });
            let calls: Vec<_> = calls.collect();
            if !calls.is_empty() {
                sent["tool_calls"] = calls.into();
            }
            vec![sent]
        }
        ConversationPart::Tools { results } => {
            let texts = results.iter().map(|result| {
                json!({"role": "tool", "tool_call_id": result.call, "content": result.text})
            });
            // A result has only text here.
            let images = results.iter().flat_map(|result| &result.images);
            let images = images.map(|image| {
                let url = format!("data:{};base64,{}", image.mime, image.data);
                json!({"type": "image_url", "image_url": {"url": url}})
            });
            let images: Vec<_> = images.collect();
            let images = (!images.is_empty()).then(|| json!({"role": "user", "content": images}));
            texts.chain(images).collect()
        }
    }
}

/// Reads the events of an answer.
#[derive(Debug, Default)]
pub(super) struct OpenAiAnswer {
    /// The calls whose arguments still come, by their indexes.
    calls: BTreeMap<u64, PartialCall>,
    end: Option<EndReason>,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<ChunkError>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta {
    content: Option<String>,
    tool_calls: Option<Vec<CallDelta>>,
}

#[derive(Deserialize)]
struct CallDelta {
    #[serde(default)]
    index: u64,
    id: Option<String>,
    #[serde(default)]
    function: FunctionDelta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FunctionDelta {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
}

#[derive(Deserialize)]
struct ChunkError {
    #[serde(default)]
    message: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    /// A status, or a word.
    code: Option<Value>,
}

impl ChunkError {
    /// Returns the kind of error: a status if there is one, such as 529, else a word.
    fn kind(self) -> String {
        let code = self.code.map(|code| match code {
            Value::String(code) => code,
            code => code.to_string(),
        });
        match code.filter(|code| self.kind.is_none() || code.parse::<u16>().is_ok()) {
            Some(code) => code,
            None => self.kind.unwrap_or_default(),
        }
    }
}

impl OpenAiAnswer {
    /// Takes the data of an event; returns what it adds to the answer.
    ///
    /// # Errors
    /// The provider reports an error, or the event is not what the interface says.
    pub(super) fn take(&mut self, data: &str) -> Result<Vec<AnswerPiece>, AnswerFault> {
        if data.trim() == END {
            return Ok(self.end_pieces(self.end.unwrap_or(EndReason::Done)));
        }
        let malformed = |text: String| AnswerFault::Malformed(text);
        let chunk: Chunk =
            serde_json::from_str(data).map_err(|error| malformed(error.to_string()))?;
        if let Some(error) = chunk.error {
            return Err(AnswerFault::Reported {
                text: error.message.clone(),
                kind: error.kind(),
            });
        }
        let mut pieces = Vec::new();
        for choice in chunk.choices {
            pieces.extend(some_text(choice.delta.content.unwrap_or_default()));
            for part in choice.delta.tool_calls.into_iter().flatten() {
                let is_new = !self.calls.contains_key(&part.index);
                if is_new && self.calls.len() >= MOST_CALLS {
                    return Err(malformed(format!("more than {MOST_CALLS} calls at once")));
                }
                let call = self.calls.entry(part.index).or_default();
                call.id.push_str(&part.id.unwrap_or_default());
                call.name.push_str(&part.function.name.unwrap_or_default());
                let arguments = part.function.arguments.unwrap_or_default();
                call.arguments.push_str(&arguments);
            }
            if let Some(reason) = choice.finish_reason {
                self.end = Some(match reason.as_str() {
                    "tool_calls" | "function_call" => EndReason::Calls,
                    "length" => EndReason::Length,
                    "content_filter" => EndReason::Refusal,
                    _ => EndReason::Done,
                });
            }
        }
        if let Some(usage) = chunk.usage {
            pieces.push(AnswerPiece::Usage(TokenUsage {
                input: usage.prompt_tokens,
                output: usage.completion_tokens,
            }));
        }
        Ok(pieces)
    }

    /// Returns the end of an answer whose reason is known: some servers leave the last event out.
    pub(super) fn at_end(&mut self) -> Option<Vec<AnswerPiece>> {
        self.end.map(|reason| self.end_pieces(reason))
    }

    fn end_pieces(&mut self, reason: EndReason) -> Vec<AnswerPiece> {
        let calls = std::mem::take(&mut self.calls).into_values();
        let calls = calls.map(|call| AnswerPiece::Call(call.into_call()));
        calls.chain([AnswerPiece::End(reason)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assistant::message::{ToolImage, ToolResult};

    #[test]
    fn calls_are_put_together_by_their_indexes() {
        let mut answer = OpenAiAnswer::default();
        let mut pieces = Vec::new();
        for data in [
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"Hi"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"one","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"two","arguments":"{\"x\""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":":1}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}"#,
            " [DONE]",
        ] {
            pieces.extend(answer.take(data).unwrap());
        }
        let named = pieces.iter().map(|piece| match piece {
            AnswerPiece::Text(text) => text.clone(),
            AnswerPiece::Call(call) => {
                let arguments = Value::Object(call.arguments.clone());
                format!("{} {} {arguments}", call.id, call.name)
            }
            AnswerPiece::Usage(usage) => format!("{} {}", usage.input, usage.output),
            AnswerPiece::End(reason) => format!("{reason:?}"),
        });
        let named: Vec<_> = named.collect();
        assert_eq!(named, ["Hi", "7 3", "a one {}", "b two {\"x\":1}", "Calls"]);
    }

    #[test]
    fn errors_and_floods_are_refused() {
        let mut answer = OpenAiAnswer::default();
        let error = answer.take(r#"{"error":{"message":"no such model","type":"invalid"}}"#);
        assert!(matches!(error, Err(AnswerFault::Reported { .. })));
        let overloaded = answer.take(r#"{"error":{"message":"overloaded","code":529}}"#);
        assert!(matches!(overloaded, Err(AnswerFault::Reported { kind, .. }) if kind == "529"));
        assert!(matches!(answer.take("{"), Err(AnswerFault::Malformed(_))));
        let part =
            |at| format!("{{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":{at}}}]}}}}]}}");
        let mut results = (0..=MOST_CALLS).map(|at| answer.take(&part(at)));
        assert!(results.any(|results| results.is_err()));
    }

    #[test]
    fn an_answer_without_the_last_event_has_its_end() {
        let mut answer = OpenAiAnswer::default();
        let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"one"}}]}}]}"#;
        answer.take(call).unwrap();
        assert_eq!(answer.at_end(), None);
        let end = r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#;
        answer.take(end).unwrap();
        let rest = answer.at_end().unwrap();
        assert!(matches!(
            rest[..],
            [AnswerPiece::Call(_), AnswerPiece::End(EndReason::Calls)]
        ));
    }

    #[test]
    fn images_of_results_follow_them() {
        let message = ConversationPart::Tools {
            results: vec![ToolResult {
                call: "a".to_owned(),
                text: "a plot".to_owned(),
                images: vec![ToolImage {
                    mime: "image/png".to_owned(),
                    data: "AAAA".to_owned(),
                }],
                is_error: false,
            }],
        };
        let body = request("m", "s", &[], &[message]);
        let sent = &body["messages"];
        assert_eq!(sent[1]["tool_call_id"], "a");
        let url = &sent[2]["content"][0]["image_url"]["url"];
        assert_eq!(url, "data:image/png;base64,AAAA");
    }
}
