//! WatchEvents, ListEvents, Explain.
