//! What control costs: the gate with a hundred rules and labels, and folding an agent of layers into its package.
use crate::inline::on_cpu_ns;
use crate::report::Report;
use crate::rig::{self, PLAIN, Tools};
use outlast::runtime::catalogue::Catalogue;
use outlast::runtime::system::{SystemClock, SystemEntropy};
use outlast::runtime::{Outfit, World};
use outlast::vocab::message::{Message, ToolResult};
use outlast::vocab::overlay::Overlay;
use outlast::vocab::package::Package;
use outlast::vocab::policy::{Circumstances, Comparison, Decision, Facts, Point, Policy, Rule, Test};
use outlast::vocab::tool::{Contract, EffectClass};
use outlast::{Error, Limits};
use outlast_kernel::label::{guard, is_sink, of_messages};
use outlast_kernel::overlay::{Placed, fold, over, prompt};
use outlast_kernel::policy::judge;
use serde_json::json;
use std::hint::black_box;
use std::sync::Arc;

/// Times each thing is done.
const TIMES: u32 = 20_000;

/// Rules of the policy.
const RULES: usize = 100;

/// Messages that the model has read.
const MESSAGES: usize = 40;

pub(crate) fn measure(report: &mut Report) -> Result<(), Box<dyn std::error::Error>> {
    let gate = gate()?;
    let folded = package()?;
    report.put("gate_us", gate);
    report.put("package_us", folded);
    report.judge(
        "gate and labels of a call, 100 rules, our CPU",
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

/// The first rules look at arguments and do not fit; the last one decides.
fn rules() -> Result<Vec<Rule>, Error> {
    let rule = |number: usize| {
        let test = |path: &str, is| Test { path: path.to_owned(), is };
        let fits = number + 1 == RULES;
        Ok(Rule {
            tool: if number.is_multiple_of(2) { "pay*".to_owned() } else { "*".to_owned() },
            tests: vec![
                test("/euros", Comparison::Over(if fits { 1.into() } else { 1_000_000.into() })),
                test("/to", Comparison::Like("*@example.com".to_owned())),
            ],
            ..Rule::new(format!("rule-{number}").parse()?, Decision::Allow)
        })
    };
    (0..RULES).map(rule).collect()
}

/// Microseconds from a model's call to what becomes of it.
fn gate() -> Result<f64, Box<dyn std::error::Error>> {
    let policy = Policy { rules: rules()? };
    let tool = |name: &str, class| -> Result<Contract, Error> {
        Ok(Contract { class, ..Contract::new(name.parse()?, "", json!({})) })
    };
    let tools = [tool("fetch", EffectClass::Pure)?, tool("pay", EffectClass::AtMostOnce)?];
    let (fetch, pay) = (tools[0].name.clone(), &tools[1]);
    let read = (0..MESSAGES).map(|number| {
        let (call, tool) = (format!("c{number}").parse()?, fetch.clone());
        Ok(Message::Tool { call, tool, result: ToolResult::Ok(json!("a page")) })
    });
    let read: Vec<Message> = read.collect::<Result<_, Error>>()?;
    let arguments = json!({ "to": "ann@example.com", "euros": 5, "note": "lunch" });
    time(|| {
        let labels = of_messages(black_box(&read), &tools);
        let around = Circumstances { agent: "clerk".to_owned(), ..Circumstances::default() };
        let facts = Facts {
            at: Point::Tool,
            tool: Some(&pay.name),
            value: &arguments,
            labels: &labels,
            around: &around,
        };
        let rule = judge(black_box(&policy), &facts);
        let sink = is_sink(pay, &arguments);
        let decided = rule.map(|rule| &rule.then);
        black_box(sink.then(|| guard(outlast::vocab::label::Guard::Strict, decided)));
        Ok(())
    })
}

/// Microseconds from layers to a package that a turn can be pinned to.
fn package() -> Result<f64, Box<dyn std::error::Error>> {
    let toolbox = rig::toolbox(Tools::Echo)?;
    let base = rig::package(&toolbox)?;
    let world = World::new(
        vec![Arc::new(rig::model(PLAIN)?)],
        Catalogue::new(vec![Arc::new(toolbox)])?,
        Arc::new(SystemClock),
        Arc::new(SystemEntropy),
        Limits::default(),
    );
    let layer = |number: usize| {
        let system = vec![format!("Part {number} of what it is told. ").repeat(8)];
        Placed::new(format!("layer {number}"), Overlay { system, ..Overlay::default() })
    };
    let layers: Vec<Placed> = (0..5).map(layer).collect();
    let own = rules()?.into_iter().take(20).collect::<Vec<_>>();
    time(|| {
        let folded = fold(black_box(layers.clone()))?;
        let package = Package { system: prompt(folded.system), ..base.clone() };
        let package = over(&package, Overlay { rules: own.clone(), ..Overlay::default() })?;
        black_box(Outfit::new(package, &world)?);
        Ok(())
    })
}

/// Microseconds on the processor for one of many.
fn time(mut once: impl FnMut() -> Result<(), Error>) -> Result<f64, Box<dyn std::error::Error>> {
    for _ in 0..TIMES / 10 {
        once()?;
    }
    let before = on_cpu_ns()?;
    for _ in 0..TIMES {
        once()?;
    }
    Ok((on_cpu_ns()? - before) / 1_000.0 / f64::from(TIMES))
}
