//! The pages of the project: Markdown in any folder.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the package is in a folder of the project")
        .to_owned()
}

#[derive(Debug)]
pub(crate) struct Page {
    /// From the root of the project, as in `docs/operator.md`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// What stands between fences.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// As the fence says, as in `sh`; empty where it does not.
    pub(crate) language: String,
    /// Of its first line, from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut open = false;
        for (line, text) in self.text.lines().enumerate() {
            match (open, text.trim_start().strip_prefix("```")) {
                (false, Some(language)) => {
                    let (language, line) = (language.trim().to_owned(), line + 2);
                    blocks.push(Block { language, line, text: String::new() });
                    open = true;
                }
                (true, Some(_)) => open = false,
                (true, None) => {
                    let block = blocks.last_mut().expect("one is open");
                    block.text.push_str(text);
                    block.text.push('\n');
                }
                (false, None) => {}
            }
        }
        blocks
    }

    /// Its lines outside of blocks, numbered from 1.
    pub(crate) fn prose(&self) -> Vec<(usize, &str)> {
        let mut open = false;
        let mut prose = Vec::new();
        for (line, text) in self.text.lines().enumerate() {
            match (open, text.trim_start().starts_with("```")) {
                (false, false) => prose.push((line + 1, text)),
                (true, false) => {}
                (_, true) => open = !open,
            }
        }
        prose
    }
}

/// All pages, sorted by path.
pub(crate) fn all() -> Vec<Page> {
    let mut pages = Vec::new();
    collect(&root(), "", &mut pages);
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    pages
}

fn collect(folder: &Path, prefix: &str, pages: &mut Vec<Page>) {
    for entry in fs::read_dir(folder).expect("a folder of the project") {
        let path = entry.expect("an entry of a folder").path();
        let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        // What is made, and what belongs to tools.
        if name.starts_with('.') || name == "target" || name == "node_modules" {
            continue;
        }
        let inner = format!("{prefix}{name}");
        if path.is_dir() {
            collect(&path, &format!("{inner}/"), pages);
        } else if name.ends_with(".md") {
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{inner}: {error}"));
            pages.push(Page { path: inner, text });
        }
    }
}
