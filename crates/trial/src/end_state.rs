//! The state that a run leaves in the database once it is idle.
use crate::client::SESSION;
use outlast_kernel::transcript;
use outlast_ports::branches::MAIN_HEAD;
use outlast_ports::store::Store;
use outlast_views::{HistoryTurn, SessionState};
use outlast_vocab::effect::{BatchCall, Command};
use outlast_vocab::message::Message;
use outlast_vocab::record::{EffectRequested, Fact, Record, Seq, TurnEnd};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::{CallId, Error, ReplayKey};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The number of rows to read at a time.
const PAGE: usize = 1_000;

/// The state that a run left.
#[derive(Debug)]
pub(crate) struct EndState {
    /// The result of verifying the hash chain.
    pub(crate) chain_check: Result<u64, Error>,
    pub(crate) state: SessionState,
    /// How each input ended; `None` if it has not.
    pub(crate) ends: Vec<Option<TurnEnd>>,
    /// The same as text that does not vary between runs.
    pub(crate) end_texts: Vec<String>,
    pub(crate) transcript: Vec<Message>,
    pub(crate) values: BTreeMap<String, Value>,
    /// The claimed calls, in order.
    pub(crate) claimed_calls: Vec<ClaimedCall>,
    /// The calls that are listed for an operator as unknown.
    pub(crate) unknown_calls: BTreeSet<CallId>,
}

/// A call as recorded in the journal.
#[derive(Debug)]
pub(crate) struct ClaimedCall {
    pub(crate) call: PreparedCall,
    /// How often the call was parked and restarted from its beginning.
    pub(crate) parked: usize,
}

impl EndState {
    /// Reads the state from the store.
    pub(crate) async fn read(store: &dyn Store) -> Result<Self, Error> {
        let view = store.session_by_key(SESSION.to_owned()).await?;
        let turns = store.turns(view.id, 0, PAGE).await?;
        let shown = |end: &Option<TurnEnd>| match end {
            Some(TurnEnd::Joined { into }) => {
                let into = turns.iter().position(|turn| turn.id == *into);
                format!("joined input {}", into.map_or(0, |index| index + 1))
            }
            Some(end) => format!("{end:?}"),
            None => "has no end".to_owned(),
        };
        let ends: Vec<Option<TurnEnd>> = turns.iter().map(|turn| turn.end.clone()).collect();
        let head = view.heads.iter().find(|(name, _)| name == MAIN_HEAD).and_then(|(_, node)| *node);
        let history = match head {
            Some(node) => store.history(node, usize::MAX).await?,
            None => Vec::new(),
        };
        let messages = |turn: HistoryTurn| transcript::of_turn(turn.records, turn.last_in_branch).messages;
        let mut values = BTreeMap::new();
        for name in store.value_names(view.id, String::new(), usize::MAX).await? {
            if let Some(value) = store.value(view.id, name.clone()).await? {
                values.insert(name, value);
            }
        }
        Ok(Self {
            chain_check: store.verify(view.id).await,
            state: view.state,
            end_texts: ends.iter().map(shown).collect(),
            ends,
            transcript: history.into_iter().rev().flat_map(messages).collect(),
            values,
            claimed_calls: claimed_calls(&records(store, view.id).await?),
            unknown_calls: store.unknown(usize::MAX).await?.into_iter().map(|call| call.call).collect(),
        })
    }
}

async fn records(store: &dyn Store, session: outlast_vocab::SessionId) -> Result<Vec<Record>, Error> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let after = records.last().map_or(Seq(0), |record| record.seq);
        let mut page = store.records(session, after, PAGE).await?;
        if page.is_empty() {
            return Ok(records);
        }
        records.append(&mut page);
    }
}

fn claimed_calls(records: &[Record]) -> Vec<ClaimedCall> {
    let parked: Vec<&ReplayKey> = records
        .iter()
        .filter_map(|record| match &record.fact {
            Fact::Parked { waits } => Some(waits.iter().map(|wait| &wait.key)),
            _ => None,
        })
        .flatten()
        .collect();
    let mut claimed = Vec::new();
    for record in records {
        let Fact::Asked(EffectRequested { key, command: Command::ToolBatch(batch) }) = &record.fact else {
            continue;
        };
        for (index, call) in batch.calls.iter().enumerate() {
            if let BatchCall::Run(call) = call {
                let place = key.child(index, call.model_id.as_str());
                let parked = parked.iter().filter(|wait| wait.is_under(&place)).count();
                claimed.push(ClaimedCall { call: call.clone(), parked });
            }
        }
    }
    claimed
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use outlast_vocab::label::{Labels, Provenance};
    use outlast_vocab::message::{Part, ToolResult, ToolUse};
    use outlast_vocab::tool::EffectClass;
    use outlast_vocab::{Failure, Kind};

    /// The id of the only call in [`end_state`].
    pub(crate) const CALL: CallId = CallId::from_u128(7);

    /// Returns a run that made one call of this class, got this result and answered. Every promise holds.
    pub(crate) fn left(class: EffectClass, result: ToolResult) -> EndState {
        let model_id: outlast_vocab::message::ModelCallId = "call_0".parse().unwrap();
        let tool: outlast_vocab::message::ToolName = "pay".parse().unwrap();
        let arguments = outlast_vocab::message::CallArguments::Json(Value::Null);
        let ask = ToolUse::new(model_id.clone(), tool.clone(), arguments);
        let unknown = matches!(&result, ToolResult::Err(Failure { code: Kind::ToolOutcomeUnknown, .. }));
        let end = TurnEnd::Answered { text: "done".to_owned() };
        EndState {
            chain_check: Ok(1),
            state: SessionState::Idle,
            end_texts: vec![format!("{end:?}")],
            ends: vec![Some(end)],
            transcript: vec![
                Message::user("pay"),
                Message::Assistant { parts: vec![], calls: vec![ask] },
                Message::Tool { call: model_id.clone(), tool: tool.clone(), result },
                Message::Assistant { parts: vec![Part::text("done")], calls: vec![] },
            ],
            values: BTreeMap::from([("paid".to_owned(), Value::from(5))]),
            claimed_calls: vec![ClaimedCall {
                call: PreparedCall {
                    id: CALL,
                    model_id,
                    tool,
                    class,
                    arguments: Value::Null,
                    payload: None,
                    ruling: None,
                    labels: Labels::default(),
                    provenance: Provenance::default(),
                },
                parked: 0,
            }],
            unknown_calls: unknown.then_some(CALL).into_iter().collect(),
        }
    }

    pub(crate) fn paid() -> ToolResult {
        ToolResult::Ok(Value::from("paid"))
    }

    pub(crate) fn unknown_outcome() -> ToolResult {
        ToolResult::Err(Failure::new(Kind::ToolOutcomeUnknown, "unknown outcome"))
    }
}
