//! What the pages say is tried: every command is run, every link leads somewhere, the reference is that of this build,
//! and the book has every page of docs/ (docs/decisions/0045, 0046).

mod commands;
mod exempt;
mod links;
mod pages;
mod reference;
mod script;
mod shown;
