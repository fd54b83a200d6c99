//! Things in one row of memory, named by where they are.

/// Names are given again once what they named is gone.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    items: Vec<T>,
    vacant: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { items: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn put(&mut self, item: T) -> u32 {
        match self.vacant.pop() {
            Some(at) => {
                self.items[at as usize] = item;
                at
            }
            None => {
                if self.items.len() == self.items.capacity() {
                    // By a quarter rather than twofold: less memory waits for things that may not come.
                    self.items.reserve_exact(self.items.len() / 4 + 4);
                }
                self.items.push(item);
                u32::try_from(self.items.len() - 1).expect("four billion things are not in one market")
            }
        }
    }

    /// What lies there is gone from now on.
    pub(crate) fn free(&mut self, at: u32) {
        self.vacant.push(at);
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        &self.items[at as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.items[at as usize]
    }
}
