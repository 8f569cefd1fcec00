//! A crash of whoever opens leaves nothing that the next `nb open` does not put right.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::{descendants, home, kill, nb, open, opening, path, pid, shell, sockets};
use crate::world::World;

const ROUNDS: usize = 8;

#[test]
fn opens_that_are_killed_at_any_moment_are_put_right() {
    let seed = std::env::var("NB_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| RandomState::new().hash_one(()));
    eprintln!("NB_TEST_SEED={seed}");
    let mut random = Random(seed);
    let world = World::new();
    let began = Instant::now();
    open(&world, "t.ipynb");
    let whole = began.elapsed();
    nb(&world, ["shutdown"]).ended(0);
    for round in 0..ROUNDS {
        let after = whole.mul_f64(random.part() * 1.1);
        eprintln!("round {round}: killed after {after:?}");
        let by_shell = round % 2 == 1;
        let mut child = if by_shell {
            shell(&world, SCRIPT)
        } else {
            opening(&world, "t.ipynb")
        }
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start it");
        if !ends_within(&mut child, after) {
            let family = if by_shell {
                descendants(child.id())
            } else {
                vec![child.id()]
            };
            family.into_iter().rev().for_each(kill);
        }
        child.wait().expect("it was killed");
        let mut sockets_then = all_sockets(&world);

        let opened = open(&world, "t.ipynb");
        nb(&world, ["run", "print(6 * 7)"]).ended(0).with("42");
        let status = nb(&world, ["status", "--json"]).ended(0).json();
        assert_eq!(status["sessions"][0]["kernel_pid"], opened["kernel_pid"]);
        sockets_then.extend(sockets(&path(&opened["connection_file"])));
        nb(&world, ["shutdown"]).ended(0);

        assert!(all_sockets(&world).is_empty(), "{:?}", all_sockets(&world));
        for socket in sockets_then {
            assert!(!socket.exists(), "{} is left", socket.display());
        }
        assert!(
            files_in(home(&world).join("runtime")).is_empty(),
            "{:?}",
            files_in(home(&world).join("runtime"))
        );
        assert!(
            files_in(world.project().join(".nb/connections")).is_empty(),
            "{:?}",
            files_in(world.project().join(".nb/connections"))
        );
        let left = world.processes();
        assert!(
            left.is_empty(),
            "left after the kernel {}: {left:#?}",
            pid(&opened)
        );
    }
}

const SCRIPT: &str = "\"$NB_TEST_BINARY\" open t.ipynb --python \"$NB_TEST_PYTHON\"; true";

fn ends_within(child: &mut Child, time: Duration) -> bool {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if child.try_wait().expect("ask for it").is_some() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// The sockets of every connection file of the project.
fn all_sockets(world: &World) -> Vec<PathBuf> {
    files_in(world.project().join(".nb/connections"))
        .iter()
        .flat_map(|file| sockets(file))
        .collect()
}

fn files_in(folder: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    /// Returns a number from 0 to 1.
    fn part(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
