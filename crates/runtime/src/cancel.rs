//! The wish that a turn stops, as it reaches everything the turn does (R4.6).
use tokio::sync::watch;

/// Who can ask for the stop.
#[derive(Debug)]
pub struct Canceller(watch::Sender<Option<String>>);

/// Who has to notice.
#[derive(Clone, Debug)]
pub struct Cancel(watch::Receiver<Option<String>>);

/// A wish that nobody has had yet, and who will notice it.
pub fn cancel() -> (Canceller, Cancel) {
    let (sender, receiver) = watch::channel(None);
    (Canceller(sender), Cancel(receiver))
}

impl Canceller {
    /// Asks for the stop. The first reason stays.
    pub fn cancel(&self, reason: &str) {
        self.0.send_if_modified(|wish| {
            let first = wish.is_none();
            wish.get_or_insert_with(|| reason.to_owned());
            first
        });
    }
}

impl Cancel {
    /// Why the turn is to stop, if it is.
    pub fn reason(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Comes back with the reason once there is one.
    pub async fn requested(&self) -> String {
        let mut wish = self.0.clone();
        match wish.wait_for(Option::is_some).await.map(|reason| reason.clone()) {
            Ok(reason) => reason.unwrap_or_default(),
            // Whoever could cancel is gone: nobody will.
            Err(_) => std::future::pending().await,
        }
    }
}
