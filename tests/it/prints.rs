//! Flushed prints through the proxy: none is lost.

use crate::world::{World, succeed};

/// A modest number: a kernel drops what its reader does not take fast enough, and the tests run
/// debug builds, several at once. `tests/python/prints.py` says how to run the full figure.
#[test]
fn flushed_prints_all_arrive() {
    let world = World::opened();
    let mut script = world.script("prints.py", "nb-shared");
    succeed(script.args(["--lines", "800", "--rounds", "3"]));
}
