//! Hands the listening socket of a server to its successor, so that no connection is refused in between.
//!
//! A server listens on a Unix socket next to its database, which only its user can open. The new process
//! connects, receives the listening socket, starts to serve, and reports that it is ready. The old process
//! confirms and then stops as it does on SIGTERM.
//!
//! If the new process dies before it reports, nothing changes. If the old process dies first, the new one
//! already has the socket and serves.
use outlast::{Error, Kind};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixListener;

/// The timeout of each side for the other.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long the new process waits for the confirmation of the old one.
const HEARD: Duration = Duration::from_secs(2);

/// The pause between two attempts to hand over.
const PAUSE: Duration = Duration::from_millis(100);

/// The message "ready" of the new process, and the confirmation of the old one.
const READY: [u8; 1] = [b'r'];

/// Returns the path of the Unix socket for the server of a database at an address.
fn place(data: &Path, address: SocketAddr) -> PathBuf {
    let mut name = data.as_os_str().to_owned();
    name.push(format!("-serve-{address}"));
    name.into()
}

/// An offer to hand over a server's socket.
pub(crate) struct SocketOffer {
    listening: TcpListener,
    requests: UnixListener,
    place: PathBuf,
    /// The inode of our Unix socket. The file at `place` may belong to another process by now.
    inode: u64,
}

impl SocketOffer {
    /// Starts to offer a socket. Call [`Self::taken`] to hand it over.
    pub(crate) fn of(socket: io::Result<TcpListener>, data: &Path) -> Result<Self, Error> {
        let listening = socket.map_err(unoffered)?;
        let place = place(data, listening.local_addr().map_err(unoffered)?);
        // The owner of an existing file is gone or has handed over, because two servers cannot listen on one
        // address.
        if let Err(cause) = fs::remove_file(&place)
            && cause.kind() != io::ErrorKind::NotFound
        {
            return Err(unoffered(cause));
        }
        let listener = UnixListener::bind(&place).map_err(unoffered)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(0o600)).map_err(unoffered)?;
        let inode = fs::metadata(&place).map_err(unoffered)?.ino();
        Ok(Self { listening, requests: listener, place, inode })
    }

    /// Waits until another process has taken over.
    pub(crate) async fn taken(&self) {
        loop {
            match self.hand_over().await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(%error, "the socket was not taken over");
                    // If there are no file handles left, an immediate retry would fail too.
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn hand_over(&self) -> io::Result<()> {
        let (mut to, _) = self.requests.accept().await?;
        // Before its permissions are set, other users may be able to open the file.
        if to.peer_cred()?.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("another user asked for it"));
        }
        let handed = async {
            to.async_io(Interest::WRITABLE, || send(&to, &self.listening)).await?;
            to.read_exact(&mut READY.clone()).await?;
            to.write_all(&READY).await
        };
        tokio::time::timeout(PATIENCE, handed).await?
    }

    /// Withdraws the offer.
    pub(crate) fn end(self) {
        if fs::metadata(&self.place).is_ok_and(|file| file.ino() == self.inode) {
            let _gone = fs::remove_file(&self.place);
        }
    }
}

fn unoffered(cause: io::Error) -> Error {
    Error::new(Kind::IoFailed, format!("the socket cannot be offered to another process: {cause}"))
        .because(cause)
}

fn send(to: &tokio::net::UnixStream, listening: &TcpListener) -> io::Result<()> {
    let sockets = [listening.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(to, &[IoSlice::new(&READY)], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A socket that the old process still serves.
pub(crate) struct InheritedSocket {
    from: UnixStream,
    listening: TcpListener,
}

impl InheritedSocket {
    /// Requests the socket of the server of this database at this address.
    pub(crate) fn from(data: &Path, address: SocketAddr) -> Result<Self, Error> {
        let place = place(data, address);
        let unasked = |cause: io::Error| {
            let detail = format!(
                "no server to take {address} over from: {}: {cause}; remove `--take-over` to start a new one",
                place.display()
            );
            Error::new(Kind::IoFailed, detail).because(cause)
        };
        let from = UnixStream::connect(&place).map_err(unasked)?;
        from.set_read_timeout(Some(PATIENCE)).map_err(unasked)?;
        let listening = TcpListener::from(receive(&from).map_err(unasked)?);
        if listening.local_addr().map_err(unasked)? != address {
            return Err(unasked(io::Error::other("it listens elsewhere")));
        }
        Ok(Self { from, listening })
    }

    /// Returns the listening socket.
    pub(crate) fn socket(&self) -> Result<TcpListener, Error> {
        self.listening.try_clone().map_err(|cause| {
            Error::new(Kind::IoFailed, format!("the socket cannot be used: {cause}")).because(cause)
        })
    }

    /// Reports that this process serves, and waits for the confirmation that the old one stops. If the old
    /// process is gone, this one serves anyway.
    pub(crate) fn answers(mut self) {
        let confirmed = self.from.set_read_timeout(Some(HEARD)).and_then(|()| self.from.write_all(&READY));
        let confirmed = confirmed.and_then(|()| self.from.read_exact(&mut READY.clone()));
        if let Err(error) = confirmed {
            tracing::warn!(%error, "the old server did not confirm that it stops");
        }
    }
}

fn receive(from: &UnixStream) -> io::Result<OwnedFd> {
    let (mut space, mut said) = ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))], READY);
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    recvmsg(from, &mut [IoSliceMut::new(&mut said)], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
    let sockets = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    sockets.ok_or_else(|| io::Error::other("it sent no socket"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use tokio::task::{JoinHandle, spawn_blocking};

    struct Scene {
        folder: tempfile::TempDir,
        address: SocketAddr,
    }

    impl Scene {
        fn new() -> (Self, SocketOffer) {
            let socket = TcpListener::bind("127.0.0.1:0").unwrap();
            let scene = Self { folder: tempfile::tempdir().unwrap(), address: socket.local_addr().unwrap() };
            let offer = scene.offer(socket);
            (scene, offer)
        }

        fn data(&self) -> PathBuf {
            self.folder.path().join("outlast.db")
        }

        fn offer(&self, socket: TcpListener) -> SocketOffer {
            SocketOffer::of(Ok(socket), &self.data()).unwrap()
        }

        fn take(&self) -> JoinHandle<InheritedSocket> {
            let (data, address) = (self.data(), self.address);
            spawn_blocking(move || InheritedSocket::from(&data, address).unwrap())
        }

        /// Checks that new connections reach this socket.
        fn check_reached(&self, socket: &TcpListener) {
            let connected = TcpStream::connect(self.address).unwrap();
            assert_eq!(socket.accept().unwrap().1, connected.local_addr().unwrap());
        }
    }

    /// Lets the new process serve and report it.
    fn answers(taken: InheritedSocket) -> JoinHandle<TcpListener> {
        spawn_blocking(move || {
            let socket = taken.socket().unwrap();
            taken.answers();
            socket
        })
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn new_process_takes_over_the_socket() {
        let (scene, offer) = Scene::new();
        let new = scene.take();
        let ((), socket) = tokio::join!(offer.taken(), async { answers(new.await.unwrap()).await.unwrap() });
        offer.end();
        assert!(!place(&scene.data(), scene.address).exists());
        scene.check_reached(&socket);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn new_process_that_dies_early_changes_nothing() {
        let (scene, offer) = Scene::new();
        let (first, second) = (scene.take(), async {
            // It waits in the queue until the first one is dead.
            scene.take().await.unwrap()
        });
        let ((), socket) = tokio::join!(offer.taken(), async {
            drop(first.await.unwrap());
            answers(second.await).await.unwrap()
        });
        scene.check_reached(&socket);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn new_process_answers_after_old_process_exits() {
        let (scene, offer) = Scene::new();
        let new = scene.take();
        let taken = tokio::select! {
            () = offer.taken() => panic!("nobody has said that it answers"),
            taken = new => taken.unwrap(),
        };
        drop(offer);
        let socket = answers(taken).await.unwrap();
        scene.check_reached(&socket);
    }

    #[tokio::test]
    async fn withdrawn_offer_keeps_the_offer_of_another_process() {
        let (scene, old) = Scene::new();
        let new = scene.offer(old.listening.try_clone().unwrap());
        old.end();
        assert!(place(&scene.data(), scene.address).exists());
        new.end();
        assert!(!place(&scene.data(), scene.address).exists());
    }

    #[test]
    fn takeover_without_an_offer_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = InheritedSocket::from(&folder.path().join("outlast.db"), "127.0.0.1:1".parse().unwrap());
        assert!(
            error.is_err_and(|error| error.detail().starts_with("no server to take 127.0.0.1:1 over from: "))
        );
    }
}
