//! The actor of a command, from its arguments, the environment and the settings.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::kernel::variables::Variables;
use crate::project::event::{actor_id, split_actor};

/// The variables that agents set for the commands that they run, each with the agent's name.
const MARKS: [(&str, &str); 7] = [
    ("CLAUDECODE", "claude"),
    ("CODEX_SANDBOX", "codex"),
    ("CODEX_SANDBOX_NETWORK_DISABLED", "codex"),
    ("CODEX_THREAD_ID", "codex"),
    ("CURSOR_AGENT", "cursor"),
    ("GEMINI_CLI", "gemini"),
    ("OPENCODE", "opencode"),
];

/// The variables in which an agent passes the id of its session.
const SESSIONS: [(&str, &str); 2] = [
    ("CLAUDE_CODE_SESSION_ID", "claude"),
    ("CODEX_THREAD_ID", "codex"),
];

/// The actor who edits or runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// The one human, at a terminal or at a front end.
    Human {
        /// The front end.
        via: Option<String>,
    },
    /// An agent, or another actor with a name.
    Agent {
        /// The name that people read.
        name: String,
        /// The agent's session, if the name comes from the agent's environment. Two sessions of one agent are
        /// two actors: each is notified of what the other did.
        session: Option<String>,
    },
    /// A client that only the kernel's messages show, without a known name.
    Unknown,
}

/// The id of the human at a terminal.
const HUMAN: &str = "human";

/// The names by which `nb` shows itself and unknown actors: no actor may have one.
const RESERVED: [&str; 3] = ["nb", "somebody", UNKNOWN];

/// The longest name of a program's actor, in characters.
const LONGEST_NAME: usize = 40;

/// The name that is shown for an unknown actor.
const UNKNOWN: &str = "another client";

impl Actor {
    /// Returns the actor of a command, and whether a person reads its output and can answer it. The actor
    /// comes from the argument (`--as`), else `NB_AS`, an agent's mark in the environment or the project's
    /// settings, else from whether stdout is a terminal. An agent's shell may be a terminal too, without a
    /// person.
    ///
    /// This is the only place that decides whether an actor is a person.
    pub fn of_command(
        argument: Option<&str>,
        variables: &dyn Variables,
        configured: Option<&str>,
        on_terminal: bool,
    ) -> (Self, bool) {
        let name = chosen_name(argument, variables, configured, on_terminal);
        let mut actor = Self::from(&*name);
        // With the name `human` the actor is a person even in a shell that an agent's program has
        // opened.
        let agent_by_mark = agent_by_mark(variables);
        let is_agent = !actor.is_human() && (agent_by_mark.is_some() || is_agent(&name));
        if let Self::Agent { session, .. } = &mut actor
            && agent_by_mark == Some(name.as_str())
        {
            *session = self::session(&name, variables);
        }
        (actor, on_terminal && !is_agent)
    }

    /// Returns the actor with an id, as the journal records it.
    ///
    /// A client that is connected to the kernel directly uses its library's default as its username,
    /// `username` or, in VS Code, a UUID: these are not names of actors.
    pub fn parse(id: Option<&str>) -> Self {
        let Some(id) = id.filter(|id| !matches!(*id, "" | "username" | UNKNOWN)) else {
            return Self::Unknown;
        };
        let via = id
            .strip_prefix("human (")
            .and_then(|it| it.strip_suffix(')'));
        if id == HUMAN || via.is_some() {
            let via = via.map(str::to_owned);
            return Self::Human { via };
        }
        if uuid::Uuid::try_parse(id).is_ok() {
            return Self::Unknown;
        }
        let (name, session) = split_actor(id);
        Self::Agent {
            name: name.to_owned(),
            session: session.map(str::to_owned),
        }
    }

    /// Returns the actor with the username of a client that is connected to the kernel directly, which may call
    /// itself as it likes: it is no person behind a front end.
    pub fn of_username(username: Option<&str>) -> Self {
        let actor = Self::parse(username);
        match actor.is_human() || actor.is_reserved() {
            true => Self::Unknown,
            false => actor,
        }
    }

    /// Returns the name that people read; [`Display`](fmt::Display) writes the whole id.
    pub fn name(&self) -> String {
        match self {
            Self::Agent { name, .. } => name.clone(),
            other => other.to_string(),
        }
    }

    /// Returns whether the actor is the human, at any front end.
    pub fn is_human(&self) -> bool {
        matches!(self, Self::Human { .. })
    }

    /// Returns whether this is an agent of which neither the environment nor the settings say the name.
    pub fn is_unnamed_agent(&self) -> bool {
        matches!(self, Self::Agent { name, session: None } if name == AGENT)
    }

    /// Returns whether this is no actor of a command: its name is one that `nb` uses for itself, for an unknown
    /// actor or, in other letters, for a person.
    pub fn is_reserved(&self) -> bool {
        let Self::Agent { name, .. } = self else {
            return *self == Self::Unknown;
        };
        let name = name.to_lowercase();
        let words = name.split(|c: char| !c.is_alphanumeric());
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        words.first() == Some(&HUMAN) || RESERVED.contains(&&*words.join(" "))
    }

    /// Returns the name of an agent whose program has this name: that of its marks in the environment if
    /// these are known, so that its commands and its other requests have one name. `None` if the name has
    /// no letter or digit, or is reserved: a program is no person, also if it calls itself one.
    pub fn name_of_client(program: &str) -> Option<String> {
        let program = program.to_lowercase();
        let mark = MARKS.iter().find(|(_, name)| program.starts_with(name));
        if let Some((_, name)) = mark {
            return Some((*name).to_owned());
        }
        let words = program.split(|c: char| !c.is_alphanumeric());
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        let name: String = words.join("-").chars().take(LONGEST_NAME).collect();
        let actor = Self::from(&*name);
        (matches!(actor, Self::Agent { .. }) && !actor.is_reserved()).then_some(name)
    }

    /// Returns whether two actors have the same name; the human has one name at all front ends.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Agent { name: one, .. }, Self::Agent { name: other, .. }) => one == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Returns whether `by` is this actor. If one of the two sessions is not known, only the names are
    /// compared.
    pub fn has_done(&self, by: &Self) -> bool {
        let sessions = match (self, by) {
            (Self::Agent { session: one, .. }, Self::Agent { session: other, .. }) => {
                one.as_ref().zip(other.as_ref())
            }
            _ => None,
        };
        self.is_same(by) && sessions.is_none_or(|(one, other)| one == other)
    }

    /// Returns whether a word selects this actor: a name, `human` for the human at any front end, or
    /// `agent` for all agents.
    pub fn is_meant(&self, word: &str) -> bool {
        self.is_same(&word.into()) || (word == AGENT && matches!(self, Self::Agent { .. }))
    }
}

impl From<&str> for Actor {
    fn from(id: &str) -> Self {
        Self::parse(Some(id))
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Human { via: None } => f.write_str(HUMAN),
            Self::Human { via: Some(via) } => write!(f, "{HUMAN} ({via})"),
            Self::Agent { name, session } => f.write_str(&actor_id(name, session.as_deref())),
            Self::Unknown => f.write_str(UNKNOWN),
        }
    }
}

/// Returns the agent's session according to the environment, as the beginning of a hash: the session's own
/// id may give access to it.
fn session(agent: &str, variables: &dyn Variables) -> Option<String> {
    let mut own = SESSIONS.iter().filter(|(_, name)| *name == agent);
    let value = own.find_map(|(variable, _)| variables.get(variable))?;
    let digest = Sha256::digest(value.as_encoded_bytes());
    let hash = hex::encode(digest);
    hash.get(..8).map(str::to_owned)
}

/// Says whether a name is an agent's: one of those that a mark gives, or the default name of
/// agents.
fn is_agent(name: &str) -> bool {
    name == AGENT || MARKS.iter().any(|(_, agent)| *agent == name)
}

/// Returns the name of the agent whose mark is in the environment.
fn agent_by_mark(variables: &dyn Variables) -> Option<&'static str> {
    let (_, name) = MARKS
        .iter()
        .find(|(mark, _)| variables.get(mark).is_some())?;
    Some(name)
}

/// The default name of an actor whose stdout is not a terminal.
const AGENT: &str = "agent";

/// Returns the name under which a command acts: the argument (`--as`), `NB_AS`, an agent's mark, or
/// the project's settings; else `human` if stdout is a terminal, or `agent`.
fn chosen_name(
    argument: Option<&str>,
    variables: &dyn Variables,
    configured: Option<&str>,
    on_terminal: bool,
) -> String {
    let argument = argument
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned);
    let set = || {
        variables
            .get("NB_AS")
            .map(|name| name.to_string_lossy().into_owned())
    };
    let default = if on_terminal { HUMAN } else { AGENT };
    argument
        .or_else(set)
        .or_else(|| agent_by_mark(variables).map(str::to_owned))
        .or_else(|| configured.map(str::to_owned))
        .unwrap_or_else(|| default.to_owned())
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
        assert_eq!(chosen_name(Some("bob"), &named, eve, true), "bob");
        assert_eq!(chosen_name(Some(" "), &named, eve, true), "ada");
        assert_eq!(chosen_name(None, &marked, eve, true), "claude");
        assert_eq!(chosen_name(None, &HashMap::new(), eve, true), "eve");
        assert_eq!(chosen_name(None, &HashMap::new(), None, true), "human");
        assert_eq!(chosen_name(None, &HashMap::new(), None, false), "agent");
        assert!(is_agent("agent") && is_agent("claude"));
        assert!(!is_agent("human") && !is_agent("ada"));
    }

    #[test]
    fn a_program_has_the_name_of_its_agent() {
        for (program, name) in [
            ("claude-code", Some("claude")),
            ("Claude Desktop", Some("claude")),
            ("codex-mcp-client", Some("codex")),
            ("Visual Studio Code", Some("visual-studio-code")),
            ("a#b\u{1b}[31m/../c", Some("a-b-31m-c")),
            ("human", None),
            ("Human", None),
            ("human (VS Code)", None),
            ("nb", None),
            ("NB", None),
            ("Somebody", None),
            ("another client", None),
            ("username", None),
            ("739085c8-1e43-4c37-be28-9e70b619cf8c", None),
            ("humanoid", Some("humanoid")),
            ("nb-agent", Some("nb-agent")),
            ("  ", None),
        ] {
            assert_eq!(Actor::name_of_client(program).as_deref(), name, "{program}");
        }
        let agent = Actor::of_command(None, &HashMap::<&str, &str>::new(), None, false).0;
        assert!(agent.is_unnamed_agent());
        let ada = Actor::of_command(Some("ada"), &HashMap::<&str, &str>::new(), None, false).0;
        assert!(!ada.is_unnamed_agent());
    }

    #[test]
    fn a_reserved_name_is_no_actors() {
        for name in [
            "nb",
            " NB ",
            "somebody",
            "nb#1a2b3c4d",
            "Human",
            "HUMAN (VS Code)",
            "human-1",
            "username",
            "",
        ] {
            assert!(Actor::from(name).is_reserved(), "{name}");
        }
        for name in [
            "human",
            "human (VS Code)",
            "ada",
            "agent",
            "claude#1a2b3c4d",
            "humanoid",
        ] {
            assert!(!Actor::from(name).is_reserved(), "{name}");
        }
        assert_eq!(Actor::of_username(Some("human (VS Code)")), Actor::Unknown);
        assert_eq!(Actor::of_username(Some("nb")), Actor::Unknown);
        assert_eq!(Actor::of_username(Some("ada")), "ada".into());
    }

    #[test]
    fn two_sessions_of_an_agent_are_two_actors_of_one_name() {
        let in_session = |id| HashMap::from([("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", id)]);
        let actor = |argument, variables: &HashMap<&str, &str>| {
            Actor::of_command(argument, variables, None, false).0
        };
        let (one, other) = (actor(None, &in_session("1")), actor(None, &in_session("2")));
        assert_eq!((&*one.name(), &*other.name()), ("claude", "claude"));
        assert_ne!(one, other);
        assert_eq!(one, actor(None, &in_session("1")));
        let id = one.to_string();
        assert!(!id.contains("#1") && id.starts_with("claude#"));
        assert_eq!(Actor::from(&*id), one);
        // An explicit name is the whole id, in any session.
        assert_eq!(actor(Some("ada"), &in_session("1")).to_string(), "ada");
        // The session of another agent is ignored.
        let codex = HashMap::from([("CODEX_SANDBOX", "1"), ("CLAUDE_CODE_SESSION_ID", "1")]);
        assert_eq!(actor(None, &codex).to_string(), "codex");
    }

    #[test]
    fn there_is_one_human() {
        let is_same = |one: &str, other: &str| Actor::from(one).is_same(&other.into());
        assert!(is_same("human", "human (VS Code)"));
        assert!(is_same("claude", "claude"));
        assert!(!is_same("claude", "human"));
        assert!(!is_same("claude", "codex"));
        let (one, other) = ("claude#00000001", "claude#00000002");
        assert!(is_same(one, other) && is_same(one, "claude"));
        let has_done = |one: &str, by: &str| Actor::from(one).has_done(&by.into());
        assert!(has_done(one, one) && has_done(one, "claude") && has_done("claude", other));
        assert!(!has_done(one, other) && !has_done(one, "human"));
        assert!(!Actor::from("humanoid").is_human());
        let is_meant = |id: &str, word| Actor::from(id).is_meant(word);
        assert!(is_meant("claude", "agent") && is_meant("agent", "agent"));
        assert!(is_meant("human (VS Code)", "human") && !is_meant("human (VS Code)", "agent"));
        assert!(!is_meant(UNKNOWN, "agent") && !is_meant("claude", "codex"));
    }

    #[test]
    fn an_id_is_read_as_it_is_written_and_a_librarys_own_name_is_nobodys() {
        for id in [
            "human",
            "human (VS Code)",
            "claude",
            "claude#1a2b3c4d",
            UNKNOWN,
        ] {
            assert_eq!(Actor::from(id).to_string(), id);
        }
        let uuid = "739085c8-1e43-4c37-be28-9e70b619cf8c";
        for id in [None, Some(""), Some("username"), Some(uuid)] {
            assert_eq!(Actor::parse(id), Actor::Unknown);
        }
    }

    #[test]
    fn a_person_is_at_a_terminal_and_no_agents_mark_is_in_the_environment() {
        let none = HashMap::new();
        let marked = HashMap::from([("CODEX_SANDBOX", "seatbelt")]);
        let named = HashMap::from([("CLAUDECODE", "1"), ("NB_AS", "human")]);
        let is_person = |argument, variables: &HashMap<&str, &str>, on_terminal| {
            Actor::of_command(argument, variables, None, on_terminal).1
        };
        assert!(is_person(None, &none, true));
        assert!(is_person(Some("ada"), &none, true));
        assert!(is_person(None, &named, true));
        assert!(!is_person(None, &none, false));
        assert!(!is_person(Some("human"), &none, false));
        // An agent with a pseudo-terminal is not a person, whatever its name.
        assert!(!is_person(None, &marked, true));
        assert!(!is_person(Some("ada"), &marked, true));
        assert!(!is_person(Some("claude"), &none, true));
        assert!(!is_person(Some("agent"), &none, true));
    }
}
