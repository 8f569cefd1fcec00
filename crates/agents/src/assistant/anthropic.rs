//! Anthropic's messages interface. Pure.
//!
//! Source: <https://docs.anthropic.com/en/api/messages> and <https://docs.anthropic.com/en/docs/build-with-claude/streaming>.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::message::{
    AnswerFault, AnswerPiece, ConversationPart, EndReason, PartialCall, TokenUsage,
    ToolDescription, ToolResult, add_others, count, some_text,
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
        ConversationPart::Model {
            text,
            calls,
            opaque,
        } => {
            let calls = calls.iter().map(|call| {
                json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments})
            });
            // An empty text is refused.
            let text = (!text.trim().is_empty()).then(|| text_block(text));
            // Blocks of its own come first, as the provider has sent them.
            let own = opaque.as_array().into_iter().flatten().cloned();
            let content: Vec<_> = own.chain(text).chain(calls).collect();
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

/// Reads the events of an answer. As other servers have this interface, too, what an event lacks counts as empty.
#[derive(Debug, Default)]
pub(super) struct AnthropicAnswer {
    /// The calls whose arguments still come, by their places in the answer.
    calls: BTreeMap<u64, PartialCall>,
    /// The blocks that are not known here, such as `thinking`, by their places.
    others: BTreeMap<u64, Value>,
    usage: TokenUsage,
    end: Option<EndReason>,
}

impl AnthropicAnswer {
    /// Takes the data of an event; returns what it adds to the answer.
    ///
    /// # Errors
    /// The provider reports an error, or the event is not what the interface says.
    pub(super) fn take(&mut self, data: &str) -> Result<Vec<AnswerPiece>, AnswerFault> {
        let malformed = |text: String| AnswerFault::Malformed(text);
        let event: Map<String, Value> =
            serde_json::from_str(data).map_err(|error| malformed(error.to_string()))?;
        let event = Value::Object(event);
        let index = event["index"].as_u64().unwrap_or_default();
        let delta = &event["delta"];
        let pieces = match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                let usage = &event["message"]["usage"];
                let input = [
                    "input_tokens",
                    "cache_creation_input_tokens",
                    "cache_read_input_tokens",
                ];
                self.usage.input = input.iter().map(|name| count(&usage[name])).sum();
                self.usage.output = count(&usage["output_tokens"]);
                vec![AnswerPiece::Usage(self.usage)]
            }
            "content_block_start" => self.begin_block(index, &event["content_block"]),
            "content_block_delta" => match delta["type"].as_str().unwrap_or_default() {
                "text_delta" => some_text(string(&delta["text"])).into_iter().collect(),
                "input_json_delta" => {
                    let call = self.calls.get_mut(&index);
                    let call = call.ok_or_else(|| malformed("arguments of no call".to_owned()))?;
                    call.arguments.push_str(&string(&delta["partial_json"]));
                    Vec::new()
                }
                _ => {
                    self.continue_block(index, delta);
                    Vec::new()
                }
            },
            "content_block_stop" => {
                let call = self.calls.remove(&index);
                call.map(|call| AnswerPiece::Call(call.into_call()))
                    .into_iter()
                    .collect()
            }
            "message_delta" => {
                let output = count(&event["usage"]["output_tokens"]);
                self.usage.output = self.usage.output.max(output);
                let reason = delta["stop_reason"].as_str().map(|reason| match reason {
                    "tool_use" => EndReason::Calls,
                    "max_tokens" | "model_context_window_exceeded" => EndReason::Length,
                    "refusal" => EndReason::Refusal,
                    _ => EndReason::Done,
                });
                self.end = reason.or(self.end);
                vec![AnswerPiece::Usage(self.usage)]
            }
            "message_stop" => self.end_pieces(self.end.unwrap_or(EndReason::Done)),
            "error" => {
                return Err(AnswerFault::Reported {
                    kind: string(&event["error"]["type"]),
                    text: string(&event["error"]["message"]),
                });
            }
            // `ping`, and what comes with later versions.
            _ => Vec::new(),
        };
        Ok(pieces)
    }

    fn begin_block(&mut self, index: u64, block: &Value) -> Vec<AnswerPiece> {
        match block["type"].as_str().unwrap_or_default() {
            "tool_use" => {
                // Anthropic sends an empty object here, and the arguments afterwards; others send them whole.
                let input = block["input"].as_object().filter(|it| !it.is_empty());
                let call = PartialCall {
                    id: string(&block["id"]),
                    name: string(&block["name"]),
                    input: input.cloned(),
                    ..PartialCall::default()
                };
                self.calls.insert(index, call);
                Vec::new()
            }
            "text" => some_text(string(&block["text"])).into_iter().collect(),
            "" => Vec::new(),
            _ => {
                self.others.insert(index, block.clone());
                Vec::new()
            }
        }
    }

    /// Adds to a block that is not known: a delta has the fields of its block.
    fn continue_block(&mut self, index: u64, delta: &Value) {
        let Some(Value::Object(block)) = self.others.get_mut(&index) else {
            return;
        };
        add_others(block, delta, &["type"]);
    }

    /// Returns the end of an answer whose reason is known: some servers leave the last event out.
    pub(super) fn at_end(&mut self) -> Option<Vec<AnswerPiece>> {
        self.end.map(|reason| self.end_pieces(reason))
    }

    /// Returns the end, with the calls whose ends did not come.
    fn end_pieces(&mut self, reason: EndReason) -> Vec<AnswerPiece> {
        let calls = std::mem::take(&mut self.calls).into_values();
        let calls = calls.map(|call| AnswerPiece::Call(call.into_call()));
        let others: Vec<_> = std::mem::take(&mut self.others).into_values().collect();
        let others = (!others.is_empty()).then(|| AnswerPiece::Opaque(others.into()));
        calls
            .chain(others)
            .chain([AnswerPiece::End(reason)])
            .collect()
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
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
            ..ModelCall::default()
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
    fn answers_of_servers_that_leave_something_out_are_read() {
        let call = r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"run","input":{}}}"#;
        let whole = r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"run","input":{"a":1}}}"#;
        let arguments = r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}"#;
        let stop = r#"{"type":"content_block_stop","index":1}"#;
        let end = r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":null}"#;
        let last = r#"{"type":"message_stop"}"#;
        let null = r#"{"type":"message_start","message":{"usage":{"input_tokens":null,"output_tokens":3.0}}}"#;
        for events in [
            vec![call, arguments, stop, end, last],
            vec![call, arguments, stop, end],
            vec![call, arguments, end, last],
            vec![call, arguments, end],
            vec![whole, stop, end, last],
            vec![whole, end],
            vec![whole, arguments, stop, end],
            vec![r#"{"type":"message_start"}"#, call, arguments, end],
            vec![null, call, arguments, end, "{}", r#"{"type":7}"#],
            vec![
                call,
                r#"{"type":"content_block_delta","index":1}"#,
                arguments,
                end,
            ],
            vec![
                call,
                r#"{"type":"content_block_start","index":0}"#,
                arguments,
                end,
            ],
        ] {
            let mut answer = AnthropicAnswer::default();
            let mut pieces: Vec<_> = events
                .iter()
                .flat_map(|event| answer.take(event).unwrap())
                .collect();
            if !events.contains(&last) {
                pieces.extend(answer.at_end().unwrap());
            }
            pieces.retain(|piece| !matches!(piece, AnswerPiece::Usage(_)));
            let [AnswerPiece::Call(call), AnswerPiece::End(EndReason::Calls)] = &pieces[..] else {
                panic!("{events:?}: {pieces:?}");
            };
            assert_eq!((&*call.id, &*call.name), ("t", "run"));
            assert_eq!(
                Value::Object(call.arguments.clone()),
                json!({"a": 1}),
                "{events:?}"
            );
        }
        assert_eq!(AnthropicAnswer::default().at_end(), None);
    }

    #[test]
    fn blocks_that_are_not_known_are_kept_for_the_provider() {
        let pieces = results(&[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"h"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"message_stop"}"#,
        ]);
        let kept = json!([{"type": "thinking", "thinking": "hm", "signature": "s"}]);
        let end = AnswerPiece::End(EndReason::Done);
        assert_eq!(pieces.unwrap(), [AnswerPiece::Opaque(kept), end]);
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
                    ..ModelCall::default()
                }],
                opaque: json!([{"type": "thinking", "thinking": "hm", "signature": "s"}]),
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
        assert_eq!(sent[1]["content"].as_array().unwrap().len(), 2);
        assert_eq!(sent[1]["content"][0]["signature"], "s");
        assert_eq!(sent[1]["content"][1]["input"], json!({}));
        assert_eq!(sent[2]["role"], "user");
        assert_eq!(sent[2]["content"][0]["tool_use_id"], "1");
        assert_eq!(sent[2]["content"][0]["cache_control"]["type"], "ephemeral");
    }
}
