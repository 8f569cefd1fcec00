//! `nb cp` to real servers and back.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Server;
use crate::world::{World, finish};

/// How many bytes one request of `nb cp` writes.
const PART: usize = 4 << 20;

#[track_caller]
fn cp(world: &World, code: i32, words: &[&str]) -> String {
    let mut command = world.nb();
    let (status, out, err) = finish(command.arg("cp").args(words));
    let output = format!("{out}{err}");
    assert_eq!(status.code(), Some(code), "{output}");
    output
}

#[track_caller]
fn copied(world: &World, words: &[&str]) -> Value {
    let mut command = world.nb();
    let (status, out, err) = finish(command.arg("cp").args(words).arg("--json"));
    assert!(status.success(), "{out}{err}");
    serde_json::from_str(&out).expect("it is JSON")
}

/// Returns bytes that do not repeat themselves in parts.
fn content(length: usize, seed: u8) -> Vec<u8> {
    let mut digest = [seed; 32];
    let mut bytes = Vec::with_capacity(length + 32);
    while bytes.len() < length {
        digest = Sha256::digest(digest).into();
        bytes.extend_from_slice(&digest);
    }
    bytes.truncate(length);
    bytes
}

fn part(file: &Path, content: &[u8]) -> std::path::PathBuf {
    let digest = Sha256::digest(content);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = file.file_name().expect("it has a name").to_string_lossy();
    file.with_file_name(format!("{name}.nb-part-{}", &digest[..12]))
}

#[track_caller]
fn has(file: &Path, content: &[u8]) {
    let found = std::fs::read(file).expect("read the copy");
    assert!(
        found == content,
        "{} differs: {} bytes",
        file.display(),
        found.len()
    );
    let folder = file.parent().expect("it has a folder");
    let left = std::fs::read_dir(folder).expect("list").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    let is_part = |name: &std::ffi::OsString| name.to_string_lossy().contains(".nb-part-");
    assert!(!left.iter().any(is_part), "{left:?}");
}

#[test]
fn files_go_to_a_server_and_come_back() {
    let (world, server) = (World::new(), Server::jupyter());
    server.add_to(&world, "gpu");
    let (local_folder, remote_folder) = (world.project(), server.files());
    let odd = "a b#?%ü&.txt";
    for (name, bytes) in [
        ("big.bin", content(2 * PART + 17, 1)),
        ("exact.bin", content(PART, 2)),
        ("empty.csv", Vec::new()),
        (odd, b"x".to_vec()),
    ] {
        std::fs::write(local_folder.join(name), &bytes).expect("write a file");
        let answer = copied(&world, &[name, "gpu:data/deep/"]);
        assert_eq!(answer["files"][0]["size_bytes"], bytes.len());
        assert_eq!(answer["files"][0]["resumed_bytes"], 0);
        assert_eq!(answer["files"][0]["verified"], true);
        has(&remote_folder.join("data/deep").join(name), &bytes);
        let remote = format!("gpu:data/deep/{name}");
        copied(&world, &[&remote, "back.bin"]);
        has(&local_folder.join("back.bin"), &bytes);
        std::fs::remove_file(local_folder.join("back.bin")).expect("remove it");
    }
    cp(&world, 0, &["big.bin", "gpu:data/deep"]);
    assert!(cp(&world, 0, &["big.bin", "gpu:data/deep"]).contains("was there"));
    cp(&world, 0, &["exact.bin", "gpu:data/other.bin"]);
    has(&remote_folder.join("data/other.bin"), &content(PART, 2));
    std::fs::create_dir(local_folder.join("results")).expect("make a folder");
    cp(
        &world,
        0,
        &["gpu:data/other.bin", "gpu:data/deep/empty.csv", "results"],
    );
    has(&local_folder.join("results/other.bin"), &content(PART, 2));
    has(&local_folder.join("results/empty.csv"), b"");
    cp(&world, 0, &[odd, "gpu:"]);
    has(&remote_folder.join(odd), b"x");
    // The folder of a name is made too.
    cp(&world, 0, &[odd, "gpu:new/deep/x.csv"]);
    has(&remote_folder.join("new/deep/x.csv"), b"x");
}

#[test]
fn a_copy_that_the_server_cannot_write_fails_at_once() {
    let (world, server) = (World::new(), Server::jupyter());
    server.add_to(&world, "gpu");
    std::fs::write(world.project().join("a.csv"), "x").expect("write a file");
    // A file where its folder is to be.
    std::fs::write(server.files().join("file"), "x").expect("write a file");
    let start = std::time::Instant::now();
    cp(&world, 1, &["a.csv", "gpu:file/a.csv"]);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn a_copy_replaces_another_content_only_if_told_to() {
    let (world, server) = (World::new(), Server::jupyter());
    server.add_to(&world, "gpu");
    let (local_folder, remote_folder) = (world.project(), server.files());
    std::fs::write(local_folder.join("a.csv"), "mine").expect("write a file");
    std::fs::write(remote_folder.join("a.csv"), "theirs").expect("write a file");
    assert!(cp(&world, 5, &["a.csv", "gpu:"]).contains("--force"));
    has(&remote_folder.join("a.csv"), b"theirs");
    assert!(cp(&world, 5, &["gpu:a.csv", "."]).contains("--force"));
    has(&local_folder.join("a.csv"), b"mine");
    cp(&world, 0, &["a.csv", "gpu:", "--force"]);
    has(&remote_folder.join("a.csv"), b"mine");
    std::fs::write(remote_folder.join("a.csv"), "newer").expect("write a file");
    cp(&world, 0, &["gpu:a.csv", ".", "--force"]);
    has(&local_folder.join("a.csv"), b"newer");
}

#[test]
fn a_copy_that_was_broken_off_goes_on() {
    let (world, server) = (World::new(), Server::jupyter());
    server.add_to(&world, "gpu");
    let (local_folder, remote_folder) = (world.project(), server.files());
    let bytes = content(16 * PART, 3);
    let (local_file, remote_file) = (local_folder.join("big.bin"), remote_folder.join("big.bin"));
    std::fs::write(&local_file, &bytes).expect("write a file");
    let growing = part(&remote_file, &bytes);
    let mut command = world.nb();
    command
        .args(["cp", "big.bin", "gpu:"])
        .stdout(Stdio::null());
    let mut copying = command.stderr(Stdio::null()).spawn().expect("start nb");
    while !std::fs::metadata(&growing).is_ok_and(|it| it.len() > PART as u64) {
        let ended = copying.try_wait().expect("ask for its end");
        assert_eq!(ended, None, "it ended before it was killed");
        // The copy needs the processor too.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    copying.kill().expect("kill nb");
    copying.wait().expect("it ends");
    assert!(!remote_file.exists());
    let answer = copied(&world, &["big.bin", "gpu:"]);
    let resumed = answer["files"][0]["resumed_bytes"]
        .as_u64()
        .expect("a number");
    assert!(
        resumed > PART as u64 && resumed < bytes.len() as u64,
        "{resumed}"
    );
    has(&remote_file, &bytes);

    // And back: a part that is there already is not asked for again.
    std::fs::remove_file(&local_file).expect("remove the file");
    std::fs::write(part(&local_file, &bytes), &bytes[..PART + 1]).expect("write a part");
    let answer = copied(&world, &["gpu:big.bin", "."]);
    assert_eq!(answer["files"][0]["resumed_bytes"], PART + 1);
    has(&local_file, &bytes);
}

#[test]
fn a_part_of_another_content_is_found_out() {
    let (world, server) = (World::new(), Server::jupyter());
    server.add_to(&world, "gpu");
    let (local_folder, remote_folder) = (world.project(), server.files());
    let bytes = content(PART + 1, 4);
    std::fs::write(local_folder.join("a.bin"), &bytes).expect("write a file");
    let growing = part(&remote_folder.join("a.bin"), &bytes);
    std::fs::write(&growing, content(PART, 5)).expect("write a wrong part");
    assert!(cp(&world, 1, &["a.bin", "gpu:"]).contains("is not the same (checksum)"));
    assert!(!growing.exists() && !remote_folder.join("a.bin").exists());
    cp(&world, 0, &["a.bin", "gpu:"]);
    has(&remote_folder.join("a.bin"), &bytes);
    // A link of the part's name is not followed.
    let victim = local_folder.join("victim");
    std::fs::write(&victim, "mine").expect("write a file");
    std::fs::remove_file(local_folder.join("a.bin")).expect("remove the file");
    let link = part(&local_folder.join("a.bin"), &bytes);
    std::os::unix::fs::symlink(&victim, &link).expect("make a link");
    cp(&world, 1, &["gpu:a.bin", "."]);
    assert_eq!(std::fs::read(&victim).expect("read it"), b"mine");
}

#[test]
fn what_cannot_be_copied_is_reported() {
    let (world, server) = (World::new(), Server::jupyter());
    server.add_to(&world, "gpu");
    let gateway = Server::kernel_gateway();
    gateway.add_to(&world, "gateway");
    std::fs::create_dir(server.files().join("folder")).expect("make a folder");
    std::fs::create_dir(world.project().join("mine")).expect("make a folder");
    std::fs::write(world.project().join("a.csv"), "x").expect("write a file");
    assert!(cp(&world, 1, &["gpu:none.csv", "."]).contains("is not there (404)"));
    assert!(cp(&world, 2, &["gpu:folder", "."]).contains("is not a file"));
    assert!(cp(&world, 2, &["mine", "gpu:"]).contains("is not a file"));
    assert!(cp(&world, 1, &["none.csv", "gpu:"]).contains("none.csv"));
    assert!(cp(&world, 2, &["a.csv", "gateway:"]).contains("has no files"));
    assert!(cp(&world, 2, &["a.csv", "other:"]).contains("known are"));
    assert!(cp(&world, 2, &["a.csv", "b.csv"]).contains("nb cp FILE"));
    assert!(cp(&world, 1, &["gpu:../../etc/passwd", "."]).contains("server gpu"));
    assert!(!world.project().join("passwd").exists());
}

#[test]
fn files_go_to_a_hubs_user() {
    let Some(hub) = Server::hub() else { return };
    let world = World::new();
    hub.add_to(&world, "hub");
    std::fs::write(world.project().join("a.csv"), "x").expect("write a file");
    cp(&world, 0, &["a.csv", "hub:"]);
    has(&hub.files().join("a.csv"), b"x");
}
