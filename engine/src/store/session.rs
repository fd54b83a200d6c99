//! Connections whose sessions at the server end with them.
//!
//! A statement that is given up because it took too long goes on at the server: a commit that waits for a
//! standby of the database may wait for ever, with its locks. So each session that this process has left
//! is ended before the next one begins.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::{AnyConnection, Connection as _};

use super::warnings::Warnings;

/// The identity of a session at the server: its process, and the start of the process in microseconds
/// since 1970. Process numbers are reused, so both are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionName {
    pub(super) pid: i32,
    pub(super) began_us: i64,
}

/// The sessions that this process has left and not ended yet. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftSessions(Arc<Mutex<Vec<SessionName>>>);

impl LeftSessions {
    pub(super) fn add(&self, names: impl IntoIterator<Item = SessionName>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
    }

    pub(super) fn take(&self) -> Vec<SessionName> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A session in use. It counts as left when this is dropped.
#[derive(Debug)]
pub(super) struct Session {
    name: Option<SessionName>,
    left: LeftSessions,
}

impl Session {
    pub(super) fn new(name: SessionName, left: LeftSessions) -> Session {
        Session { name: Some(name), left }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.left.add(self.name.take());
    }
}

/// A connection for one task.
pub(crate) struct Connection {
    connection: AnyConnection,
    /// None if the database has no sessions.
    session: Option<Session>,
    warnings: Warnings,
}

impl Connection {
    pub(super) fn new(connection: AnyConnection, session: Option<Session>) -> Connection {
        Connection { connection, session, warnings: Warnings::new() }
    }

    /// Returns the connection, and the collector of the server's warnings while one of its statements
    /// runs.
    pub(super) fn and_warnings(&mut self) -> (&mut AnyConnection, &Warnings) {
        (&mut self.connection, &self.warnings)
    }

    /// Ends the session in order.
    pub(super) async fn close(self) -> Result<(), sqlx::Error> {
        let Connection { connection, mut session, .. } = self;
        connection.close().await?;
        if let Some(session) = &mut session {
            session.name = None;
        }
        Ok(())
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.session).finish()
    }
}

impl Deref for Connection {
    type Target = AnyConnection;

    fn deref(&self) -> &AnyConnection {
        &self.connection
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut AnyConnection {
        &mut self.connection
    }
}
