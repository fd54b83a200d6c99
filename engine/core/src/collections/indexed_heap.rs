//! A binary heap from which any element can be removed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A heap with the lowest key first. Each node has four children, which makes it flat.
#[derive(Debug)]
pub(crate) struct IndexedHeap<K> {
    nodes: Vec<(K, u32)>,
    /// The node of each handle. A free handle has the next free one.
    places: Vec<u32>,
    vacant: u32,
}

const NONE: u32 = u32::MAX;
const CHILDREN: usize = 4;

impl<K> Default for IndexedHeap<K> {
    fn default() -> IndexedHeap<K> {
        IndexedHeap { nodes: Vec::new(), places: Vec::new(), vacant: NONE }
    }
}

impl<K: Copy + Ord> IndexedHeap<K> {
    pub(crate) fn first(&self) -> Option<K> {
        self.nodes.first().map(|(key, _)| *key)
    }

    /// Adds a key. Returns the handle by which it can be removed.
    pub(crate) fn push(&mut self, key: K) -> u32 {
        let handle = self.vacant;
        let handle = if handle == NONE {
            self.places.push(0);
            self.places.len() as u32 - 1
        } else {
            self.vacant = self.places[handle as usize];
            handle
        };
        self.nodes.push((key, handle));
        self.rise(self.nodes.len() - 1);
        handle
    }

    /// Removes a key. Each handle may be used once.
    pub(crate) fn remove(&mut self, handle: u32) {
        let at = self.places[handle as usize] as usize;
        self.nodes.swap_remove(at);
        self.places[handle as usize] = self.vacant;
        self.vacant = handle;
        if at < self.nodes.len() {
            let at = self.rise(at);
            self.sink(at);
        }
    }

    fn rise(&mut self, mut at: usize) -> usize {
        let node = self.nodes[at];
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.nodes[parent].0 <= node.0 {
                break;
            }
            self.put(at, self.nodes[parent]);
            at = parent;
        }
        self.put(at, node);
        at
    }

    fn sink(&mut self, mut at: usize) {
        let node = self.nodes[at];
        loop {
            let children = at * CHILDREN + 1..(at * CHILDREN + 1 + CHILDREN).min(self.nodes.len());
            let Some(least) = children.min_by_key(|child| self.nodes[*child].0) else { break };
            if node.0 <= self.nodes[least].0 {
                break;
            }
            self.put(at, self.nodes[least]);
            at = least;
        }
        self.put(at, node);
    }

    fn put(&mut self, at: usize, node: (K, u32)) {
        self.nodes[at] = node;
        self.places[node.1 as usize] = at as u32;
    }

    /// Returns all keys, the lowest first. Reading only the first few costs little.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = K> {
        // The next key is the first one, or a child of a key that was returned.
        let mut open = BinaryHeap::new();
        let mut last: Option<usize> = None;
        std::iter::from_fn(move || {
            let at = match last {
                None if self.nodes.is_empty() => return None,
                None => 0,
                Some(last) => {
                    let children =
                        last * CHILDREN + 1..(last * CHILDREN + 1 + CHILDREN).min(self.nodes.len());
                    open.extend(children.map(|child| Reverse((self.nodes[child].0, child))));
                    let Reverse((_, at)) = open.pop()?;
                    at
                }
            };
            last = Some(at);
            Some(self.nodes[at].0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_heap_gives_the_lowest_first() {
        let mut random = crate::collections::random::below(3);
        let (mut heap, mut naive) = (IndexedHeap::default(), BTreeMap::new());
        for number in 0..5_000u64 {
            let key = (random(300), number);
            naive.insert(key, heap.push(key));
            while random(5) < 2 {
                let at = random(naive.len() as u64 + 1) as usize;
                let Some((key, handle)) = naive.iter().nth(at).map(|(key, handle)| (*key, *handle)) else {
                    break;
                };
                heap.remove(handle);
                naive.remove(&key);
            }
            assert_eq!(heap.first(), naive.keys().next().copied());
            if number % 100 == 0 {
                assert!(heap.in_order().eq(naive.keys().copied()));
            }
        }
        assert!(naive.len() > 500);
    }
}
