//! `nb open` and the two settings of VS Code in the project's folder.

use super::actor::answering;
use super::{nb, open};
use crate::world::World;

fn settings(world: &World) -> Option<String> {
    std::fs::read_to_string(world.project().join(".vscode/settings.json")).ok()
}

#[test]
fn a_person_is_asked_once_in_a_folder_where_vs_code_is_used() {
    let world = World::new();
    open(&world, "t.ipynb");
    let again = ["open", "t.ipynb"];
    let output = answering(&world, None, "y", &again).ended(0);
    assert!(
        !output.stdout.contains("[y/N]"),
        "VS Code is not used here: {output:?}"
    );
    std::fs::create_dir(world.project().join(".vscode")).expect("make the folder");
    let output = answering(&world, Some("CLAUDECODE"), "y", &again).ended(0);
    assert!(
        !output.stdout.contains("[y/N]"),
        "an agent is no person: {output:?}"
    );
    let output = answering(&world, None, "n", &again).ended(0);
    output
        .with("hides what others write")
        .with("nothing was written");
    assert_eq!(settings(&world), None);
    let output = answering(&world, None, "y", &again).ended(0);
    assert!(
        !output.stdout.contains("[y/N]"),
        "it is asked once: {output:?}"
    );
}

#[test]
fn what_the_answer_has_written_is_taken_out_again() {
    let world = World::new();
    open(&world, "t.ipynb");
    std::fs::create_dir(world.project().join(".vscode")).expect("make the folder");
    let output = answering(&world, None, "y", &["open", "t.ipynb"]).ended(0);
    let output = output.with("settings.json: created");
    let text = settings(&world).unwrap_or_else(|| panic!("{output:?}"));
    assert!(
        text.contains("\"files.autoSave\": \"afterDelay\""),
        "{text}"
    );
    let take = |change: &str| nb(&world, ["open", "t.ipynb", "--vscode-settings", change]);
    take("remove").ended(0).with("settings.json: removed");
    assert_eq!(settings(&world), None);
    take("add").ended(0).with("settings.json: created");
    take("add").ended(0).with("are as wanted");
}
