//! Collections of the state and the books, each with a benchmark or a count of bytes that justifies it
//! (`docs/decisions/0015-core-data-layout.md`).

pub(crate) mod dense_map;
pub(crate) mod id_map;
pub(crate) mod indexed_heap;
#[cfg(test)]
pub(crate) mod random;
pub(crate) mod slab;
pub(crate) mod sorted_map;
