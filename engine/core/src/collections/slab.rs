//! A slab: values in pages of memory, addressed by their slot. Values never move, so that growth never copies a million
//! of them at once.

/// The number of values in a page.
const PAGE: usize = 1024;

/// A slab of values. The slot of a removed value is used again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    /// All pages but the last are full. Only the first one grows, because many slabs stay small.
    pages: Vec<Vec<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { pages: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn put(&mut self, item: T) -> u32 {
        if let Some(at) = self.vacant.pop() {
            self[at] = item;
            return at;
        }
        if self.pages.last().is_none_or(|page| page.len() == PAGE) {
            let room = if self.pages.is_empty() { 0 } else { PAGE };
            self.pages.push(Vec::with_capacity(room));
        }
        let full = self.pages.len() - 1;
        let page = &mut self.pages[full];
        page.push(item);
        u32::try_from(full * PAGE + page.len() - 1).expect("four billion things are not in one market")
    }

    /// Removes the value in a slot.
    pub(crate) fn free(&mut self, at: u32) {
        self.vacant.push(at);
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        &self.pages[at as usize / PAGE][at as usize % PAGE]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.pages[at as usize / PAGE][at as usize % PAGE]
    }
}
