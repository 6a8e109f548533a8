//! Tests of the rule and of the registry. `server::repeats` tests requests over sockets.
use super::*;

fn state(name: &str) -> RequestState {
    let at = Millis(0);
    match name {
        "open" => RequestState::Open,
        "broken" => RequestState::Broken { at },
        "failed" => RequestState::Delivered { at, end: DeliveredEnd::NoAnswer },
        "answered" => RequestState::Delivered { at, end: DeliveredEnd::Answer },
        "recorded" => RequestState::Recorded,
        other => panic!("no state is called {other}"),
    }
}

#[test]
fn repeat_joins_only_what_no_client_has() {
    for (earlier, plain, retry) in [
        ("open", RepeatAction::Wait, RepeatAction::Wait),
        ("broken", RepeatAction::Join, RepeatAction::Join),
        ("failed", RepeatAction::Join, RepeatAction::Join),
        ("answered", RepeatAction::StartNew, RepeatAction::Join),
        ("recorded", RepeatAction::Join, RepeatAction::Join),
    ] {
        assert_eq!(
            (action(state(earlier), false), action(state(earlier), true)),
            (plain, retry),
            "{earlier}"
        );
    }
}

fn hash(text: &str) -> Hash {
    Hash::of(text.as_bytes())
}

fn turn(number: u128) -> TurnId {
    TurnId::from_u128(number)
}

fn turns(entries: &RequestEntries) -> Vec<u128> {
    let mut turns: Vec<u128> = entries.by_request.keys().map(|(_, turn)| turn.to_u128()).collect();
    turns.sort_unstable();
    turns
}

#[test]
fn full_registry_forgets_oldest_of_largest_caller() {
    let table = RequestTable::new(4);
    let mut entries = table.lock();
    entries.add(Some(hash("bob")), hash("a"), turn(1), RequestState::Open);
    for number in 2..=7 {
        entries.add(Some(hash("ann")), hash("b"), turn(number), RequestState::Open);
    }
    assert_eq!(turns(&entries), [1, 5, 6, 7]);
    // A forgotten request stays forgotten.
    entries.set(hash("b"), turn(2), RequestState::Broken { at: Millis(0) });
    assert_eq!(turns(&entries), [1, 5, 6, 7]);
    for number in [1, 5, 6, 7] {
        entries.remove(hash(if number == 1 { "a" } else { "b" }), turn(number));
    }
    assert!(entries.by_request.is_empty() && entries.by_caller.is_empty());
}

#[test]
fn recorded_turn_does_not_replace_an_open_request() {
    let table = RequestTable::new(4);
    let mut entries = table.lock();
    entries.add(Some(hash("bob")), hash("a"), turn(1), RequestState::Open);
    entries.add_recorded(hash("a"), turn(1));
    entries.add_recorded(hash("a"), turn(2));
    let found: Vec<_> = entries.newest_first(hash("a")).collect();
    assert_eq!(found, [(turn(2), RequestState::Recorded), (turn(1), RequestState::Open)]);
    assert_eq!(entries.newest_first(hash("b")).count(), 0);
}
