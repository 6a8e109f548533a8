//! Pagination cursors: signed for one organisation and one list, so that clients cannot forge them.
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::{Error, Hash, Kind, OrgId};
use std::fmt::Write as _;

/// Signs and verifies the cursors of one list for one caller.
pub struct CursorSigner<'a> {
    secret: &'a [u8; 32],
    org: OrgId,
    list: &'static str,
}

impl<'a> CursorSigner<'a> {
    /// Creates the cursors of this list.
    pub fn of(secret: &'a [u8; 32], visibility: OrgVisibility, list: &'static str) -> Self {
        Self { secret, org: visibility.home(), list }
    }

    /// Encodes and signs a position in the list.
    pub fn sign(&self, place: &str) -> String {
        let mut cursor = format!("cur_{}", self.signature(place));
        for byte in place.bytes() {
            // Writing to a `String` cannot fail.
            let _ = write!(cursor, "{byte:02x}");
        }
        cursor
    }

    /// Returns the position that a cursor encodes. Rejects a cursor of another server, list or organisation.
    pub fn verify(&self, cursor: &str) -> Result<String, Error> {
        let wrong = || {
            Error::new(Kind::InputInvalid, "the cursor does not belong to this list; start without a cursor")
        };
        let place = decode_position(cursor).ok_or_else(wrong)?;
        let signed = cursor["cur_".len()..][..64].parse::<Hash>().map_err(|_| wrong())?;
        if self.signature(&place).eq_constant_time(&signed) { Ok(place) } else { Err(wrong()) }
    }

    fn signature(&self, place: &str) -> Hash {
        let org = self.org.to_u128().to_be_bytes();
        let parts = [org.as_slice(), self.list.as_bytes(), place.as_bytes()];
        Hash::signed(self.secret, "outlast cursor v1", parts)
    }
}

fn decode_position(cursor: &str) -> Option<String> {
    let one_spelling = |hex: &&str| hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let hex = cursor.strip_prefix("cur_").filter(one_spelling)?;
    let (_, place) = hex.split_at_checked(64)?;
    let byte =
        |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?, 16).ok();
    String::from_utf8(place.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_signed_for_its_list_and_organisation() {
        let (secret, acme) = ([7; 32], OrgVisibility::Org(OrgId::from_u128(1)));
        let sessions = CursorSigner::of(&secret, acme, "sessions");
        let cursor = sessions.sign("ses_7");
        assert_eq!(sessions.verify(&cursor).unwrap(), "ses_7");
        let others = [
            CursorSigner::of(&secret, acme, "audit"),
            CursorSigner::of(&secret, OrgVisibility::Org(OrgId::from_u128(2)), "sessions"),
            CursorSigner::of(&[8; 32], acme, "sessions"),
        ];
        assert!(others.iter().all(|other| other.verify(&cursor).is_err()));
        for (place, old) in cursor.char_indices() {
            for new in ['0', '1', 'F', 'é'].into_iter().filter(|new| *new != old) {
                let forged = format!("{}{new}{}", &cursor[..place], &cursor[place + 1..]);
                assert!(sessions.verify(&forged).is_err(), "{forged}");
            }
        }
        for (place, byte) in cursor.bytes().enumerate() {
            for bit in 0..7 {
                let mut forged = cursor.clone().into_bytes();
                forged[place] = byte ^ (1 << bit);
                let forged = String::from_utf8(forged).expect("seven bits are ASCII");
                assert!(sessions.verify(&forged).is_err(), "{forged}");
            }
        }
        for wrong in ["", "cur_", "ses_7", &cursor[..cursor.len() - 1], &format!("{cursor}0")] {
            assert!(sessions.verify(wrong).is_err(), "{wrong}");
        }
    }
}
