//! Who acts: parsed once, from what was given, the environment and the settings.

use sha2::{Digest, Sha256};

use super::company::is_human;
use crate::kernel::variables::Variables;
use crate::project::event::actor_id;

/// What agents leave in the environment of the commands that they run.
const MARKS: [(&str, &str); 7] = [
    ("CLAUDECODE", "claude"),
    ("CODEX_SANDBOX", "codex"),
    ("CODEX_SANDBOX_NETWORK_DISABLED", "codex"),
    ("CODEX_THREAD_ID", "codex"),
    ("CURSOR_AGENT", "cursor"),
    ("GEMINI_CLI", "gemini"),
    ("OPENCODE", "opencode"),
];

/// The variables in which an agent says which of its sessions runs a command.
const SESSIONS: [(&str, &str); 2] = [
    ("CLAUDE_CODE_SESSION_ID", "claude"),
    ("CODEX_THREAD_ID", "codex"),
];

/// Who acts, and whether that is a person at a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The name that people read.
    pub name: String,
    /// The actor's id: the name, and the session of an agent that has no name but its mark's. Two sessions of
    /// one agent are two actors: each is told what the other did.
    pub id: String,
    /// Whether a person reads what the command prints and can answer it. An agent's shell may be a
    /// terminal too, with nobody at it.
    pub is_person: bool,
}

impl Actor {
    /// Returns the actor by what was given (`--as`), `NB_AS`, an agent's mark in the environment, what
    /// the project's settings say, else by whether stdout is a terminal. This is the only place that
    /// decides whether somebody is a person.
    pub fn of(
        given: Option<&str>,
        variables: &dyn Variables,
        configured: Option<&str>,
        on_terminal: bool,
    ) -> Self {
        let name = who(given, variables, configured, on_terminal);
        let has_mark = mark(variables).is_some();
        // Who calls himself the human is one, also in a shell that an agent's program has opened.
        let is_agent = !is_human(&name) && (has_mark || is_agent(&name));
        let is_marked = mark(variables) == Some(name.as_str());
        let session = is_marked.then(|| session(&name, variables)).flatten();
        Self {
            is_person: on_terminal && !is_agent,
            id: actor_id(&name, session.as_deref()),
            name,
        }
    }
}

/// Returns which session of an agent the environment names: the beginning of a hash, since the session's own
/// id may open it.
fn session(agent: &str, variables: &dyn Variables) -> Option<String> {
    let mut own = SESSIONS.iter().filter(|(_, name)| *name == agent);
    let value = own.find_map(|(variable, _)| variables.get(variable))?;
    let digest = Sha256::digest(value.as_encoded_bytes());
    let hash = hex::encode(digest);
    hash.get(..8).map(str::to_owned)
}

/// Says whether a name is an agent's: one that its mark gives, or the one of those without a mark.
fn is_agent(name: &str) -> bool {
    name == AGENT || MARKS.iter().any(|(_, agent)| *agent == name)
}

/// Returns the name of the agent whose mark is in the environment.
fn mark(variables: &dyn Variables) -> Option<&'static str> {
    let (_, name) = MARKS
        .iter()
        .find(|(mark, _)| variables.get(mark).is_some())?;
    Some(name)
}

/// Who acts off a terminal and has no other name.
const AGENT: &str = "agent";

/// Returns the name under which a command acts: what was given (`--as`), `NB_AS`, an agent's
/// mark, what the project's settings say, else `human` on a terminal and `agent` off it.
fn who(
    given: Option<&str>,
    variables: &dyn Variables,
    configured: Option<&str>,
    on_terminal: bool,
) -> String {
    let given = given
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned);
    let set = || {
        variables
            .get("NB_AS")
            .map(|name| name.to_string_lossy().into_owned())
    };
    let otherwise = if on_terminal { "human" } else { AGENT };
    given
        .or_else(set)
        .or_else(|| mark(variables).map(str::to_owned))
        .or_else(|| configured.map(str::to_owned))
        .unwrap_or_else(|| otherwise.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_given_name_wins_over_the_environment() {
        let marked = HashMap::from([("CLAUDECODE", "1")]);
        let named = HashMap::from([("CLAUDECODE", "1"), ("NB_AS", "ada")]);
        let eve = Some("eve");
        assert_eq!(who(Some("bob"), &named, eve, true), "bob");
        assert_eq!(who(Some(" "), &named, eve, true), "ada");
        assert_eq!(who(None, &marked, eve, true), "claude");
        assert_eq!(who(None, &HashMap::new(), eve, true), "eve");
        assert_eq!(who(None, &HashMap::new(), None, true), "human");
        assert_eq!(who(None, &HashMap::new(), None, false), "agent");
        assert!(is_agent("agent") && is_agent("claude"));
        assert!(!is_agent("human") && !is_agent("ada"));
    }

    #[test]
    fn two_sessions_of_an_agent_are_two_actors_of_one_name() {
        let in_session = |id| HashMap::from([("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", id)]);
        let actor =
            |given, variables: &HashMap<&str, &str>| Actor::of(given, variables, None, false);
        let (one, other) = (actor(None, &in_session("1")), actor(None, &in_session("2")));
        assert_eq!((&*one.name, &*other.name), ("claude", "claude"));
        assert_ne!(one.id, other.id);
        assert_eq!(one.id, actor(None, &in_session("1")).id);
        assert!(!one.id.contains("#1") && one.id.starts_with("claude#"));
        // Who gives a name is that name, in whichever session.
        assert_eq!(actor(Some("ada"), &in_session("1")).id, "ada");
        // Another agent's session says nothing.
        let codex = HashMap::from([("CODEX_SANDBOX", "1"), ("CLAUDE_CODE_SESSION_ID", "1")]);
        assert_eq!(actor(None, &codex).id, "codex");
    }

    #[test]
    fn a_person_is_at_a_terminal_and_no_agents_mark_is_in_the_environment() {
        let none = HashMap::new();
        let marked = HashMap::from([("CODEX_SANDBOX", "seatbelt")]);
        let named = HashMap::from([("CLAUDECODE", "1"), ("NB_AS", "human")]);
        let is_person = |given, variables: &HashMap<&str, &str>, on_terminal| {
            Actor::of(given, variables, None, on_terminal).is_person
        };
        assert!(is_person(None, &none, true));
        assert!(is_person(Some("ada"), &none, true));
        assert!(is_person(None, &named, true));
        assert!(!is_person(None, &none, false));
        assert!(!is_person(Some("human"), &none, false));
        // A pseudo-terminal makes no person of an agent, whatever name it gives itself.
        assert!(!is_person(None, &marked, true));
        assert!(!is_person(Some("ada"), &marked, true));
        assert!(!is_person(Some("claude"), &none, true));
        assert!(!is_person(Some("agent"), &none, true));
    }
}
