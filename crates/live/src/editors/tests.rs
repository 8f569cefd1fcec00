//! The example of `docs/live.md`, line by line.

use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;

use super::serve;
use crate::live::protocol::StaleMark;
use crate::project::Project;

const DOC: &str = include_str!("../../../../docs/live.md");

fn knows_no_stale(_: PathBuf, _: mpsc::Sender<Vec<StaleMark>>) -> BoxFuture<'static, ()> {
    Box::pin(async {})
}

/// The path of the notebook in the example.
const NOTEBOOK: &str = "/home/ada/train.ipynb";

fn write(path: &Path, sources: [&str; 2]) {
    let cells = sources.iter().enumerate();
    let cells = cells.map(|(at, source)| {
        json!({
            "cell_type": "code", "id": format!("c{at}"), "metadata": {}, "execution_count": null,
            "outputs": [], "source": source,
        })
    });
    let cells: Vec<_> = cells.collect();
    let text = json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5});
    // As editors save: at once.
    let new = path.with_extension("new");
    std::fs::write(&new, text.to_string()).unwrap();
    std::fs::rename(&new, path).unwrap();
}

/// Returns a message with a digest, and without a time, that does not depend on how the test writes its file.
fn without_stamp(line: &str) -> Value {
    let mut message: Value = serde_json::from_str(line).unwrap();
    if let Some(stamp) = message.get_mut("stamp") {
        *stamp = json!("…");
    }
    if let Some(fields) = message.as_object_mut() {
        fields.remove("modified");
        fields.remove("revision");
    }
    message
}

/// Opens a notebook with the cells `x = 1` and `y = 1`, which the editor calls `a` and `b`.
async fn open(editor: &mut DuplexStream, path: &Path, can: &[&str]) {
    let cells = [("a", "c0", "x = 1"), ("b", "c1", "y = 1")];
    let cells = cells.map(
        |(cell, id, source)| json!({"cell": cell, "id": id, "cell_type": "code", "source": source}),
    );
    for message in [
        json!({"type": "initialize", "editor": "e", "can": can}),
        json!({"type": "open", "doc": "1", "notebook": path, "cells": cells, "dirty": false}),
    ] {
        let line = format!("{message}\n");
        editor.write_all(line.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn the_example_of_the_page_is_what_happens() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("train.ipynb");
    let mut sources = ["x = 1", "y = 1"];
    write(&path, sources);
    Project::for_notebook(&path).unwrap();
    let (mut editor, input) = tokio::io::duplex(1 << 20);
    let (output, answers) = tokio::io::duplex(1 << 20);
    let served = tokio::spawn(serve(input, output, knows_no_stale));
    let mut answers = BufReader::new(answers).lines();
    let example = DOC.split("## An example").nth(1).unwrap();
    let example = example.split("```").nth(1).unwrap();
    for line in example.lines().skip(1) {
        let (side, message) = line.split_at(7);
        match side.trim() {
            "editor" => {
                let message = message.replace(NOTEBOOK, path.to_str().unwrap());
                editor
                    .write_all(format!("{message}\n").as_bytes())
                    .await
                    .unwrap();
            }
            "nb" => {
                let answer = answers.next_line().await.unwrap().unwrap();
                assert_eq!(without_stamp(&answer), without_stamp(message));
            }
            "file" if message.starts_with("the editor saves") => {
                write(&path, ["x = 5\nx = 7", "y = 2\nprint(y)"]);
            }
            "file" => {
                let text = message.split('"').nth(1).unwrap();
                let at = usize::from(message.ends_with("second cell"));
                sources[at] = ["x = 7", "y = 2"]
                    .into_iter()
                    .find(|it| *it == text)
                    .unwrap();
                write(&path, sources);
            }
            other => panic!("{other}"),
        }
    }
    drop(editor);
    assert!(answers.next_line().await.unwrap().is_none());
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_notebook_outside_every_project_is_refused_and_no_folder_is_made() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("train.ipynb");
    write(&path, ["x = 1", "y = 1"]);
    let (mut editor, input) = tokio::io::duplex(1 << 20);
    let (output, answers) = tokio::io::duplex(1 << 20);
    let served = tokio::spawn(serve(input, output, knows_no_stale));
    let open = json!({"type": "open", "doc": "1", "notebook": path, "cells": [], "dirty": false});
    editor
        .write_all(format!("{open}\n").as_bytes())
        .await
        .unwrap();
    let answer = BufReader::new(answers)
        .lines()
        .next_line()
        .await
        .unwrap()
        .unwrap();
    assert!(answer.contains("is in no project of nb"), "{answer}");
    drop(editor);
    served.await.unwrap().unwrap();
    assert!(!temp.path().join(".nb").exists());
}

#[tokio::test]
async fn an_editor_is_told_what_agents_did_before_and_while_it_is_open() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("train.ipynb");
    write(&path, ["x = 1", "y = 1"]);
    let project = Project::for_notebook(&path).unwrap();
    let happens = |event: Value| {
        let mut all =
            json!({"at": jiff::Timestamp::now(), "session": "train.ipynb", "by": "claude"});
        all.as_object_mut()
            .unwrap()
            .extend(event.as_object().unwrap().clone());
        project.record(&[serde_json::from_value(all).unwrap()]);
    };
    happens(
        json!({"event": "edited", "op": "8a7b", "before": "0000000000", "after": "1111111111",
        "changes": [{"cell": "c0", "what": "inserted", "index": 0}]}),
    );
    let (mut editor, input) = tokio::io::duplex(1 << 20);
    let (output, answers) = tokio::io::duplex(1 << 20);
    let served = tokio::spawn(serve(input, output, knows_no_stale));
    let mut answers = BufReader::new(answers).lines();
    open(&mut editor, &path, &["activity"]).await;
    let mut marks = async || loop {
        let message: Value =
            serde_json::from_str(&answers.next_line().await.unwrap().unwrap()).unwrap();
        if message["type"] == "marks" {
            let marks = message["cells"].as_array().unwrap().iter();
            return marks
                .map(|it| format!("{} {}", it["cell"], it["what"]))
                .collect::<Vec<_>>();
        }
    };
    assert_eq!(marks().await, [r#""a" "inserted""#]);
    happens(json!({"event": "requested", "msg_id": "1", "cell": "c1", "code": "y = 1"}));
    happens(json!({"event": "done", "msg_id": "1", "status": "ok"}));
    assert_eq!(marks().await, [r#""a" "inserted""#, r#""b" "ran""#]);
    let typed = json!({"type": "text", "doc": "1", "cell": "a", "source": "x = 2"});
    editor
        .write_all(format!("{typed}\n").as_bytes())
        .await
        .unwrap();
    assert_eq!(marks().await, [r#""b" "ran""#]);
    drop(editor);
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_editor_that_shows_it_is_told_which_cells_are_out_of_date() {
    fn knows_stale(
        notebook: PathBuf,
        lists: mpsc::Sender<Vec<StaleMark>>,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            assert_eq!(notebook.file_name().unwrap(), "train.ipynb");
            let stale = |cell: &str| StaleMark {
                cell: cell.to_owned(),
                why: format!("{cell} was edited"),
            };
            // One of them the editor does not have.
            for list in [vec![stale("c1"), stale("c7")], vec![]] {
                lists.send(list).await.unwrap();
            }
        })
    }
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("train.ipynb");
    write(&path, ["x = 1", "y = 1"]);
    Project::for_notebook(&path).unwrap();
    let (mut editor, input) = tokio::io::duplex(1 << 20);
    let (output, answers) = tokio::io::duplex(1 << 20);
    let served = tokio::spawn(serve(input, output, knows_stale));
    let mut answers = BufReader::new(answers).lines();
    open(&mut editor, &path, &["activity", "stale"]).await;
    for expected in [json!([{"cell": "b", "why": "c1 was edited"}]), json!([])] {
        let stale = loop {
            let line = answers.next_line().await.unwrap().unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["type"] == "stale" {
                break message;
            }
        };
        assert_eq!(stale["cells"], expected);
    }
    drop(editor);
    served.await.unwrap().unwrap();
}
