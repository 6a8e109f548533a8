//! Typed answers.
use crate::stage::scripted;
use outlast::Kind;
use outlast::prelude::*;
use serde_json::json;

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Person {
    name: String,
    age: u32,
}

async fn ask(script: &str) -> (Result<Person, Error>, Outlast) {
    let outlast = Outlast::ephemeral().provider(scripted(script)).start().await.unwrap();
    (outlast.session("ann").ask::<Person>("Who is Ann?").await, outlast)
}

#[tokio::test]
async fn answer_is_decoded_into_the_requested_type() {
    let (person, _) = ask(r#"say {"name": "Ann", "age": 3}"#).await;
    assert_eq!(person.unwrap(), Person { name: "Ann".into(), age: 3 });
}

#[tokio::test]
async fn invalid_answer_is_sent_back_with_its_errors() {
    let script = "turn\nsay Ann is three.\nturn\nsay {\"name\": \"Ann\", \"age\": -3}\nturn\nsay {\"name\": \"Ann\", \"age\": 3}";
    let (person, outlast) = ask(script).await;
    assert_eq!(person.unwrap(), Person { name: "Ann".into(), age: 3 });
    let session = outlast.store().session_by_key("ann".into()).await.unwrap();
    let records = outlast.store().records(session.id, outlast::vocab::record::Seq(0), 100).await.unwrap();
    let corrections: Vec<String> = records
        .iter()
        .filter_map(|record| match &record.fact {
            outlast::vocab::record::Fact::Performed(performed) => match &performed.outcome {
                outlast::vocab::effect::Outcome::Checkpoint(joined) => joined.correction.clone(),
                _ => None,
            },
            _ => None,
        })
        .map(|correction| correction.lines().nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(
        corrections,
        [
            "- expected JSON, got `Ann is three.`: expected value at line 1 column 1",
            "- at /age: -3 is less than the minimum of 0"
        ]
    );
}

#[tokio::test]
async fn repeatedly_invalid_answer_fails_with_the_last_errors() {
    let (person, _) = ask("any\nsay {\"name\": 3, \"age\": 3}").await;
    let error = person.unwrap_err();
    assert_eq!(error.kind(), Kind::OutputInvalid);
    assert!(error.detail().contains("- at /name: 3 is not of type \"string\""), "{error}");
}

#[tokio::test]
async fn invalid_answer_schema_is_rejected_before_any_write() {
    let outlast = Outlast::ephemeral().start().await.unwrap();
    let sent = outlast.session("ann").send("hi").answer_schema(json!({ "type": 3 })).await;
    assert_eq!(sent.err().map(|error| error.kind()), Some(Kind::InputInvalid));
    assert!(outlast.store().session_by_key("ann".into()).await.is_err());
}
