//! A network between the engine and PostgreSQL that fails when a test asks it to.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;

/// The treatment of the bytes of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Pass,
    /// The server gets what the client sends. The first answer ends the connection instead of
    /// arriving.
    LoseAnswers,
    /// What the client sends ends the connection instead of arriving.
    LoseRequests,
    /// What the client sends arrives when the mood is `Pass` again, even if the client has gone.
    HoldRequests,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    moods: Arc<Mutex<Vec<watch::Sender<Mood>>>>,
}

impl Proxy {
    /// Listens on a port of the loopback and forwards to the server's socket.
    pub(crate) async fn to(socket: PathBuf) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let moods = Arc::<Mutex<Vec<watch::Sender<Mood>>>>::default();
        let all = Arc::clone(&moods);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = UnixStream::connect(&socket).await.unwrap();
                let (mood, watched) = watch::channel(Mood::Pass);
                all.lock().unwrap().push(mood);
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let answers = tokio::spawn(pump(from_server, to_client, watched.clone(), Mood::LoseAnswers));
                tokio::spawn(async move {
                    pump(from_client, to_server, watched, Mood::LoseRequests).await;
                    answers.abort();
                });
            }
        });
        Self { port, moods }
    }

    /// Returns the mood of the newest connection.
    pub(crate) fn newest(&self) -> watch::Sender<Mood> {
        self.moods.lock().unwrap().last().unwrap().clone()
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut mood: watch::Receiver<Mood>,
    loses: Mood,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if loses == Mood::LoseRequests {
            let _ = mood.wait_for(|mood| *mood != Mood::HoldRequests).await;
        }
        if *mood.borrow() == loses || to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}
