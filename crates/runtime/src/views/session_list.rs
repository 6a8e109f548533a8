//! Lists sessions for people: newest first, filtered by state, last outcome, key and first input.
use outlast_ports::store::Store;
use outlast_views::{SessionFilter, SessionPage, SessionView, TitledSession};
use outlast_vocab::message::text_of;
use outlast_vocab::record::{Fact, Seq};
use outlast_vocab::{Error, SessionId};

/// Sessions read at once.
const READ: usize = 200;

/// Returns up to `limit` sessions before the given one. It reads about `examined_max` sessions at most, so a search
/// with few matches returns early with a position.
pub async fn page(
    store: &dyn Store,
    filter: &SessionFilter,
    before: Option<SessionId>,
    limit: usize,
    examined_max: usize,
) -> Result<SessionPage, Error> {
    let text = filter.text.as_ref().map(|text| text.to_lowercase());
    let (mut found, mut before, mut looked) = (Vec::new(), before, 0);
    loop {
        let takes_all = filter.state.is_none() && filter.last_end.is_none() && text.is_none();
        let read = if takes_all { limit - found.len() } else { READ };
        let rows = store.sessions(before, read).await?;
        let last = rows.len() < read;
        looked += rows.len();
        for session in rows {
            before = Some(session.id);
            let last_end = session.last_turn.map(|last| last.end);
            if filter.state.is_some_and(|state| state != session.state)
                || filter.last_end.is_some() && filter.last_end != last_end
            {
                continue;
            }
            let title = title(store, &session).await?;
            let holds = |text: &String| {
                let key = session.key.as_ref().is_some_and(|key| key.to_lowercase().contains(text));
                key || title.to_lowercase().contains(text)
            };
            if text.as_ref().is_none_or(holds) {
                found.push(TitledSession { session, title });
            }
            if found.len() == limit {
                return Ok(SessionPage { sessions: found, before });
            }
        }
        if last {
            return Ok(SessionPage { sessions: found, before: None });
        }
        if looked >= examined_max {
            return Ok(SessionPage { sessions: found, before });
        }
    }
}

/// Returns the title of a session: its first input, or its origin if it is an empty fork.
pub async fn title(store: &dyn Store, session: &SessionView) -> Result<String, Error> {
    let Some(first) = store.turns(session.id, 0, 1).await?.into_iter().next() else {
        let title = session.forked_from.map(|node| format!("fork of #{} of {}", node.seq, node.session));
        return Ok(title.unwrap_or_default());
    };
    let before = Seq(first.span.0.0.saturating_sub(1));
    let accepted = store.records(session.id, before, 1).await?.into_iter().next();
    Ok(match accepted.map(|record| record.fact) {
        Some(Fact::Accepted(accepted)) => text_of(&accepted.parts).into_owned(),
        _ => String::new(),
    })
}
