//! JupyterLab, and the page of `nb web`, in a real browser: a script clicks as a person does, and reads what the page then shows.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::chat::{gemini, gemini_calls, gemini_text};
use crate::node;
use crate::python;
use crate::servers::Server;
use crate::skipped;
use crate::world::{World, is_thorough, succeed};

/// Returns a script of `tests/browser`; `None` if this machine has no Chromium.
fn script(world: &World, name: &str) -> Option<Command> {
    script_with(world, name, python::with_jupyterlab)
}

/// Returns a script of `tests/browser` in an environment, which is made if need be.
fn script_with(world: &World, name: &str, python: fn() -> &'static Path) -> Option<Command> {
    let chromium = skipped::chromium()?;
    let mut command = world.command(python());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser");
    command.arg("-u").arg(PathBuf::from(folder).join(name));
    if is_thorough() {
        command.env("NB_TEST_ALL", "1");
    }
    command
        .env("CHROMIUM", chromium)
        .env("NB_TEST_PYTHON", python());
    let pictures = std::env::var_os("NB_PICTURES");
    command.envs(pictures.map(|folder| ("NB_PICTURES", folder)));
    Some(command)
}

#[test]
fn a_day_in_jupyterlab_with_an_agent_beside() {
    let world = World::new();
    if let Some(mut journey) = script(&world, "journey.py") {
        succeed(&mut journey);
    }
}

#[test]
fn a_day_in_jupyterlab_with_a_kernel_on_a_server() {
    let world = World::new();
    if let Some(mut journey) = script(&world, "journey.py") {
        let server = Server::with_libraries();
        server.add_to(&world, "gpu");
        succeed(journey.arg("gpu"));
        // The world ends first: its kernels are the server's.
        drop(world);
    }
}

#[test]
fn a_person_types_in_jupyterlab_while_an_agent_edits() {
    let world = World::new();
    if let Some(mut both) = script(&world, "both_edit.py") {
        succeed(&mut both);
    }
}

#[test]
fn a_tab_of_jupyterlab_shows_what_an_agent_does_and_keeps_what_a_person_types() {
    let world = World::new();
    if let Some(mut live) = script(&world, "live.py") {
        succeed(&mut live);
    }
}

/// One round of eight seconds; twenty of 25 in `scripts/slow`.
#[test]
fn a_person_types_and_saves_in_jupyterlab_while_an_agent_edits_without_pause() {
    let world = World::new();
    if let Some(mut typing) = script(&world, "live_typing.py") {
        let [rounds, seconds] = match is_thorough() {
            true => ["20", "25"],
            false => ["1", "8"],
        };
        succeed(typing.args([rounds, seconds]));
    }
}

#[test]
fn a_tab_of_jupyterlab_is_closed_while_its_cell_runs_and_nothing_is_lost() {
    let world = World::new();
    if let Some(mut closed) = script(&world, "live_closed.py") {
        let rounds = if is_thorough() { "20" } else { "1" };
        succeed(closed.arg(rounds));
    }
}

#[test]
#[ignore = "slow: in scripts/slow"]
fn a_tab_without_the_extension_is_closed_while_its_cell_runs_and_nothing_is_lost() {
    let world = World::new();
    if let Some(mut closed) = script(&world, "live_closed.py") {
        succeed(closed.args(["5", "without"]));
    }
}

#[test]
#[ignore = "slow: in scripts/slow"]
fn a_tab_of_a_single_user_server_of_a_hub_is_closed_while_its_cell_runs_and_nothing_is_lost() {
    let world = World::new();
    if let Some(mut closed) = script_with(&world, "live_closed.py", python::with_hub)
        && let Some(modules) = node::hub_modules()
    {
        closed.env("NB_TEST_PORTS", crate::ports::block());
        closed.env(
            "NB_TEST_HUB_PROXY",
            modules.join(".bin/configurable-http-proxy"),
        );
        succeed(closed.args(["3", "hub"]));
    }
}

#[test]
#[ignore = "slow: in scripts/slow"]
fn a_tab_of_jupyterlab_4_0_is_alive() {
    for (name, arguments) in [
        ("live.py", &[][..]),
        ("live_typing.py", &["3", "25"]),
        ("live_closed.py", &["2"]),
    ] {
        let world = World::new();
        if let Some(mut tab) = script_with(&world, name, python::with_jupyterlab_4_0) {
            succeed(tab.args(arguments));
        }
    }
}

#[test]
#[ignore = "slow: in scripts/slow"]
fn a_page_of_notebook_7_is_alive() {
    for (name, arguments) in [
        ("live_typing.py", &["3", "25"][..]),
        ("live_closed.py", &["2"]),
    ] {
        let world = World::new();
        if let Some(mut page) = script_with(&world, name, python::with_notebook_7) {
            succeed(page.env("NB_TEST_APP", "notebook").args(arguments));
        }
    }
}

/// As `a_person_types_and_saves…`, in a room of jupyter-collaboration, which the extension writes through.
#[test]
#[ignore = "slow: in scripts/slow"]
fn a_person_types_and_saves_in_a_room_of_jupyterlab_while_an_agent_edits_without_pause() {
    let world = World::new();
    if let Some(mut typing) = script_with(&world, "live_typing.py", python::with_collaboration) {
        let rounds = std::env::var("NB_TEST_ROUNDS").unwrap_or_else(|_| "20".to_owned());
        succeed(typing.args([&*rounds, "25"]));
    }
}

/// In a room of jupyter-collaboration, and without one.
#[test]
#[ignore = "slow: in scripts/slow"]
fn two_pages_of_jupyterlab_and_an_agent_end_with_the_same() {
    for python in [python::with_collaboration, python::with_jupyterlab] {
        let world = World::new();
        if let Some(mut pages) = script_with(&world, "two_pages.py", python) {
            succeed(&mut pages);
        }
    }
}

/// What is held back is tested without a browser by `faults::a_notebook_in_a_room_of_jupyterlab_is_not_written`.
#[test]
#[ignore = "slow: in scripts/slow"]
fn a_person_types_in_a_room_of_jupyterlab_beside_an_agent() {
    let world = World::new();
    if let Some(mut room) = script_with(&world, "room.py", python::with_collaboration) {
        succeed(&mut room);
    }
}

#[test]
fn a_page_of_nb_web_shows_and_changes_the_notebook() {
    let world = World::new();
    if let Some(mut web) = script(&world, "web.py") {
        succeed(&mut web);
    }
}

#[test]
fn what_is_typed_on_the_page_is_known_to_agents_and_their_edits_come_before_the_file() {
    let world = World::new();
    if let Some(mut live) = script(&world, "web_live.py") {
        succeed(&mut live);
    }
}

/// Eight seconds; five minutes in `scripts/slow`.
#[test]
fn two_tabs_of_the_page_and_an_agent_write_in_one_cell_without_pause() {
    let world = World::new();
    if let Some(mut typing) = script(&world, "web_typing.py") {
        succeed(typing.arg(if is_thorough() { "300" } else { "8" }));
    }
}

#[test]
fn what_is_typed_on_the_page_is_kept() {
    let world = World::new();
    if let Some(mut kept) = script(&world, "web_kept.py") {
        succeed(&mut kept);
    }
}

#[test]
fn the_page_shows_everybody_graphs_plots_and_widgets() {
    let world = World::new();
    if let Some(mut parts) = script(&world, "web_parts.py")
        && let Some(modules) = node::modules()
    {
        parts.env("NB_TEST_AXE", modules.join("axe-core/axe.min.js"));
        let altair = std::env::join_paths(python::with_altair());
        parts.env("NB_TEST_ALTAIR", altair.expect("paths without a colon"));
        succeed(&mut parts);
    }
}

#[test]
fn a_person_writes_in_a_page_of_nb_web() {
    let world = World::new();
    if let Some(mut writes) = script(&world, "web_write.py")
        && let Some(modules) = node::modules()
    {
        writes.env("NB_TEST_AXE", modules.join("axe-core/axe.min.js"));
        succeed(&mut writes);
    }
}

#[test]
fn widgets_on_the_page_and_the_kernel_agree() {
    let world = World::new();
    if let Some(mut widgets) = script(&world, "web_widgets.py") {
        succeed(&mut widgets);
    }
}

#[test]
fn hostile_outputs_and_widgets_reach_nothing_from_the_page_and_from_a_frame() {
    let world = World::new();
    if let Some(mut hostile) = script(&world, "hostile.py") {
        succeed(&mut hostile);
    }
}

#[test]
fn a_person_and_the_assistant_work_on_one_notebook() {
    let world = World::new();
    if let Some(mut assistant) = script(&world, "assistant.py")
        && let Some(modules) = node::modules()
    {
        assistant.env("NB_TEST_AXE", modules.join("axe-core/axe.min.js"));
        succeed(&mut assistant);
    }
}

#[test]
fn jupyterlab_on_another_machine_uses_the_kernel_by_its_url() {
    let world = World::new();
    if let Some(mut gateway) = script(&world, "gateway.py") {
        succeed(&mut gateway);
    }
}

/// Two pages, two MCP clients and a shell for five seconds; ten pages for five minutes in `scripts/slow`.
#[test]
fn pages_an_agent_and_jupyterlab_end_with_the_same() {
    let world = World::new();
    if let Some(mut tabs) = script(&world, "web_tabs.py") {
        let [pages, seconds] = if is_thorough() {
            ["10", "300"]
        } else {
            ["2", "5"]
        };
        succeed(tabs.args([pages, seconds]));
    }
}

/// `cargo test --release` measures what users have.
#[test]
#[ignore = "a measurement"]
fn how_soon_jupyterlab_shows_an_edit_and_its_first_cell() {
    let world = World::new();
    if let Some(mut speed) = script(&world, "live_speed.py") {
        succeed(&mut speed);
    }
}

/// `cargo test --release` measures what users have; see `benches/README.md`.
#[test]
#[ignore = "a measurement"]
fn the_page_under_load() {
    let world = World::new();
    if let Some(mut load) = script(&world, "web_load.py") {
        print!("{}", succeed(&mut load));
    }
}

#[test]
fn an_agent_in_a_chat_works_on_the_notebook_in_another_tab() {
    let world = World::new();
    succeed(world.nb().args(["serve", "--chat"]));
    let change = "x = 21\nx * 2";
    let answers = vec![
        gemini_calls(
            "mcp_nb_read_cell",
            &json!({ "notebook": "analysis.ipynb", "cell": "cell0001" }),
        ),
        gemini_calls(
            "mcp_nb_update_cell",
            &json!({ "notebook": "analysis.ipynb", "cell": "cell0001", "source": change }),
        ),
        gemini_calls(
            "mcp_nb_run_cell",
            &json!({ "notebook": "analysis.ipynb", "cell": "cell0001" }),
        ),
        gemini_text("The cell gives 42."),
    ];
    if let Some(agent) = gemini(&world, answers)
        && let Some(mut chat) = script(&world, "chat.py")
    {
        succeed(chat.arg(agent));
    }
}

#[test]
fn widgets_that_an_agent_made_are_rendered_and_react() {
    let world = World::new();
    if let Some(mut widgets) = script(&world, "widgets.py") {
        succeed(&mut widgets);
    }
}

/// The same without pages, in which the person in JupyterLab does much more.
#[test]
#[ignore = "slow: in scripts/slow"]
fn a_person_two_mcp_clients_and_a_shell_lose_nothing() {
    let world = World::new();
    if let Some(mut four) = script(&world, "four.py") {
        succeed(four.arg("300"));
    }
}
