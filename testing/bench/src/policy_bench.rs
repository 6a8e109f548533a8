//! Measures the cost of control: the policy with a hundred rules and labels, and merging an agent's overlays into its
//! package.
use crate::bench_rig::{self, BenchToolSet, PLAIN_SCRIPT};
use crate::inline::thread_cpu_ns;
use crate::report::BenchReport;
use futures_util::FutureExt;
use outlast::runtime::calls::catalogue::ToolCatalogue;
use outlast::runtime::turn::model_client::ModelCatalogue;
use outlast::runtime::worker::system::SystemClock;
use outlast::runtime::{AgentResolver, ResolvedAgent};
use outlast::vocab::label::{Provenance, TrustGuard};
use outlast::vocab::message::{Message, ToolResult};
use outlast::vocab::overlay::Overlay;
use outlast::vocab::package::Package;
use outlast::vocab::policy::{Comparison, Policy, PolicyDecision, PolicyFacts, PolicyPoint, Rule, RuleTest};
use outlast::{Error, Kind, Limits, OrgId};
use outlast_kernel::label::of_messages;
use outlast_kernel::overlay::{OriginLayer, fold, join_prompt, over};
use outlast_kernel::turn_cost::TurnCost;
use serde_json::json;
use std::hint::black_box;
use std::sync::Arc;

/// The number of repetitions.
const TIMES: u32 = 20_000;

/// The number of rules of the policy.
const RULES: usize = 100;

/// The number of messages that the model has read.
const MESSAGES: usize = 40;

pub(crate) fn measure(report: &mut BenchReport) -> Result<(), Box<dyn std::error::Error>> {
    let gate = policy_microseconds()?;
    let folded = package_microseconds()?;
    report.put("gate_us", gate);
    report.put("package_us", folded);
    report.judge(
        "policy and labels of a call, 100 rules, our CPU",
        format!("{gate:.1} µs"),
        "≤ 20 µs".into(),
        gate <= 20.0,
    );
    report.judge(
        "layers folded into a package with its fingerprint, our CPU",
        format!("{folded:.0} µs"),
        "≤ 200 µs".into(),
        folded <= 200.0,
    );
    Ok(())
}

/// Returns the rules. The first ones test arguments and do not match; the last one decides.
fn rules() -> Result<Vec<Rule>, Error> {
    let rule = |number: usize| {
        let test = |path: &str, is| RuleTest { path: path.to_owned(), is };
        let fits = number + 1 == RULES;
        Ok(Rule {
            tool: if number.is_multiple_of(2) { "echo*".to_owned() } else { "*".to_owned() },
            tests: vec![
                test("/euros", Comparison::Over(if fits { 1.into() } else { 1_000_000.into() })),
                test("/to", Comparison::Like("*@example.com".to_owned())),
            ],
            ..Rule::new(format!("rule-{number}").parse()?, PolicyDecision::Allow)
        })
    };
    (0..RULES).map(rule).collect()
}

/// Returns the microseconds from a model's call to the decision: collecting labels and evaluating the policy.
fn policy_microseconds() -> Result<f64, Box<dyn std::error::Error>> {
    let (base, resolver) = agent()?;
    let package = Package { policy: Policy { rules: rules()? }, guard: TrustGuard::Strict, ..base };
    let resolved_agent = ResolvedAgent::new(package, &resolver)?;
    let tool = resolved_agent.contracts[0].name.clone();
    let read = (0..MESSAGES).map(|number| {
        let call = format!("c{number}").parse()?;
        Ok(Message::Tool { call, tool: tool.clone(), result: ToolResult::Ok(json!("a page")) })
    });
    let read: Vec<Message> = read.collect::<Result<_, Error>>()?;
    let value = json!({ "to": "ann@example.com", "euros": 5, "note": "lunch" });
    let provenance = &Provenance::of_call();
    cpu_microseconds(|| {
        let labels = of_messages(black_box(&read), &resolved_agent.contracts);
        let around = resolved_agent.circumstances(Some(OrgId::DEFAULT), TurnCost::default());
        let facts = PolicyFacts {
            at: PolicyPoint::Tool,
            tool: Some(&tool),
            value: &value,
            labels: &labels,
            provenance,
            circumstances: &around,
        };
        let ruling = resolved_agent.rule(black_box(&facts)).now_or_never().flatten();
        // Untrusted text may have caused the call. If the guard did not decide, something else was measured.
        let guarded = ruling.is_some_and(|ruling| ruling.rule.as_str() == "guard");
        guarded.then_some(()).ok_or_else(|| Error::new(Kind::Internal, "the gate let the call through"))
    })
}

/// Returns an agent with one tool, and what resolves it.
fn agent() -> Result<(Package, AgentResolver), Error> {
    let toolbox = bench_rig::toolbox(BenchToolSet::Echo)?;
    let base = bench_rig::package(&toolbox)?;
    let models = ModelCatalogue::new(vec![Arc::new(bench_rig::model(PLAIN_SCRIPT)?)]);
    let tools = ToolCatalogue::new(vec![Arc::new(toolbox)])?;
    let resolver = AgentResolver::new(Arc::new(models), tools, Arc::new(SystemClock), Limits::default());
    Ok((base, resolver))
}

/// Returns the microseconds from overlays to a package that a turn can be pinned to.
fn package_microseconds() -> Result<f64, Box<dyn std::error::Error>> {
    let (base, resolver) = agent()?;
    let layer = |number: usize| {
        let system = vec![format!("Part {number} of what it is told. ").repeat(8)];
        OriginLayer::new(format!("layer {number}"), Overlay { system, ..Overlay::default() })
    };
    let layers: Vec<OriginLayer> = (0..5).map(layer).collect();
    let own = rules()?.into_iter().take(20).collect::<Vec<_>>();
    cpu_microseconds(|| {
        let folded = fold(black_box(layers.clone()))?;
        let package = Package { system: join_prompt(folded.system), ..base.clone() };
        let package = over(&package, Overlay { rules: own.clone(), ..Overlay::default() })?;
        black_box(ResolvedAgent::new(package, &resolver)?);
        Ok(())
    })
}

/// Returns the processor time of one repetition in microseconds.
fn cpu_microseconds(mut once: impl FnMut() -> Result<(), Error>) -> Result<f64, Box<dyn std::error::Error>> {
    for _ in 0..TIMES / 10 {
        once()?;
    }
    let before = thread_cpu_ns()?;
    for _ in 0..TIMES {
        once()?;
    }
    Ok((thread_cpu_ns()? - before) / 1_000.0 / f64::from(TIMES))
}
