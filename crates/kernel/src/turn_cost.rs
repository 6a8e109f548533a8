//! Adds up the cost of a turn from its facts: model calls, and tools with a price.
use outlast_vocab::cost::Cost;
use outlast_vocab::record::Fact;

/// The cost of a turn so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct TurnCost {
    cost: Cost,
    unpriced: bool,
}

impl TurnCost {
    /// Adds the cost of a fact.
    pub fn add_fact(&mut self, fact: &Fact) {
        self.cost = self.cost + fact.cost().unwrap_or_default();
        self.unpriced |= fact.charge().is_some_and(|charge| charge.cost.is_none());
    }

    /// Returns the total cost, or `None` if any price was unknown.
    pub fn total(self) -> Option<Cost> {
        (!self.unpriced).then_some(self.cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::effect::{ModelCall, ModelOutcome, Reply, StopReason, Usage};
    use outlast_vocab::record::EffectPerformed;
    use outlast_vocab::{Hash, ReplayKey};

    fn reply(cost: Option<&str>) -> Fact {
        let call = ModelCall {
            model: "test/script".parse().unwrap(),
            at: None,
            tools: Hash::ZERO,
            choice: outlast_vocab::effect::ToolChoice::default(),
            options: outlast_vocab::effect::Generation::default(),
            output: None,
        };
        let cost = cost.map(|cost| cost.parse().unwrap());
        let (parts, calls) = (Vec::new(), Vec::new());
        let (stop, stop_sequence, usage, estimate) = (StopReason::End, None, Usage::default(), None);
        let reply = Reply { parts, calls, stop, stop_sequence, usage, cost, estimate, attempt: 1 };
        Fact::Performed(EffectPerformed::new(ReplayKey::turn(0).model(0), call, ModelOutcome::Reply(reply)))
    }

    #[test]
    fn turn_cost_is_exact_or_unknown_if_unpriced() {
        let spent = |costs: &[Option<&str>]| {
            let mut spending = TurnCost::default();
            for cost in costs {
                spending.add_fact(&reply(*cost));
            }
            spending.total().map(|cost| cost.to_string())
        };
        assert_eq!(spent(&[]).as_deref(), Some("0"));
        assert_eq!(spent(&[Some("0.1"), Some("0.2")]).as_deref(), Some("0.3"));
        assert_eq!(spent(&[Some("0.1"), None]), None);
    }
}
