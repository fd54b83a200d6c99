//! Journals made beforehand.

use kubebid_core::StampedCommand;
use kubebid_engine::BEHAVIOUR;
use kubebid_engine::store::{Batch, BatchBuilder, Fault, Position, Store, StoreOptions};

/// The batch in which these commands follow what is there.
pub fn pack(after: Position, commands: &[StampedCommand]) -> Batch {
    let mut builder = BatchBuilder::with_capacity(after, 128 * commands.len());
    for command in commands {
        builder.push_with(command.at.0, BEHAVIOUR, |bytes| command.encode(bytes));
    }
    builder.finish()
}

/// Writes the commands to an empty store, `batch` of them to a commit.
pub async fn write_journal(
    options: &StoreOptions,
    commands: &[StampedCommand],
    batch: usize,
) -> Result<(), Fault> {
    let store = Store::open(options).await?;
    let mut leadership = store.lead().await?;
    let mut head = leadership.head;
    assert_eq!(head.seq, 0, "the store is not empty");
    for commands in commands.chunks(batch) {
        let batch = pack(head, commands);
        leadership.writer.append(&batch).await.expect("nobody else writes");
        head = batch.end();
    }
    store.close().await
}
