//! All outputs with the same display id change together, in any cell and from any execution.

use serde_json::Value;

use super::exec::{GATE, begin, cell, notebook, wait_for_state};
use super::nb;
use crate::world::World;

const SHOW: &str =
    "from IPython.display import display, update_display; display('first', display_id='d')";

fn update(text: &str) -> String {
    format!("update_display({text:?}, display_id='d')")
}

/// Returns the plain text of a cell's first output in the file.
fn shown(world: &World, index: usize) -> String {
    let output = cell(world, index)["outputs"][0].clone();
    assert_eq!(output["output_type"], "display_data", "{output}");
    let text = output["data"]["text/plain"]
        .as_array()
        .expect("lines")
        .clone();
    text.iter().filter_map(Value::as_str).collect()
}

#[test]
fn a_later_job_updates_what_an_earlier_ones_cells_show() {
    let again = "print('beside'); display('again', display_id='d')";
    let world = notebook(&[SHOW, &update("second"), "display('other', display_id='e')"]);
    nb(&world, ["exec", "a.ipynb", "0"]).ended(0);
    nb(&world, ["exec", "a.ipynb", "2"]).ended(0);
    assert_eq!(shown(&world, 0), "'first'");
    let times = cell(&world, 0)["metadata"].clone();
    nb(&world, ["exec", "a.ipynb", "1"]).ended(0);
    assert_eq!(shown(&world, 0), "'second'");
    // Nothing else of the cell changed, and no other cell.
    assert_eq!(cell(&world, 0)["metadata"], times);
    assert_eq!(cell(&world, 0)["execution_count"], 1);
    assert_eq!(shown(&world, 2), "'other'");
    assert_eq!(cell(&world, 1)["outputs"].as_array().map(Vec::len), Some(0));
    // Code outside cells updates it too, and one display id may be in several cells.
    nb(&world, ["insert", "a.ipynb", "-s", again, "-x"]).ended(0);
    assert_eq!(shown(&world, 0), "'again'");
    nb(&world, ["run", "-n", "a.ipynb", &update("third")]).ended(0);
    assert_eq!(shown(&world, 0), "'third'");
    let both = cell(&world, 3)["outputs"].clone();
    assert_eq!(both[0]["name"], "stdout", "{both}");
    assert_eq!(both[1]["data"]["text/plain"][0], "'third'", "{both}");
    // With `--no-save` no file changes.
    nb(&world, ["exec", "a.ipynb", "1", "--no-save"]).ended(0);
    assert_eq!(shown(&world, 0), "'third'");
}

#[test]
fn a_cell_that_was_changed_since_is_not_touched() {
    let world = notebook(&[SHOW, SHOW, SHOW, SHOW]);
    nb(&world, ["exec", "a.ipynb", "--all"]).ended(0);
    nb(&world, ["clear", "a.ipynb", "0"]).ended(0);
    nb(&world, ["edit", "a.ipynb", "1", "-s", "'edited'"]).ended(0);
    nb(&world, ["exec", "a.ipynb", "1"]).ended(0);
    let edited = cell(&world, 1);
    nb(
        &world,
        ["edit", "a.ipynb", "2", "-s", "'edited, and not run'"],
    )
    .ended(0);
    nb(&world, ["run", "-n", "a.ipynb", &update("new")]).ended(0);
    assert_eq!(cell(&world, 0)["outputs"], serde_json::json!([]));
    assert_eq!(cell(&world, 1), edited);
    assert_eq!(shown(&world, 2), "'first'");
    assert_eq!(shown(&world, 3), "'new'");
    // Another kernel does not know the display ids.
    nb(&world, ["restart", "a.ipynb"]).ended(0);
    let code = format!(
        "from IPython.display import update_display; {}",
        update("newer")
    );
    nb(&world, ["run", "-n", "a.ipynb", &code]).ended(0);
    assert_eq!(shown(&world, 3), "'new'");
}

#[test]
fn what_a_recorder_still_holds_is_updated_too() {
    // The job's outputs are written when it ends or after seconds; meanwhile the second job waits.
    let world = notebook(&[SHOW, GATE, &update("last")]);
    let first = begin(&world, &["0..2"]);
    super::exec::wait_for_output(&world, &first, "before");
    let second = begin(&world, &["2"]);
    wait_for_state(&world, &second, "queued");
    std::fs::write(world.project().join("go"), "").expect("open the gate");
    nb(&world, ["wait", &first]).ended(0);
    nb(&world, ["wait", &second]).ended(0);
    assert_eq!(shown(&world, 0), "'last'");
}
