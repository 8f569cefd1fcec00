//! Drops privileges and processors before a kernel starts.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    sched_getaffinity, sched_setaffinity, set_capabilities,
};

/// Drops every capability for good: root keeps only its user id and its files. With an empty bounding
/// set no program that is started later gets one back.
pub(super) fn drop_privileges() -> io::Result<()> {
    let held = capabilities(None)?;
    if held.effective.is_empty() && held.permitted.is_empty() {
        return Ok(());
    }
    for number in 0..64 {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            // The system knows neither this privilege nor any with a higher number.
            Err(rustix::io::Errno::INVAL) => break,
            done => done?,
        }
    }
    let none = CapabilitySet::empty();
    let none = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    Ok(set_capabilities(None, none)?)
}

/// Limits this process to `count` of its processors; different kernels get different ones.
pub(super) fn limit_cpus(count: usize) -> io::Result<()> {
    let mut set = sched_getaffinity(None)?;
    let has: Vec<usize> = (0..PROCESSORS_MAX).filter(|cpu| set.is_set(*cpu)).collect();
    let first = std::process::id() as usize;
    set.clear();
    for n in 0..count.min(has.len()) {
        set.set(has[(first + n) % has.len()]);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// The maximum number of processors in a set.
const PROCESSORS_MAX: usize = 1024;
