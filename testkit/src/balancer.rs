//! A TCP balancer that sends new connections to the servers that are ready, as a Service does.

use crate::{Port, tls};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// The interval of the probes.
const PERIOD: Duration = Duration::from_millis(100);
/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug)]
struct State {
    servers: Vec<SocketAddr>,
    ready: watch::Sender<BTreeSet<SocketAddr>>,
    /// Connections by server.
    open: watch::Sender<BTreeMap<SocketAddr, usize>>,
    next: AtomicUsize,
    /// All certificates that were shown.
    certificates: watch::Sender<BTreeSet<Vec<u8>>>,
    /// The certificate that each server has shown last.
    current: watch::Sender<BTreeMap<SocketAddr, Vec<u8>>>,
}

/// A running balancer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Balancer {
    address: SocketAddr,
    state: Arc<State>,
}

impl Balancer {
    /// Starts one in front of servers, which may not run yet.
    ///
    /// # Panics
    /// If no port is free, or the runtime has one thread: kubectl, which blocks it, would wait for the balancer.
    pub async fn start(servers: Vec<SocketAddr>) -> Balancer {
        assert_ne!(
            Handle::current().runtime_flavor(),
            RuntimeFlavor::CurrentThread,
            "the balancer needs a thread"
        );
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let state = Arc::new(State {
            servers,
            ready: watch::Sender::default(),
            open: watch::Sender::default(),
            next: AtomicUsize::new(0),
            certificates: watch::Sender::default(),
            current: watch::Sender::default(),
        });
        let balancer = Balancer { address: listener.local_addr().unwrap(), state };
        tokio::spawn(balancer.clone().accept(listener));
        for server in balancer.state.servers.clone() {
            tokio::spawn(balancer.clone().probe(server));
        }
        balancer
    }

    /// Starts one in front of two replicas, and returns the ports where they are to listen.
    ///
    /// # Panics
    /// As [`Balancer::start`].
    pub async fn of_two() -> (Balancer, [Port; 2]) {
        let ports = [Port::hold(), Port::hold()];
        (Balancer::start(ports.iter().map(Port::address).collect()).await, ports)
    }

    /// Returns the URL where clients connect.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the address where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    async fn probe(self, server: SocketAddr) {
        loop {
            let probed = tls::probe(server, tls::trusting()).await;
            let is_ready = probed.as_ref().is_ok_and(|probed| probed.is_ready);
            if let Ok(probed) = probed {
                self.state.current.send_if_modified(|current| {
                    let before = current.insert(server, probed.certificate.clone());
                    before.as_ref() != Some(&probed.certificate)
                });
                self.state.certificates.send_if_modified(|seen| seen.insert(probed.certificate));
            }
            self.state.ready.send_if_modified(|ready| {
                if is_ready { ready.insert(server) } else { ready.remove(&server) }
            });
            sleep(PERIOD).await;
        }
    }

    async fn accept(self, listener: TcpListener) {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let balancer = self.clone();
            tokio::spawn(async move {
                if let Some((server, stream)) = balancer.connect().await {
                    balancer.relay(client, server, stream).await;
                }
            });
        }
    }

    /// Connects to the next server that is ready, or to another one if it has gone since it was probed.
    async fn connect(&self) -> Option<(SocketAddr, TcpStream)> {
        let ready: Vec<SocketAddr> = self.state.ready.borrow().iter().copied().collect();
        let first = self.state.next.fetch_add(1, Ordering::Relaxed);
        for place in 0..ready.len() {
            let server = ready[(first + place) % ready.len()];
            if let Ok(stream) = TcpStream::connect(server).await {
                return Some((server, stream));
            }
        }
        None
    }

    async fn relay(&self, mut client: TcpStream, server: SocketAddr, mut stream: TcpStream) {
        for end in [&client, &stream] {
            end.set_nodelay(true).unwrap();
        }
        self.state.open.send_modify(|open| *open.entry(server).or_default() += 1);
        let _ = copy_bidirectional(&mut client, &mut stream).await;
        // The end counts when the client has seen it.
        let _ = client.shutdown().await;
        let mut rest = [0; 1024];
        while client.read(&mut rest).await.is_ok_and(|read| read > 0) {}
        self.state.open.send_modify(|open| *open.entry(server).or_default() -= 1);
    }

    /// Waits until so many servers are ready.
    ///
    /// # Panics
    /// If it waits for too long.
    pub async fn until_ready(&self, count: usize) {
        let mut ready = self.state.ready.subscribe();
        let reached = timeout(PATIENCE, ready.wait_for(|ready| ready.len() == count)).await;
        assert!(reached.is_ok(), "never {count} servers ready");
    }

    /// Waits until no client has a connection with a server.
    ///
    /// # Panics
    /// If it waits for too long.
    pub async fn until_left(&self, server: SocketAddr) {
        let mut open = self.state.open.subscribe();
        let left = open.wait_for(|open| open.get(&server).is_none_or(|count| *count == 0));
        assert!(timeout(PATIENCE, left).await.is_ok(), "clients stay with a server that is gone");
    }

    /// Returns the number of certificates that the servers have shown.
    pub fn certificates(&self) -> usize {
        self.state.certificates.borrow().len()
    }

    /// Waits until a server shows another certificate than at present.
    ///
    /// # Panics
    /// If it waits for too long.
    pub async fn until_renewed(&self, server: SocketAddr) {
        let mut current = self.state.current.subscribe();
        let before = current.borrow_and_update().get(&server).cloned();
        let renewed = current.wait_for(|current| current.get(&server) != before.as_ref());
        assert!(timeout(PATIENCE, renewed).await.is_ok(), "no certificate is renewed");
    }

    /// Waits until the servers have shown so many certificates.
    ///
    /// # Panics
    /// If it waits for too long.
    pub async fn until_certificates(&self, count: usize) {
        let mut certificates = self.state.certificates.subscribe();
        let reached = timeout(PATIENCE, certificates.wait_for(|seen| seen.len() >= count)).await;
        assert!(reached.is_ok(), "never {count} certificates");
    }
}
