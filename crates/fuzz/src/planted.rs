//! A fault that only guided search finds: the test of the whole set-up.
use std::hint::black_box;

/// What has to be found, one byte after the other. By chance it takes 2⁶⁴ tries.
const HIDDEN: &[u8; 8] = b"\xf0utl\x00st!";

/// Panics where the hidden bytes are. Each right byte is a branch of its own; `cargo xtask fuzz` fails if they are not
/// found.
pub(crate) fn planted(data: &[u8]) {
    // The optimizer must not make one comparison of eight.
    let right = |place: usize| black_box(data.get(place)) == Some(&HIDDEN[place]);
    let found = right(0) && right(1) && right(2) && right(3) && right(4) && right(5) && right(6) && right(7);
    assert!(!found, "found what was hidden");
}
