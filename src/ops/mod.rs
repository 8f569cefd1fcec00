//! The use cases, each once. Every adapter calls these.
