//! Loopback ports that stay ours while nobody listens on them.

use std::net::SocketAddr;
use tokio::net::TcpSocket;

/// A port that nobody else is given: bound, and not listened on. Who listens on it does so beside us.
pub(crate) struct Port {
    _held: TcpSocket,
    address: SocketAddr,
}

impl Port {
    pub(crate) fn hold() -> Port {
        let socket = TcpSocket::new_v4().unwrap();
        // As all who listen do: two may share a port of which one at most listens.
        socket.set_reuseaddr(true).unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = socket.local_addr().unwrap();
        Port { _held: socket, address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}
