//! A network between the engine and PostgreSQL that fails when a test asks it to.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
    /// How long a new connection waits before it reaches the server, in milliseconds.
    delay: Arc<AtomicU64>,
    refuses: Arc<AtomicBool>,
}

impl Proxy {
    /// Listens on a port of the loopback and forwards to the server's socket.
    pub(crate) async fn to(socket: PathBuf) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let moods = Arc::<Mutex<Vec<watch::Sender<Mood>>>>::default();
        let all = Arc::clone(&moods);
        let delay = Arc::new(AtomicU64::new(0));
        let delayed = Arc::clone(&delay);
        let refuses = Arc::new(AtomicBool::new(false));
        let refused = Arc::clone(&refuses);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if refused.load(Ordering::Relaxed) {
                    continue;
                }
                let (mood, watched) = watch::channel(Mood::Pass);
                all.lock().unwrap().push(mood);
                let wait = Duration::from_millis(delayed.load(Ordering::Relaxed));
                let socket = socket.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    let server = UnixStream::connect(&socket).await.unwrap();
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    let answers =
                        tokio::spawn(pump(from_server, to_client, watched.clone(), Mood::LoseAnswers));
                    pump(from_client, to_server, watched, Mood::LoseRequests).await;
                    answers.abort();
                });
            }
        });
        Self { port, moods, delay, refuses }
    }

    /// Refuses new connections, or not any more.
    pub(crate) fn refuse_connections(&self, refuse: bool) {
        self.refuses.store(refuse, Ordering::Relaxed);
    }

    /// Lets each new connection wait this long.
    pub(crate) fn delay_connections(&self, wait: Duration) {
        self.delay.store(wait.as_millis() as u64, Ordering::Relaxed);
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
