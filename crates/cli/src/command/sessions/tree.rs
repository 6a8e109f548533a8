//! Prints the turns of a session as a tree, with its heads.
use crate::backend::CommandBackend;
use crate::formatting;
use crate::terminal;
use outlast::store::{SessionView, TurnView};
use outlast::vocab::record::Seq;
use outlast::{Error, TurnId};
use outlast_kernel::tree::{SessionTree, TurnBranch};
use std::collections::BTreeMap;

pub(super) async fn draw(backend: &CommandBackend, session: &SessionView) -> Result<(), Error> {
    let turns = backend.turns(session.id, 0, session.turns as usize).await?;
    let mut lines = BTreeMap::new();
    for turn in &turns {
        lines.insert(turn.id, label(backend, session, turn).await?);
    }
    let tree = SessionTree::new(turns.iter().map(branch).collect());
    let mut drawing = TreePrinter { tree: &tree, lines: &lines, left: turns.len() };
    drawing.below(None, "");
    Ok(())
}

fn branch(turn: &TurnView) -> TurnBranch {
    let TurnView { id, session, parent, span: (first, last), .. } = turn;
    TurnBranch { session: *session, turn: *id, parent: *parent, first: *first, last: *last }
}

async fn label(backend: &CommandBackend, session: &SessionView, turn: &TurnView) -> Result<String, Error> {
    let (Seq(first), Seq(last)) = turn.span;
    let input = backend.records(session.id, Seq(first.saturating_sub(1)), 1).await?.into_iter().next();
    let input = input.map(|record| formatting::fact(&record.fact)).unwrap_or_default();
    let end = turn.end.as_ref().map_or("unfinished", |end| end.name());
    let holds = |seq: Seq| (turn.span.0..=turn.span.1).contains(&seq);
    let heads = session.heads.iter().filter_map(|(name, node)| {
        node.filter(|node| node.session == session.id && holds(node.seq))
            .map(|node| format!(" ← {name} at #{}", node.seq))
    });
    Ok(format!("#{first}–#{last} {input} {end}{}", heads.collect::<String>()))
}

struct TreePrinter<'a> {
    tree: &'a SessionTree,
    lines: &'a BTreeMap<TurnId, String>,
    /// The number of turns that may still be printed. Corrupt data can contain cycles.
    left: usize,
}

impl TreePrinter<'_> {
    /// Prints the turns that follow a turn. Only branches increase the indentation.
    fn below(&mut self, parent: Option<&TurnBranch>, indent: &str) {
        let mut children = self.tree.children(parent);
        while let [child] = children[..] {
            if !self.line(child, indent) {
                return;
            }
            children = self.tree.children(Some(child));
        }
        let last = children.len().saturating_sub(1);
        for (place, child) in children.into_iter().enumerate() {
            let (corner, bar) = if place == last { ("└ ", "  ") } else { ("├ ", "│ ") };
            if self.line(child, &format!("{indent}{corner}")) {
                self.below(Some(child), &format!("{indent}{bar}"));
            }
        }
    }

    fn line(&mut self, branch: &TurnBranch, indent: &str) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        let line = self.lines.get(&branch.turn).map_or("", String::as_str);
        terminal::say(&format!("{indent}{line}"));
        true
    }
}
