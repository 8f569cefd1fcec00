//! The JSON schemas of all answers: `docs/json/` has a file for each.
//!
//! After an answer's type has changed, this writes the files again:
//!
//! ```sh
//! NB_WRITE_DOCS=1 cargo test --lib api::tests
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;

use super::envelope::{Answer, Envelope};
use super::job::{JobAnswer, JobEvent, RunAnswer};
use super::problem::Problem;
use super::*;
use crate::project::event::Event;

/// The fields of the envelope alone: each answer has fields of its own beside them.
#[derive(serde::Serialize, JsonSchema)]
struct NoAnswer {}

impl Answer for NoAnswer {}

/// Returns the name of each file, and the schema in it.
fn schemas() -> Vec<(&'static str, String)> {
    vec![
        ("agent-install", schema::<AgentSetupAnswer>()),
        ("cell", schema::<CellAnswer>()),
        ("cells", schema::<CellsAnswer>()),
        ("cp", schema::<CopyAnswer>()),
        ("diff", schema::<DiffAnswer>()),
        ("doctor", schema::<DoctorAnswer>()),
        ("edit", schema::<EditAnswer>()),
        ("envelope", schema::<Envelope<'_, NoAnswer>>()),
        ("exec", schema::<ExecAnswer>()),
        ("fmt", schema::<FormatAnswer>()),
        ("exec-plan", schema::<PlanAnswer>()),
        ("gc", schema::<GcAnswer>()),
        ("graph", schema::<GraphAnswer>()),
        ("interrupt", schema::<InterruptAnswer>()),
        ("interrupt-job", schema::<InterruptJobAnswer>()),
        ("job", schema::<JobRecord>()),
        ("job-event", schema::<JobEvent<'_>>()),
        ("event", schema::<Event>()),
        ("events-start", schema::<EventsStart>()),
        ("job-write", schema::<WriteJobAnswer>()),
        ("export", schema::<ExportAnswer>()),
        ("jobs", schema::<JobsAnswer>()),
        ("kernels", schema::<KernelsAnswer>()),
        ("log", schema::<LogAnswer>()),
        ("log-cell", schema::<VersionsAnswer>()),
        ("log-deleted", schema::<DeletedCellsAnswer>()),
        ("log-file", schema::<LogFileAnswer>()),
        ("mv", schema::<MoveAnswer>()),
        ("open", schema::<OpenAnswer>()),
        ("packages", schema::<PackagesAnswer>()),
        ("problem", schema::<Problem>()),
        ("replace", schema::<ReplaceAnswer>()),
        ("reply", schema::<ReplyAnswer>()),
        ("restart", schema::<RestartAnswer>()),
        ("restore", schema::<RestoreAnswer>()),
        ("run", schema::<RunAnswer>()),
        ("run-peek", schema::<PeekAnswer>()),
        ("save", schema::<SaveAnswer>()),
        ("search", schema::<SearchAnswer>()),
        ("server-add", schema::<AddServerAnswer>()),
        ("server-check", schema::<ServerAnswer>()),
        ("server-kernels", schema::<ServerKernelsAnswer>()),
        ("server-list", schema::<ServersAnswer>()),
        ("server-rm", schema::<RemoveServerAnswer>()),
        ("server-stop", schema::<StopServerAnswer>()),
        ("serve", schema::<ServeAnswer>()),
        ("shutdown", schema::<ShutdownAnswer>()),
        ("shutdown-idle", schema::<ShutdownIdleAnswer>()),
        ("status", schema::<StatusAnswer>()),
        ("status-all", schema::<AllKernelsAnswer>()),
        ("undo", schema::<UndoAnswer>()),
        ("unserve", schema::<UnserveAnswer>()),
        ("vars", schema::<VarsAnswer>()),
        ("verify", schema::<VerifyAnswer>()),
        ("wait", schema::<JobAnswer>()),
        ("watch", schema::<StaleSnapshot>()),
    ]
}

/// Returns the schema of a type's JSON.
fn schema<T: JsonSchema>() -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
    format!("{text}\n")
}

#[test]
fn each_answer_has_the_fields_that_its_schema_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json");
    let writes = std::env::var_os("NB_WRITE_DOCS").is_some();
    let page = std::fs::read_to_string(folder.join("README.md")).expect("read the page");
    let mut files = BTreeSet::from(["README.md".to_owned()]);
    for (name, now) in schemas() {
        let file = format!("{name}.json");
        let path = folder.join(&file);
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        if writes {
            std::fs::write(&path, now).expect("write the schema");
        } else {
            let fix = "NB_WRITE_DOCS=1 cargo test --lib api::tests writes it";
            assert!(stored == now, "docs/json/{file} is out of date; {fix}");
        }
        assert!(page.contains(&format!("({file})")), "no link to {file}");
        files.insert(file);
    }
    let entries = std::fs::read_dir(&folder).expect("list the schemas");
    let existing = entries.map(|entry| entry.expect("an entry").file_name());
    let existing = existing.map(|name| name.to_string_lossy().into_owned());
    // Those of the live protocol are written by the tests of its crate.
    let existing: BTreeSet<_> = existing.filter(|name| !name.starts_with("live-")).collect();
    assert_eq!(existing, files);
}
