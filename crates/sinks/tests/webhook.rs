//! Webhooks over real sockets.
use outlast_playback::{Playback, ResponseScript};
use outlast_ports::sink::{OutputEvent, OutputPosition, Sink, SinkOutput};
use outlast_sinks::{WebhookSecrets, WebhookSink};
use outlast_tools::egress::Network;
use outlast_vocab::id::{DeliveryId, OrgId, SessionId, TurnId};
use outlast_vocab::record::{Seq, TurnEnd};
use outlast_vocab::{Kind, Millis};
use ring::hmac;
use std::time::Duration;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn output() -> SinkOutput {
    SinkOutput {
        id: DeliveryId::from_u128(1),
        org: OrgId::DEFAULT,
        session: SessionId::from_u128(2),
        key: None,
        turn: TurnId::from_u128(3),
        position: OutputPosition { seq: Seq(4), nth: 0 },
        at: Millis(1_700_000_000_000),
        event: OutputEvent::Ended(TurnEnd::Answered { text: "hello".to_owned() }),
        attempt: 1,
        sent: Millis(1_700_000_007_999),
    }
}

fn webhook(url: &str, network: Network) -> WebhookSink {
    WebhookSink::new(url, WebhookSecrets::parse(SECRET).unwrap(), network).unwrap()
}

#[tokio::test]
async fn a_webhook_gets_json_that_its_secret_verifies() {
    let server = Playback::of([ResponseScript::answer(204, &[], "")]);
    let webhook = webhook(&format!("{}/in?key=canary", server.url()), Network::Any);
    webhook.deliver(&output()).await.unwrap();
    let request = server.requests().remove(0);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/in?key=canary"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("webhook-id"), Some("dlv_00000000000000000000000000000001"));
    assert_eq!(request.header("webhook-timestamp"), Some("1700000007"));
    let body = String::from_utf8(request.body.clone()).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&body).unwrap()["data"]["text"], "hello");
    // Verify as the receiver does, with its own key over the received bytes.
    let signed = format!("dlv_00000000000000000000000000000001.1700000007.{body}");
    let decode =
        |text: &str| base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &decode(SECRET.strip_prefix("whsec_").unwrap()));
    let signature = decode(request.header("webhook-signature").unwrap().strip_prefix("v1,").unwrap());
    hmac::verify(&key, signed.as_bytes(), &signature).unwrap();
    assert!(hmac::verify(&key, format!("{signed} ").as_bytes(), &signature).is_err());
}

#[tokio::test]
async fn non_success_response_fails_without_following_redirects() {
    let elsewhere = Playback::of([ResponseScript::answer(200, &[], "")]);
    let location = elsewhere.url();
    let server = Playback::of([
        ResponseScript::answer(500, &[], "broken"),
        ResponseScript::answer(307, &[("location", location.as_str())], ""),
        ResponseScript::answer(410, &[], ""),
        ResponseScript::answer(503, &[("retry-after", "90")], "busy"),
        ResponseScript::answer(200, &[], "fine"),
    ]);
    let webhook = webhook(&server.url(), Network::Any);
    let mut details = Vec::new();
    for _ in 0..5 {
        let handed = webhook.deliver(&output()).await;
        details
            .push(handed.map_err(|error| (error.to_string(), error.pause().unwrap_or_default().as_secs())));
    }
    let failed = |said: &str, pause| Err((said.to_owned(), pause));
    assert_eq!(
        details,
        [
            failed("delivery.failed: it responded 500: broken", 0),
            failed("delivery.failed: it responded 307: nothing", 0),
            failed("delivery.gone: it responded 410: nothing", 0),
            failed("delivery.failed: it responded 503: busy", 90),
            Ok(()),
        ]
    );
    assert_eq!(elsewhere.requests().len(), 0);
}

#[tokio::test]
async fn unreachable_webhook_fails_without_showing_its_path() {
    let server = Playback::of([ResponseScript::default().hold_open()]);
    let hangs = webhook(&format!("{}/canary", server.url()), Network::Any);
    let sent = output();
    assert!(tokio::time::timeout(Duration::from_millis(200), hangs.deliver(&sent)).await.is_err());
    drop(server);
    let error = hangs.deliver(&sent).await.unwrap_err();
    assert_eq!(error.kind(), Kind::DeliveryFailed);
    assert!(!error.to_string().contains("canary"), "{error}");
}

#[tokio::test]
async fn private_host_requires_explicit_permission() {
    let server = Playback::of([ResponseScript::answer(200, &[], "")]);
    let secrets = || WebhookSecrets::parse(SECRET).unwrap();
    let refused = WebhookSink::new(&server.url(), secrets(), Network::Public).err().map(|error| error.kind());
    assert_eq!(refused, Some(Kind::EgressDenied));
    // The address behind a name is only known after a lookup.
    let by_name = server.url().replace("127.0.0.1", "localhost");
    let error = webhook(&by_name, Network::Public).deliver(&output()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::EgressDenied);
    assert_eq!(server.requests().len(), 0);
}
