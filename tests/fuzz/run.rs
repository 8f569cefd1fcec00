//! Runs each fuzz target with its seeds and with random bytes, without a fuzzer: the targets compile on a stable
//! compiler, and hold for some inputs.

#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    unused_attributes,
    reason = "the targets and their inputs are written for a fuzzer's programs"
)]

// The targets name these two crates.
extern crate self as libfuzzer_sys;
extern crate self as nb_fuzz;

pub use arbitrary;

#[path = "src/lib.rs"]
mod inputs;
pub use inputs::*;

/// How many random inputs each target gets; `NB_FUZZ_INPUTS` is another number.
const INPUTS: u64 = 300;

/// Returns the seeds of a target's module, and random bytes of up to 4 kB.
fn all_bytes(module: &str) -> Vec<Vec<u8>> {
    let (_, target) = module.rsplit_once("::").expect("the targets are modules");
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds");
    let seeds = std::fs::read_dir(seeds.join(target)).into_iter().flatten();
    let read = |seed: std::io::Result<std::fs::DirEntry>| std::fs::read(seed?.path());
    let mut all: Vec<_> = seeds.map(|seed| read(seed).expect("read a seed")).collect();
    // xorshift64: the same bytes in each run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let inputs = std::env::var("NB_FUZZ_INPUTS").ok();
    let inputs = inputs.and_then(|it| it.parse().ok()).unwrap_or(INPUTS);
    for number in 0..inputs {
        // Small bytes and letters occur more often: they choose variants, and are text.
        let length = (random() % (1 << (number % 13))) as usize;
        let byte = |random: u64| match random % 4 {
            0 => (random >> 8) as u8,
            1 => (random >> 8) as u8 % 8,
            _ => b' ' + (random >> 8) as u8 % 95,
        };
        all.push((0..length).map(|_| byte(random())).collect());
    }
    all
}

macro_rules! targets {
    ($($name:ident $path:literal),* $(,)?) => {
        $(#[path = $path] mod $name;)*
    };
}

targets! {
    bridge "fuzz_targets/bridge.rs",
    commands "fuzz_targets/commands.rs",
    connection_file "fuzz_targets/connection_file.rs",
    fold "fuzz_targets/fold.rs",
    graph "fuzz_targets/graph.rs",
    greeting "fuzz_targets/greeting.rs",
    header "fuzz_targets/header.rs",
    json "fuzz_targets/json.rs",
    live "fuzz_targets/live.rs",
    merge "fuzz_targets/merge.rs",
    message "fuzz_targets/message.rs",
    notebook "fuzz_targets/notebook.rs",
    operations "fuzz_targets/operations.rs",
    readable "fuzz_targets/readable.rs",
    zmtp "fuzz_targets/zmtp.rs",
}

/// Makes a test of a fuzz target. The macro of the fuzzer's library has this name. It is below the targets, so that they
/// import it.
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: $type:ty| $body:block) => {
        fn take($input: $type) $body

        #[test]
        fn holds_for_its_seeds_and_for_random_bytes() {
            for bytes in $crate::all_bytes(module_path!()) {
                let unstructured = $crate::arbitrary::Unstructured::new(&bytes);
                if let Ok(input) = $crate::arbitrary::Arbitrary::arbitrary_take_rest(unstructured) {
                    take(input);
                }
            }
        }
    };
}
