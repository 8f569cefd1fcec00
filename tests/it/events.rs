//! `nb events`: what happens in a project, as it happens.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::world::{World, succeed};

#[test]
fn events_come_as_they_happen_and_end_with_their_reader() {
    let world = World::new();
    succeed(world.nb().args(["open", "t.ipynb", "--no-kernel"]));
    let mut command = world.nb();
    command.args(["events", "--json"]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("start nb");
    let mut reader = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut next = || -> Value {
        let mut line = String::new();
        reader.read_line(&mut line).expect("read a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    let start = next();
    let project = world.project().canonicalize().expect("it is there");
    assert_eq!(start["project"], json!(project));
    assert!(start["from"]["offset"].is_u64(), "{start}");
    succeed(
        world
            .nb()
            .args(["--as", "claude", "insert", "t.ipynb", "x = 1"]),
    );
    let event = next();
    let (kind, by) = (&event["event"], &event["by"]);
    assert_eq!((kind, by), (&json!("edited"), &json!("claude")));
    // Nothing happens any more, and it ends all the same.
    drop(reader);
    assert!(child.wait().expect("wait for it").success());
}
