//! Who is asking.

use crate::kernel::paths::Variables;

/// What agents leave in the environment of the commands that they run.
const MARKS: [(&str, &str); 6] = [
    ("CLAUDECODE", "claude"),
    ("CODEX_SANDBOX", "codex"),
    ("CODEX_SANDBOX_NETWORK_DISABLED", "codex"),
    ("CURSOR_AGENT", "cursor"),
    ("GEMINI_CLI", "gemini"),
    ("OPENCODE", "opencode"),
];

/// Says whether a name is an agent's: one that its mark gives, or the one of those without a mark.
pub fn is_agent(name: &str) -> bool {
    name == AGENT || MARKS.iter().any(|(_, agent)| *agent == name)
}

/// Who acts off a terminal and has no other name.
const AGENT: &str = "agent";

/// Returns the name under which a command acts: what was given (`--as`), `NB_AS`, an agent's
/// mark, what the project's settings say, else `human` on a terminal and `agent` off it.
pub fn who(
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
    let marked = || {
        let (_, name) = MARKS
            .iter()
            .find(|(mark, _)| variables.get(mark).is_some())?;
        Some((*name).to_owned())
    };
    let otherwise = if on_terminal { "human" } else { AGENT };
    given
        .or_else(set)
        .or_else(marked)
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
}
