//! Reads a segment of a turn from its start, whether it is finished, running or not started yet.
use super::response_segment::ResponseSegment;
use super::segment_event::SegmentEvent;
use super::segment_projector::SegmentProjector;
use outlast_runtime::Runtime;
use outlast_runtime::agents::agent_registry;
use outlast_runtime::delivery::events::SessionEventStream;
use outlast_views::TurnView;
use outlast_vocab::event::Event;
use outlast_vocab::message::ToolName;
use outlast_vocab::package::Package;
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, SessionId, TurnId};
use std::collections::VecDeque;

/// A reader of one segment.
pub(crate) struct SegmentReader {
    events: SessionEventStream,
    projector: SegmentProjector,
    ready: VecDeque<SegmentEvent>,
}

impl SegmentReader {
    /// Reads from events that start with the turn's input.
    pub(crate) fn from_events(
        events: SessionEventStream,
        segment: ResponseSegment,
        client: Vec<ToolName>,
    ) -> Self {
        Self { events, projector: SegmentProjector::new(segment, client), ready: VecDeque::new() }
    }

    /// Reads a segment of an existing turn.
    pub(crate) async fn for_segment(runtime: &Runtime, segment: ResponseSegment) -> Result<Self, Error> {
        let turn = runtime.store().turn(segment.turn).await?;
        let client = client_tools(runtime, segment.turn).await?;
        Ok(Self::from_events(events_from_input(runtime, &turn), segment, client))
    }

    /// Returns the next event of the segment. Waits for one if necessary. Cancel safe: no event is lost.
    pub(crate) async fn next(&mut self) -> Result<SegmentEvent, Error> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(ready);
            }
            let event = self.events.next().await?;
            self.ready.extend(self.projector.project(&event)?);
        }
    }

    /// Returns the next event that the journal contains. Waits for one if necessary. Ignores live events.
    pub(crate) async fn next_durable(&mut self) -> Result<SegmentEvent, Error> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(ready);
            }
            let event = self.events.next().await?;
            if !matches!(event, Event::Live(_)) {
                self.ready.extend(self.projector.project(&event)?);
            }
        }
    }
}

/// Returns the events of a session, starting with the input of a turn.
pub(crate) fn events_from_input(runtime: &Runtime, turn: &TurnView) -> SessionEventStream {
    let TurnView { session, span: (first, _), .. } = *turn;
    runtime.events(session, Seq(first.0.saturating_sub(1)))
}

/// Returns the tools of a turn that its client runs.
pub(crate) async fn client_tools(runtime: &Runtime, turn: TurnId) -> Result<Vec<ToolName>, Error> {
    Ok(names(package(runtime, turn).await?.as_ref()))
}

fn names(package: Option<&Package>) -> Vec<ToolName> {
    let tools = package.map(|package| package.client_tools.as_slice()).unwrap_or_default();
    tools.iter().map(|tool| tool.name.clone()).collect()
}

/// Returns the package that a turn runs with.
async fn package(runtime: &Runtime, turn: TurnId) -> Result<Option<Package>, Error> {
    Ok(agent_registry::of_turn(runtime.store().as_ref(), turn).await?.map(|pinned| pinned.package))
}

/// The recorded part of a segment.
pub(crate) struct RecordedSegment {
    pub(crate) session: SessionId,
    /// The package that the turn runs with.
    pub(crate) package: Option<Package>,
    pub(crate) projector: SegmentProjector,
    pub(crate) segment_events: Vec<SegmentEvent>,
}

impl RecordedSegment {
    /// Reads the records of a segment. Returns `None` if the turn has not reached it.
    pub(crate) async fn of(runtime: &Runtime, segment: ResponseSegment) -> Result<Option<Self>, Error> {
        let session = runtime.store().turn(segment.turn).await?.session;
        let package = package(runtime, segment.turn).await?;
        let mut projector = SegmentProjector::new(segment, names(package.as_ref()));
        let mut segment_events = Vec::new();
        for record in runtime.store().turn_records(segment.turn).await? {
            segment_events.extend(projector.project(&Event::Durable(Box::new(record)))?);
        }
        Ok(projector.has_begun().then_some(Self { session, package, projector, segment_events }))
    }
}
