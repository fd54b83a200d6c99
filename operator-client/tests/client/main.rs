//! The client against an engine that answers as a test says.

mod calls;
mod streams;
mod support;
mod watches;
