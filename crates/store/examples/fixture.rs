//! Writes the fixture database of the current schema for `tests/fixtures`:
//! `cargo run -p outlast-store --example fixture -- FILE`.
//!
//! The database has one ended, one parked and one in-flight turn, each in a separate session whose key says
//! which. The output of the ended turn waits for delivery. A second organisation has an API key and a session
//! with one of these keys.
use outlast_ledger::Backend;
use outlast_ports::branches::MAIN_HEAD;
use outlast_ports::content_queries::ContentQueries;
use outlast_ports::inbox::{AcceptRequest, Inbox, SessionTarget};
use outlast_ports::orgs::{OrgStore, SealedApiKey};
use outlast_ports::outbox::{CollectRequest, DeliveryAttempt, FeedStart, SinkOutbox, SinkSubscription};
use outlast_ports::sink::SinkOutput;
use outlast_ports::store::Store;
use outlast_ports::turns::{Commit, Lease, LeaseRequest, TurnTransition, Turns, ValueWrite};
use outlast_store::SqliteStore;
use outlast_views::Org;
use outlast_vocab::access::{Access, ApiKey, Scope};
use outlast_vocab::effect::{
    BatchCall, Generation, ModelCall, ModelOutcome, Reply, StopReason, ToolBatch, ToolChoice, Usage,
};
use outlast_vocab::id::{KeyId, OrgId};
use outlast_vocab::message::Part;
use outlast_vocab::record::{EffectPerformed, EffectRequested, Fact, TurnAccepted, TurnEnd, TurnStarted};
use outlast_vocab::tool::{EffectClass, PreparedCall};
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{CallId, Error, Failure, Hash, Kind, Millis, ReplayKey, SessionId, TurnId, WorkerId};
use serde_json::json;
use std::sync::Arc;

const NOW: Millis = Millis(1_700_000_000_000);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let path = std::env::args_os().nth(1);
    let path =
        path.ok_or_else(|| Error::new(Kind::InputInvalid, "expected the path of the file to write"))?;
    let store = SqliteStore::open(path.as_ref())?;

    let lease = begin(&store, "ended", 1).await?;
    let end = TurnTransition::End(TurnEnd::Answered { text: "hello".to_owned() });
    let note = ValueWrite { name: "note".to_owned(), value: Some(json!({ "kept": true })) };
    let blobs = vec![b"kept beside the records".to_vec()];
    let facts = vec![started(), reply("hello")];
    store.commit(Commit { values: vec![note], blobs, ..Commit::new(lease, NOW, facts, end) }).await?;

    let lease = begin(&store, "parked", 2).await?;
    let key = ReplayKey::turn(0).completion();
    let park = TurnTransition::Park(vec![Wait {
        key,
        kind: WaitKind::Completion,
        deadline: Some(Millis(NOW.0 + 60_000)),
    }]);
    store.commit(commit(lease, vec![started(), reply(&"a long answer. ".repeat(2_000))], park)).await?;

    let lease = begin(&store, "in flight", 3).await?;
    store
        .commit(commit(lease, vec![started(), reply("I send it"), asked()], TurnTransition::Continue))
        .await?;

    let subscription = SinkSubscription::to_ends("audit", FeedStart::Beginning);
    store.subscribe(vec![subscription.clone()], NOW).await?;
    let (worker, until) = (WorkerId::from_u128(1), Millis(NOW.0 + 60_000));
    for due in store
        .collect(CollectRequest { subscription, worker, now: NOW, until, limit: 10, attempts: 3 })
        .await?
    {
        let SinkOutput { turn, position, attempt, .. } = due.output;
        let attempt = DeliveryAttempt { sink: "audit".to_owned(), turn, position, attempt };
        let failure = Failure::new(Kind::DeliveryFailed, "it answered 500");
        store.undelivered(attempt, failure, Some(Millis(NOW.0 + 5_000))).await?;
    }

    let acme = Org { id: OrgId::from_u128(4), name: "acme".parse()?, created: NOW };
    store.create_org(acme.clone()).await?;
    let (id, by) = (KeyId::from_u128(5), "service:ci".parse()?);
    let seal = ApiKey::new(id, [7; 32]).seal(&store.secret().await?);
    let scopes = Scope::Run.into();
    store.create_key(SealedApiKey { id, org: acme.id, by, scopes, seal, expires: None }, NOW).await?;
    let store = Arc::new(store);
    let target = SessionTarget::Key { key: "ended".to_owned(), fresh: SessionId::from_u128(4) };
    store.clone().serving(Access::to(acme.id)).open(target, NOW).await?;

    println!("{:?}", Backend::status(&*store).await?);
    Ok(())
}

async fn begin(store: &SqliteStore, key: &str, number: u128) -> Result<Lease, Error> {
    let accept = AcceptRequest {
        accepted: TurnAccepted { key: Some("first".to_owned()), ..TurnAccepted::text("hi") },
        lease_request: Some(LeaseRequest { worker: WorkerId::from_u128(1), until: Millis(NOW.0 + 15_000) }),
        queued_most: 1,
        ..AcceptRequest::text(
            SessionTarget::Key { key: key.to_owned(), fresh: SessionId::from_u128(number) },
            TurnId::from_u128(number),
            "hi",
            NOW,
        )
    };
    let work = store.accept(accept).await?.work;
    work.map(|work| work.lease)
        .ok_or_else(|| Error::new(Kind::InputInvalid, "expected a new file, got one with turns"))
}

fn commit(lease: Lease, facts: Vec<Fact>, then: TurnTransition) -> Commit {
    Commit::new(lease, NOW, facts, then)
}

fn started() -> Fact {
    Fact::Started(TurnStarted {
        kernel: 1,
        package: Hash::of(b"package"),
        head: MAIN_HEAD.to_owned(),
        parent: None,
        labels: None,
    })
}

fn reply(text: &str) -> Fact {
    let call = ModelCall {
        model: "test/model".parse().expect("it is a model's name"),
        at: None,
        tools: Hash::of(b"tools"),
        choice: ToolChoice::Auto,
        options: Generation::default(),
        output: None,
    };
    let reply = Reply {
        parts: vec![Part::text(text)],
        calls: vec![],
        stop: StopReason::End,
        usage: Usage::default(),
        cost: None,
        stop_sequence: None,
        estimate: None,
        attempt: 1,
    };
    Fact::Performed(EffectPerformed::new(ReplayKey::turn(0).model(0), call, ModelOutcome::Reply(reply)))
}

fn asked() -> Fact {
    let call = PreparedCall {
        id: CallId::from_u128(1),
        model_id: "call_1".to_owned().try_into().expect("it is a call's id"),
        tool: "send".to_owned().try_into().expect("it is a tool's name"),
        class: EffectClass::AtMostOnce,
        arguments: json!({ "to": "you" }),
        payload: None,
        labels: outlast_vocab::label::Labels::default(),
        provenance: outlast_vocab::label::Provenance::default(),
        ruling: None,
    };
    let batch = ToolBatch { calls: vec![BatchCall::Run(call)] };
    Fact::Asked(EffectRequested { key: ReplayKey::turn(0).tools(0), command: batch.into() })
}
