//! The nodes that have something to write, in the order in which they came to have it.

use std::collections::BTreeMap;
use std::time::Duration;

use extant_rt::{Arc, LockClass, Monotonic, Mutex, Padded, shard_of};

use super::SHARDS;

use crate::node::Node;

#[derive(Debug)]
pub(super) struct Dirty {
    shards: Vec<Padded<Mutex<Shard>>>,
}

#[derive(Debug, Default)]
struct Shard {
    next: u64,
    nodes: BTreeMap<u64, (Arc<Node>, Monotonic)>,
    is_closed: bool,
}

impl Dirty {
    pub fn new() -> Self {
        let shard = |_| Padded(Mutex::new(LockClass::CACHE, Shard::default()));
        Self { shards: (0..SHARDS).map(shard).collect() }
    }

    fn shard(&self, node: &Node) -> &Mutex<Shard> {
        &self.shards[shard_of(u64::from(node.number.0), SHARDS)]
    }

    /// Adds a node, which is not in: its place. None once the list is closed.
    pub fn add(&self, node: &Arc<Node>) -> Option<u64> {
        let mut shard = self.shard(node).lock();
        if shard.is_closed {
            return None;
        }
        let place = shard.next;
        shard.next += 1;
        shard.nodes.insert(place, (node.clone(), Monotonic::now()));
        Some(place)
    }

    pub fn remove(&self, node: &Node, place: u64) {
        let removed = self.shard(node).lock().nodes.remove(&place);
        // Outside the lock.
        drop(removed);
    }

    /// Refuses all that come from now on.
    pub fn close(&self) {
        self.shards.iter().for_each(|shard| shard.lock().is_closed = true);
    }

    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().nodes.is_empty())
    }

    /// The nodes that are in since `age` or longer.
    pub fn older(&self, age: Duration) -> Vec<Arc<Node>> {
        let mut nodes = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let old = shard.nodes.values().take_while(|(_, since)| since.elapsed() >= age);
            nodes.extend(old.map(|(node, _)| node.clone()));
        }
        nodes
    }

    /// The node that is in longest in one of the shards from `first` on.
    pub fn oldest(&self, first: usize) -> Option<Arc<Node>> {
        (first..first + SHARDS).find_map(|index| {
            let shard = self.shards[index % SHARDS].lock();
            shard.nodes.values().next().map(|(node, _)| node.clone())
        })
    }
}
