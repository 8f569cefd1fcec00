//! OpenAI's chat completions, which many providers and local servers understand. Pure.
//!
//! Source: <https://platform.openai.com/docs/api-reference/chat>.

use serde_json::{Map, Value, json};

use super::message::{
    AnswerFault, AnswerPiece, ConversationPart, EndReason, PartialCall, TokenUsage,
    ToolDescription, add_others, count, some_text,
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
        ConversationPart::Model {
            text,
            calls,
            opaque,
        } => {
            let mut sent = json!({"role": "assistant", "content": text});
            let calls = calls.iter().map(|call| {
                let arguments = Value::Object(call.arguments.clone()).to_string();
                let function = json!({"name": call.name, "arguments": arguments});
                let mut sent = json!({"id": call.id, "type": "function", "function": function});
                give_back(&mut sent, &call.opaque);
                sent
            });
            let calls: Vec<_> = calls.collect();
            if !calls.is_empty() {
                sent["tool_calls"] = calls.into();
            }
            if let Some(opaque) = opaque.as_object() {
                give_back(&mut sent, opaque);
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

/// Adds fields of a provider's own to what it gets back.
fn give_back(sent: &mut Value, opaque: &Map<String, Value>) {
    for (name, value) in opaque {
        sent[name] = value.clone();
    }
}

/// Reads the events of an answer. Servers that say they have this interface differ in much of it, so each event is read as
/// plain JSON, and what it lacks counts as empty.
#[derive(Debug, Default)]
pub(super) struct OpenAiAnswer {
    /// The calls whose arguments still come, each with its index if it has one.
    calls: Vec<(Option<u64>, PartialCall)>,
    /// The fields of the message that are not known here.
    others: Map<String, Value>,
    end: Option<EndReason>,
}

impl OpenAiAnswer {
    /// Takes the data of an event; returns what it adds to the answer.
    ///
    /// # Errors
    /// The provider reports an error, or the event is not what the interface says.
    pub(super) fn take(&mut self, data: &str) -> Result<Vec<AnswerPiece>, AnswerFault> {
        match data.trim() {
            "" => return Ok(Vec::new()),
            END => return Ok(self.end_pieces(self.end.unwrap_or(EndReason::Done))),
            _ => {}
        }
        let malformed = |text: String| AnswerFault::Malformed(text);
        let chunk: Map<String, Value> =
            serde_json::from_str(data).map_err(|error| malformed(error.to_string()))?;
        let chunk = Value::Object(chunk);
        if !chunk["error"].is_null() {
            return Err(reported(&chunk["error"]));
        }
        let mut pieces = Vec::new();
        for choice in elements(&chunk["choices"]) {
            let delta = &choice["delta"];
            pieces.extend(some_text(text_of(&delta["content"])));
            for part in elements(&delta["tool_calls"]).filter(|it| it.is_object()) {
                self.take_call(part)?;
            }
            // As it was before there were several calls.
            if delta["function_call"].is_object() {
                self.take_call(&json!({"function": delta["function_call"]}))?;
            }
            let known = ["role", "content", "tool_calls", "function_call"];
            add_others(&mut self.others, delta, &known);
            if let Some(reason) = choice["finish_reason"].as_str() {
                self.end = Some(match reason {
                    "tool_calls" | "function_call" => EndReason::Calls,
                    "length" => EndReason::Length,
                    "content_filter" => EndReason::Refusal,
                    _ => EndReason::Done,
                });
            }
        }
        if chunk["usage"].is_object() {
            pieces.push(AnswerPiece::Usage(TokenUsage {
                input: count(&chunk["usage"]["prompt_tokens"]),
                output: count(&chunk["usage"]["completion_tokens"]),
            }));
        }
        Ok(pieces)
    }

    /// Takes a part of a call.
    fn take_call(&mut self, part: &Value) -> Result<(), AnswerFault> {
        let index = part["index"].as_u64();
        let id = part["id"].as_str().unwrap_or_default();
        let function = &part["function"];
        let name = function["name"].as_str().unwrap_or_default();
        let continued = self
            .calls
            .iter()
            .rposition(|(its, _)| index.is_none() || *its == index)
            .filter(|at| !begins_another(&self.calls[*at].1, id, name));
        let at = match continued {
            Some(at) => at,
            None if self.calls.len() >= MOST_CALLS => {
                let text = format!("more than {MOST_CALLS} calls at once");
                return Err(AnswerFault::Malformed(text));
            }
            None => {
                self.calls.push((index, PartialCall::default()));
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at].1;
        if call.id.is_empty() {
            call.id.push_str(id);
        }
        if call.name != name {
            call.name.push_str(name);
        }
        match &function["arguments"] {
            Value::String(text) => call.arguments.push_str(text),
            Value::Null => {}
            whole => call.arguments = whole.to_string(),
        }
        add_others(&mut call.others, part, &["index", "id", "type", "function"]);
        Ok(())
    }

    /// Returns the end of an answer whose reason is known: some servers leave the last event out.
    pub(super) fn at_end(&mut self) -> Option<Vec<AnswerPiece>> {
        self.end.map(|reason| self.end_pieces(reason))
    }

    fn end_pieces(&mut self, reason: EndReason) -> Vec<AnswerPiece> {
        let calls = std::mem::take(&mut self.calls).into_iter();
        let calls = calls.map(|(_, call)| AnswerPiece::Call(call.into_call()));
        let others = std::mem::take(&mut self.others);
        let others = (!others.is_empty()).then(|| AnswerPiece::Opaque(others.into()));
        calls
            .chain(others)
            .chain([AnswerPiece::End(reason)])
            .collect()
    }
}

/// Says whether a part with this id and this name is of another call than the one with the same index: some servers give
/// all calls the index 0, or none.
fn begins_another(call: &PartialCall, id: &str, name: &str) -> bool {
    match id.is_empty() || call.id.is_empty() {
        true => !name.is_empty() && call.is_whole(),
        false => call.id != id,
    }
}

/// Returns the elements of a list; none of what is no list.
fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns a text, or the texts of a list of parts.
fn text_of(content: &Value) -> String {
    let parts = elements(content).filter_map(|part| part["text"].as_str());
    content.as_str().into_iter().chain(parts).collect()
}

/// Returns the error that a chunk reports: its kind is a status if there is one, such as 529, else a word.
fn reported(error: &Value) -> AnswerFault {
    let word = |value: &Value| match value {
        Value::String(word) => Some(word.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let (kind, code) = (word(&error["type"]), word(&error["code"]));
    let status = code.filter(|code| kind.is_none() || code.parse::<u16>().is_ok());
    let message = error["message"].as_str().or_else(|| error.as_str());
    AnswerFault::Reported {
        text: message.unwrap_or_default().to_owned(),
        kind: status.or(kind).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assistant::message::{ModelCall, ToolImage, ToolResult};

    #[test]
    fn calls_are_put_together_by_their_indexes() {
        let events = [
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"Hi"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"one","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"two","arguments":"{\"x\""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":":1}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}"#,
            " [DONE]",
        ];
        let expected = r#"Hi 7+3 a:one{} b:two{"x":1} Calls"#;
        assert_eq!(read(&events.map(str::to_owned)), expected);
    }

    /// Returns what comes of an answer in words: its text, its calls, why it ended.
    fn read(events: &[String]) -> String {
        let mut answer = OpenAiAnswer::default();
        let mut pieces = Vec::new();
        for event in events {
            match answer.take(event) {
                Ok(more) => pieces.extend(more),
                Err(fault) => return format!("{fault:?}"),
            }
        }
        if !pieces.iter().any(|it| matches!(it, AnswerPiece::End(_))) {
            pieces.extend(answer.at_end().unwrap_or_default());
        }
        let words = pieces.into_iter().map(|piece| match piece {
            AnswerPiece::Text(text) => text,
            AnswerPiece::Call(call) => {
                let arguments = Value::Object(call.arguments);
                let opaque = match call.opaque.is_empty() {
                    true => String::new(),
                    false => Value::Object(call.opaque).to_string(),
                };
                let fault = call.fault.map_or("", |_| "!");
                format!("{}:{}{arguments}{opaque}{fault}", call.id, call.name)
            }
            AnswerPiece::Opaque(fields) => format!("<{fields}>"),
            AnswerPiece::Usage(usage) => format!("{}+{}", usage.input, usage.output),
            AnswerPiece::End(reason) => format!("{reason:?}"),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// Returns an event for each choice.
    fn events(choices: &[&str]) -> Vec<String> {
        let event = |choice: &&str| format!("{{\"choices\":[{choice}]}}");
        choices.iter().map(event).collect()
    }

    /// Returns a choice with these parts of calls.
    fn calls(parts: &str) -> String {
        format!(r#"{{"delta":{{"tool_calls":[{parts}]}}}}"#)
    }

    #[test]
    fn answers_of_servers_that_differ_from_the_interface_are_read() {
        let stop = r#"{"delta":{},"finish_reason":"stop"}"#;
        let end = r#"{"delta":{},"finish_reason":"tool_calls"}"#;
        let one = r#""function":{"name":"run","arguments":"{\"a\":1}"}"#;
        let two = r#""function":{"name":"run","arguments":"{\"a\":2}"}"#;
        let both = r#"a:run{"a":1} b:run{"a":2} Calls"#;
        // The choices, and what comes of them.
        let cases: Vec<(Vec<String>, &str)> = vec![
            // No index: one call in each event, or both in one, with and without ids.
            (vec![calls(&format!(r#"{{"id":"a",{one}}}"#)), calls(&format!(r#"{{"id":"b",{two}}}"#)), end.into()], both),
            (vec![calls(&format!(r#"{{"id":"a",{one}}},{{"id":"b",{two}}}"#)), end.into()], both),
            (vec![calls(&format!("{{{one}}},{{{two}}}")), end.into()], r#":run{"a":1} :run{"a":2} Calls"#),
            // Each has the index 0, or null.
            (vec![calls(&format!(r#"{{"index":0,"id":"a",{one}}}"#)), calls(&format!(r#"{{"index":0,"id":"b",{two}}}"#)), end.into()], both),
            (vec![calls(&format!(r#"{{"index":0,{one}}}"#)), calls(&format!(r#"{{"index":0,{two}}}"#)), end.into()], r#":run{"a":1} :run{"a":2} Calls"#),
            (vec![calls(&format!(r#"{{"index":null,"id":"a",{one}}},{{"index":null,"id":"b",{two}}}"#)), end.into()], both),
            // The same id for all, with indexes.
            (vec![calls(&format!(r#"{{"index":0,"id":"a",{one}}},{{"index":1,"id":"a",{two}}}"#)), end.into()], r#"a:run{"a":1} a:run{"a":2} Calls"#),
            // Parts of two calls in turns.
            (
                vec![
                    calls(r#"{"index":0,"id":"a","function":{"name":"run","arguments":"{\"a\""}},{"index":1,"id":"b","function":{"name":"run","arguments":"{"}}"#),
                    calls(r#"{"index":0,"function":{"arguments":":1}"}},{"index":1,"function":{"arguments":"\"a\":2}"}}"#),
                    end.into(),
                ],
                both,
            ),
            // The id and the name are in each part, or an empty id and name are.
            (
                vec![
                    calls(r#"{"index":0,"id":"a","function":{"name":"run","arguments":"{\"a\""}}"#),
                    calls(r#"{"index":0,"id":"a","function":{"name":"run","arguments":":1}"}}"#),
                    end.into(),
                ],
                r#"a:run{"a":1} Calls"#,
            ),
            (
                vec![
                    calls(r#"{"index":0,"id":"a","function":{"name":"run","arguments":"{\"a\""}}"#),
                    calls(r#"{"index":0,"id":"","function":{"name":"","arguments":":1}"}}"#),
                    end.into(),
                ],
                r#"a:run{"a":1} Calls"#,
            ),
            // A name in two parts, an id after the name.
            (vec![calls(r#"{"index":0,"function":{"name":"ru"}}"#), calls(r#"{"index":0,"id":"a","function":{"name":"n"}}"#), end.into()], "a:run{} Calls"),
            // Arguments as an object, as a text in JSON, null, none, and no JSON.
            (vec![calls(r#"{"index":0,"id":"a","function":{"name":"run","arguments":{"a":1}}}"#), end.into()], r#"a:run{"a":1} Calls"#),
            (vec![calls(r#"{"id":"a","function":{"name":"run","arguments":"\"{\\\"a\\\":1}\""}}"#), end.into()], r#"a:run{"a":1} Calls"#),
            (vec![calls(r#"{"id":"a","function":{"name":"run","arguments":null}}"#), end.into()], "a:run{} Calls"),
            (vec![calls(r#"{"id":"a","function":{"name":"run","arguments":"null"}}"#), end.into()], "a:run{} Calls"),
            (vec![calls(r#"{"id":"a","function":{"name":"run"}}"#), end.into()], "a:run{} Calls"),
            (vec![calls(r#"{"id":"a","function":{"name":"run","arguments":"{\"a\":"}}"#), end.into()], "a:run{}! Calls"),
            (vec![calls(r#"{"id":"a","function":{"name":"run","arguments":"[1]"}}"#), end.into()], "a:run{}! Calls"),
            // No function, no id, no type that is right.
            (vec![calls(&format!(r#"{{"index":0,"id":"a",{one}}},{{"index":0,"function":null}}"#)), end.into()], r#"a:run{"a":1} Calls"#),
            (vec![calls(&format!(r#"{{"index":0,"id":7,{one}}}"#)), end.into()], r#":run{"a":1} Calls"#),
            (vec![calls("null,3"), stop.into()], "Done"),
            // The end says "stop" although there are calls.
            (vec![calls(&format!(r#"{{"id":"a",{one}}}"#)), stop.into()], r#"a:run{"a":1} Done"#),
            // The call of old.
            (
                vec![
                    r#"{"delta":{"function_call":{"name":"run","arguments":"{\"a\""}}}"#.into(),
                    r#"{"delta":{"function_call":{"arguments":":1}"}},"finish_reason":"function_call"}"#.into(),
                ],
                r#":run{"a":1} Calls"#,
            ),
            // Deltas that are null or not there, content in parts, an end that is a number.
            (vec![r#"{"delta":{"content":"hi"}}"#.into(), r#"{"delta":null,"finish_reason":"stop"}"#.into()], "hi Done"),
            (vec![r#"{"delta":{"content":"hi"}}"#.into(), r#"{"finish_reason":"stop"}"#.into()], "hi Done"),
            (vec![r#"{"delta":{"content":[{"type":"text","text":"h"},{"type":"text","text":"i"},{"type":"x"}]}}"#.into(), stop.into()], "hi Done"),
            (vec![r#"{"delta":{"content":7,"tool_calls":{}}}"#.into(), r#"{"finish_reason":7}"#.into(), stop.into()], "Done"),
            (vec!["null".into(), r#"{"delta":{"content":"hi","role":null}}"#.into(), stop.into()], "hi Done"),
            // What providers want back: texts are put together, what is null is left out.
            (
                vec![
                    r#"{"delta":{"reasoning_content":"th"}}"#.into(),
                    r#"{"delta":{"reasoning_content":"ink","content":null,"refusal":null}}"#.into(),
                    r#"{"delta":{"reasoning_details":[{"index":0}]}}"#.into(),
                    r#"{"delta":{"reasoning_details":[{"index":1}]}}"#.into(),
                    calls(&format!(r#"{{"index":0,"id":"a","extra_content":{{"google":{{"thought_signature":"s"}}}},{one}}}"#)),
                    end.into(),
                ],
                r#"a:run{"a":1}{"extra_content":{"google":{"thought_signature":"s"}}} <{"reasoning_content":"think","reasoning_details":[{"index":0},{"index":1}]}> Calls"#,
            ),
        ];
        for (choices, expected) in cases {
            let choices: Vec<_> = choices.iter().map(String::as_str).collect();
            assert_eq!(read(&events(&choices)), expected, "{choices:?}");
        }
        // Events without choices.
        let hi = r#"{"choices":[{"delta":{"content":"hi"}}]}"#;
        let whole = format!(r#"{{"choices":[{stop}]}}"#);
        for (event, expected) in [
            (r#"{"choices":null}"#, "hi Done"),
            (r#"{"choices":{}}"#, "hi Done"),
            ("{}", "hi Done"),
            ("", "hi Done"),
            (r#"{"error":null}"#, "hi Done"),
            (r#"{"choices":[],"usage":null}"#, "hi Done"),
            (
                r#"{"choices":[],"usage":{"prompt_tokens":3.0,"completion_tokens":1}}"#,
                "hi 3+1 Done",
            ),
            (
                r#"{"usage":{"prompt_tokens":null,"completion_tokens":"1"}}"#,
                "hi 0+0 Done",
            ),
            (
                r#"{"usage":{"prompt_tokens":-1,"completion_tokens":1e300}}"#,
                "hi 0+18446744073709551615 Done",
            ),
        ] {
            assert_eq!(
                read(&[hi, event, &whole].map(str::to_owned)),
                expected,
                "{event}"
            );
        }
        // Errors, and what is no event.
        for event in [
            r#"{"error":"no"}"#,
            r#"{"error":{"message":"no","type":7}}"#,
        ] {
            assert!(read(&[event.to_owned()]).contains("Reported"), "{event}");
        }
        for event in ["[]", "7", "{", "\"hi\""] {
            assert!(read(&[event.to_owned()]).contains("Malformed"), "{event}");
        }
    }

    #[test]
    fn a_provider_gets_back_what_it_has_sent_until_the_turn_ends() {
        let mut message = ConversationPart::Model {
            text: String::new(),
            calls: vec![ModelCall {
                opaque: [("extra_content".to_owned(), json!({"google": 1}))]
                    .into_iter()
                    .collect(),
                ..ModelCall::default()
            }],
            opaque: json!({"reasoning_content": "think"}),
        };
        let sent = |message: &ConversationPart| {
            let body = request("m", "s", &[], std::slice::from_ref(message));
            body["messages"][1].clone()
        };
        let back = sent(&message);
        assert_eq!(back["reasoning_content"], "think");
        assert_eq!(back["tool_calls"][0]["extra_content"], json!({"google": 1}));
        message.end_turn();
        let later = sent(&message).to_string();
        assert!(
            !later.contains("think") && !later.contains("google"),
            "{later}"
        );
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
