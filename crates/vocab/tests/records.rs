//! Tests of the journal format against released versions: bodies of records, their chain, and ids derived
//! from them.
use outlast_vocab::effect::EffectKind;
use outlast_vocab::event::{Event, EventFrame};
use outlast_vocab::id::{CallId, DeliveryId, SessionId, TurnId};
use outlast_vocab::package::PinnedPackage;
use outlast_vocab::record::{Fact, Record, Seq, TurnEnd, chain_hash};
use outlast_vocab::{Hash, Millis, canonical_json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Returns every fixture of every version, by its path below `fixtures`.
fn fixtures() -> BTreeMap<String, Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut found = BTreeMap::new();
    for version in
        fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
    {
        for file in fs::read_dir(version).unwrap().map(|entry| entry.unwrap().path()) {
            let name = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            found.insert(name, fs::read(&file).unwrap());
        }
    }
    assert!(!found.is_empty(), "there are no fixtures");
    found
}

fn facts() -> Vec<Fact> {
    fixtures().values().map(|body| Fact::decode(body).unwrap()).collect()
}

/// Defines the tag of each variant and the list of all tags. A new variant does not compile until it is
/// listed.
macro_rules! tags {
    ($of:ident, $all:ident, $kind:ident: $($variant:ident = $tag:literal,)*) => {
        fn $of(value: &$kind) -> &'static str {
            match value { $($kind::$variant { .. } => $tag,)* }
        }

        const $all: &[&str] = &[$($tag),*];
    };
}

tags! { fact_tag, FACTS, Fact:
    Opened = "opened",
    HeadMoved = "head_moved",
    Accepted = "accepted",
    Started = "started",
    Asked = "asked",
    Answered = "answered",
    Performed = "performed",
    Reclaimed = "reclaimed",
    Parked = "parked",
    Stuck = "stuck",
    Resolved = "resolved",
    CancelRequested = "cancel_requested",
    EnvironmentRequested = "environment_requested",
    Undoable = "undoable",
    Hooked = "hooked",
    Payment = "payment",
    Ruled = "ruled",
    Paced = "paced",
    Resumed = "resumed",
    Tried = "tried",
    Interrupted = "interrupted",
    Reminded = "reminded",
    Escalated = "escalated",
    Repaired = "repaired",
    Compacted = "compacted",
    Settled = "settled",
    Ended = "ended",
}

tags! { end_tag, ENDS, TurnEnd:
    Answered = "answered",
    Refused = "refused",
    OutOfModelCalls = "out_of_model_calls",
    OutOfBudget = "out_of_budget",
    Cancelled = "cancelled",
    Aborted = "aborted",
    Abandoned = "abandoned",
    Failed = "failed",
    Sealed = "sealed",
    Joined = "joined",
}

#[test]
fn records_of_every_released_version_decode() {
    for (name, body) in fixtures() {
        let fact = Fact::decode(&body).unwrap_or_else(|error| panic!("{name}: {error}"));
        let file = name.rsplit('/').next().unwrap();
        assert!(file.starts_with(fact_tag(&fact)), "{name} holds `{}`", fact.name());
        // Bodies of the current version must be written exactly like this.
        if name.starts_with("v1/") {
            assert_eq!(String::from_utf8(fact.encode()), String::from_utf8(body), "{name}");
        }
    }
}

#[test]
fn packages_of_every_released_version_decode() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let packages = [
        ("package-without_contracts.json", false),
        ("package.json", true),
        ("package-with_rules.json", true),
        ("package-with_hooks.json", true),
        ("package-with_layers.json", true),
        ("package-with_points.json", true),
        ("package-with_rates.json", true),
        ("package-with_client_tools.json", true),
        ("package-with_labels.json", true),
        ("package-with_provenance.json", true),
        ("package-with_programs.json", true),
    ];
    for (name, has_contracts) in packages {
        let json = fs::read_to_string(root.join(name)).unwrap();
        let pinned: PinnedPackage =
            serde_json::from_str(&json).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(pinned.contracts.is_some(), has_contracts);
        // Turns refer to the package by the hash of these bytes.
        assert_eq!(canonical_json::to_string(&pinned), json, "{name}");
    }
}

#[test]
fn every_fact_effect_and_end_has_fixture() {
    let facts = facts();
    let tags: BTreeSet<&str> = facts.iter().map(fact_tag).collect();
    assert_eq!(tags, FACTS.iter().copied().collect());

    let effects: BTreeSet<&str> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::Performed(performed) => {
                assert_eq!(performed.command.kind(), performed.outcome.kind());
                Some(performed.command.kind().name())
            }
            _ => None,
        })
        .collect();
    assert_eq!(effects, EffectKind::ALL.iter().map(|kind| kind.name()).collect());

    let ends: BTreeSet<&str> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::Ended { end } => Some(end_tag(end)),
            _ => None,
        })
        .collect();
    assert_eq!(ends, ENDS.iter().copied().collect());
}

#[test]
fn fact_event_names_are_unique() {
    let names: BTreeSet<&str> = facts().iter().map(Fact::name).collect();
    assert_eq!(names.len(), FACTS.len());
}

#[test]
fn every_turn_end_is_listed_by_name() {
    assert_eq!(TurnEnd::NAMES, ENDS);
    for fact in facts() {
        if let Fact::Ended { end } = fact {
            assert_eq!(end.name(), end_tag(&end));
        }
    }
}

#[test]
fn released_chain_and_derived_ids_never_change() {
    let mut hash = Hash::ZERO;
    let mut seq = Seq(0);
    let released = |name: &str| {
        name.starts_with("v1/ended") && ![("aborted"), ("abandoned")].iter().any(|later| name.contains(later))
    };
    for (name, body) in fixtures().into_iter().filter(|(name, _)| released(name)) {
        seq = Seq(seq.0 + 1);
        let turn = name.contains("answered").then(|| TurnId::from_u128(7));
        hash = chain_hash(&hash, seq, turn, Millis(1_763_250_425_123), &body);
    }
    assert_eq!(hash.to_string(), "d0f8d1cce9d736fe01c5389ab01ec768b803dd611e47ab798ce878f58624fc3a");
    assert_eq!(
        CallId::derived(&[b"turn", b"turn/3/tools/0"]).to_string(),
        "cal_43337490a46a97ba7286be4c90d80fec"
    );
    // Receivers of outputs store these ids permanently.
    assert_eq!(
        DeliveryId::derived(&[b"crm", &7_u128.to_be_bytes()]).to_string(),
        "dlv_c2b9510dd0aed02b202df0813f4afc1e"
    );
    let command = serde_json::json!({"sleep": {"until": 9_007_199_254_740_993_u64, "é": [1.5, null]}});
    assert_eq!(
        canonical_json::fingerprint(&command).to_string(),
        "27cbbe4c62e589c3c44f780d850d0a9c00fb7af734afe837f55b00fb7bca2064"
    );
}

#[test]
fn every_fact_round_trips_through_event_frame() {
    let session = SessionId::from_u128(1);
    for fact in facts() {
        let record =
            Record { seq: Seq(4), turn: Some(TurnId::from_u128(2)), at: Millis(7), hash: Hash::ZERO, fact };
        let event = Event::Durable(Box::new(record));
        let json = serde_json::to_value(event.frame(session)).unwrap();
        let frame: EventFrame = serde_json::from_value(json).unwrap();
        assert_eq!((frame.session, frame.into_event()), (session, Some(event)));
    }
}
