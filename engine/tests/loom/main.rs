//! The engine's own atomics in every order that threads and memory allow. It is the same source file that
//! the engine uses, built with loom's atomics.

mod intake;
mod ring;
