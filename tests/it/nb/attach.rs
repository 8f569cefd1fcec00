//! Kernels that another program started.

use super::{nb, open, path};
use crate::world::{World, succeed};

#[test]
fn a_kernel_that_jupyter_started_is_shared_and_never_ended() {
    let world = World::served();
    succeed(&mut world.script("attach.py", "nb-shared"));
}

#[test]
fn a_kernel_that_a_jupyter_server_started_is_shared_by_its_id() {
    let world = World::served();
    succeed(&mut world.script("attach_server.py", "nb-shared"));
}

#[test]
fn what_is_no_running_kernel_is_not_attached() {
    let world = World::new();
    let attach = |file: &str| nb(&world, ["open", "b.ipynb", "--attach", file]);
    attach("none.json").ended(6).with("runtime");
    attach("/no/such/file.json").ended(6);
    let file = world.project().join("k.json");
    let a = open(&world, "a.ipynb");
    let good = std::fs::read_to_string(path(&a["connection_file"])).expect("it was written");
    for (text, why, code) in [
        ("{", "not JSON", 1),
        ("{}", "it has no", 1),
        (
            r#"{"curve_publickey":"x","ip":"127.0.0.1"}"#,
            "without CurveZMQ",
            1,
        ),
        (
            r#"{"transport":"tcp","ip":"127.0.0.1","key":"x","shell_port":1,"iopub_port":2,
                "stdin_port":3,"control_port":4,"hb_port":5}"#,
            "no kernel listens",
            6,
        ),
        (&good.replace("python3", "nb-shared"), "front end's own", 5),
    ] {
        std::fs::write(&file, text).expect("write it");
        attach("k.json").ended(code).with(why).with("hint: ");
    }
    let its = a["connection_file"].as_str().expect("a path");
    attach(its).ended(5).with("--kernel-of ");
    assert!(!world.project().join("b.ipynb").exists());
    // A kernel that was opened in another project counts as another program's here.
    std::fs::write(&file, &good).expect("write it");
    attach("k.json").ended(0).with("attached");
    nb(&world, ["run", "-n", "b.ipynb", "print(6 * 7)"])
        .ended(0)
        .with("42");
    // A kernel does not answer requests that are signed with another key.
    let key = serde_json::from_str::<serde_json::Value>(&good).expect("JSON")["key"].clone();
    let key = key.as_str().expect("a key");
    std::fs::write(&file, good.replace(key, "another")).expect("write it");
    let words = [
        "open",
        "c.ipynb",
        "--attach",
        "k.json",
        "--timeout",
        "0.2",
        "--json",
    ];
    let mute = nb(&world, words).ended(4).json();
    assert_eq!(mute["error"]["kind"], "still-running", "{mute}");
    std::fs::write(&file, &good).expect("put it back");
    nb(&world, ["shutdown", "b.ipynb"]).ended(0).with("let go");
    nb(&world, ["run", "-n", "a.ipynb", "1"]).ended(0);
}
