//! Reads and decodes batches of the journal on another core, ahead of the replay.

use super::RecoveryError;
use crate::runtime::replay::BEHAVIOUR;
use crate::store::BatchReader;
use crate::store::record::{Batch, Position, Record};
use kubebid_core::StampedCommand;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

/// A batch of the journal, decoded.
#[derive(Debug)]
pub struct Commands {
    /// The commands in order; at least one.
    pub commands: Vec<StampedCommand>,
    /// The position in the journal after them.
    pub end: Position,
}

type Read = Result<Vec<Commands>, RecoveryError>;

/// Reads the journal in commits. At the end it can be asked again for commits that were added since.
#[derive(Debug)]
pub struct ReadAhead {
    /// The reader, while it is idle. Exactly one of the two fields is set.
    idle: Option<BatchReader>,
    reading: Option<JoinHandle<(BatchReader, Read)>>,
}

impl ReadAhead {
    /// Starts at the position of `reader`. It begins to read when the first batches are asked for.
    pub fn new(reader: BatchReader) -> ReadAhead {
        ReadAhead { idle: Some(reader), reading: None }
    }

    /// Returns the next batches in order, some megabytes of them. Returns none at the journal's end,
    /// as it is at this moment.
    pub async fn next(&mut self) -> Read {
        let was_ahead = self.reading.is_some();
        let batches = self.read().await?;
        // The journal may have grown since its end was read ahead.
        let batches = if batches.is_empty() && was_ahead { self.read().await? } else { batches };
        // At the end there is nothing to read ahead.
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
            // Not on a worker thread: a task that applies what was read could keep this one
            // waiting there.
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

fn commands_of(batch: &Batch) -> Result<Vec<StampedCommand>, RecoveryError> {
    let mut commands = Vec::with_capacity(batch.count() as usize);
    for record in batch.records() {
        commands.push(command_of(record)?);
    }
    Ok(commands)
}

/// Decodes the command of a record.
pub fn command_of(record: Record<'_>) -> Result<StampedCommand, RecoveryError> {
    if record.version != BEHAVIOUR {
        return Err(RecoveryError::Behaviour { seq: record.seq, version: record.version });
    }
    StampedCommand::decode(record.payload).map_err(|source| RecoveryError::Record { seq: record.seq, source })
}
