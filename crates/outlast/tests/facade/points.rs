//! Rules that restrict the tools of a program.
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use outlast::service::Agent;
use outlast::tools::egress::{Egress, EgressRules, HostRule};
use outlast::vocab::policy::{Comparison, Policy, PolicyDecision, PolicyPoint, Rule, RuleTest};
use outlast_playback::Playback;
use serde_json::json;
use std::sync::Arc;

#[derive(Deserialize, JsonSchema)]
#[serde(crate = "outlast::serde")]
#[schemars(crate = "outlast::schemars")]
struct Letter {
    url: String,
}

/// Posts a letter.
struct Post;

impl Tool for Post {
    type Args = Letter;
    type Needs = (Service<Egress>, Agent);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("post", "Posts a letter.")
    }

    async fn run(
        &self,
        (egress, agent): Self::Needs,
        _: Call,
        args: Letter,
    ) -> Result<ToolRunOutcome, Error> {
        let posted =
            egress.for_agent(&agent)?.post(&args.url, <_ as Default>::default(), b"dear".to_vec()).await?;
        done(posted.status)
    }
}

#[tokio::test]
async fn egress_rule_blocks_a_forbidden_post() {
    let post = Playback::with_selector(|_, _| outlast_playback::ResponseScript::answer(200, &[], ""));
    let url = post.url().trim_end_matches('/').to_owned();
    let private: [HostRule; 1] = [url.trim_start_matches("http://").parse().unwrap()];
    let egress = Egress::new(EgressRules::public().and_private(private).unwrap()).unwrap();
    let script: Script = format!(
        "call post {{\"url\": \"{url}/open\"}}\n---\ncall post {{\"url\": \"{url}/closed\"}}\n---\nsay {{{{result 0}}}} {{{{result 1}}}}"
    )
    .parse()
    .unwrap();
    let test = |path: &str, value| RuleTest { path: path.to_owned(), is: Comparison::OneOf(vec![value]) };
    let tests = vec![test("/path", json!("/closed")), test("/method", json!("POST"))];
    let deny = PolicyDecision::Deny { reason: "no".to_owned() };
    let rule = Rule { at: PolicyPoint::Egress, tests, ..Rule::new("r".parse().unwrap(), deny) };
    let outlast = Outlast::ephemeral()
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .service(egress)
        .policy(Policy { rules: vec![rule] })
        .tool(Post)
        .start()
        .await
        .unwrap();
    let answer = outlast.new_session().send("go").await.unwrap().answer().await.unwrap();
    assert_eq!(answer, "200 error policy.denied: the rule `r` forbids it: no");
    let paths: Vec<String> = post.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/open"]);
}
