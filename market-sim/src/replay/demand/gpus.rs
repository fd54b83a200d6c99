//! The GPUs of one node, and the jobs that share them.

/// A whole GPU, in thousandths.
const WHOLE: u32 = 1000;

/// The free part of each GPU of a node, in thousandths.
#[derive(Clone, Debug)]
pub(super) struct Gpus(Vec<u32>);

/// The GPUs that a job uses, and how much of each.
#[derive(Clone, Debug)]
pub(super) struct Share {
    gpus: Vec<usize>,
    thousandths: u32,
}

impl Gpus {
    pub(super) fn of_node(count: u32) -> Gpus {
        Gpus(vec![WHOLE; count as usize])
    }

    pub(super) fn free(&self) -> u32 {
        self.0.iter().sum()
    }

    /// Finds room for so many GPUs: a part of the fullest GPU that has it, or whole GPUs, where a part of one
    /// counts as a whole one. None if there is no room.
    pub(super) fn room_for(&self, gpus: f64) -> Option<Share> {
        let thousandths = ((gpus * f64::from(WHOLE)).ceil() as u32).max(1);
        if thousandths <= WHOLE {
            let fits = self.0.iter().enumerate().filter(|(_, free)| **free >= thousandths);
            let (gpu, _) = fits.min_by_key(|(_, free)| **free)?;
            return Some(Share { gpus: vec![gpu], thousandths });
        }
        let whole: Vec<usize> = (0..self.0.len()).filter(|gpu| self.0[*gpu] == WHOLE).collect();
        let wanted = thousandths.div_ceil(WHOLE) as usize;
        (whole.len() >= wanted).then(|| Share { gpus: whole[..wanted].to_vec(), thousandths: WHOLE })
    }

    pub(super) fn take(&mut self, share: &Share) {
        share.gpus.iter().for_each(|gpu| self.0[*gpu] -= share.thousandths);
    }

    pub(super) fn give_back(&mut self, share: &Share) {
        share.gpus.iter().for_each(|gpu| self.0[*gpu] += share.thousandths);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_share_a_gpu_that_has_room_and_never_lie_across_two() {
        let mut node = Gpus::of_node(2);
        for (gpus, free) in [(0.6, 1400), (0.3, 1100), (0.6, 500), (0.4, 100)] {
            node.take(&node.room_for(gpus).expect("room"));
            assert_eq!(node.free(), free, "{gpus}");
        }
        assert!(node.room_for(0.2).is_none());
    }

    #[test]
    fn several_gpus_are_whole_ones_and_come_back() {
        let mut node = Gpus::of_node(4);
        let part = node.room_for(0.01).expect("room");
        node.take(&part);
        assert!(node.room_for(4.0).is_none());
        let three = node.room_for(2.5).expect("room");
        node.take(&three);
        assert!(node.room_for(1.0).is_none());
        node.give_back(&part);
        node.give_back(&three);
        assert_eq!(node.free(), 4000);
    }
}
