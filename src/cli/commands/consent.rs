//! Asking at the terminal, before others' work is ended.

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::terminal::Lines;

impl Context {
    /// Makes a request that may end others' work, with `force` or without. Where it is refused for that,
    /// the person at the terminal is asked, and it is made again.
    pub(crate) async fn insist<T>(
        &self,
        force: bool,
        json: bool,
        request: impl AsyncFn(bool) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let problem = match request(force).await {
            Err(problem) if !json && self.can_ask() => problem,
            done => return done,
        };
        let Some(question) = &problem.question else {
            return Err(problem);
        };
        let answer = Lines::new().ask(&question.text, false).await;
        let answer = answer.unwrap_or_default().trim().to_ascii_lowercase();
        if matches!(answer.as_str(), "y" | "yes") {
            return request(true).await;
        }
        Err(Problem::new(ProblemKind::Refused, &question.declined))
    }
}
