//! Anthropic's messages interface. Pure.
//!
//! Source: <https://docs.anthropic.com/en/api/messages> and <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::message::{
    AnswerFault, AnswerPiece, ConversationPart, EndReason, PartialCall, TokenUsage,
    ToolDescription, ToolResult,
};

/// The version of the interface.
pub(super) const VERSION: &str = "2023-06-01";

/// How many tokens an answer may have.
const LONGEST_ANSWER: u64 = 16_000;

/// Returns the body of a request.
pub(super) fn request(
    model: &str,
    system: &str,
    tools: &[ToolDescription],
    messages: &[ConversationPart],
) -> Value {
    // What stands before a mark is kept by the provider for a few minutes, which makes the next request cheaper.
    let mark = json!({"type": "ephemeral"});
    let tools = tools.iter().map(|tool| {
        json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema})
    });
    let tools: Vec<_> = tools.collect();
    let mut sent: Vec<_> = messages.iter().map(message).collect();
    let last = sent.last_mut().and_then(|it| it["content"].as_array_mut());
    if let Some(last) = last.and_then(|content| content.last_mut()) {
        last["cache_control"] = mark.clone();
    }
    json!({
        "model": model,
        "max_tokens": LONGEST_ANSWER,
        "stream": true,
        "system": [{"type": "text", "text": system, "cache_control": mark}],
        "tools": tools,
        "messages": sent,
    })
}

fn message(message: &ConversationPart) -> Value {
    match message {
        ConversationPart::Person { text } => json!({"role": "user", "content": [text_block(text)]}),
        ConversationPart::Model { text, calls } => {
            let calls = calls.iter().map(|call| {
                json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments})
            });
            // An empty text is refused.
            let text = (!text.trim().is_empty()).then(|| text_block(text));
            let content: Vec<_> = text.into_iter().chain(calls).collect();
            json!({"role": "assistant", "content": content})
        }
        ConversationPart::Tools { results } => {
            let results: Vec<_> = results.iter().map(result).collect();
            json!({"role": "user", "content": results})
        }
    }
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn result(result: &ToolResult) -> Value {
    let images = result.images.iter().map(|image| {
        let source = json!({"type": "base64", "media_type": image.mime, "data": image.data});
        json!({"type": "image", "source": source})
    });
    let content: Vec<_> = std::iter::once(text_block(&result.text))
        .chain(images)
        .collect();
    json!({
        "type": "tool_result",
        "tool_use_id": result.call,
        "content": content,
        "is_error": result.is_error,
    })
}

/// Reads the events of an answer.
#[derive(Debug, Default)]
pub(super) struct AnthropicAnswer {
    /// The calls whose arguments still come, by their places in the answer.
    calls: BTreeMap<u64, PartialCall>,
    usage: TokenUsage,
    end: Option<EndReason>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: Start,
    },
    ContentBlockStart {
        index: u64,
        content_block: Block,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    ContentBlockStop {
        index: u64,
    },
    MessageDelta {
        delta: End,
        #[serde(default)]
        usage: Usage,
    },
    MessageStop,
    Error {
        error: ReportedError,
    },
    /// `ping`, and what comes with later versions.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Start {
    #[serde(default)]
    usage: Usage,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    input_tokens: u64,
    output_tokens: u64,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    ToolUse {
        id: String,
        name: String,
    },
    Text {
        #[serde(default)]
        text: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    Arguments { partial_json: String },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct End {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct ReportedError {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    message: String,
}

impl AnthropicAnswer {
    /// Takes the data of an event; returns what it adds to the answer.
    ///
    /// # Errors
    /// The provider reports an error, or the event is not what the interface says.
    pub(super) fn take(&mut self, data: &str) -> Result<Vec<AnswerPiece>, AnswerFault> {
        let malformed = |text: String| AnswerFault::Malformed(text);
        let event = serde_json::from_str(data).map_err(|error| malformed(error.to_string()))?;
        let pieces = match event {
            Event::MessageStart { message } => {
                let Start { usage } = message;
                let cached = [
                    usage.cache_creation_input_tokens,
                    usage.cache_read_input_tokens,
                ];
                let cached: u64 = cached.into_iter().flatten().sum();
                self.usage.input = usage.input_tokens + cached;
                self.usage.output = usage.output_tokens;
                vec![AnswerPiece::Usage(self.usage)]
            }
            Event::ContentBlockStart {
                index,
                content_block,
            } => match content_block {
                Block::ToolUse { id, name } => {
                    let call = PartialCall {
                        id,
                        name,
                        ..PartialCall::default()
                    };
                    self.calls.insert(index, call);
                    Vec::new()
                }
                Block::Text { text } => some_text(text),
                Block::Other => Vec::new(),
            },
            Event::ContentBlockDelta { index, delta } => match delta {
                Delta::Text { text } => some_text(text),
                Delta::Arguments { partial_json } => {
                    let call = self.calls.get_mut(&index);
                    let call = call.ok_or_else(|| malformed("arguments of no call".to_owned()))?;
                    call.arguments.push_str(&partial_json);
                    Vec::new()
                }
                Delta::Other => Vec::new(),
            },
            Event::ContentBlockStop { index } => {
                let call = self.calls.remove(&index);
                call.map(|call| AnswerPiece::Call(call.into_call()))
                    .into_iter()
                    .collect()
            }
            Event::MessageDelta { delta, usage } => {
                self.usage.output = self.usage.output.max(usage.output_tokens);
                let reason = delta.stop_reason.as_deref();
                self.end = reason.map(|reason| match reason {
                    "tool_use" => EndReason::Calls,
                    "max_tokens" | "model_context_window_exceeded" => EndReason::Length,
                    "refusal" => EndReason::Refusal,
                    _ => EndReason::Done,
                });
                vec![AnswerPiece::Usage(self.usage)]
            }
            Event::MessageStop => {
                vec![AnswerPiece::End(self.end.unwrap_or(EndReason::Done))]
            }
            Event::Error { error } => {
                return Err(AnswerFault::Reported {
                    kind: error.kind,
                    text: error.message,
                });
            }
            Event::Other => Vec::new(),
        };
        Ok(pieces)
    }
}

pub(super) fn some_text(text: String) -> Vec<AnswerPiece> {
    match text.is_empty() {
        true => Vec::new(),
        false => vec![AnswerPiece::Text(text)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assistant::message::ModelCall;

    fn results(events: &[&str]) -> Result<Vec<AnswerPiece>, AnswerFault> {
        let mut answer = AnthropicAnswer::default();
        let pieces: Result<Vec<_>, _> = events.iter().map(|event| answer.take(event)).collect();
        pieces.map(|pieces| pieces.concat())
    }

    /// The example of the documentation of streaming with tools, shortened.
    #[test]
    fn an_answer_with_a_call_is_read_from_its_events() {
        let pieces = results(&[
            r#"{"type":"message_start","message":{"id":"m","role":"assistant","content":[],"usage":{"input_tokens":472,"output_tokens":2,"cache_read_input_tokens":8}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            r#"{"type": "ping"}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Okay"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"run_cell","input":{}}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"cell\":"}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":" \"a\"}"}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":89}}"#,
            r#"{"type":"message_stop"}"#,
        ]);
        let usage = |output| AnswerPiece::Usage(TokenUsage { input: 480, output });
        let Value::Object(arguments) = json!({"cell": "a"}) else {
            unreachable!()
        };
        let call = ModelCall {
            id: "toolu_1".to_owned(),
            name: "run_cell".to_owned(),
            arguments,
            fault: None,
        };
        assert_eq!(
            pieces.unwrap(),
            [
                usage(2),
                AnswerPiece::Text("Okay".to_owned()),
                AnswerPiece::Call(call),
                usage(89),
                AnswerPiece::End(EndReason::Calls),
            ]
        );
    }

    #[test]
    fn errors_within_an_answer_are_told_apart() {
        let overloaded =
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        assert_eq!(
            results(&[overloaded]),
            Err(AnswerFault::Reported {
                kind: "overloaded_error".to_owned(),
                text: "Overloaded".to_owned(),
            })
        );
        for bad in [
            "",
            "[]",
            r#"{"type":"content_block_delta","index":7,"delta":{"type":"input_json_delta","partial_json":"1"}}"#,
        ] {
            assert!(
                matches!(results(&[bad]), Err(AnswerFault::Malformed(_))),
                "{bad}"
            );
        }
        assert_eq!(results(&[r#"{"type":"of_tomorrow"}"#]), Ok(Vec::new()));
    }

    #[test]
    fn a_conversation_is_sent_as_the_interface_wants_it() {
        let messages = [
            ConversationPart::Person {
                text: "plot".to_owned(),
            },
            ConversationPart::Model {
                text: " ".to_owned(),
                calls: vec![ModelCall {
                    id: "1".to_owned(),
                    name: "run_cell".to_owned(),
                    arguments: serde_json::Map::new(),
                    fault: None,
                }],
            },
            ConversationPart::Tools {
                results: vec![ToolResult {
                    call: "1".to_owned(),
                    text: "ran".to_owned(),
                    ..ToolResult::default()
                }],
            },
        ];
        let body = request("m", "s", &[], &messages);
        let sent = &body["messages"];
        assert_eq!(sent[0]["content"][0]["text"], "plot");
        assert_eq!(sent[1]["content"].as_array().unwrap().len(), 1);
        assert_eq!(sent[1]["content"][0]["input"], json!({}));
        assert_eq!(sent[2]["role"], "user");
        assert_eq!(sent[2]["content"][0]["tool_use_id"], "1");
        assert_eq!(sent[2]["content"][0]["cache_control"]["type"], "ephemeral");
    }
}
