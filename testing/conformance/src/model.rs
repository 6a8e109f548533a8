//! The rules for model providers: a stream ends once, and a tool call is complete before that.
use super::store_under_test::model_call;
use super::{RuleFuture, RuleResult, block_on};
use futures_util::StreamExt;
use outlast_ports::model::{ModelProvider, ModelRequest};
use outlast_vocab::effect::{ModelCall, StopReason};
use outlast_vocab::message::{CallArguments, Message, ModelName};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::tool::ToolContract;
use outlast_vocab::{Class, Error};
use std::collections::BTreeSet;

/// A provider under test, with questions that it answers predictably.
pub trait ModelFixture: Sync {
    /// Returns the provider.
    fn provider(&self) -> &dyn ModelProvider;

    /// Returns a model that it serves.
    fn model(&self) -> ModelName;

    /// Returns messages that the model answers with text only.
    fn question(&self) -> Vec<Message>;

    /// Returns a request that the model answers with a tool call.
    fn tool_request(&self) -> ToolRequest;

    /// Runs a rule to completion. Override this if the provider works only inside a certain runtime.
    fn run(&self, rule: RuleFuture<'_>) {
        block_on(rule);
    }
}

/// A request that needs a tool.
#[derive(Clone, Debug)]
pub struct ToolRequest {
    /// The conversation.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    pub tools: Vec<ToolContract>,
}

/// The provider under test.
pub(super) struct ProviderUnderTest<'a>(&'a dyn ModelFixture);

impl<'a> From<&'a dyn ModelFixture> for ProviderUnderTest<'a> {
    fn from(on: &'a dyn ModelFixture) -> Self {
        Self(on)
    }
}

impl ProviderUnderTest<'_> {
    fn call(&self) -> ModelCall {
        ModelCall { model: self.0.model(), ..model_call() }
    }

    /// Returns the first events of an answer, at most this many.
    async fn ask(
        &self,
        call: &ModelCall,
        errand: &ToolRequest,
        most: usize,
    ) -> Vec<Result<ModelEvent, Error>> {
        let ToolRequest { messages, tools } = errand;
        let request =
            ModelRequest { system: "Be brief.", turn: messages, tools, ..ModelRequest::empty(call) };
        self.0.provider().stream(request).take(most).collect().await
    }

    /// Returns a complete answer. Checks that it ends once, with its end event.
    async fn answer(&self, errand: &ToolRequest) -> Result<(Vec<ModelEvent>, StopReason), Error> {
        let pieces = self.ask(&self.call(), errand, usize::MAX).await;
        let mut pieces: Vec<ModelEvent> = pieces.into_iter().collect::<Result<_, _>>()?;
        let Some(ModelEvent::End(stop)) = pieces.pop() else { panic!("a whole answer ends with its end") };
        assert!(!pieces.iter().any(|piece| matches!(piece, ModelEvent::End(_))), "an answer ends once");
        Ok((pieces, stop))
    }

    fn question(&self) -> ToolRequest {
        ToolRequest { messages: self.0.question(), tools: Vec::new() }
    }
}

fn unserved_model() -> ModelName {
    "nobody/serves-this".parse().expect("it fits")
}

pub(super) async fn served_model_has_a_context_window(t: &ProviderUnderTest<'_>) -> RuleResult {
    let info = t.0.provider().info(&t.0.model());
    assert!(info.is_some_and(|info| info.window_bytes > 0));
    Ok(())
}

pub(super) async fn unserved_model_has_no_capabilities(t: &ProviderUnderTest<'_>) -> RuleResult {
    assert_eq!(t.0.provider().info(&unserved_model()), None);
    Ok(())
}

pub(super) async fn request_to_unserved_model_fails_permanently(t: &ProviderUnderTest<'_>) -> RuleResult {
    let call = ModelCall { model: unserved_model(), ..t.call() };
    let mut pieces = t.ask(&call, &t.question(), usize::MAX).await;
    let error = pieces.pop().expect("there is an answer").expect_err("nobody serves it");
    assert_ne!(error.class(), Class::Retry);
    assert!(pieces.is_empty());
    Ok(())
}

pub(super) async fn model_answers_with_text_and_one_end(t: &ProviderUnderTest<'_>) -> RuleResult {
    let (pieces, stop) = t.answer(&t.question()).await?;
    assert!(pieces.iter().any(|piece| matches!(piece, ModelEvent::Text(text) if !text.is_empty())));
    assert!(!pieces.iter().any(|piece| matches!(piece, ModelEvent::Call(_))));
    assert_ne!(stop, StopReason::ToolUse);
    Ok(())
}

pub(super) async fn tool_call_is_complete_before_the_end(t: &ProviderUnderTest<'_>) -> RuleResult {
    let errand = t.0.tool_request();
    let (pieces, stop) = t.answer(&errand).await?;
    let calls = pieces.iter().filter_map(|piece| match piece {
        ModelEvent::Call(call) => Some(call),
        _ => None,
    });
    let mut ids = BTreeSet::new();
    for call in calls {
        assert!(ids.insert(&call.id), "the id {} is used twice in one answer", call.id);
        assert!(matches!(&call.arguments, CallArguments::Json(json) if json.is_object()));
        assert!(errand.tools.iter().any(|tool| tool.name == call.tool));
    }
    assert!(!ids.is_empty());
    assert_eq!(stop, StopReason::ToolUse);
    Ok(())
}

pub(super) async fn dropped_answer_does_not_affect_others(t: &ProviderUnderTest<'_>) -> RuleResult {
    for errand in [t.question(), t.0.tool_request()] {
        for most in [0, 1] {
            assert_eq!(t.ask(&t.call(), &errand, most).await.len(), most);
        }
        t.answer(&errand).await?;
    }
    Ok(())
}

pub(super) async fn concurrent_requests_get_separate_answers(t: &ProviderUnderTest<'_>) -> RuleResult {
    let (question, errand) = (t.question(), t.0.tool_request());
    let (one, other) = futures_util::future::join(t.answer(&question), t.answer(&errand)).await;
    assert!(!one?.0.iter().any(|piece| matches!(piece, ModelEvent::Call(_))));
    assert!(other?.0.iter().any(|piece| matches!(piece, ModelEvent::Call(_))));
    Ok(())
}
