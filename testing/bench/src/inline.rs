//! Measures our own cost per turn without storage: processor time and allocations.
use crate::bench_rig::{self, BenchToolSet, PLAIN_SCRIPT, TOOL_SCRIPT};
use crate::report::BenchReport;
use outlast::runtime::calls::catalogue::{CallingTurn, ToolCatalogue};
use outlast::runtime::turn::cancel::{StopSignals, cancel};
use outlast::runtime::turn::drive::TurnDriver;
use outlast::runtime::turn::inline_host::InlineHost;
use outlast::runtime::turn::model_client::ModelCatalogue;
use outlast::runtime::turn::provenance::TextSources;
use outlast::runtime::turn::turn_run::TurnRun;
use outlast::runtime::worker::system::{SystemClock, SystemEntropy};
use outlast::runtime::{AgentResolver, ResolvedAgent};
use outlast::vocab::record::TurnAccepted;
use outlast::{Error, Limits, SessionId, TurnId};
use std::sync::Arc;
use tokio::sync::watch;

/// The number of turns per measurement.
const TURNS: u32 = 20_000;

pub(crate) fn measure(report: &mut BenchReport) -> Result<(), Box<dyn std::error::Error>> {
    let plain = InlineBench::new(PLAIN_SCRIPT)?.microseconds()?;
    let tool = InlineBench::new(TOOL_SCRIPT)?.microseconds()?;
    let allocations = InlineBench::new(TOOL_SCRIPT)?.allocations();
    report.put("inline_plain_us", plain);
    report.put("inline_tool_us", tool);
    report.put("inline_tool_allocs", allocations);
    report.judge("plain turn, in memory, our CPU", format!("{plain:.1} µs"), "≤ 30 µs".into(), plain <= 30.0);
    report.judge("tool turn, in memory, our CPU", format!("{tool:.1} µs"), "≤ 60 µs".into(), tool <= 60.0);
    let met = allocations <= 300;
    report.judge("tool turn, in memory, allocations", allocations.to_string(), "≤ 300".into(), met);
    Ok(())
}

struct InlineBench {
    driver: TurnDriver,
    agent: Arc<ResolvedAgent>,
    tokio: tokio::runtime::Runtime,
}

impl InlineBench {
    fn new(script: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let toolbox = bench_rig::toolbox(BenchToolSet::Echo)?;
        let package = bench_rig::package(&toolbox)?;
        let models = Arc::new(ModelCatalogue::new(vec![Arc::new(bench_rig::model(script)?)]));
        let (clock, limits) = (Arc::new(SystemClock), Arc::new(Limits::default()));
        let tools = ToolCatalogue::new(vec![Arc::new(toolbox)])?;
        let resolver = AgentResolver::new(models.clone(), tools, clock.clone(), limits.clone());
        let driver = TurnDriver::new(models, clock, Arc::new(SystemEntropy), limits);
        let agent = Arc::new(ResolvedAgent::new(package, &resolver)?);
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { driver, agent, tokio })
    }

    async fn turn(&self) -> Result<(), Error> {
        let (_canceller, cancel) = cancel();
        let stop = StopSignals { cancel, stopping: watch::channel(false).1 };
        let caller = CallingTurn { session: SessionId::from_u128(1), turn: TurnId::from_u128(1) };
        let run = TurnRun { agent: &self.agent, caller, index: 0, lease: 1, org: None };
        let (sources, input) = (TextSources::default(), TurnAccepted::text("go"));
        self.driver.drive(run, &sources, &stop, input, &mut InlineHost::default()).await.map(drop)
    }

    /// Measures processor time instead of wall time, so that other load on the machine does not matter.
    fn microseconds(&self) -> Result<f64, Box<dyn std::error::Error>> {
        self.tokio.block_on(async {
            for _ in 0..TURNS / 10 {
                self.turn().await?;
            }
            let before = thread_cpu_ns()?;
            for _ in 0..TURNS {
                self.turn().await?;
            }
            Ok((thread_cpu_ns()? - before) / 1_000.0 / f64::from(TURNS))
        })
    }

    fn allocations(&self) -> u64 {
        let once = || self.tokio.block_on(self.turn());
        drop(once());
        allocation_counter::measure(|| drop(once())).count_total
    }
}

/// Returns the nanoseconds that this thread has run, according to the kernel.
pub(crate) fn thread_cpu_ns() -> Result<f64, Box<dyn std::error::Error>> {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(line.split(' ').next().unwrap_or_default().parse()?)
}
