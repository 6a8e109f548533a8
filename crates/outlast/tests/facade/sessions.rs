//! Handles for sessions and turns.
use crate::stage::{Gate, Gatekeeper, scripted};
use outlast::prelude::*;
use outlast::store::{CancelOutcome, ForkRequest, ForkTo, SessionState};
use outlast::vocab::event::{Event, LiveEvent, LiveEventKind};
use outlast::vocab::record::{Fact, NodeRef, Seq, TurnEnd};
use outlast::{Builder, Kind};

fn saying(script: &str) -> Builder {
    Outlast::ephemeral().provider(scripted(script))
}

#[tokio::test]
async fn same_session_key_opens_the_same_session() {
    let outlast = saying("any\nsay hello").start().await.unwrap();
    let first = outlast.session("ann").send("one").await.unwrap();
    let second = outlast.session("ann").send("two").await.unwrap();
    let other = outlast.session("bob").send("three").await.unwrap();
    assert_eq!(first.session(), second.session());
    assert_ne!(first.session(), other.session());
    second.answer().await.unwrap();
    other.answer().await.unwrap();
    let view = outlast.store().session_by_key("ann".into()).await.unwrap();
    assert_eq!((view.id, view.turns), (first.session(), 2));
    assert_eq!(outlast.store().sessions(None, 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn same_idempotency_key_yields_one_turn() {
    let outlast = saying("say once").start().await.unwrap();
    let session = outlast.session("ann");
    let first = session.send_once("k", "hi").await.unwrap();
    let second = session.send_once("k", "hi").await.unwrap();
    assert_eq!((first.id(), first.duplicate()), (second.id(), false));
    assert_eq!((second.receipt(), second.duplicate()), (first.receipt(), true));
    assert_eq!(second.answer().await.unwrap(), "once");
    let reused = session.send_once("k", "something else").await.err().unwrap();
    assert_eq!(reused.kind(), Kind::InputKeyReused);
    // Keys are scoped to their session.
    assert!(!outlast.session("bob").send_once("k", "hi").await.unwrap().duplicate());
}

#[tokio::test]
async fn steering_input_joins_the_active_turn() {
    let keeper = Gatekeeper::new();
    let script = "call gate {\"who\": \"ann\"}\nturn\nsay {{input}}, and {{result gate}}";
    let outlast = saying(script).service(keeper.clone()).tool(Gate).start().await.unwrap();
    let session = outlast.session("ann");
    let turn = session.send("let ann pass").await.unwrap();
    keeper.begun(1).await;
    let steered = session.steer("and hurry").await.unwrap();
    keeper.passes.add_permits(1);
    assert_eq!(turn.answer().await.unwrap(), "and hurry, and ann passed");
    assert_eq!(steered.answer().await.unwrap(), "and hurry, and ann passed");
    assert_eq!(
        outlast.store().turn(steered.id()).await.unwrap().end,
        Some(TurnEnd::Joined { into: turn.id() })
    );
    // Without a running turn it is an ordinary input.
    let alone = session.steer("still there?").await.unwrap();
    assert_eq!(alone.answer().await.unwrap_err().kind(), Kind::ScriptMismatch);
}

#[tokio::test]
async fn unanswered_turn_is_an_error_with_its_code() {
    let keeper = Gatekeeper::new();
    let script =
        "refuse No.\nturn\nerror model.rejected too long\nturn\ncall gate {\"who\": \"ann\"}\nturn\nsay well";
    let outlast = saying(script).service(keeper.clone()).tool(Gate).start().await.unwrap();
    let session = outlast.session("ann");
    let refused = session.send("one").await.unwrap().answer().await.unwrap_err();
    assert_eq!((refused.kind(), refused.detail()), (Kind::ModelRejected, "the model refused: No."));
    let failed = session.send("two").await.unwrap().answer().await.unwrap_err();
    assert_eq!((failed.kind(), failed.detail()), (Kind::ModelRejected, "too long"));
    let turn = session.send("three").await.unwrap();
    keeper.begun(1).await;
    assert_eq!(turn.cancel("enough").await.unwrap(), CancelOutcome::Requested);
    let cancelled = turn.answer().await.unwrap_err();
    assert_eq!((cancelled.kind(), cancelled.detail()), (Kind::TurnCancelled, "enough"));
    assert_eq!(cancelled.place().turn, Some(turn.id()));
    assert_eq!(session.send("four").await.unwrap().answer().await.unwrap(), "well");
}

#[tokio::test]
async fn turn_and_its_result_are_found_by_id() {
    let outlast = saying("say hello").start().await.unwrap();
    let turn = outlast.new_session().send("hi").await.unwrap();
    assert_eq!(turn.answer().await.unwrap(), "hello");
    let again = outlast.turn(turn.id()).await.unwrap();
    assert_eq!((again.session(), again.receipt()), (turn.session(), turn.receipt()));
    assert_eq!(again.answer().await.unwrap(), "hello");
    let foreign = outlast.turn("trn_00000000000000000000000000000007".parse().unwrap()).await;
    assert_eq!(foreign.err().unwrap().kind(), Kind::TurnNotFound);
}

#[tokio::test]
async fn live_events_equal_stored_events() {
    let outlast = saying("say one two three").start().await.unwrap();
    let turn = outlast.session("ann").send("hi").await.unwrap();
    let mut events = turn.events();
    let mut live = Vec::new();
    loop {
        if let Event::Durable(record) = events.next().await.unwrap() {
            let ended = matches!(record.fact, Fact::Ended { .. });
            live.push(*record);
            if ended {
                break;
            }
        }
    }
    assert_eq!(outlast.store().records(turn.session(), Seq(1), 100).await.unwrap(), live);
    assert_eq!(live[0].place(), turn.receipt());
    let cursor = live[1].seq;
    assert_eq!(outlast.store().records(turn.session(), cursor, 100).await.unwrap(), live[2..]);
}

/// Collects all events of a turn, read after the turn has ended.
async fn event_names((turn, mut events): (Turn, outlast::SessionEventStream)) -> Vec<String> {
    turn.answer().await.unwrap();
    let mut event_names = Vec::new();
    loop {
        match events.next().await.unwrap() {
            Event::Live(LiveEvent { what: LiveEventKind::Text { text, .. }, .. }) => event_names.push(text),
            Event::Live(_) => {}
            Event::Missed { frames } => event_names.push(format!("{frames} missed")),
            Event::Durable(record) => {
                event_names.push(record.fact.name().to_owned());
                if matches!(record.fact, Fact::Ended { .. }) {
                    return event_names;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watched_turn_streams_from_its_first_word() {
    let outlast = saying("any\nsay one two").start().await.unwrap();
    let expected = ["turn.accepted", "one ", "two", "turn.started", "effect.performed", "turn.ended"];
    let watched = outlast.session("ann").send("a new key").watched().await.unwrap();
    let id = watched.0.session();
    assert_eq!(event_names(watched).await, expected);
    let watched = outlast.session("ann").send("a key that is there").watched().await.unwrap();
    assert_eq!(event_names(watched).await, expected);
    let watched = outlast.session_by_id(id).send("an id").watched().await.unwrap();
    assert_eq!(event_names(watched).await, expected);
    let watched = outlast.new_session().steer("a new session").watched().await.unwrap();
    assert_eq!(event_names(watched).await, expected);
}

#[tokio::test]
async fn watching_a_duplicate_input_replays_its_turn() {
    let outlast = saying("any\nsay one two").start().await.unwrap();
    let session = outlast.session("ann");
    let first = session.send_once("k", "hi").await.unwrap();
    first.answer().await.unwrap();
    session.send("more").await.unwrap().answer().await.unwrap();
    let again = session.send_once("k", "hi").watched().await.unwrap();
    assert_eq!((again.0.id(), again.0.duplicate()), (first.id(), true));
    let facts = ["turn.accepted", "turn.started", "effect.performed", "turn.ended"];
    assert_eq!(event_names(again).await, facts);
}

#[tokio::test]
async fn missing_dependencies_are_found_at_startup() {
    let start = |builder: Builder| async { builder.start().await.err().map(|error| error.kind()) };
    assert_eq!(start(saying("say a").tool(Gate)).await, Some(Kind::ServiceMissing));
    let twice = saying("say a").service(Gatekeeper::new()).tool(Gate).tool(Gate);
    assert_eq!(start(twice).await, Some(Kind::ToolDuplicate));
    assert_eq!(start(saying("say a").model("other/model")).await, Some(Kind::ModelUnknown));
    assert_eq!(start(saying("say a").model("")).await, Some(Kind::InputInvalid));
    let nowhere = tempfile::tempdir().unwrap().path().join("gone/outlast.db");
    assert_eq!(start(Outlast::at(nowhere)).await, Some(Kind::IoFailed));
}

#[tokio::test]
async fn finished_session_is_idle() {
    let outlast = saying("say hello").start().await.unwrap();
    let turn = outlast.session("ann").send("hi").await.unwrap();
    turn.answer().await.unwrap();
    let view = outlast.store().session(turn.session()).await.unwrap();
    assert_eq!((view.state, view.active, view.waits), (SessionState::Idle, None, vec![]));
    assert_eq!(outlast.store().verify(turn.session()).await.unwrap(), view.last.seq.0);
}

#[tokio::test]
async fn new_session_accepts_several_inputs() {
    let outlast = saying("any\nsay {{input}}").start().await.unwrap();
    let session = outlast.new_session();
    let (first, second) = (session.send("one"), session.send("two"));
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(first.session(), second.session());
    assert_eq!(second.answer().await.unwrap(), "two");
}

#[tokio::test]
async fn inputs_on_another_head_stay_separate() {
    let outlast = saying("any\nsay {{input}}").start().await.unwrap();
    let session = outlast.session("ann");
    let first = session.send("one").await.unwrap();
    first.answer().await.unwrap();
    let draft = session.on_head("draft");
    let refused = draft.send("two").await.err().unwrap();
    assert_eq!(refused.kind(), Kind::NodeNotFound);
    let (from, now) = (first.session(), outlast.runtime().now());
    let fork = ForkRequest { from, at: None, to: ForkTo::Head("draft".into()), now };
    outlast.store().fork(fork).await.unwrap();
    let second = draft.send("two").await.unwrap();
    assert_eq!(second.answer().await.unwrap(), "two");
    session.send("three").await.unwrap().answer().await.unwrap();
    draft.send_once("k", "four").await.unwrap().answer().await.unwrap();
    let turns = outlast.store().turns(from, 0, 10).await.unwrap();
    let last = |turn: usize| NodeRef { session: from, seq: turns[turn].span.1 };
    let follows: Vec<_> = turns.iter().map(|turn| turn.parent).collect();
    assert_eq!(follows, [None, Some(last(0)), Some(last(0)), Some(last(1))]);
}

/// A tool that reports progress.
struct Paint;

#[derive(Deserialize, JsonSchema)]
struct PaintArgs {}

impl Tool for Paint {
    type Args = PaintArgs;
    type Needs = Progress;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("paint", "Paints a wall.").pure()
    }

    async fn run(&self, progress: Progress, _: Call, _: PaintArgs) -> Result<ToolRunOutcome, Error> {
        progress.note("half of it");
        done("painted")
    }
}

#[tokio::test]
async fn tool_progress_notes_reach_subscribers() {
    let outlast = saying("any\ncall paint {}\n---\nsay {{result paint}}").tool(Paint).start().await.unwrap();
    let (turn, mut events) = outlast.session("ann").send("paint").watched().await.unwrap();
    let mut notes = Vec::new();
    loop {
        match events.next().await.unwrap() {
            Event::Live(LiveEvent { what: LiveEventKind::Progress { note, key }, turn }) => {
                notes.push((turn, key.to_string(), note));
            }
            Event::Durable(record) if matches!(record.fact, Fact::Ended { .. }) => break,
            _ => {}
        }
    }
    assert_eq!(notes, [(turn.id(), "turn/0/tools/0/child:0:call_0".into(), "half of it".into())]);
}
