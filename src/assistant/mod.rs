//! An assistant that works in notebooks: a model, asked over its provider's interface, with the tools of `nb mcp`.
//!
//! | file | content |
//! |---|---|
//! | `message` | the messages of a conversation, and the pieces of a model's answer. Pure |
//! | `anthropic`, `openai` | the two interfaces: requests as JSON, answers from events. Pure |
//! | `provider` | which interface, key and model; requests, and what goes wrong with them |
//! | `tools` | the tools of `nb mcp`, as a client of the Model Context Protocol |
//! | `approval` | which calls the person is asked about, and what a call is shown as. Pure |
//! | `turn` | a message, answered with as many requests and calls as it takes |

mod anthropic;
mod approval;
mod message;
mod openai;
mod provider;
mod tools;
mod turn;

pub use message::{ConversationPart, TokenUsage};
pub use provider::{ModelError, Provider};
pub use turn::{Assistant, AssistantError, AssistantOptions};
