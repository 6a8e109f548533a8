//! A planted fault that only a guided search finds, to test the whole set-up.
use std::hint::black_box;

/// The bytes to find, one after the other. A random search takes 2⁶⁴ tries.
const HIDDEN: &[u8; 8] = b"\xf0utl\x00st!";

/// Panics on the hidden bytes. Each correct byte is a separate branch. `cargo xtask fuzz` fails if they are not found.
pub(crate) fn planted(data: &[u8]) {
    // Prevents the optimizer from merging the eight comparisons.
    let right = |place: usize| black_box(data.get(place)) == Some(&HIDDEN[place]);
    let found = right(0) && right(1) && right(2) && right(3) && right(4) && right(5) && right(6) && right(7);
    assert!(!found, "found what was hidden");
}
