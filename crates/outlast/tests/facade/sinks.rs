//! The outputs of turns reach the sinks, including outputs left by an earlier process.
use crate::stage::scripted;
use outlast::sink::SubscribedSink;
use outlast::sinks::{JsonLinesFile, WebhookSecrets, WebhookSink};
use outlast::tools::egress::Network;
use outlast::{Error, Limits, Outlast};
use outlast_playback::{Playback, ResponseScript};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

async fn start(folder: &Path, server: &Playback) -> Result<Outlast, Error> {
    let webhook = WebhookSink::new(&server.url(), WebhookSecrets::parse(SECRET)?, Network::Any)?;
    let limits = Limits { delivery_first: Duration::from_millis(1), ..Limits::default() };
    Outlast::at(folder.join("outlast.db"))
        .provider(scripted("any\nsay Yes."))
        .sink(SubscribedSink::new("hook", webhook)?.with_ends(["answered"])?)
        .sink(SubscribedSink::new("file", JsonLinesFile::new(folder.join("out.jsonl"))?)?)
        .limits(limits)
        .start()
        .await
}

#[tokio::test]
async fn failing_webhook_receives_every_output_once() -> Result<(), Error> {
    let folder = tempfile::tempdir().unwrap();
    // Every request fails the first time.
    let server = Playback::with_selector(|number, _| {
        let status = if number % 2 == 0 { 500 } else { 200 };
        ResponseScript::answer(status, &[], "")
    });
    let mut turns = BTreeSet::new();
    for _ in 0..3 {
        let outlast = start(folder.path(), &server).await?;
        for _ in 0..3 {
            let turn = outlast.new_session().send("well?").await?;
            assert_eq!(turn.answer().await?, "Yes.");
            turns.insert(turn.id().to_string());
        }
        outlast.shut_down().await;
    }
    let outlast = start(folder.path(), &server).await?;
    let operator = outlast.operator();
    let delivered = async {
        while operator.store().sinks().await?.iter().any(|sink| sink.due > 0 || sink.behind > 0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        operator.store().sinks().await
    };
    let sinks = tokio::time::timeout(Duration::from_secs(30), delivered).await.expect("it is delivered")?;
    let counts: Vec<(&str, u64, u64)> =
        sinks.iter().map(|sink| (sink.name.as_str(), sink.dead, sink.delivered)).collect();
    assert_eq!(counts, [("file", 0, 9), ("hook", 0, 9)]);
    outlast.shut_down().await;

    let event_of = |body: &[u8]| {
        let message: serde_json::Value = serde_json::from_slice(body).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        (text(&message["id"]), text(&message["data"]["turn"]))
    };
    let requests: BTreeSet<_> = server.requests().iter().map(|request| event_of(&request.body)).collect();
    assert_eq!(requests.iter().map(|(_, turn)| turn.clone()).collect::<BTreeSet<_>>(), turns);
    assert_eq!(requests.len(), 9, "one id for each output");
    let file = std::fs::read_to_string(folder.path().join("out.jsonl")).unwrap();
    let lines: Vec<String> = file.lines().map(|line| event_of(line.as_bytes()).1).collect();
    assert_eq!((lines.len(), lines.into_iter().collect::<BTreeSet<_>>()), (9, turns));
    Ok(())
}
