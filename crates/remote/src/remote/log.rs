//! The log of the bridge, which is its stderr: a file beside the kernel's connection file.

use jiff::Zoned;

/// Writes a line into the log.
pub(super) fn log(text: &str) {
    eprintln!("{} {text}", Zoned::now().strftime("%Y-%m-%d %H:%M:%S"));
}
