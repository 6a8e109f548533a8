//! A plug-in that stores the tickets of a support desk in each session.
//!
//! It uses everything that a plug-in can provide:
//!
//! - a trigger (mail that arrives in a folder),
//! - tools (`ticket_open`, `ticket_close`), and a capability (`closing`) that enables the second one,
//! - a hook that rejects too many tickets,
//! - prompt text for all sessions and for one session, and a message at a checkpoint,
//! - state in the session, options, and data that an input carries for it.
//!
//! ```
//! use example_tickets::{TicketCustomer, TicketOptions, Tickets};
//! use outlast::Outlast;
//!
//! # async fn example() -> Result<(), outlast::Error> {
//! let options = TicketOptions { prefix: "HELP".to_owned(), open_most: 3, mail: Some("mail".into()) };
//! let outlast = Outlast::at("desk.db").plugin(Tickets, options).capability("closing").start().await?;
//! let ann = TicketCustomer { name: "Ann".to_owned() };
//! let turn = outlast.session("ann").send("my cake is late").plugin_input::<Tickets>(&ann)?.await?;
//! println!("{}", turn.answer().await?);
//! # Ok(())
//! # }
//! ```
use outlast::Kind;
use outlast::hook::BeforeTool;
use outlast::plugin::{Plugin, PluginAccess, PluginHookCall, PluginParts};
use outlast::prelude::*;
use outlast::vocab::capability::CapabilityBundle;
use outlast::vocab::effect::Boundary;
use outlast::vocab::hook::{CallHookInput, CallPatch, CheckpointHookInput};
use std::path::PathBuf;

mod mail;

/// The plug-in.
#[derive(Clone, Copy, Debug)]
pub struct Tickets;

/// The options of the plug-in.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(crate = "outlast::serde", deny_unknown_fields)]
pub struct TicketOptions {
    /// The prefix of ticket numbers.
    pub prefix: String,
    /// The maximum number of open tickets in one session.
    pub open_most: usize,
    /// The folder for incoming mail, if any.
    #[serde(default)]
    pub mail: Option<PathBuf>,
}

/// The data that an input carries: the customer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(crate = "outlast::serde")]
pub struct TicketCustomer {
    /// The name of the customer.
    pub name: String,
}

/// The state in a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(crate = "outlast::serde")]
pub struct TicketDesk {
    /// The tickets, in the order in which they were opened.
    pub tickets: Vec<Ticket>,
}

/// A request of a customer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(crate = "outlast::serde")]
pub struct Ticket {
    /// Its number, such as `HELP-1`.
    pub number: String,
    /// Its topic.
    pub about: String,
    /// The customer who opened it.
    pub customer: Option<String>,
    /// Whether it is still open.
    pub open: bool,
}

impl TicketDesk {
    fn open(&self) -> impl Iterator<Item = &Ticket> {
        self.tickets.iter().filter(|ticket| ticket.open)
    }
}

impl Plugin for Tickets {
    const NAME: &'static str = "tickets";
    type Options = TicketOptions;
    type Input = TicketCustomer;
    type State = TicketDesk;

    fn start(self, options: TicketOptions) -> Result<PluginParts<Self>, Error> {
        let TicketOptions { prefix, open_most, mail } = options;
        if prefix.is_empty() || open_most == 0 {
            let detail = "tickets need a `prefix`, and `open_most` above zero";
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        let closing = CapabilityBundle {
            name: "closing".parse()?,
            prompt: "Close a ticket when the customer says that all is well.".to_owned(),
            tools: vec!["ticket_close".parse()?],
            hooks: Vec::new(),
        };
        let brings = match mail {
            Some(folder) => PluginParts::new().trigger("tickets.mail", mail::MailFolder(folder))?,
            None => PluginParts::new(),
        };
        brings
            .prompt("Open a ticket for everything that you cannot settle at once.")
            .tool(OpenTicket { prefix })
            .tool(CloseTicket)
            .capability(closing)
            .on::<BeforeTool, _, _>(
                "tickets.limit",
                move |own: PluginHookCall<Self>, call: CallHookInput| async move {
                    let full = call.tool.as_str() == "ticket_open" && own.state.open().count() >= open_most;
                    Ok(full.then(|| CallPatch::Refuse(format!("{open_most} tickets are open already"))))
                },
            )?
            .session_prompt(|own: PluginHookCall<Self>| async move { Ok(prompt_text(&own)) })?
            .checkpoint(|own: PluginHookCall<Self>, at: CheckpointHookInput| async move {
                Ok(reminder(&own, &at))
            })
    }
}

/// Returns the prompt text for the current state of the desk.
fn prompt_text(own: &PluginHookCall<Tickets>) -> Option<String> {
    let customer = own.input.as_ref().map(|customer| format!("The customer is {}.", customer.name));
    let open: Vec<String> =
        own.state.open().map(|ticket| format!("{} ({})", ticket.number, ticket.about)).collect();
    let open = (!open.is_empty()).then(|| format!("Open tickets: {}.", open.join(", ")));
    let lines: Vec<String> = customer.into_iter().chain(open).collect();
    (!lines.is_empty()).then(|| lines.join(" "))
}

/// Returns a reminder, once after tools have run, that urgent tickets go first.
fn reminder(own: &PluginHookCall<Tickets>, at: &CheckpointHookInput) -> Vec<String> {
    let urgent = own.state.open().any(|ticket| ticket.about.contains("urgent"));
    if at.boundary == Boundary::AfterWork && urgent {
        return vec!["An urgent ticket is open: tell the customer when they will hear from us.".to_owned()];
    }
    Vec::new()
}

/// The topic of a ticket.
#[derive(Deserialize, JsonSchema)]
#[serde(crate = "outlast::serde")]
#[schemars(crate = "outlast::schemars")]
struct TicketTopic {
    /// The topic, in a few words.
    about: String,
}

struct OpenTicket {
    prefix: String,
}

impl Tool for OpenTicket {
    type Args = TicketTopic;
    type Needs = (PluginAccess<Tickets>,);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("ticket_open", "Opens a ticket and gives its number.").transactional()
    }

    async fn run(&self, (own,): Self::Needs, _: Call, args: TicketTopic) -> Result<ToolRunOutcome, Error> {
        let mut tickets = own.state().await?;
        let number = format!("{}-{}", self.prefix, tickets.tickets.len() + 1);
        let customer = own.input()?.map(|customer| customer.name);
        tickets.tickets.push(Ticket { number: number.clone(), about: args.about, customer, open: true });
        own.keep(&tickets)?;
        done(number)
    }
}

/// Which ticket.
#[derive(Deserialize, JsonSchema)]
#[serde(crate = "outlast::serde")]
#[schemars(crate = "outlast::schemars")]
struct TicketNumber {
    /// Its number, like `HELP-1`.
    number: String,
}

struct CloseTicket;

impl Tool for CloseTicket {
    type Args = TicketNumber;
    type Needs = (PluginAccess<Tickets>,);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("ticket_close", "Closes a ticket.").transactional()
    }

    async fn run(&self, (own,): Self::Needs, _: Call, args: TicketNumber) -> Result<ToolRunOutcome, Error> {
        let mut tickets = own.state().await?;
        let Some(ticket) = tickets.tickets.iter_mut().find(|ticket| ticket.number == args.number) else {
            return Err(failed(format!("there is no ticket {}", args.number)));
        };
        ticket.open = false;
        own.keep(&tickets)?;
        done(format!("{} is closed", args.number))
    }
}
