//! Tests of `outlast demo`: it kills, resumes, and keeps its promises.
use crate::place::Place;

#[test]
fn demo_keeps_its_guarantees_over_five_kills() {
    let place = Place::new();
    let output = place.output(&["demo", "--dir", "demo", "--seed", "7"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let kills = text.lines().filter(|line| line.contains("SIGKILL  ")).count();
    assert!(kills >= 5, "{text}");
    let passed: Vec<&str> = text.lines().filter(|line| line.ends_with('✓')).collect();
    assert_eq!(passed.len(), 4, "{text}");
    let again = place.output(&["demo", "--dir", "demo"]);
    assert_eq!(again.status.code(), Some(1), "a directory that is not empty is refused");
}
