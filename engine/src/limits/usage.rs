//! How many bids an account has open, and how many nodes they want: counted off the feed of commits.

/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Usage;

/// Room that a command on its way will take up.
#[derive(Debug)]
pub struct Reservation;
