//! An assistant that works in notebooks: a model, asked over its provider's interface, with the tools of `nb mcp`.
//!
//! | file | content |
//! |---|---|
//! | `message` | the messages of a conversation, and the pieces of a model's answer. Pure |
//! | `anthropic`, `openai` | the two interfaces: requests as JSON, answers from events. Pure |
//! | `provider` | which interface, key and model; requests, and what goes wrong with them |
//! | `tools` | the tools of `nb mcp`, as a client of the Model Context Protocol |
//! | `approval` | what a call is shown as, and how the person is asked about it. Pure |
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
