//! What a policy is asked about: the facts of a point, and the circumstances.
use super::{LocalTime, Point};
use crate::cost::Cost;
use crate::id::OrgId;
use crate::label::{Labels, Provenance};
use crate::message::ToolName;
use crate::payment::Order;
use serde_json::{Number, Value, json};
use std::collections::BTreeMap;

/// What is about to happen.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'f> {
    /// Where it would happen.
    pub at: Point,
    /// The tool whose call it is of, where a tool is called.
    pub tool: Option<&'f ToolName>,
    /// What rules look into: the arguments of a call, or the facts of the point ([`Point::facts`]).
    pub value: &'f Value,
    /// The untrusted sources that may have asked for it.
    pub labels: &'f Labels,
    /// Where the values of the sink arguments of a call come from.
    pub provenance: &'f Provenance,
    /// What is true of the turn.
    pub around: &'f Circumstances,
}

/// What is true of a turn when something is about to happen in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// The agent.
    pub agent: String,
    /// Whose session it is; nobody knows where nothing is kept.
    pub org: Option<OrgId>,
    /// What the turn has cost so far; nobody knows if a price was not known.
    pub spent: Option<Cost>,
    /// What the clock shows, by time zone.
    pub times: BTreeMap<String, LocalTime>,
}

/// Something that a running tool is about to do, which a policy has a say in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It sends a request out.
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
    /// It is given a secret.
    Secret {
        /// The variable that holds it.
        name: String,
    },
    /// It starts a program.
    Process {
        /// The program.
        program: String,
        /// What it is passed.
        args: Vec<String>,
        /// Whether it runs behind walls.
        sandboxed: bool,
    },
    /// It sets money aside.
    Payment(Order),
}

impl Deed {
    /// Where a policy decides about it.
    pub const fn point(&self) -> Point {
        match self {
            Self::Egress { .. } => Point::Egress,
            Self::Secret { .. } => Point::Secret,
            Self::Process { .. } => Point::Process,
            Self::Payment(_) => Point::Payment,
        }
    }

    /// What rules see of it.
    pub fn facts(&self) -> Value {
        match self {
            Self::Egress { scheme, host, port, method, path } => {
                json!({ "scheme": scheme, "host": host, "port": port, "method": method, "path": path })
            }
            Self::Secret { name } => json!({ "name": name }),
            Self::Process { program, args, sandboxed } => {
                json!({ "program": program, "args": args, "sandboxed": sandboxed })
            }
            Self::Payment(Order { amount, payee, .. }) => {
                let number: Option<Number> = amount.amount.to_string().parse().ok();
                json!({ "amount": number, "currency": amount.currency.to_string(), "payee": payee })
            }
        }
    }
}
