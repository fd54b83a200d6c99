//! Loopback ports that stay ours while nobody listens on them.

use std::net::SocketAddr;
use tokio::net::TcpSocket;

/// A port that the system gives to nobody else: bound, and not listened on. Who is told its address listens on it
/// beside us, as often as he likes.
#[derive(Debug)]
pub struct Port {
    _held: TcpSocket,
    address: SocketAddr,
}

impl Port {
    /// # Panics
    /// When no port is free.
    pub fn hold() -> Port {
        let hold = || {
            let socket = TcpSocket::new_v4()?;
            // As all who listen do: two may share a port of which one at most listens.
            socket.set_reuseaddr(true)?;
            socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
            Ok::<_, std::io::Error>(Port { address: socket.local_addr()?, _held: socket })
        };
        hold().expect("a free port")
    }

    /// Where to listen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
