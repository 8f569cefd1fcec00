//! `facts/`: what kernels say that each execution changed, one file for each kernel.
//!
//! The file is made when the kernel is started, and names the session and the generation. Without it nothing is stored, so
//! that a kernel which was not asked cannot fill the disk. Each process that sees an execution appends to it, one line an
//! execution. What is in a line is the kernel's word: whoever reads it checks it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::Instant;

use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::state_folder::short_name;
use super::{Project, beneath, lock};

/// The folder of the files.
pub(super) const FACTS: &str = "facts";

/// How many bytes the facts of one execution have at most; without them the execution may have changed anything.
pub const FACTS_BYTES: usize = 1 << 20;

/// How many bytes a file has at most: about 10,000 executions.
const MOST_OF_A_KERNEL: u64 = 16 << 20;

/// How much of the end of a file is searched for an execution that another process has just stored.
const LAST_PART: u64 = 64 << 10;

/// What a kernel said of one execution.
#[derive(Debug, Deserialize)]
pub struct StoredFacts {
    /// The request's id.
    pub msg_id: String,
    /// What the kernel said.
    pub facts: Box<RawValue>,
}

#[derive(Serialize)]
struct NewLine<'a> {
    msg_id: &'a str,
    facts: &'a Value,
}

impl Project {
    fn facts_file(&self, key: &str, generation: u64) -> PathBuf {
        let name = format!("{}.{generation}.jsonl", short_name(key));
        self.dir().join(FACTS).join(name)
    }

    /// Removes the facts of a session's kernels, and makes an empty file for a kernel that says facts.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn begin_facts(&self, key: &str, generation: Option<u64>) -> io::Result<()> {
        let folder = self.dir().join(FACTS);
        let own = format!("{}.", short_name(key));
        for path in beneath::paths(&folder) {
            let name = path.file_name().and_then(|name| name.to_str());
            if name.is_some_and(|name| name.starts_with(&own)) {
                beneath::remove_file(&path)?;
            }
        }
        if let Some(generation) = generation {
            beneath::make_subfolder(&folder)?;
            beneath::create(&self.facts_file(key, generation))?;
        }
        Ok(())
    }

    /// Stores what a kernel says of an execution. What is too large or no JSON, and what another process has stored, is not
    /// stored. A failure is logged and not returned.
    pub fn record_facts(&self, key: &str, generation: u64, msg_id: &str, content: &[u8]) {
        if let Err(error) = self.try_record_facts(key, generation, msg_id, content) {
            tracing::warn!(%error, "what an execution changed could not be stored");
        }
    }

    fn try_record_facts(
        &self,
        key: &str,
        generation: u64,
        msg_id: &str,
        content: &[u8],
    ) -> io::Result<()> {
        let path = self.facts_file(&self.current_key(key), generation);
        if content.len() > FACTS_BYTES || !beneath::is_file(&path) {
            return Ok(());
        }
        let Ok(facts) = serde_json::from_slice(content) else {
            return Ok(());
        };
        let mut line = serde_json::to_vec(&NewLine {
            msg_id,
            facts: &facts,
        })?;
        line.push(b'\n');
        let mut file = beneath::read_append(&path)?;
        let timeout = lock::lock_timeout();
        if !lock::take(&file, Instant::now() + timeout)? {
            return Err(lock::held_error(&path, timeout));
        }
        let length = file.metadata()?.len();
        if length + line.len() as u64 > MOST_OF_A_KERNEL || has_one(&mut file, length, msg_id)? {
            return Ok(());
        }
        file.write_all(&line)
    }

    /// Returns what a kernel has said from an offset of its file on, and the offset of the rest; none if the kernel was not asked.
    /// Lines that cannot be read are left out.
    pub fn facts(&self, key: &str, generation: u64, from: u64) -> Option<(Vec<StoredFacts>, u64)> {
        let mut file = beneath::open(&self.facts_file(key, generation)).ok()?;
        file.seek(SeekFrom::Start(from)).ok()?;
        let bytes = beneath::read_from(&file, MOST_OF_A_KERNEL).ok()?;
        let end = memchr::memrchr(b'\n', &bytes).map_or(0, |last| last + 1);
        let lines = bytes.get(..end)?.split(|byte| *byte == b'\n');
        let facts = lines.filter_map(|line| serde_json::from_slice(line).ok());
        Some((facts.collect(), from + end as u64))
    }
}

/// Says whether the last part of a file has the facts of an execution.
fn has_one(file: &mut File, length: u64, msg_id: &str) -> io::Result<bool> {
    let mut last = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_PART)))?;
    file.take(LAST_PART).read_to_end(&mut last)?;
    let begin = format!("{{\"msg_id\":{},", Value::from(msg_id));
    Ok(memmem::find(&last, begin.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::event::fixtures::project;

    fn stored(project: &Project, generation: u64) -> Option<Vec<(String, String)>> {
        let (facts, _) = project.facts("a.ipynb", generation, 0)?;
        let facts = facts.into_iter();
        Some(
            facts
                .map(|it| (it.msg_id, it.facts.get().to_owned()))
                .collect(),
        )
    }

    #[test]
    fn each_execution_of_a_kernel_that_was_asked_is_stored_once() {
        let (_temp, project) = project();
        project.record_facts("a.ipynb", 1, "m0", b"{}");
        assert_eq!(stored(&project, 1), None, "it was not asked");
        project.begin_facts("a.ipynb", Some(1)).unwrap();
        assert_eq!(stored(&project, 1), Some(Vec::new()));
        for (msg_id, content) in [
            ("m1", &b"{\"run\":\n1}"[..]),
            ("m1", b"{}"),
            ("m2", b"{\"run\": "),
            ("m3\"", b"[2]"),
        ] {
            project.record_facts("a.ipynb", 1, msg_id, content);
        }
        project.record_facts("a.ipynb", 1, "m4", &vec![b' '; FACTS_BYTES + 1]);
        let pair = |msg_id: &str, facts: &str| (msg_id.to_owned(), facts.to_owned());
        let all = vec![pair("m1", "{\"run\":1}"), pair("m3\"", "[2]")];
        assert_eq!(stored(&project, 1), Some(all));
        let (_, end) = project.facts("a.ipynb", 1, 0).unwrap();
        project.record_facts("a.ipynb", 1, "m5", b"5");
        assert_eq!(project.facts("a.ipynb", 1, end).unwrap().0[0].msg_id, "m5");
        // The next kernel begins anew, and an old one's process may still have something to say.
        project.begin_facts("a.ipynb", Some(2)).unwrap();
        project.record_facts("a.ipynb", 1, "m6", b"6");
        assert_eq!(stored(&project, 1), None);
        project.begin_facts("a.ipynb", None).unwrap();
        assert_eq!(stored(&project, 2), None);
    }

    #[test]
    fn the_file_of_a_kernel_is_bounded() {
        let (_temp, project) = project();
        project.begin_facts("a.ipynb", Some(1)).unwrap();
        let content = format!("\"{}\"", "x".repeat(FACTS_BYTES - 2));
        for number in 0..20 {
            project.record_facts("a.ipynb", 1, &number.to_string(), content.as_bytes());
        }
        let length = std::fs::metadata(project.facts_file("a.ipynb", 1)).unwrap();
        let most = MOST_OF_A_KERNEL - FACTS_BYTES as u64..=MOST_OF_A_KERNEL;
        assert!(most.contains(&length.len()), "{}", length.len());
    }
}
