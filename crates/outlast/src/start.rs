//! Starts the worker that a [`Builder`] describes, and checks it before.
use crate::builder::{StorageLocation, WritablePath};
use crate::{Builder, Outlast};
use outlast_ports::model::ModelProvider;
use outlast_ports::orgs;
use outlast_ports::store::Store;
use outlast_providers::Rehearsal;
use outlast_runtime::agents::agent_definition::WorkerAgents;
use outlast_runtime::agents::agent_factory::OrgAgentFactory;
use outlast_runtime::attachments::name_of;
use outlast_runtime::calls::catalogue::ToolCatalogue;
use outlast_runtime::turn::model_client::ModelCatalogue;
use outlast_runtime::{AgentBundle, AgentResolver, Runtime, RuntimeConfig};
use outlast_store::{SqliteOptions, SqliteStore, check_writable_path};
use outlast_vocab::access::Access;
use outlast_vocab::package::PinnedPackage;
use outlast_vocab::{Error, Kind, OrgId, WorkerId};
use std::path::Path;
use std::sync::Arc;

impl Builder {
    /// Starts the worker. It resumes unfinished turns and accepts new inputs.
    pub async fn start(mut self) -> Result<Outlast, Error> {
        self.agent.check_model(&self.models)?;
        let worker = WorkerId::fresh(self.clock.now(), self.entropy.random_id_bytes());
        let store: Arc<dyn Store> = match &self.storage {
            StorageLocation::File(path) => {
                self.check_database(path)?;
                let options = SqliteOptions {
                    worker: Some(worker),
                    unsafe_durability: self.unsafe_durability,
                    ..SqliteOptions::default()
                };
                Arc::new(SqliteStore::open_with(path, options)?)
            }
            StorageLocation::Memory(memory) => Arc::new(memory.clone()),
        };
        let contents = match self.contents.take() {
            Some(open) => Some(open(&name_of(store.as_ref()).await?)?),
            None => None,
        };
        let org = match &self.org {
            Some(named) => orgs::find_org(store.as_ref(), named).await?,
            None => OrgId::DEFAULT,
        };
        let access = Access::to(org).by(self.by.clone());
        #[cfg_attr(not(feature = "telemetry"), expect(unused_mut))]
        let (mut sinks, mut metrics) = (std::mem::take(&mut self.sinks), self.metrics.take());
        #[cfg(feature = "telemetry")]
        if let Some(settings) = self.telemetry.take() {
            if let Some(traces) = outlast_telemetry::OtlpTraces::new(&settings, store.clone())? {
                sinks.push(traces.into_outlet()?);
            }
            let to = outlast_telemetry::OtlpMetrics::new(&settings)?;
            metrics = to.map(|to| Arc::new(to) as Arc<dyn outlast_ports::metrics::MetricSink>);
        }
        let factory = self.agent_factory.take().map(|by| OrgAgentFactory { org, by });
        let config =
            RuntimeConfig { contents, sinks, metrics, agent_factory: factory, ..self.config(store, worker)? };
        let runtime = Runtime::start(config).await?.serving(access);
        runtime.listen();
        Ok(Outlast { runtime })
    }

    /// Returns an error if the shell or an MCP server of these agents could write to the database.
    ///
    /// [`Builder::start`] checks the database that it opens. Call this for an agent that joins a running worker
    /// ([`Builder::into_single_agent`]).
    pub fn check_database(&self, database: &Path) -> Result<(), Error> {
        for builder in std::iter::once(self).chain(&self.other_agents) {
            for WritablePath { path, writer } in &builder.writable_paths {
                let program = format!("{writer} of the agent `{}`", builder.agent.name);
                check_writable_path(&program, path, database)?;
            }
        }
        Ok(())
    }

    /// Returns the model providers, or the rehearsal model if none is set.
    fn take_models(&mut self) -> Vec<Arc<dyn ModelProvider>> {
        let mut models = std::mem::take(&mut self.models);
        if models.is_empty() {
            models.push(Arc::new(Rehearsal::agent(self.clock.clone())));
        }
        models
    }

    /// Returns the configuration of the runtime on this store. Attachments are stored there too, and no sinks are set.
    pub(crate) fn config(mut self, store: Arc<dyn Store>, worker: WorkerId) -> Result<RuntimeConfig, Error> {
        let models = self.take_models();
        let others = self.other_agents.into_iter().map(|other| other.agent);
        let WorkerAgents { default, others, plugins } = WorkerAgents::build(self.agent, others)?;
        Ok(RuntimeConfig {
            contents: None,
            sinks: Vec::new(),
            metrics: None,
            store,
            models,
            tools: default.tools,
            hooks: default.hooks,
            plugins,
            payments: self.payments,
            policy_engine: self.policy_engine,
            limiter: self.limiter,
            package: default.package,
            agents: others,
            agent_factory: None,
            clock: self.clock,
            entropy: self.entropy,
            tasks: self.tasks,
            limits: self.limits,
            worker,
        })
    }

    /// Returns what turns of this agent are pinned to: its package with the contracts of its tools. Starts nothing.
    pub fn pinned(self) -> Result<PinnedPackage, Error> {
        self.agent.build()?.0.pinned()
    }

    /// Like [`Builder::pinned`], but also checks the agent against the models, engine and limits of this builder.
    ///
    /// Returns every error that `start` would return for the agent. Starts and opens nothing.
    pub fn validate(mut self) -> Result<PinnedPackage, Error> {
        self.agent.check_model(&self.models)?;
        let models = Arc::new(ModelCatalogue::new(self.take_models()));
        let tools = ToolCatalogue::new(Vec::new())?;
        let resolver = AgentResolver::new(models, tools, self.clock, self.limits);
        let (agent, _) = self.agent.build()?;
        agent.fitted(&AgentResolver { policy_engine: self.policy_engine, ..resolver })
    }

    /// Returns the agent alone, for a worker that is already running ([`Outlast::put_agent`], [`Builder::agent_factory`]).
    /// Plug-ins can only be added at start, so an agent with plug-ins is refused.
    pub fn into_single_agent(self) -> Result<AgentBundle, Error> {
        if !self.agent.plugins.is_empty() {
            let detail = format!(
                "the agent `{}` has plug-ins, which must be known when the runtime starts; add it with \
                 `Builder::add_agent`",
                self.agent.name
            );
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        self.agent.build().map(|(agent, _)| agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_ports::plugin::{Plugin, PluginParts};

    struct EmptyPlugin;

    impl Plugin for EmptyPlugin {
        const NAME: &'static str = "empty";
        type Options = ();
        type Input = ();
        type State = ();

        fn start(self, (): ()) -> Result<PluginParts<Self>, Error> {
            Ok(PluginParts::new())
        }
    }

    #[test]
    fn agent_with_plugins_cannot_join_running_worker() {
        let clerk = Outlast::agent("clerk").plugin(EmptyPlugin, ());
        let refused = clerk.into_single_agent().err().unwrap();
        assert_eq!(
            refused.to_string(),
            "config.invalid: the agent `clerk` has plug-ins, which must be known when the runtime starts; add it with \
             `Builder::add_agent`"
        );
    }

    #[test]
    fn database_check_names_the_agent_of_the_server() {
        let clerk = Outlast::agent("clerk").mcp_server_writable("files", "/no/data");
        let builder = Outlast::ephemeral().add_agent(clerk);
        let refused = builder.check_database(Path::new("/no/data/outlast.db")).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "config.invalid: the MCP server `files` of the agent `clerk` may change everything in /no/data, which contains the database /no/data/outlast.db; use separate directories"
        );
    }
}
