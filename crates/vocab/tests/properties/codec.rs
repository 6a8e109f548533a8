//! Tests of the record codec: bodies read back as written, damaged bodies are an error or another fact, and
//! the chain detects damage.
use crate::facts::fact;
use outlast_vocab::record::{Fact, Seq, chain_hash};
use outlast_vocab::{Hash, Millis, TurnId};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_record_reads_back_as_it_was_written(fact in fact()) {
        let body = fact.encode();
        prop_assert_eq!(Fact::decode(&body).unwrap(), fact);
    }

    #[test]
    fn arbitrary_bytes_are_a_fact_or_error(bytes in vec(any::<u8>(), 0..64), fact in fact(), at in any::<usize>()) {
        let _ = Fact::decode(&bytes);
        let mut damaged = fact.encode();
        let at = at % damaged.len();
        damaged[at] ^= 1 << (at % 8);
        // A damaged body that still decodes has one meaning: encoding and decoding it again changes nothing.
        if let Ok(read) = Fact::decode(&damaged) {
            prop_assert_eq!(Fact::decode(&read.encode()).unwrap(), read);
        }
    }
    #[test]
    fn changed_byte_breaks_the_record_chain(
        fact in fact(),
        before in any::<[u8; 32]>(),
        (seq, turn, now) in any::<(u64, u128, u64)>(),
        (at, change) in (any::<usize>(), 1..=u8::MAX),
    ) {
        let (before, seq, turn, now) =
            (Hash::from_bytes(before), Seq(seq), Some(TurnId::from_u128(turn)), Millis(now));
        let body = fact.encode();
        let link = chain_hash(&before, seq, turn, now, &body);
        let mut changed = body.clone();
        changed[at % body.len()] ^= change;
        prop_assert_ne!(chain_hash(&before, seq, turn, now, &changed), link);
        // A missing or additional byte is a change too.
        changed.clone_from(&body);
        changed.remove(at % body.len());
        prop_assert_ne!(chain_hash(&before, seq, turn, now, &changed), link);
        changed.clone_from(&body);
        changed.insert(at % body.len(), change);
        prop_assert_ne!(chain_hash(&before, seq, turn, now, &changed), link);
        let mut other = *before.as_bytes();
        other[at % 32] ^= change;
        prop_assert_ne!(chain_hash(&Hash::from_bytes(other), seq, turn, now, &body), link);
    }
}
