//! Data from a disk or another process: records, the journal of a turn, and envelopes.
use outlast_kernel::replay::TurnHistory;
use outlast_kernel::transcript;
use outlast_vocab::envelope::Envelope;
use outlast_vocab::record::{Fact, Record, Seq, chain_hash};
use outlast_vocab::{Hash, Millis, TurnId};

/// The maximum number of records of one journal.
const RECORDS: usize = 64;

/// Reads the body of a record. Everything that can be read has one meaning.
pub(crate) fn record(data: &[u8]) {
    let Ok(fact) = Fact::decode(data) else { return };
    let body = fact.encode();
    let read = Fact::decode(&body).expect("what was written reads back");
    assert_eq!(read, fact);
    assert_eq!(read.encode(), body);
    assert_eq!(
        (read.name(), read.is_node(), read.is_progress()),
        (fact.name(), fact.is_node(), fact.is_progress())
    );
}

/// Reads the facts of a turn, one per line as JSON. Folding them gives a history and a transcript, or an error.
pub(crate) fn history(data: &[u8]) {
    let mut records: Vec<Record> = Vec::new();
    let mut hash = Hash::ZERO;
    for json in data.split(|byte| *byte == b'\n').take(RECORDS) {
        let body = [&[1], json].concat();
        let Ok(fact) = Fact::decode(&body) else { continue };
        let (seq, turn, at) = (Seq(records.len() as u64 + 1), Some(TurnId::from_u128(1)), Millis(0));
        hash = chain_hash(&hash, seq, turn, at, &body);
        records.push(Record { seq, turn, at, hash, fact });
    }
    for cut in 0..=records.len() as u64 {
        let whole = transcript::of_turn(records.clone(), Seq(cut));
        assert_eq!(transcript::of_turn(records.clone(), Seq(cut)), whole);
    }
    if let Ok(history) = TurnHistory::of(records.clone()) {
        let last = records.iter().rfind(|record| record.fact.is_node()).map(Record::place);
        assert_eq!(history.last_node(), last);
        assert!(history.open_calls().all(|(_, _, call)| call.outcome.is_none()));
    }
}

/// Reads an envelope from another process.
pub(crate) fn envelope(data: &[u8]) {
    let Ok(envelope) = Envelope::decode(data) else { return };
    let json = serde_json::to_vec(&envelope).expect("envelopes are plain data");
    assert_eq!(Envelope::decode(&json).expect("what was written reads back"), envelope);
    envelope.command.fingerprint();
}
