//! The kernelspec that front ends list: installed once, mended when it would not work.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::{home, nb, open, opening, path, say};
use crate::python;
use crate::world::World;

#[test]
fn the_spec_is_installed_mended_and_removed() {
    let world = World::new();
    let health = || {
        let status = nb(&world, ["status", "--json"]).ended(0).json();
        status["spec"]["state"].clone()
    };
    let unserved = say(opening(&world, "t.ipynb").arg("--no-serve"))
        .ended(0)
        .json();
    assert_eq!(unserved["spec"], Value::Null);
    assert_eq!(health(), "missing");
    nb(&world, ["open"])
        .ended(0)
        .with("Select Kernel")
        .with("JupyterLab");
    assert_eq!(health(), "good");

    let served = nb(&world, ["serve", "--json"]).ended(0).json();
    assert_eq!(served["changed"], false);
    let (folder, program) = (path(&served["spec"]), path(&served["program"]));
    assert_eq!(folder, home(&world).join("jupyter/kernels/nb-shared"));
    assert_eq!(program, home(&world).join(".local/share/nb/bin/nb-proxy"));
    let text = std::fs::read(folder.join("kernel.json")).expect("it is installed");
    let spec: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(spec["argv"], json!([program, "-f", "{connection_file}"]));
    assert_eq!(spec["display_name"], "nb shared kernel");
    let mode = std::fs::metadata(&program)
        .expect("it is installed")
        .permissions()
        .mode();
    assert_eq!(mode & 0o111, 0o111);

    // Gone, of another version, or no longer to be run.
    std::fs::remove_file(&program).expect("remove it");
    assert_eq!(health(), "stale");
    nb(&world, ["status"])
        .ended(0)
        .with("is gone; next: nb serve");
    assert_eq!(open(&world, "t.ipynb")["spec"], "mended");
    assert_eq!(health(), "good");
    std::fs::copy("/bin/true", &program).expect("put another in its place");
    assert_eq!(health(), "stale");
    nb(&world, ["open"]).ended(0).with("mended");
    std::fs::write(folder.join("kernel.json"), "{").expect("damage it");
    assert_eq!(health(), "stale");
    assert_eq!(open(&world, "t.ipynb")["spec"], "mended");
    assert_eq!(nb(&world, ["serve", "--json"]).json()["changed"], false);

    let removed = nb(&world, ["unserve", "--json"]).ended(0).json();
    assert_eq!(removed["removed"], json!([folder, program]));
    nb(&world, ["unserve"]).ended(0).with("not installed");
    assert_eq!(health(), "missing");
    nb(&world, ["run", "1"]).ended(0);
}

#[test]
fn an_environment_can_have_the_spec_and_anothers_is_left_alone() {
    let world = World::new();
    let prefix = world.project().join("an env");
    let serve = |command: &str| {
        say(world
            .nb()
            .args([command, "--json", "--prefix"])
            .arg(&prefix))
    };
    let served = serve("serve").ended(0).json();
    let folder = prefix.join("share/jupyter/kernels/nb-shared");
    assert_eq!(path(&served["spec"]), folder);
    assert!(folder.join("logo-svg.svg").exists());
    serve("unserve").ended(0);
    std::fs::create_dir_all(&folder).expect("make the folder");
    std::fs::write(folder.join("kernel.json"), r#"{"argv":["other"]}"#).expect("write a spec");
    for command in ["serve", "unserve"] {
        let refused = serve(command).ended(5).json();
        assert_eq!(refused["error"]["kind"], "refused");
        assert!(refused["error"]["hints"][0].is_string(), "{refused}");
    }
    assert!(folder.join("kernel.json").exists());
    nb(&world, ["serve", "--user", "--prefix", "x"]).ended(2);
    assert!(python::interpreter().exists());
}
