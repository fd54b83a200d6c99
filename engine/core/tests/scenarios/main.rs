//! The rule book as stories: a module for each rule, a test for each sentence that matters.
//!
//! How stories are told and drawn: `story.rs`.

mod displacement;
mod story;
