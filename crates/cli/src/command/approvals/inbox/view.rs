//! Draws the inbox.
use super::super::approval_format;
use super::{InboxMode, InboxState, QuestionCosts, plain};
use crate::formatting;
use outlast::vocab::canonical_json;
use outlast_client::api::waits::ApprovalResource;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, List, ListState, Paragraph, Wrap};

const KEYS: &str =
    "a approve  s for the session  d deny  e edit  j/k next/previous  J/K scroll  ? help  q quit";

const HELP: &str = "\
a  approve: the call runs exactly as it is shown
s  approve for the rest of the session: no approval is needed for more
   calls of this tool under the same rule, unless the tool, the rule or
   the policy changes, or untrusted text may have caused the call
d  deny, with a reason that the model receives; Esc cancels
e  edit the arguments in $EDITOR and approve the edited ones;
   earlier approvals of the old arguments no longer count
j  next        k  previous       (arrow keys too)
J  scroll down K  scroll up      (page keys too)
q  quit

Any key closes this.";

pub(super) fn draw(frame: &mut Frame<'_>, state: &InboxState, by: &str) {
    let [top, middle, status, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let waiting = formatting::count(state.questions.len(), "call waits", "calls wait");
    frame.render_widget(Line::from(format!(" {waiting} for an approval; you are {}", plain(by))), top);
    if state.mode == InboxMode::Helping {
        frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" keys ")), middle);
    } else {
        let [left, right] =
            Layout::horizontal([Constraint::Percentage(35), Constraint::Min(20)]).areas(middle);
        list(frame, left, state);
        detail(frame, right, state);
    }
    let line = match &state.mode {
        InboxMode::Denying(reason) => format!(" why not? {}▏", plain(reason)),
        InboxMode::Looking | InboxMode::Helping => format!(" {}", plain(&state.message)),
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Paragraph::new(line).style(bold).wrap(Wrap { trim: false }), status);
    frame.render_widget(Line::from(format!(" {KEYS}")), keys);
}

fn list(frame: &mut Frame<'_>, area: Rect, state: &InboxState) {
    let row = |question: &ApprovalResource| {
        let ApprovalResource { tool, arguments, labels, .. } = question;
        let mark = if labels.is_empty() { " " } else { "!" };
        format!("{mark}{} {}", plain(tool.as_str()), plain(&canonical_json::to_string(arguments)))
    };
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let rows = List::new(state.questions.iter().map(row)).highlight_style(reversed).highlight_symbol("> ");
    let mut at = ListState::default().with_selected(state.at());
    frame.render_stateful_widget(rows.block(Block::bordered().title(" waiting ")), area, &mut at);
}

fn detail(frame: &mut Frame<'_>, area: Rect, state: &InboxState) {
    let text = match state.shown() {
        Some(question) => text_of(question, state.costs.as_ref()),
        None if state.questions.is_empty() => Text::from("nothing waits for an approval"),
        None => Text::from("no call is selected; select one with j and k"),
    };
    let title = state.shown().map(|question| format!(" {} ", question.id)).unwrap_or_default();
    let shown = Paragraph::new(text).wrap(Wrap { trim: false }).scroll((state.scrolled, 0));
    frame.render_widget(shown.block(Block::bordered().title(title)), area);
}

/// Returns all details that the decision needs, arguments first.
fn text_of(question: &ApprovalResource, costs: Option<&QuestionCosts>) -> Text<'static> {
    let ApprovalResource { session, turn, tool, arguments, original, since, expires, .. } = question;
    let mut lines =
        vec![entry("tool", tool.as_str()), entry("arguments", &canonical_json::to_string(arguments))];
    if let Some(original) = original {
        lines.push(entry("the model asked for", &canonical_json::to_string(original)));
    } else if let Some(preview) = &question.preview {
        lines.push(entry("the tool says it would", ""));
        lines.extend(preview.lines().map(|line| Line::from(format!("  {}", plain(line)))));
    }
    if !question.labels.is_empty() {
        lines.push(entry("untrusted text may have caused it", &question.labels.to_string()));
    }
    if !question.provenance.is_empty() {
        lines.push(entry("sinks", &question.provenance.to_string()));
    }
    lines.push(entry("why", &approval_format::wanted(question)));
    lines.extend(question.ask.reason.iter().map(|reason| entry("because", reason)));
    if let Some(policy) = &question.policy {
        lines.push(entry("policy", &policy.to_string()[..12]));
    }
    if question.needed > 1 {
        lines.push(entry("votes", &approval_format::votes(question)));
    }
    lines.extend(approval_format::notices(question).map(|status| entry("told", &status)));
    lines.push(entry("asked", &formatting::when(*since)));
    lines.push(entry("until", &expires.map_or_else(|| "for ever".to_owned(), formatting::when)));
    if let Some(QuestionCosts { turn, session, .. }) = costs {
        lines.push(entry("cost so far", &format!("${turn} in the turn, ${session} in the session")));
    }
    lines.push(entry("session", &session.to_string()));
    lines.push(entry("turn", &turn.to_string()));
    Text::from(lines)
}

fn entry(name: &str, value: &str) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Line::from(vec![Span::styled(format!("{name}: "), bold), Span::raw(plain(value))])
}
