//! A server that acts as the outside world, and a tool that talks to it over TCP.
use outlast::prelude::*;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server that receives keys and answers each.
pub(crate) struct KeyServer {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<BTreeSet<String>>>,
}

impl KeyServer {
    /// Opens the server on a free port. It lives as long as the test's runtime.
    pub(crate) fn open() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        tokio::spawn(serve(TcpListener::from_std(listener).unwrap(), received.clone()));
        Self { address, received }
    }

    pub(crate) fn keys(&self) -> BTreeSet<String> {
        self.received.lock().unwrap().clone()
    }
}

async fn serve(listener: TcpListener, received: Arc<Mutex<BTreeSet<String>>>) {
    while let Ok((mut caller, _)) = listener.accept().await {
        let mut key = String::new();
        // A caller that died has sent part of a key or nothing.
        if caller.read_to_string(&mut key).await.is_ok() && key.ends_with('.') {
            received.lock().unwrap().insert(key);
            let _heard = caller.write_all(b"heard").await;
        }
    }
}

/// A tool that sends its key and waits for the answer.
pub(crate) struct Phone(pub(crate) SocketAddr);

#[derive(Deserialize, JsonSchema)]
#[serde(crate = "outlast::serde")]
#[schemars(crate = "outlast::schemars")]
pub(crate) struct Nothing {}

impl Tool for Phone {
    type Args = Nothing;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("phone", "Calls the desk.").idempotent()
    }

    async fn run(&self, (): (), call: Call, _: Nothing) -> Result<ToolRunOutcome, Error> {
        let answer = async {
            let mut line = TcpStream::connect(self.0).await?;
            line.write_all(format!("{}.", call.id).as_bytes()).await?;
            line.shutdown().await?;
            let mut answer = String::new();
            line.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        done(answer.await.map_err(failed)?)
    }
}
