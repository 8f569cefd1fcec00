//! VS Code on the shared kernel: its own libraries, its order of messages, its ways to launch,
//! restart and kill. `tests/node/vscode.js` says what it does.

use crate::world::{World, succeed};

/// Runs a scenario of `tests/node` in the project of this world.
fn scenario(world: &World, name: &str) {
    if let Some(mut command) = world.node(name) {
        succeed(&mut command);
    }
}

#[test]
fn a_notebook_is_used() {
    let world = World::opened();
    scenario(&world, "vscode_use.js");
}
