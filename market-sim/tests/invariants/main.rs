//! What the rules promise to those who bid and those who sell: I10 and I13 of `docs/mechanism.md`.

#[path = "../same/generate.rs"]
mod generate;
mod monotone;
mod truthful;
