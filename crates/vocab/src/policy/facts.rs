//! The input of a policy decision: the facts of a point, and the circumstances.
use super::{LocalTime, PolicyPoint};
use crate::cost::Cost;
use crate::id::OrgId;
use crate::label::{Labels, Provenance};
use crate::message::ToolName;
use crate::payment::PaymentOrder;
use serde_json::{Number, Value, json};
use std::collections::BTreeMap;

/// An action that is about to happen.
#[derive(Clone, Copy, Debug)]
pub struct PolicyFacts<'f> {
    /// The point at which it would happen.
    pub at: PolicyPoint,
    /// The tool, if the action belongs to a tool call.
    pub tool: Option<&'f ToolName>,
    /// The value that rules test: the arguments of a call, or the facts of the point ([`PolicyPoint::facts`]).
    pub value: &'f Value,
    /// The untrusted sources that may have caused it.
    pub labels: &'f Labels,
    /// The origins of the sink arguments of a call.
    pub provenance: &'f Provenance,
    /// The state of the turn.
    pub circumstances: &'f TurnCircumstances,
}

/// The state of a turn when an action is about to happen in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnCircumstances {
    /// The agent.
    pub agent: String,
    /// The organisation of the session. Unknown on a host that stores nothing.
    pub org: Option<OrgId>,
    /// The cost of the turn so far. Unknown if a price was unknown.
    pub spent: Option<Cost>,
    /// The local time, by time zone.
    pub times: BTreeMap<String, LocalTime>,
}

/// An action of a running tool that a policy decides about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyAction {
    /// The tool sends a request.
    Egress {
        /// `https` or `http`.
        scheme: String,
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The method, like `GET`.
        method: String,
        /// The path, without the query.
        path: String,
    },
    /// The tool receives a secret.
    Secret {
        /// The environment variable that holds it.
        name: String,
    },
    /// The tool starts a program.
    Process {
        /// The program.
        program: String,
        /// The arguments of the program.
        args: Vec<String>,
        /// Whether it runs in a sandbox.
        sandboxed: bool,
    },
    /// The tool reserves money.
    Payment(PaymentOrder),
}

impl PolicyAction {
    /// Returns the point at which a policy decides about it.
    pub const fn point(&self) -> PolicyPoint {
        match self {
            Self::Egress { .. } => PolicyPoint::Egress,
            Self::Secret { .. } => PolicyPoint::Secret,
            Self::Process { .. } => PolicyPoint::Process,
            Self::Payment(_) => PolicyPoint::Payment,
        }
    }

    /// Returns the facts that rules see.
    pub fn facts(&self) -> Value {
        match self {
            Self::Egress { scheme, host, port, method, path } => {
                json!({ "scheme": scheme, "host": host, "port": port, "method": method, "path": path })
            }
            Self::Secret { name } => json!({ "name": name }),
            Self::Process { program, args, sandboxed } => {
                json!({ "program": program, "args": args, "sandboxed": sandboxed })
            }
            Self::Payment(PaymentOrder { amount, payee, .. }) => {
                let number: Option<Number> = amount.amount.to_string().parse().ok();
                json!({ "amount": number, "currency": amount.currency.to_string(), "payee": payee })
            }
        }
    }
}
