//! Draws the screen of `outlast watch`.
use super::WatchScreen;
use super::live::{LineAuthor, LiveSession};
use super::rows::WatchRow;
use crate::formatting;
use crate::terminal::escape_control;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Table, TableState};

const KEYS: &str = "j k select · enter open · q quit";
const KEYS_OPEN: &str = "j k scroll · esc back · q quit";

/// Draws the list of sessions, or the open session.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &WatchScreen) {
    let parts = [Constraint::Min(3), Constraint::Length(1), Constraint::Length(1)];
    let [main, status, keys] = Layout::vertical(parts).areas(frame.area());
    match &screen.open {
        Some(live) => session(frame, main, live, screen.back),
        None => list(frame, main, screen),
    }
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Line::styled(format!(" {}", plain(&screen.message)), bold), status);
    let shown = if screen.open.is_some() { KEYS_OPEN } else { KEYS };
    frame.render_widget(Line::from(format!(" {shown}")), keys);
}

fn list(frame: &mut Frame<'_>, area: Rect, screen: &WatchScreen) {
    let block =
        Block::bordered().title(format!(" {} ", formatting::count(screen.rows.len(), "session", "sessions")));
    if screen.rows.is_empty() {
        frame.render_widget(Paragraph::new("no session is running or waiting").block(block), area);
        return;
    }
    let widths = [
        Constraint::Length(8),
        Constraint::Length(20),
        Constraint::Length(12),
        Constraint::Length(28),
        Constraint::Length(8),
        Constraint::Length(10),
        Constraint::Min(10),
    ];
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let head = ["STATE", "SESSION", "AGENT", "DOES", "TOKENS", "COST", "LAST MESSAGE"];
    let table = Table::new(screen.rows.iter().map(row), widths)
        .header(ratatui::widgets::Row::new(head).style(bold))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(block);
    let mut at = TableState::default().with_selected(Some(screen.selected));
    frame.render_stateful_widget(table, area, &mut at);
}

fn row(row: &WatchRow) -> ratatui::widgets::Row<'static> {
    let WatchRow { session, key, state, agent, doing, tokens, cost, words, .. } = row;
    // The end of an id distinguishes sessions.
    let id = session.to_string();
    let name = key.clone().unwrap_or_else(|| format!("…{}", &id[id.len().saturating_sub(12)..]));
    let cells = [
        (*state).to_owned(),
        plain(&name),
        plain(agent.as_deref().unwrap_or("-")),
        plain(doing),
        tokens.to_string(),
        format!("${cost}"),
        plain(words),
    ];
    ratatui::widgets::Row::new(cells.map(Cell::from))
}

fn session(frame: &mut Frame<'_>, area: Rect, live: &LiveSession, back: u16) {
    let block = Block::bordered().title(format!(" {} ", live.session));
    let inside = block.inner(area);
    let spoken = live.spoken().map(|text| (LineAuthor::Model, text));
    let said = live.lines.iter().map(|(voice, text)| (*voice, text.as_str()));
    let lines: Vec<Line<'static>> =
        said.chain(spoken).flat_map(|(voice, text)| spelled(voice, text, inside.width)).collect();
    // Show the end, unless the user scrolled back.
    let hidden = lines.len().saturating_sub(inside.height.into()).saturating_sub(back.into());
    frame.render_widget(block, area);
    frame.render_widget(Paragraph::new(lines.into_iter().skip(hidden).collect::<Vec<_>>()), inside);
}

/// Wraps a message to this width.
fn spelled(voice: LineAuthor, text: &str, width: u16) -> Vec<Line<'static>> {
    let (name, style) = match voice {
        LineAuthor::Person => ("you> ", Style::new().add_modifier(Modifier::BOLD)),
        LineAuthor::Model => ("", Style::new()),
        LineAuthor::Work => ("", Style::new().add_modifier(Modifier::DIM)),
    };
    let named = format!("{name}{text}");
    let lines = named.lines().flat_map(|line| folded(&plain(line), width.into()));
    lines.map(|line| Line::styled(line, style)).collect()
}

/// Splits a line into parts that fit the width.
fn folded(line: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for c in line.chars() {
        let wide = Span::raw(c.to_string()).width();
        if used + wide > width && used > 0 {
            lines.push(String::new());
            used = 0;
        }
        used += wide;
        if let Some(last) = lines.last_mut() {
            last.push(c);
        }
    }
    lines
}

/// Returns the text on one line, with hidden characters made visible.
fn plain(text: &str) -> String {
    escape_control(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
#[allow(clippy::needless_raw_string_hashes, reason = "expectations are written by a program")]
mod tests {
    use super::*;
    use expect_test::expect;
    use outlast::SessionId;
    use outlast::TurnId;
    use outlast::vocab::event::{Event, LiveEventKind};
    use outlast::vocab::{ReplayKey, event};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// Draws to a test screen and returns its lines without trailing blanks.
    fn drawn(screen: &WatchScreen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, screen)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let lines = (0..height).map(|y| {
            let line: String = (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect();
            format!("{}\n", line.trim_end())
        });
        lines.collect()
    }

    #[test]
    fn list_shows_state_activity_and_cost_per_session() {
        let mut row = WatchRow::known(SessionId::from_u128(7));
        row.key = Some("ann".into());
        (row.state, row.doing, row.tokens) = ("parked", "approval of pay".into(), 42);
        (row.agent, row.words) = (Some("clerk".into()), "I \u{202e}shall.".into());
        let screen = WatchScreen { rows: vec![row], ..WatchScreen::default() };
        expect![[r#"
            ┌ 1 session ───────────────────────────────────────────────────────────────────────────────────────────────────────────┐
            │STATE    SESSION              AGENT        DOES                         TOKENS   COST       LAST MESSAGE              │
            │parked   ann                  clerk        approval of pay              42       $0         I \u{202e}shall.          │
            └──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────┘

             j k select · enter open · q quit
        "#]].assert_eq(&drawn(&screen, 120, 6));
    }

    #[test]
    fn long_lines_wrap_at_the_display_width() {
        assert_eq!(folded("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(folded("日本語", 4), ["日本", "語"]);
        assert_eq!(folded("", 4), [""]);
    }

    #[test]
    fn open_session_shows_its_streamed_text() {
        let mut live = LiveSession::of(SessionId::from_u128(7));
        let says = |offset: usize, text: &str| {
            let what = LiveEventKind::Text {
                key: ReplayKey::turn(0).model(0),
                attempt: 1,
                offset,
                text: text.into(),
            };
            Event::Live(event::LiveEvent { turn: TurnId::from_u128(1), what })
        };
        live.lines.push((LineAuthor::Person, "count".into()));
        for event in [says(0, "one "), says(4, "two"), says(0, "one two three")] {
            live.take(&event);
        }
        let screen = WatchScreen { open: Some(live), ..WatchScreen::default() };
        expect![[r#"
            ┌ ses_00000000000000000000000000000007 ────────────────────┐
            │you> count                                                │
            │one two three                                             │
            │                                                          │
            │                                                          │
            └──────────────────────────────────────────────────────────┘

             j k scroll · esc back · q quit
        "#]]
        .assert_eq(&drawn(&screen, 60, 8));
    }
}
