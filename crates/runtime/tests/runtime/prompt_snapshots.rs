//! The prompt of a recorded model call can be reconstructed from the journal.
use crate::common::*;
use crate::hooks::{all, hooked};
use outlast_ledger::memory::MemoryStore;
use outlast_runtime::RuntimeConfig;
use outlast_runtime::turn::prompt_snapshot;
use outlast_runtime::views::timeline;
use outlast_vocab::Kind;
use outlast_vocab::effect::EffectKind;
use std::sync::Arc;

/// Returns the system prompt and messages of each call, as the model got them and as reconstructed.
async fn both(lines: Vec<Line>, change: impl FnOnce(&mut RuntimeConfig)) -> [Vec<(String, Vec<String>)>; 2] {
    let life = live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, change).await.unwrap();
    let store = life.runtime.store();
    let mut again = Vec::new();
    for text in ["go", "on"] {
        let turn = life.send(text).await;
        life.end(turn).await;
        for effect in timeline::of_turn(store.turn_records(turn).await.unwrap()).effects {
            if effect.kind == EffectKind::ModelCall {
                let shown =
                    prompt_snapshot::to_model(store.as_ref(), turn, effect.key.as_str()).await.unwrap();
                let texts = shown.messages.iter().map(|message| message.text().into_owned()).collect();
                again.push((shown.system, texts));
            }
        }
        let missing = prompt_snapshot::to_model(store.as_ref(), turn, "turn/9/model/9").await.unwrap_err();
        assert_eq!(missing.kind(), Kind::NodeNotFound);
    }
    let prompts =
        life.script.asked.lock().unwrap().iter().map(|(system, _)| system.clone()).collect::<Vec<_>>();
    let seen = prompts.into_iter().zip(life.script.shown.lock().unwrap().clone()).collect();
    [seen, again]
}

fn lines() -> Vec<Line> {
    vec![call("put", "a"), Line::Say("done"), call("flaky", "b"), Line::Say("again")]
}

#[tokio::test(start_paused = true)]
async fn prompt_snapshots_are_rebuilt_call_by_call() {
    let [seen, again] = both(lines(), |_| {}).await;
    assert_eq!(seen.len(), 4);
    assert_eq!(again, seen);
}

#[tokio::test(start_paused = true)]
async fn prompt_snapshot_includes_hook_additions() {
    let [seen, again] = both(lines(), hooked(all())).await;
    assert_eq!(seen[0].0, "Test.\n\nBe short.");
    assert_eq!(again, seen);
}
