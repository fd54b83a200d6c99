//! Observations: reads the caches of the cluster, the engine and the provisioner into one plain value for each object.
//!
//! Nothing here writes to the cluster, to the engine or to a provisioner, and nothing here decides what is to be done: `plan`
//! does. Where a read costs a call, a function of `plan` says whether it matters.

pub(crate) mod bidnode;
pub(crate) mod gang;
pub(crate) mod garbage;
pub(crate) mod label_set;
pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod pool;
pub(crate) mod slot;
pub(crate) mod status;
