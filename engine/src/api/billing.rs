//! ListCharges, GetStatement.
