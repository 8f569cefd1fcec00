//! What a proxy shows to others, and what it does not show.

use crate::world::{World, succeed};

#[test]
fn what_passes_can_be_seen() {
    let world = World::opened();
    succeed(&mut world.script("seeing.py", "nb-shared"));
}

#[test]
fn strangers_get_nothing() {
    let world = World::opened();
    succeed(&mut world.script("guarded.py", "nb-shared"));
}
