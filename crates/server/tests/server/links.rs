//! Approval links.
use crate::client::Answer;
use crate::stage::{Stage, agent};
use outlast::OrgId;
use outlast::sink::{ApproverLinks, OutputEvent, Sink, SinkOutput, SinkTopic, SubscribedSink};
use outlast::vocab::Millis;
use outlast::vocab::approval_link::{ApprovalLink, LINKS_PATH, LinkAnswer};
use outlast::vocab::id::{ApprovalId, TurnId};
use outlast::vocab::policy::{ApprovalRequirement, Policy, PolicyDecision, Rule};
use outlast_server::OriginPolicy;
use outlast_vocab::limits::ServerLimits;
use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc;

/// A sink that passes on its outputs.
struct ForwardingSink(mpsc::UnboundedSender<SinkOutput>);

impl Sink for ForwardingSink {
    fn place(&self) -> String {
        "the test".to_owned()
    }

    fn deliver<'a>(&'a self, output: &'a SinkOutput) -> outlast_ports::ResultFuture<'a, ()> {
        Box::pin(async move {
            self.0.send(output.clone()).unwrap();
            Ok(())
        })
    }
}

/// A server that requires a key and whose agent asks before it pays, with the outputs of its sink.
struct ApprovalServer {
    stage: Stage,
    outputs: mpsc::UnboundedReceiver<SinkOutput>,
    _dir: TempDir,
}

fn two() -> ApprovalRequirement {
    let who = vec!["ann".to_owned(), "bob".to_owned()];
    ApprovalRequirement { who, approvals: NonZeroU32::new(2), ..ApprovalRequirement::default() }
}

impl ApprovalServer {
    async fn new(ask: ApprovalRequirement) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (ear, outputs) = mpsc::unbounded_channel();
        let outlet = SubscribedSink::new("chat", ForwardingSink(ear))
            .unwrap()
            .with_topics([SinkTopic::ApprovalRequested.name()])
            .unwrap();
        let outlet = outlet.with_links_at("https://agents.example".parse().unwrap());
        let rule = Rule::new("ask".parse().unwrap(), PolicyDecision::Ask(ask));
        let rule = Rule { tool: "pay".to_owned(), ..rule };
        let builder = agent(&dir.path().join("outlast.db")).policy(Policy { rules: vec![rule] }).sink(outlet);
        let policy = |policy: OriginPolicy| OriginPolicy { without_key: None, ..policy };
        let stage = Stage::built(builder, policy, ServerLimits::default()).await;
        Self { stage, outputs, _dir: dir }
    }

    /// Makes the agent ask, and returns the links for the approvers.
    async fn asked(&mut self) -> Vec<ApproverLinks> {
        let key = self.stage.key("default", "run").await;
        let body = json!({ "session_key": "s", "text": "pay" });
        self.stage.request("POST", "/v1/turns").key(&key).json(&body).send().await.ok();
        let output = self.outputs.recv().await.unwrap();
        let OutputEvent::Approval(_, asking) = output.event else { panic!("{output:?}") };
        asking.links
    }

    async fn send(&self, method: &str, link: &str) -> Answer {
        self.form(method, link, "").await
    }

    async fn form(&self, method: &str, link: &str, form: &str) -> Answer {
        let path = link.strip_prefix("https://agents.example").unwrap();
        let request = self.stage.request(method, path);
        request.bytes("application/x-www-form-urlencoded", form.as_bytes()).send().await
    }

    /// Returns how the turn ended.
    async fn end(&self) -> Value {
        let key = self.stage.key("default", "run").await;
        let page = self.stage.request("GET", "/v1/sessions?limit=1").key(&key).send().await.ok();
        let session = page["items"][0]["id"].as_str().unwrap().to_owned();
        loop {
            let path = format!("/v1/sessions/{session}/turns");
            let turns = self.stage.request("GET", &path).key(&key).send().await.ok();
            if let Some(end) = turns["items"][0].get("end") {
                return end.clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn audit(&self) -> Vec<(String, String)> {
        let key = self.stage.key("default", "admin").await;
        let page = self.stage.request("GET", "/v1/audit").key(&key).send().await.ok();
        let lines = page["items"].as_array().unwrap().iter();
        let lines = lines.filter(|line| line["act"].as_str().unwrap().starts_with("approval."));
        lines
            .map(|line| (line["act"].as_str().unwrap().to_owned(), line["by"].as_str().unwrap().to_owned()))
            .collect()
    }
}

/// Checks the status and the code of an error page.
#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert!(answer.body.contains(&format!("<code>{code}</code>")), "{}", answer.body);
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_link_decides_only_by_its_button() {
    let mut asked = ApprovalServer::new(ApprovalRequirement {
        reason: Some("it is <money>".into()),
        ..ApprovalRequirement::default()
    })
    .await;
    let links = asked.asked().await.remove(0);
    for _ in 0..3 {
        let page = asked.send("GET", &links.approve).await;
        assert_eq!(page.status, 200, "{page:?}");
        assert!(page.body.contains("{\n  &quot;euros&quot;: 5\n}"), "{}", page.body);
        assert!(
            page.body.contains("<dt>Why you are asked</dt><dd>it is &lt;money&gt;</dd>"),
            "{}",
            page.body
        );
        assert!(page.body.contains("<form method=\"post\">"), "{}", page.body);
        let policy = page.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; style-src 'self';") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(page.header("referrer-policy"), Some("same-origin"));
    }
    assert_eq!(asked.audit().await, []);
    assert_eq!(asked.send("POST", &links.approve).await.status, 200);
    assert_eq!(asked.end().await, json!({ "how": "answered", "text": "paid 5" }));
    // If anyone may approve, the vote is recorded in the name of the sink that got the link.
    assert_eq!(asked.audit().await, [("approval.approve".to_owned(), "service:chat".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn used_link_shows_the_earlier_decision() {
    let mut asked = ApprovalServer::new(ApprovalRequirement::default()).await;
    let links = asked.asked().await.remove(0);
    let denied = asked.form("POST", &links.deny, "reason=not+this+month%21").await;
    assert_eq!(denied.status, 200, "{denied:?}");
    asked.end().await;
    for (method, link) in [("POST", &links.deny), ("POST", &links.approve), ("GET", &links.approve)] {
        let again = asked.send(method, link).await;
        refused(&again, 409, "link.used");
        assert!(again.body.contains("chat denied it: not this month!"), "{}", again.body);
    }
    assert_eq!(asked.audit().await, [("approval.deny".to_owned(), "service:chat".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_approver_has_own_links_and_one_vote() {
    let mut asked = ApprovalServer::new(two()).await;
    let links = asked.asked().await;
    let names: Vec<String> = links.iter().map(|links| links.by.to_string()).collect();
    assert_eq!(names, ["person:ann", "person:bob"]);
    let counted = asked.send("POST", &links[0].approve).await;
    assert!(counted.body.contains("1 of 2 required approvals"), "{}", counted.body);
    refused(&asked.send("POST", &links[0].approve).await, 409, "link.used");
    assert_eq!(asked.send("POST", &links[1].approve).await.status, 200);
    asked.end().await;
    let by: Vec<String> = asked.audit().await.into_iter().map(|(_, by)| by).collect();
    assert_eq!(by.len(), 2);
    assert!(by.contains(&"person:ann".to_owned()) && by.contains(&"person:bob".to_owned()), "{by:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn edited_arguments_invalidate_an_approval_link() {
    let mut asked = ApprovalServer::new(two()).await;
    let links = asked.asked().await;
    let runtime = asked.stage.outlast.operator();
    let runtime = runtime.runtime();
    let question = runtime.approvals().pending(1, runtime.now()).await.unwrap().remove(0);
    let edit = outlast::vocab::policy::ApprovalVerdict::Edit { arguments: json!({ "euros": 4 }) };
    let word = outlast::vocab::policy::Approval::new("bob", edit);
    runtime.approve(question.id, word).await.unwrap();
    for method in ["GET", "POST"] {
        let page = asked.send(method, &links[0].approve).await;
        refused(&page, 404, "approval.not_found");
        assert!(page.body.contains("were edited; the new id is"), "{}", page.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn altered_expired_or_agent_links_are_rejected() {
    let mut asked = ApprovalServer::new(two()).await;
    let links = asked.asked().await;
    let store = asked.stage.outlast.operator();
    let store = store.runtime().store().clone();
    let secret = store.secret().await.unwrap();
    let text = links[0].approve.rsplit('/').next().unwrap().to_owned();
    let mine = ApprovalLink::open(&text, &secret).unwrap();
    let signed = |link: &ApprovalLink| format!("https://agents.example{LINKS_PATH}{}", link.sign(&secret));
    let agent = outlast::vocab::access::Principal::Agent(outlast::SessionId::from_u128(1));
    for (link, status, code) in [
        (links[0].approve.replace("lnk_", "lnk_0"), 404, "link.invalid"),
        (format!("{}00", links[0].approve), 404, "link.invalid"),
        (signed(&ApprovalLink { by: agent, ..mine.clone() }), 404, "link.invalid"),
        (signed(&ApprovalLink { expires: Millis(1), ..mine.clone() }), 410, "link.expired"),
        (
            signed(&ApprovalLink { question: ApprovalId::from_u128(1), ..mine.clone() }),
            404,
            "approval.not_found",
        ),
        (signed(&ApprovalLink { turn: TurnId::from_u128(1), ..mine.clone() }), 404, "approval.not_found"),
    ] {
        for method in ["GET", "POST"] {
            refused(&asked.send(method, &link).await, status, code);
        }
    }
    // A person who is not an approver cannot decide, even with a validly signed link.
    let eve = ApprovalLink { by: "person:eve".parse().unwrap(), answer: LinkAnswer::Deny, ..mine };
    refused(&asked.send("POST", &signed(&eve)).await, 403, "approval.forbidden");
    assert_eq!(asked.audit().await, []);
    let home = store.session(store.sessions(None, 1).await.unwrap().remove(0).id).await.unwrap().org;
    assert_eq!(home, OrgId::DEFAULT);
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_origin_cannot_submit_an_approval_link() {
    let mut asked = ApprovalServer::new(ApprovalRequirement::default()).await;
    let links = asked.asked().await.remove(0);
    let path = links.approve.strip_prefix("https://agents.example").unwrap();
    let request = asked.stage.request("POST", path).header("origin", "https://evil.example");
    assert_eq!(request.send().await.code(), "origin.denied");
    assert_eq!(asked.audit().await, []);
}
