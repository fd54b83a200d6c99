//! The engine's own atomics, in every order in which threads and memory may let things happen: the very file that
//! the engine runs, built over loom's atomics.

mod intake;
mod ring;
