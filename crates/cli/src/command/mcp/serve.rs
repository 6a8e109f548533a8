//! `outlast mcp serve`: offers the agents here as tools to the MCP client that started this program.
use crate::agent::{AgentArgs, AgentOptions};
use crate::global_args::{GlobalArgs, terminal_user};
use clap::Args;
use outlast::vocab::access::{Access, Scope, Scopes};
use outlast::vocab::limits::ServerLimits;
use outlast::{Error, Outlast};
use outlast_mcp_server::McpServer;

/// Serves agents as tools and sessions as resources, until the client closes the connection.
#[derive(Args)]
pub(crate) struct McpServeArgs {
    /// Scope of the client: `read` sessions, `run` agents, `approve` their requests; repeatable. Omit `approve` for a
    /// client that answers questions without a person
    #[arg(long, value_name = "SCOPE", default_values = ["run", "approve"])]
    scope: Vec<Scope>,
    #[command(flatten)]
    options: AgentOptions,
}

impl McpServeArgs {
    pub(crate) async fn run(self, data: &GlobalArgs, agent: Option<String>) -> Result<(), Error> {
        let Self { scope, options: play } = self;
        let outlast = AgentArgs::named(agent, play).start(data).await?;
        let served = serve(&outlast, scope.into_iter().collect()).await;
        outlast.shut_down().await;
        served
    }
}

async fn serve(outlast: &Outlast, scopes: Scopes) -> Result<(), Error> {
    let runtime = outlast.runtime();
    let org = runtime.access().visibility.home();
    let access = Access { scopes, ..Access::to(org).by(terminal_user()) };
    let secret = outlast.operator().runtime().store().secret().await?;
    McpServer::local(runtime.serving(access), secret, &ServerLimits::default()).serve().await
}
