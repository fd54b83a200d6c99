//! Plans: pure functions from what was observed to what is to be done. They do no I/O and do not ask for the time.

pub mod annotations;
pub mod bidnode;
pub mod ceiling;
pub mod count;
pub mod demand;
pub mod drain;
pub mod gang;
pub mod garbage;
pub mod label_set;
pub mod labels;
pub mod node;
pub mod packing;
pub mod resources;
pub mod room;
pub mod scope;
pub mod slot;
pub mod status;
pub mod unused;
