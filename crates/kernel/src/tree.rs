//! The session tree: each turn follows a message, and heads point at messages.
//!
//! The messages of a turn form a straight line; the tree branches only where a turn begins. So the tree is
//! stored by turn, and each turn knows the message it follows.
use outlast_vocab::record::{NodeRef, Seq};
use outlast_vocab::{SessionId, TurnId};

/// One turn as a branch of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnBranch {
    /// The session that holds its records.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The message it follows, or `None` at the root.
    pub parent: Option<NodeRef>,
    /// Its first message.
    pub first: Seq,
    /// Its last message so far.
    pub last: Seq,
}

impl TurnBranch {
    fn holds(&self, node: NodeRef) -> bool {
        self.session == node.session && (self.first..=self.last).contains(&node.seq)
    }
}

/// The turns of a session and of the sessions it was forked from.
#[derive(Debug)]
pub struct SessionTree {
    branches: Vec<TurnBranch>,
}

impl SessionTree {
    /// Creates a tree of these turns, in the order they began.
    pub fn new(branches: Vec<TurnBranch>) -> Self {
        Self { branches }
    }

    /// Returns the turns from the root to this message.
    pub fn path(&self, head: Option<NodeRef>) -> Vec<&TurnBranch> {
        let mut path = Vec::new();
        let mut node = head;
        while let Some(branch) = node.and_then(|node| self.branches.iter().rfind(|branch| branch.holds(node)))
        {
            path.push(branch);
            // A parent always began earlier. A cycle means corrupt data and must not hang the reader.
            node = branch.parent.filter(|_| path.len() <= self.branches.len());
        }
        path.reverse();
        path
    }

    /// Returns the turns that follow a message of this turn, or those at the root.
    pub fn children(&self, of: Option<&TurnBranch>) -> Vec<&TurnBranch> {
        let follows = |branch: &&TurnBranch| match (of, branch.parent) {
            (Some(parent), Some(node)) => parent.holds(node),
            (None, parent) => {
                parent.is_none_or(|node| !self.branches.iter().any(|branch| branch.holds(node)))
            }
            (Some(_), None) => false,
        };
        self.branches.iter().filter(follows).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId::from_u128(1);

    fn branch(turn: u128, parent: Option<u64>, first: u64, last: u64) -> TurnBranch {
        let parent = parent.map(|seq| NodeRef { session: SESSION, seq: Seq(seq) });
        TurnBranch {
            session: SESSION,
            turn: TurnId::from_u128(turn),
            parent,
            first: Seq(first),
            last: Seq(last),
        }
    }

    fn turns(branches: &[&TurnBranch]) -> Vec<u128> {
        branches.iter().map(|branch| branch.turn.to_u128()).collect()
    }

    #[test]
    fn rewound_head_branches_and_keeps_old_branch() {
        let tree = SessionTree::new(vec![
            branch(1, None, 2, 4),
            branch(2, Some(4), 6, 8),
            branch(3, Some(4), 11, 13),
        ]);
        let head = |seq| Some(NodeRef { session: SESSION, seq: Seq(seq) });
        assert_eq!(turns(&tree.path(head(13))), [1, 3]);
        assert_eq!(turns(&tree.path(head(8))), [1, 2]);
        assert_eq!(turns(&tree.children(tree.children(None).first().copied())), [2, 3]);
        assert!(tree.path(None).is_empty());
    }

    #[test]
    fn damaged_parents_do_not_hang_a_reader() {
        let tree = SessionTree::new(vec![branch(1, Some(2), 1, 2)]);
        assert_eq!(tree.path(Some(NodeRef { session: SESSION, seq: Seq(1) })).len(), 2);
    }
}
