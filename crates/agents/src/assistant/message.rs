//! The messages of a conversation, and the pieces of a model's answer. Pure.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The largest conversation that is sent, in bytes of text: what is older is left out.
const CONVERSATION_BYTES_MAX: usize = 600_000;

/// The size to which results of tools are cut where one turn alone is too large, in bytes.
const SHORT: usize = 500;

/// A part of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum ConversationPart {
    /// What the person says.
    Person {
        /// Plain text.
        text: String,
    },
    /// What the model answers.
    Model {
        /// Markdown.
        text: String,
        /// The tools that it calls.
        calls: Vec<ModelCall>,
        /// What the provider has sent besides, in the form of its interface: it wants it back until the turn ends.
        #[serde(skip)]
        opaque: Value,
    },
    /// What came of the calls: one result for each.
    Tools {
        /// In the order of the calls.
        results: Vec<ToolResult>,
    },
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelCall {
    /// The id that its result names.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// Why the arguments cannot be used; they are empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// As that of [`ConversationPart::Model`].
    #[serde(skip)]
    pub opaque: Map<String, Value>,
}

/// What came of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call's id.
    pub call: String,
    /// What the model reads.
    pub text: String,
    /// The images that it has asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ToolImage>,
    /// Whether the tool did not do what it was asked for.
    pub is_error: bool,
}

/// An image in base64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolImage {
    /// Its media type.
    pub mime: String,
    /// Base64.
    pub data: String,
}

/// What a model may be given to call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ToolDescription {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub schema: Map<String, Value>,
}

/// How many tokens requests have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Tokens that were sent, those in the provider's cache included.
    pub input: u64,
    /// Tokens that the model has written.
    pub output: u64,
}

impl std::ops::AddAssign for TokenUsage {
    fn add_assign(&mut self, other: Self) {
        self.input += other.input;
        self.output += other.output;
    }
}

/// A piece of a model's answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AnswerPiece {
    /// Text to add.
    Text(String),
    /// A whole call.
    Call(ModelCall),
    /// What the provider wants back with the answer.
    Opaque(Value),
    /// What the request has cost until now.
    Usage(TokenUsage),
    /// The answer is whole.
    End(EndReason),
}

/// Why a model's answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The answer is complete.
    Done,
    /// It waits for the results of its calls.
    Calls,
    /// The answer is as long as it may be.
    Length,
    /// The model refuses.
    Refusal,
}

/// What is wrong with an event of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AnswerFault {
    /// The provider reports an error: its kind and its text.
    Reported {
        /// The kind, such as `overloaded_error`.
        kind: String,
        /// The text.
        text: String,
    },
    /// It is not what the interface says.
    Malformed(String),
}

/// A call whose arguments still come.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialCall {
    pub(super) id: String,
    pub(super) name: String,
    /// The arguments in JSON, as far as they came.
    pub(super) arguments: String,
    /// The arguments, if they came whole.
    pub(super) input: Option<Map<String, Value>>,
    /// Its fields that are not known here.
    pub(super) others: Map<String, Value>,
}

impl PartialCall {
    /// Says whether the arguments are all there.
    pub(super) fn is_whole(&self) -> bool {
        serde_json::from_str::<Map<String, Value>>(&self.arguments).is_ok()
    }

    /// Returns the call. A call without arguments has an empty text. Some servers send the object as a text in JSON.
    pub(super) fn into_call(self) -> ModelCall {
        let read = match self.arguments.trim() {
            "" => Ok(self.input.map_or(Value::Null, Value::Object)),
            text => serde_json::from_str(text),
        };
        let read = read.and_then(|read| match read {
            Value::String(text) => serde_json::from_str(&text),
            Value::Null => Ok(Map::new()),
            other => serde_json::from_value(other),
        });
        let (arguments, fault) = match read {
            Ok(arguments) => (arguments, None),
            Err(error) => (
                Map::new(),
                Some(format!("the arguments are no JSON object: {error}")),
            ),
        };
        ModelCall {
            id: self.id,
            name: self.name,
            arguments,
            fault,
            opaque: self.others,
        }
    }
}

/// Returns a text as a piece of an answer; none if it is empty.
pub(super) fn some_text(text: String) -> Option<AnswerPiece> {
    (!text.is_empty()).then_some(AnswerPiece::Text(text))
}

/// Adds the fields of an object that are not known to those that came before: texts and lists are continued.
pub(super) fn add_others(others: &mut Map<String, Value>, object: &Value, known: &[&str]) {
    let fields = object.as_object().into_iter().flatten();
    let unknown = fields.filter(|(name, value)| !known.contains(&&***name) && !value.is_null());
    for (name, value) in unknown {
        match (others.get_mut(name), value) {
            (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
            (Some(Value::Array(list)), Value::Array(more)) => list.extend_from_slice(more),
            _ => drop(others.insert(name.clone(), value.clone())),
        }
    }
}

/// Returns a number of tokens: some servers send floats, or nothing.
pub(super) fn count(number: &Value) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast from a float saturates"
    )]
    let of_float = number.as_f64().map(|number| number as u64);
    number.as_u64().or(of_float).unwrap_or_default()
}

impl ConversationPart {
    /// Forgets what the provider wants back: a turn has ended.
    pub(super) fn end_turn(&mut self) {
        if let Self::Model { calls, opaque, .. } = self {
            *opaque = Value::Null;
            calls.iter_mut().for_each(|call| call.opaque.clear());
        }
    }

    /// Returns about how many bytes a request has of it.
    fn size(&self) -> usize {
        match self {
            Self::Person { text } => text.len(),
            Self::Model {
                text,
                calls,
                opaque,
            } => {
                let fields = calls
                    .iter()
                    .flat_map(|call| [&call.arguments, &call.opaque]);
                let fields = fields.map(|it| Value::Object(it.clone()).to_string().len());
                text.len() + fields.sum::<usize>() + opaque.to_string().len()
            }
            Self::Tools { results } => results.iter().map(ToolResult::size).sum(),
        }
    }
}

impl ToolResult {
    fn size(&self) -> usize {
        // An image costs about as many tokens as a few kilobytes of text, however large it is.
        const IMAGE: usize = 6000;
        self.text.len() + self.images.len() * IMAGE
    }

    fn shorten(&mut self) {
        self.images.clear();
        if self.text.len() > SHORT {
            let mut end = SHORT;
            while !self.text.is_char_boundary(end) {
                end -= 1;
            }
            self.text.truncate(end);
            self.text
                .push_str("\n[the rest is left out: it is too long ago]");
        }
    }
}

/// Gives calls whose id is empty, or that of an earlier call, an id of their own: results name their calls by it.
pub(super) fn make_ids_unique(calls: &mut [ModelCall], conversation: &[ConversationPart]) {
    let earlier = conversation.iter().filter_map(|part| match part {
        ConversationPart::Model { calls, .. } => Some(calls),
        _ => None,
    });
    let mut ids: HashSet<_> = earlier.flatten().map(|call| call.id.clone()).collect();
    ids.insert(String::new());
    for call in calls {
        let mut number = ids.len();
        while !ids.insert(call.id.clone()) {
            // Mistral takes only ids of nine letters and digits.
            call.id = format!("call{number:05}");
            number += 1;
        }
    }
}

/// Returns the newest part of a conversation that is not too large: whole turns, and at least the last one. Results in it
/// are cut, the oldest first, where it is too large alone.
pub(super) fn within_limit(messages: &[ConversationPart]) -> Vec<ConversationPart> {
    let mut size: usize = messages.iter().map(ConversationPart::size).sum();
    let mut from = 0;
    while size > CONVERSATION_BYTES_MAX {
        let later = messages.iter().enumerate().skip(from + 1);
        let mut turns = later.filter(|(_, it)| matches!(it, ConversationPart::Person { .. }));
        let Some((next, _)) = turns.next() else {
            break;
        };
        size -= messages[from..next]
            .iter()
            .map(ConversationPart::size)
            .sum::<usize>();
        from = next;
    }
    let mut part = messages[from..].to_vec();
    let results = part.iter_mut().filter_map(|message| match message {
        ConversationPart::Tools { results } => Some(results),
        _ => None,
    });
    for result in results.flatten() {
        if size <= CONVERSATION_BYTES_MAX {
            break;
        }
        let before = result.size();
        result.shorten();
        size -= before.saturating_sub(result.size());
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(text: &str) -> ConversationPart {
        ConversationPart::Person {
            text: text.to_owned(),
        }
    }

    fn result(text: String) -> ConversationPart {
        ConversationPart::Tools {
            results: vec![ToolResult {
                text,
                ..ToolResult::default()
            }],
        }
    }

    #[test]
    fn what_is_too_old_is_left_out_in_whole_turns() {
        let big = "x".repeat(CONVERSATION_BYTES_MAX / 2);
        let messages = [
            person("first"),
            result(big.clone()),
            person("second"),
            result(big),
            person("third"),
        ];
        assert_eq!(within_limit(&messages), messages[2..]);
        assert_eq!(within_limit(&messages[2..]), messages[2..]);
    }

    #[test]
    fn a_turn_that_is_too_large_alone_loses_its_oldest_results() {
        let big = "ä".repeat(CONVERSATION_BYTES_MAX / 3);
        let messages = [person("first"), result(big.clone()), result(big)];
        let part = within_limit(&messages);
        assert_eq!(part[2], messages[2]);
        let ConversationPart::Tools { results } = &part[1] else {
            panic!("{part:?}");
        };
        assert!(results[0].text.len() < 600, "{}", results[0].text.len());
    }

    #[test]
    fn calls_of_one_id_or_none_are_told_apart() {
        let call = |id: &str| ModelCall {
            id: id.to_owned(),
            ..PartialCall::default().into_call()
        };
        let conversation = [ConversationPart::Model {
            text: String::new(),
            calls: vec![call("a"), call("call00003")],
            opaque: Value::Null,
        }];
        let mut calls = ["b", "", "a", "b", "call00003", ""].map(call);
        make_ids_unique(&mut calls, &conversation);
        assert_eq!((&*calls[0].id, &*calls[1].id), ("b", "call00004"));
        let ids: HashSet<_> = calls.iter().map(|call| &*call.id).collect();
        assert_eq!(ids.len(), 6);
        assert!(!ids.contains("a") && !ids.contains("call00003"));
    }

    #[test]
    fn arguments_that_are_no_json_are_a_fault_of_the_call() {
        let call = |arguments: &str| {
            PartialCall {
                arguments: arguments.to_owned(),
                ..PartialCall::default()
            }
            .into_call()
        };
        assert_eq!(call(" ").fault, None);
        assert_eq!(call("{\"a\": 1}").arguments["a"], 1);
        assert_eq!(call("null").fault, None);
        for bad in ["{\"a\": ", "[1]", "7", "{}{}"] {
            let call = call(bad);
            assert!(call.fault.is_some() && call.arguments.is_empty(), "{bad}");
        }
    }
}
