//! Sends an input and listens from before its first word.
use crate::find::Named;
use crate::watch::Watch;
use outlast::runtime::Input;
use outlast::store::Target;
use outlast::vocab::record::Seq;
use outlast::{Error, Outlast, Turn};

/// An input for the session that a person names, or for a new one.
pub(crate) struct Message {
    /// Which session.
    pub(crate) to: Option<Named>,
    /// The idempotency key.
    pub(crate) key: Option<String>,
    /// Which of the session's heads.
    pub(crate) head: String,
    /// What it says.
    pub(crate) text: String,
}

/// A turn that is watched.
pub(crate) struct Sent {
    /// The turn.
    pub(crate) turn: Turn,
    /// Its session, from its input on.
    pub(crate) watch: Watch,
}

impl Message {
    /// Sends it. The line is joined first: a model may speak before the answer to the input is here.
    pub(crate) async fn send(self, outlast: &Outlast) -> Result<Sent, Error> {
        let runtime = outlast.runtime();
        let fresh = runtime.fresh_session();
        let found = match &self.to {
            Some(named) => named.find(outlast.store().as_ref()).await?,
            None => None,
        };
        let (session, after) = found.map_or((fresh, Seq(0)), |session| (session.id, session.last.seq));
        let target = match self.to {
            Some(Named::Id(id)) => Target::Id(id),
            Some(Named::Key(key)) => Target::Key { key, fresh },
            None => Target::New(fresh),
        };
        let watch = Watch::new(outlast, session, after);
        let input = Input { key: self.key, head: self.head, ..Input::text(target, self.text) };
        let accepted = runtime.submit(input).await?;
        let turn = outlast.turn(accepted.turn).await?;
        let from_the_start = accepted.session == session && !accepted.duplicate;
        let watch = if from_the_start { watch } else { Watch::of(outlast, &turn) };
        Ok(Sent { turn, watch })
    }
}
