//! Limits how many connections are open, in total and from one address, and closes silent ones.

use crate::auth::limits::Defaults;
use crate::auth::{Authenticated, Origin};
use crate::runtime::metrics;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::warn;

/// The number of file descriptors that are kept for the store, the log, and the port of health and
/// metrics.
const RESERVED_FILES: u64 = 256;
/// The most connections that are open at once, however many files the process may have.
const CONNECTIONS: usize = 4096;
/// The number of addresses that are kept before those without an open connection are dropped.
const ADDRESSES: usize = 1024;
/// The least time between two log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Limits of the connections of one port.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// The most connections that are open at once.
    pub max: usize,
    /// The most connections that are open at once from one address.
    pub max_per_address: usize,
    /// The most connections from one network, /24 of IPv4 or /48 of IPv6, that are open at once and have not had a
    /// request with a valid token.
    pub max_newcomers_per_network: usize,
    /// The time after which a connection without an open request is closed if it has not had one with a valid token. It
    /// includes the TLS handshake and the head of the request.
    pub first_request: Duration,
    /// The time after which any other connection without an open request is closed.
    pub idle: Duration,
}

impl ConnectionLimits {
    /// Returns limits that leave the process enough files for everything else. By default an address gets half of all
    /// connections. The newcomers of a network get a quarter.
    pub fn new(max: Option<usize>, max_per_address: Option<usize>, idle: Duration) -> ConnectionLimits {
        let max = max.unwrap_or_else(|| default_max(open_files()));
        ConnectionLimits {
            max,
            max_per_address: max_per_address.unwrap_or((max / 2).max(1)),
            max_newcomers_per_network: (max / 4).max(1),
            first_request: Duration::from_secs(20),
            idle,
        }
    }

    /// Returns the limits of the port of health and metrics, which has few callers.
    pub(super) fn of_ops() -> ConnectionLimits {
        ConnectionLimits {
            max: 32,
            max_per_address: 32,
            max_newcomers_per_network: 32,
            first_request: Duration::from_secs(20),
            idle: Duration::from_secs(120),
        }
    }
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits::new(None, None, Duration::from_secs(600))
    }
}

/// Returns the number of files that this process may have open.
fn open_files() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn default_max(files: u64) -> usize {
    let left = files - RESERVED_FILES.min(files / 2);
    usize::try_from(left).unwrap_or(usize::MAX).clamp(1, CONNECTIONS)
}

/// The open connections of a port by the address of their peers. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Connections(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    port: &'static str,
    limits: ConnectionLimits,
    requests_per_second: u64,
    table: Mutex<Table>,
    refused: LogInterval,
}

#[derive(Debug, Default)]
struct Table {
    open: usize,
    addresses: HashMap<IpAddr, Address>,
    /// The open connections of each network that have had no request with a valid token.
    newcomers: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Address {
    open: usize,
    origin: Origin,
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(super) struct CountedConnection {
    connections: Connections,
    address: IpAddr,
    /// The network in whose newcomers it is counted.
    newcomer_of: Option<IpAddr>,
    pub(super) origin: Origin,
}

impl Connections {
    /// Creates the table of a port's connections. `port` is its name in metrics and in the log.
    pub(super) fn new(port: &'static str, limits: ConnectionLimits, defaults: &Defaults) -> Connections {
        let requests_per_second = defaults.anonymous_requests_per_second;
        let (table, refused) = (Mutex::default(), LogInterval::default());
        Connections(Arc::new(Inner { port, limits, requests_per_second, table, refused }))
    }

    pub(super) fn limits(&self) -> &ConnectionLimits {
        &self.0.limits
    }

    /// Counts a new connection from this address. Returns `None` if there are too many.
    pub(super) fn admit(&self, address: IpAddr) -> Option<CountedConnection> {
        let (address, network) = (prefix(address), network(address));
        let Inner { port, limits, requests_per_second, .. } = *self.0;
        let mut table = self.table();
        if table.open >= limits.max {
            drop(table);
            self.refuse("max_connections", "there are too many");
            return None;
        }
        if table.newcomers.get(&network).is_some_and(|open| *open >= limits.max_newcomers_per_network) {
            drop(table);
            self.refuse(
                "max_newcomers_per_network",
                "there are too many without a valid token from one network",
            );
            return None;
        }
        table.forget_idle();
        let known = table.addresses.entry(address);
        let known = known.or_insert_with(|| Address { open: 0, origin: Origin::new(requests_per_second) });
        if known.open >= limits.max_per_address {
            drop(table);
            self.refuse("max_connections_per_address", "there are too many from one address");
            return None;
        }
        known.open += 1;
        let origin = known.origin.clone();
        table.open += 1;
        *table.newcomers.entry(network).or_default() += 1;
        metrics::connections(port, table.open);
        drop(table);
        Some(CountedConnection { connections: self.clone(), address, newcomer_of: Some(network), origin })
    }

    /// Notes that the system refused a connection. The process may have run out of files.
    pub(super) fn not_accepted(&self, error: &std::io::Error) {
        self.refuse("no_connection", &error.to_string());
    }

    fn refuse(&self, reason: &'static str, said: &str) {
        let port = self.0.port;
        metrics::connection_refused(port, reason);
        if let Some(count) = self.0.refused.note() {
            warn!(port, reason, count, "connections are refused: {said}");
        }
    }

    /// Counts a connection that the server closes.
    pub(super) fn closed(&self, reason: Silence) {
        metrics::connection_closed(self.0.port, reason.word());
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // The table is consistent whenever the lock is released.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Drops addresses without connections once there are many. An address that has used up its
    /// requests is kept; it would otherwise start again with a full limit.
    fn forget_idle(&mut self) {
        if self.addresses.len() >= ADDRESSES.max(2 * self.open) {
            self.addresses.retain(|_, known| known.open > 0 || known.origin.is_used());
        }
    }

    fn forget_newcomer(&mut self, network: IpAddr) {
        let open = self.newcomers.get_mut(&network).expect("it is counted");
        *open -= 1;
        if *open == 0 {
            self.newcomers.remove(&network);
        }
    }
}

impl CountedConnection {
    /// Notes that a request on it has had a valid token.
    fn has_authenticated(&mut self) {
        if let Some(network) = self.newcomer_of.take() {
            self.connections.table().forget_newcomer(network);
        }
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut table = self.connections.table();
        table.open -= 1;
        let known = table.addresses.get_mut(&self.address).expect("it has an open connection");
        known.open -= 1;
        if let Some(network) = self.newcomer_of {
            table.forget_newcomer(network);
        }
        metrics::connections(self.connections.0.port, table.open);
    }
}

/// Returns what counts as one address. For IPv6 that is the network of 64 bits, which is what one machine
/// gets.
fn prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

/// Returns the network of an address, as owners usually have them: /24 of IPv4, /48 of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() >> 8 << 8).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 80 << 80).into(),
    }
}

/// Lets one line per interval into the log, with the number of occurrences.
#[derive(Debug, Default)]
struct LogInterval(Mutex<(Option<Instant>, u64)>);

impl LogInterval {
    /// Counts one occurrence. Returns the number since the last line, if it is time for another line.
    fn note(&self) -> Option<u64> {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, count) = &mut *noted;
        *count += 1;
        if last.is_some_and(|last| last.elapsed() < LOG_INTERVAL) {
            return None;
        }
        *last = Some(Instant::now());
        Some(std::mem::take(count))
    }
}

/// Why the server closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// No request began in time.
    NoRequest,
    /// No request was open for a long time.
    Idle,
}

impl Silence {
    fn word(self) -> &'static str {
        match self {
            Silence::NoRequest => "no_request",
            Silence::Idle => "idle",
        }
    }
}

/// The requests of a connection. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Activity(Arc<Active>);

#[derive(Debug)]
struct Active {
    open: AtomicUsize,
    any: AtomicBool,
    authenticated: Authenticated,
    quiet_since: Mutex<Instant>,
}

/// A request that is open until this is dropped.
#[derive(Debug)]
pub(super) struct OpenRequest(Activity);

impl Activity {
    /// Returns that of a connection that began at this instant.
    pub(super) fn new(accepted: Instant) -> Activity {
        Activity(Arc::new(Active {
            open: AtomicUsize::new(0),
            any: AtomicBool::new(false),
            authenticated: Authenticated::default(),
            quiet_since: Mutex::new(accepted),
        }))
    }

    pub(super) fn begin(&self) -> OpenRequest {
        self.0.any.store(true, Ordering::Relaxed);
        self.0.open.fetch_add(1, Ordering::Relaxed);
        OpenRequest(self.clone())
    }

    /// Returns what a request with a valid token marks.
    pub(super) fn authenticated(&self) -> Authenticated {
        self.0.authenticated.clone()
    }

    /// Waits until the connection has to be closed.
    pub(super) async fn until_silent(
        &self,
        limits: &ConnectionLimits,
        counted: &mut CountedConnection,
    ) -> Silence {
        tokio::select! {
            () = self.until_quiet_for(limits.first_request) => {}
            () = self.0.authenticated.wait() => {
                counted.has_authenticated();
                self.until_quiet_for(limits.idle).await;
            }
        }
        if self.0.any.load(Ordering::Relaxed) { Silence::Idle } else { Silence::NoRequest }
    }

    /// Waits until no request was open for this time.
    async fn until_quiet_for(&self, limit: Duration) {
        loop {
            let since = match self.0.open.load(Ordering::Relaxed) {
                0 => *self.0.quiet_since.lock().unwrap_or_else(PoisonError::into_inner),
                _ => Instant::now(),
            };
            if since.elapsed() >= limit {
                return;
            }
            tokio::time::sleep_until((since + limit).into()).await;
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let active = &self.0.0;
        *active.quiet_since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        active.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(max: usize, max_per_address: usize) -> Connections {
        let limits = ConnectionLimits {
            max,
            max_per_address,
            max_newcomers_per_network: max,
            ..ConnectionLimits::default()
        };
        Connections::new("test", limits, &Defaults::default())
    }

    #[test]
    fn files_are_reserved_for_everything_but_connections() {
        assert_eq!(default_max(1024), 768);
        assert_eq!(default_max(256), 128);
        assert_eq!(default_max(1 << 20), CONNECTIONS);
        assert_eq!(default_max(u64::MAX), CONNECTIONS);
        assert_eq!(default_max(0), 1);
    }

    #[test]
    fn one_address_does_not_get_all_connections_and_gives_back_what_it_closes() {
        let connections = connections(3, 2);
        let [one, other]: [IpAddr; 2] = ["127.0.0.1", "127.0.0.2"].map(|address| address.parse().unwrap());
        let first = connections.admit(one).unwrap();
        let _second = connections.admit(one).unwrap();
        assert!(connections.admit(one).is_none());
        let _third = connections.admit(other).unwrap();
        assert!(connections.admit(other).is_none(), "there are three in all");
        drop(first);
        assert!(connections.admit(other).is_some());
    }

    #[test]
    fn newcomers_of_one_network_leave_room_until_they_have_a_valid_token() {
        let limits = ConnectionLimits { max: 8, max_per_address: 8, ..ConnectionLimits::default() };
        let limits = ConnectionLimits { max_newcomers_per_network: 2, ..limits };
        let connections = Connections::new("test", limits, &Defaults::default());
        let admit = |address: &str| connections.admit(address.parse().unwrap());
        let mut first = admit("10.0.0.1").unwrap();
        let _second = admit("10.0.0.2").unwrap();
        assert!(admit("10.0.0.3").is_none(), "another address of that network");
        let _other = admit("10.0.1.1").unwrap();
        first.has_authenticated();
        let third = admit("10.0.0.3").unwrap();
        assert!(admit("10.0.0.1").is_none());
        drop((first, third));
        assert!(admit("10.0.0.3").is_some());
    }

    #[test]
    fn an_address_of_ipv6_is_its_network() {
        let parse = |text: &str| prefix(text.parse().unwrap());
        assert_eq!(parse("2001:db8::1"), parse("2001:db8::ffff:1"));
        assert_ne!(parse("2001:db8::1"), parse("2001:db8:0:1::1"));
        assert_eq!(parse("::ffff:10.0.0.1"), parse("10.0.0.1"));
    }

    #[test]
    fn addresses_without_connections_are_forgotten_once_there_are_many() {
        let connections = connections(10, 2);
        let address = |n: usize| IpAddr::from([10, 0, (n / 256) as u8, n as u8]);
        for n in 0..3 * ADDRESSES {
            drop(connections.admit(address(n)).unwrap());
        }
        assert!(connections.table().addresses.len() <= ADDRESSES);
    }

    #[test]
    fn the_first_refusal_is_logged_and_then_one_line_a_minute() {
        let refused = LogInterval::default();
        assert_eq!(refused.note(), Some(1));
        assert_eq!((0..100).filter_map(|_| refused.note()).count(), 0);
        refused.0.lock().unwrap().0 = Instant::now().checked_sub(LOG_INTERVAL);
        assert_eq!(refused.note(), Some(101));
    }
}
