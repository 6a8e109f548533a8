//! A program that uses a model over HTTP.
use outlast::prelude::*;
use outlast::providers::{Api, Providers, RemoteProvider};
use outlast::vocab::effect::{ModelOutcome, Outcome};
use outlast::vocab::record::{EffectPerformed, Fact, Seq};
use outlast_playback::{Playback, ResponseScript};
use std::path::Path;

#[tokio::test]
async fn http_model_answers_and_its_cost_is_recorded() {
    let reply = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello.\"},\"finish_reason\":\"stop\"}]}\n\n\
                 data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";
    let server = Playback::of([ResponseScript::stream([reply])]).posts_only();
    let dir = tempfile::tempdir().unwrap();
    let config = format!(
        "[providers.home]\nkind = \"openai-compatible\"\nbase_url = \"{}\"\n\n[providers.home.models.small]\n\
         price = {{ input = \"1\", output = \"2\" }}\n",
        server.url()
    );
    std::fs::write(dir.path().join("outlast.toml"), config).unwrap();
    let providers = Providers::from_file(&dir.path().join("outlast.toml")).unwrap();
    let outlast = Outlast::at(dir.path().join("agent.db"))
        .provider(providers)
        .model("home/small")
        .start()
        .await
        .unwrap();
    let turn = outlast.session("ann").send("hi").await.unwrap();
    assert_eq!(turn.answer().await.unwrap(), "Hello.");
    let records = outlast.store().records(turn.session(), Seq(0), 100).await.unwrap();
    let costs: Vec<String> = records
        .into_iter()
        .filter_map(|record| match record.fact {
            Fact::Performed(EffectPerformed {
                outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)),
                ..
            }) => Some(reply.cost.unwrap().to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(costs, ["0.000015"]);
    outlast.shut_down().await;
}

#[tokio::test]
async fn unserved_model_is_rejected_before_creating_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.db");
    let remote = RemoteProvider::new("home", Api::OpenAiCompatible, "http://127.0.0.1:9", None).unwrap();
    let started =
        Outlast::at(&path).provider(Providers::default().with(remote)).model("work/small").start().await;
    let refused = started.err().map(|error| error.to_string());
    assert_eq!(refused.as_deref(), Some("model.unknown: no provider serves the model `work/small`"));
    assert!(!Path::new(&path).exists());
}
