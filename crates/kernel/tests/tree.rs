//! Property tests of the session tree under any sequence of turns, forks and rewinds. A path holds the turns
//! that lead to a message, and nothing that happens elsewhere changes it.
use outlast_kernel::tree::{SessionTree, TurnBranch};
use outlast_vocab::record::{NodeRef, Seq};
use outlast_vocab::{SessionId, TurnId};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// One operation. Its numbers choose among the heads and messages that exist by then.
#[derive(Clone, Copy, Debug)]
enum TreeOperation {
    /// Adds a turn with this many messages at a head.
    Turn { head: usize, messages: u64 },
    /// Adds a head at a message of any turn, in the session of that message.
    NewHead { at: usize },
    /// Forks a session at a message of any turn.
    NewSession { at: usize },
    /// Moves a head to a message of any turn, or to the root.
    Rewind { head: usize, to: Option<usize> },
}

fn operation() -> impl Strategy<Value = TreeOperation> {
    let any = any::<usize>;
    prop_oneof![
        4 => (any(), 1..4_u64).prop_map(|(head, messages)| TreeOperation::Turn { head, messages }),
        1 => any().prop_map(|at| TreeOperation::NewHead { at }),
        1 => any().prop_map(|at| TreeOperation::NewSession { at }),
        1 => (any(), proptest::option::of(any())).prop_map(|(head, to)| TreeOperation::Rewind { head, to }),
    ]
}

/// A simple model of the tree: each message with the turns that lead to it.
#[derive(Debug)]
struct World {
    branches: Vec<TurnBranch>,
    heads: Vec<(SessionId, Option<NodeRef>)>,
    last: BTreeMap<SessionId, u64>,
    paths: BTreeMap<NodeRef, Vec<TurnId>>,
}

impl World {
    fn new() -> Self {
        let session = SessionId::from_u128(1);
        Self {
            branches: Vec::new(),
            heads: vec![(session, None)],
            last: BTreeMap::from([(session, 1)]),
            paths: BTreeMap::new(),
        }
    }

    fn message(&self, number: usize) -> Option<NodeRef> {
        self.paths.keys().nth(number.checked_rem(self.paths.len())?).copied()
    }

    fn does(&mut self, operation: TreeOperation) {
        match operation {
            TreeOperation::Turn { head, messages } => self.turn(head % self.heads.len(), messages),
            TreeOperation::NewHead { at } => {
                self.heads.extend(self.message(at).map(|node| (node.session, Some(node))));
            }
            TreeOperation::NewSession { at } => {
                let session = SessionId::from_u128(self.last.len() as u128 + 1);
                // The records of every session are counted from the start, so positions alone do not
                // distinguish sessions.
                self.last.insert(session, 1);
                self.heads.push((session, self.message(at)));
            }
            TreeOperation::Rewind { head, to } => {
                let to = to.and_then(|to| self.message(to));
                let head = head % self.heads.len();
                self.heads[head].1 = to;
            }
        }
    }

    fn turn(&mut self, head: usize, messages: u64) {
        let (session, parent) = self.heads[head];
        let turn = TurnId::from_u128(self.branches.len() as u128 + 1);
        let last = self.last.get_mut(&session).expect("every session counts its records");
        let first = *last + 1;
        // Other records are between two turns.
        *last += messages + 2;
        let mut path = parent.map_or_else(Vec::new, |parent| self.paths[&parent].clone());
        path.push(turn);
        let end = first + messages - 1;
        for seq in first..=end {
            self.paths.insert(NodeRef { session, seq: Seq(seq) }, path.clone());
        }
        self.branches.push(TurnBranch { session, turn, parent, first: Seq(first), last: Seq(end) });
        self.heads[head].1 = Some(NodeRef { session, seq: Seq(end) });
    }
}

fn turns(branches: &[&TurnBranch]) -> Vec<TurnId> {
    branches.iter().map(|branch| branch.turn).collect()
}

fn world() -> impl Strategy<Value = World> {
    vec(operation(), 0..40).prop_map(|operations| {
        let mut world = World::new();
        for operation in operations {
            world.does(operation);
        }
        world
    })
}

proptest! {
    #[test]
    fn message_path_is_the_turns_leading_there(world in world()) {
        let tree = SessionTree::new(world.branches);
        for (node, path) in &world.paths {
            prop_assert_eq!(&turns(&tree.path(Some(*node))), path);
        }
        for (_, head) in world.heads {
            let path = head.map_or_else(Vec::new, |head| world.paths[&head].clone());
            prop_assert_eq!(turns(&tree.path(head)), path);
        }
    }

    #[test]
    fn later_turns_change_no_path(world in world(), until in any::<usize>()) {
        let until = until % (world.branches.len() + 1);
        let earlier = SessionTree::new(world.branches[..until].to_vec());
        let later = SessionTree::new(world.branches);
        for (node, path) in world.paths {
            if path.iter().all(|turn| turn.to_u128() <= until as u128) {
                prop_assert_eq!(turns(&earlier.path(Some(node))), turns(&later.path(Some(node))));
            }
        }
    }

    #[test]
    fn every_turn_is_reached_once_from_root(world in world()) {
        let tree = SessionTree::new(world.branches.clone());
        let mut found = Vec::new();
        let mut open = tree.children(None);
        while let Some(branch) = open.pop() {
            found.push(branch.turn);
            let children = tree.children(Some(branch));
            for child in &children {
                let path = tree.path(child.parent);
                prop_assert_eq!(path.last().map(|parent| parent.turn), Some(branch.turn));
            }
            open.extend(children);
        }
        found.sort_unstable();
        let all: Vec<TurnId> = world.branches.iter().map(|branch| branch.turn).collect();
        prop_assert_eq!(found, all);
    }

    #[test]
    fn missing_message_has_no_path(world in world(), session in 1..9_u128, seq in any::<u64>()) {
        let node = NodeRef { session: SessionId::from_u128(session), seq: Seq(seq) };
        prop_assume!(!world.paths.contains_key(&node));
        prop_assert!(SessionTree::new(world.branches).path(Some(node)).is_empty());
    }

    #[test]
    fn damaged_branches_do_not_hang_a_reader(
        parts in vec((1..4_u128, 0..12_u64, 0..12_u64, proptest::option::of((1..4_u128, 0..12_u64))), 0..10),
    ) {
        let node = |(session, seq)| NodeRef { session: SessionId::from_u128(session), seq: Seq(seq) };
        let branches: Vec<TurnBranch> = (1..)
            .zip(parts)
            .map(|(turn, (session, first, last, parent))| TurnBranch {
                session: SessionId::from_u128(session),
                turn: TurnId::from_u128(turn),
                parent: parent.map(node),
                first: Seq(first),
                last: Seq(last),
            })
            .collect();
        let tree = SessionTree::new(branches.clone());
        for branch in &branches {
            let path = tree.path(Some(NodeRef { session: branch.session, seq: branch.first }));
            prop_assert!(path.len() <= branches.len() + 1);
        }
    }
}
