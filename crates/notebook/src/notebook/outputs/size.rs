//! Sizes as text for people.

/// Returns a number of bytes as people read it: `54 bytes`, `3.0 kB`, `84 MB`, `61.8 GB`.
pub fn size(bytes: u64) -> String {
    #[allow(
        clippy::cast_precision_loss,
        reason = "one decimal is all that is shown"
    )]
    let few = |unit: u64| bytes as f64 / unit as f64;
    match bytes {
        1 => "1 byte".to_owned(),
        0..1000 => format!("{bytes} bytes"),
        1000..10_000 => format!("{:.1} kB", few(1000)),
        10_000..1_000_000 => format!("{} kB", bytes / 1000),
        1_000_000..10_000_000 => format!("{:.1} MB", few(1_000_000)),
        10_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{:.1} GB", few(1_000_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_short() {
        for (bytes, words) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (3000, "3.0 kB"),
            (24_900, "24 kB"),
            (4_194_304, "4.2 MB"),
            (84_123_000, "84 MB"),
            (61_800_000_000, "61.8 GB"),
        ] {
            assert_eq!(size(bytes), words);
        }
    }
}
