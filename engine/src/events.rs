//! What a commit brought, as plain data and as messages, and who may see what of it.

pub(crate) mod commit;
pub(crate) mod encoded;
pub mod message;
pub mod visibility;
