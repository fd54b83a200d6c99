//! The endpoints of one exchange: a client stays with one that works, and tries the others if it fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use tonic::transport::Channel;

#[derive(Debug)]
pub(crate) struct Endpoints {
    /// The endpoints with their names; never empty.
    list: Vec<(String, Channel)>,
    at: AtomicUsize,
    /// The place of the last endpoint that answered well.
    works: AtomicUsize,
}

impl Endpoints {
    pub(crate) fn new(list: Vec<(String, Channel)>) -> Self {
        assert!(!list.is_empty(), "a client has an endpoint");
        Endpoints { list, at: AtomicUsize::new(0), works: AtomicUsize::new(0) }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the endpoint in use and its place in the list.
    pub(crate) fn current(&self) -> (usize, Channel) {
        let at = self.at.load(Ordering::Relaxed);
        (at, self.list[at].1.clone())
    }

    pub(crate) fn name(&self) -> &str {
        self.name_of(self.at.load(Ordering::Relaxed))
    }

    pub(crate) fn name_of(&self, at: usize) -> &str {
        &self.list[at].0
    }

    /// Notes that an endpoint answered well, and logs it if it is another than before; not while all are tried in turn.
    pub(crate) fn works(&self, at: usize) {
        if self.works.load(Ordering::Relaxed) != at {
            let before = self.works.swap(at, Ordering::Relaxed);
            tracing::info!(from = self.list[before].0, to = self.list[at].0, "another endpoint");
        }
    }

    /// Goes on to the next, unless another call has left `from` already.
    pub(crate) fn leave(&self, from: usize) {
        let next = (from + 1) % self.list.len();
        let _ = self.at.compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}
