//! A position in the journal that one side advances and the other reads or waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;

/// The side that advances. When all its clones are dropped, waiting ends.
#[derive(Clone, Debug)]
pub(crate) struct Reaching {
    seq: Arc<AtomicU64>,
    moved: watch::Sender<()>,
}

/// The side that reads and waits.
#[derive(Clone, Debug)]
pub(crate) struct Reached {
    seq: Arc<AtomicU64>,
    moved: watch::Receiver<()>,
}

/// Returns both sides of a progress that starts at this command.
pub(crate) fn from(seq: u64) -> (Reaching, Reached) {
    let seq = Arc::new(AtomicU64::new(seq));
    let (moving, moved) = watch::channel(());
    (Reaching { seq: seq.clone(), moved: moving }, Reached { seq, moved })
}

impl Reaching {
    /// Sets the progress. It may go back if something was lost.
    pub(crate) fn reach(&self, seq: u64) {
        // A thread that reads this number also sees everything that was done for the command.
        self.seq.store(seq, Ordering::Release);
        self.moved.send_replace(());
    }

    pub(crate) fn seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }
}

impl Reached {
    pub(crate) fn seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    /// Waits until the command is reached, and returns the progress. The result is less than `seq`
    /// only if the progress has ended.
    pub(crate) async fn wait(&self, seq: u64) -> u64 {
        let mut moved = self.moved.clone();
        loop {
            // A change after this line is noticed below.
            moved.mark_unchanged();
            let reached = self.seq();
            if reached >= seq || moved.changed().await.is_err() {
                return self.seq();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_waiter_is_woken_when_the_command_is_reached_and_when_it_never_will_be() {
        let (reaching, reached) = from(3);
        assert_eq!((reached.wait(3).await, reached.seq()), (3, 3));
        let waiting = tokio::spawn({
            let reached = reached.clone();
            async move { reached.wait(5).await }
        });
        reaching.reach(4);
        reaching.reach(6);
        assert_eq!(waiting.await.unwrap(), 6);
        let waiting = tokio::spawn(async move { reached.wait(7).await });
        drop(reaching);
        assert_eq!(waiting.await.unwrap(), 6);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_change_is_missed() {
        let (reaching, reached) = from(0);
        let waiting: Vec<_> = (1..=1000)
            .map(|seq| {
                let reached = reached.clone();
                tokio::spawn(async move { reached.wait(seq).await >= seq })
            })
            .collect();
        let moving = tokio::task::spawn_blocking(move || {
            (1..=1000).for_each(|seq| reaching.reach(seq));
            reaching
        });
        for waiting in waiting {
            assert!(waiting.await.unwrap());
        }
        moving.await.unwrap();
    }
}
