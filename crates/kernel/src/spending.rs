//! What models have cost a turn so far, added up from its facts.
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{DirectOutcome, ModelOutcome, Outcome};
use outlast_vocab::record::{Compacted, Fact, Shorter};

/// What a turn has cost so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spending {
    cost: Cost,
    unpriced: bool,
}

impl Spending {
    /// Adds what a fact cost.
    pub fn take(&mut self, fact: &Fact) {
        let cost = match fact {
            Fact::Performed(performed) => match &performed.outcome {
                Outcome::ModelCall(ModelOutcome::Reply(reply))
                | Outcome::DirectCall(DirectOutcome(ModelOutcome::Reply(reply))) => reply.cost,
                _ => return,
            },
            Fact::Compacted(Compacted { shorter: Shorter::Summary { cost, .. }, .. }) => *cost,
            _ => return,
        };
        self.cost = self.cost + cost.unwrap_or_default();
        self.unpriced |= cost.is_none();
    }

    /// All of it; nothing if a price was not known.
    pub fn known(self) -> Option<Cost> {
        (!self.unpriced).then_some(self.cost)
    }
}
