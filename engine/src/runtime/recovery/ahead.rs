//! Reads and decodes batches of the journal on another core, ahead of the replay.

use super::RecoveryError;
use crate::runtime::replay::BEHAVIOUR;
use crate::store::BatchReader;
use crate::store::record::{Batch, Position, Record};
use kubebid_core::Stamped;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

/// A batch of the journal, decoded.
#[derive(Debug)]
pub struct Commands {
    pub commands: Vec<Stamped>,
    pub end: Position,
}

type Read = Result<Vec<Commands>, RecoveryError>;

/// Reads the journal in commits. At the end it can be asked again for what has come since.
#[derive(Debug)]
pub struct ReadAhead {
    /// One of both is there.
    idle: Option<BatchReader>,
    reading: Option<JoinHandle<(BatchReader, Read)>>,
}

impl ReadAhead {
    pub fn new(reader: BatchReader) -> ReadAhead {
        ReadAhead { idle: Some(reader), reading: None }
    }

    /// The next batches, in order, some megabytes of them; none at the journal's end, as it is when this is asked.
    pub async fn next(&mut self) -> Read {
        let was_ahead = self.reading.is_some();
        let batches = self.read().await?;
        // What was the end when it was read need not be the end any more.
        let batches = if batches.is_empty() && was_ahead { self.read().await? } else { batches };
        // At the end there is nothing to be ahead of.
        if self.idle.as_ref().is_some_and(BatchReader::is_behind) {
            self.begin();
        }
        Ok(batches)
    }

    async fn read(&mut self) -> Read {
        self.begin();
        let reading = self.reading.as_mut().expect("it has begun");
        let (reader, result) = reading.await.expect("reading does not panic");
        (self.idle, self.reading) = (Some(reader), None);
        result
    }

    fn begin(&mut self) {
        if let Some(reader) = self.idle.take() {
            // Not a task of a worker thread: one that applies what was read would keep it waiting.
            let runtime = Handle::current();
            self.reading = Some(spawn_blocking(move || runtime.block_on(read(reader))));
        }
    }
}

async fn read(mut reader: BatchReader) -> (BatchReader, Read) {
    let batches = match reader.next_chunk().await {
        Ok(batches) => batches,
        Err(fault) => return (reader, Err(fault.into())),
    };
    let mut decoded = Vec::with_capacity(batches.len());
    for batch in batches {
        match commands_of(&batch) {
            Ok(commands) => decoded.push(Commands { commands, end: batch.end() }),
            Err(error) => return (reader, Err(error)),
        }
    }
    (reader, Ok(decoded))
}

fn commands_of(batch: &Batch) -> Result<Vec<Stamped>, RecoveryError> {
    let mut commands = Vec::with_capacity(batch.count() as usize);
    for record in batch.records() {
        commands.push(command_of(record)?);
    }
    Ok(commands)
}

/// The command that a record of the journal holds.
pub fn command_of(record: Record<'_>) -> Result<Stamped, RecoveryError> {
    if record.version != BEHAVIOUR {
        return Err(RecoveryError::Behaviour { seq: record.seq, version: record.version });
    }
    Stamped::decode(record.payload).map_err(|source| RecoveryError::Record { seq: record.seq, source })
}
