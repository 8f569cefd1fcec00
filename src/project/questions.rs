//! `question.json`: what the kernel asks a front end that has gone, in the folder of the job that its
//! cell has become. Its proxy, which the kernel asks, writes it; the recorder sees to the answer.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::beneath;
use super::jobs::{JobFolder, JobPrompt};

/// What the kernel asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The request whose code asks.
    pub msg_id: String,
    /// The header of the kernel's message: the parent of the answer.
    pub header: Value,
    /// What it asks.
    #[serde(flatten)]
    pub prompt: JobPrompt,
}

impl JobFolder {
    /// Passes a question on, instead of an earlier one: a kernel asks one after the other.
    pub fn pass_on(&self, question: &Question) -> io::Result<()> {
        beneath::replace_unsynced(&self.question_file(), &serde_json::to_vec(question)?)
    }

    /// Returns the question that waits for its answer.
    pub fn question(&self) -> Option<Question> {
        let text = beneath::read(&self.question_file(), beneath::SMALL).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Notes that the question is answered, whoever did that.
    pub fn forget_question(&self) {
        let _ = beneath::remove_file(&self.question_file());
    }

    fn question_file(&self) -> PathBuf {
        self.path().join("question.json")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::Project;

    #[test]
    fn a_question_waits_until_it_is_answered() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let (_, folder) = crate::project::jobs::tests::job(&project);
        assert_eq!(folder.question(), None);
        let question = Question {
            msg_id: "1".to_owned(),
            header: serde_json::json!({ "msg_id": "2" }),
            prompt: JobPrompt {
                prompt: "name? ".to_owned(),
                password: false,
            },
        };
        folder.pass_on(&question).unwrap();
        assert_eq!(folder.question(), Some(question));
        folder.forget_question();
        assert_eq!(folder.question(), None);
    }
}
