//! Prefixes that were computed before: which tokens they stand for, and which of them to forget first.
//!
//! Where all that a sequence remembers lies in blocks, they make a tree: a node is one block of tokens after those of its
//! parent, and any prompt that begins like a path begins with its blocks, to the token. Other models (windows, convolutions,
//! recurrences) keep snapshots of whole sequences. What was used longest ago goes first, leaves before what they hang on.
//!
//! It may depend on the runtime's blocks and snapshots. It deliberately does not decide how much is kept: it is told to let go.

use crate::{Result, media};
use cactus_runtime::{BLOCK, Batch, Block, SequenceId, Snapshot};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Included, Unbounded};

/// Prefixes of one model.
#[derive(Debug)]
pub(super) enum PrefixCache {
    /// Nothing is kept.
    Off,
    Blocks(Tree),
    Snapshots(Snapshots),
}

impl PrefixCache {
    /// A cache that fits `batch`, with at most `snapshots` snapshots.
    pub(super) fn new(batch: &Batch, snapshots: usize) -> PrefixCache {
        match batch.program().remembers_in_blocks() {
            true => PrefixCache::Blocks(Tree::default()),
            false => PrefixCache::Snapshots(Snapshots {
                most: snapshots,
                rewinds: batch.program().can_rewind(1),
                ..Snapshots::default()
            }),
        }
    }

    /// Tokens kept.
    pub(super) fn tokens(&self) -> usize {
        match self {
            PrefixCache::Off => 0,
            PrefixCache::Blocks(tree) => (tree.nodes.len() - tree.unused.len()) * BLOCK,
            PrefixCache::Snapshots(list) => list.entries.iter().map(|e| e.ids.len()).sum(),
        }
    }

    /// How many of the first tokens of `ids` are known.
    pub(super) fn known(&self, salt: u64, ids: &[u32]) -> usize {
        match self {
            PrefixCache::Off => 0,
            PrefixCache::Blocks(tree) => tree.find(salt, ids).1,
            PrefixCache::Snapshots(list) => list.find(salt, ids).first().map_or(0, |&(_, keep)| keep),
        }
    }

    /// How much of a prompt will be known once one of `other` tokens that has its first `common` in common is computed.
    pub(super) fn shares(&self, common: usize, other: usize) -> usize {
        match self {
            PrefixCache::Off => 0,
            PrefixCache::Blocks(_) => common / BLOCK * BLOCK,
            PrefixCache::Snapshots(list) if common + 1 >= other => list.last_cut(common),
            PrefixCache::Snapshots(_) => 0,
        }
    }

    /// Lets an empty sequence begin with what is known of `ids`; returns how many tokens that is.
    pub(super) fn begin(&mut self, batch: &mut Batch, id: SequenceId, salt: u64, ids: &[u32]) -> Result<usize> {
        match self {
            PrefixCache::Off => Ok(0),
            PrefixCache::Blocks(tree) => tree.begin(batch, id, salt, ids),
            PrefixCache::Snapshots(list) => list.begin(batch, id, salt, ids),
        }
    }

    /// Keeps what a sequence holds, which is `ids`.
    pub(super) fn keep(&mut self, batch: &mut Batch, id: SequenceId, salt: u64, ids: &[u32]) -> Result<()> {
        match self {
            PrefixCache::Off => Ok(()),
            PrefixCache::Blocks(tree) => tree.keep(batch, id, salt, ids),
            PrefixCache::Snapshots(list) => list.keep(batch, id, salt, ids),
        }
    }

    /// Lengths at which a sequence of `ids`, of which `held` are computed, is to be kept on the way: where others before it went
    /// another way, and before the last token where a state cannot be rewound. Ascending.
    pub(super) fn stations(&self, salt: u64, ids: &[u32], held: usize) -> Vec<usize> {
        match self {
            PrefixCache::Snapshots(list) => list.stations(salt, ids, held),
            _ => Vec::new(),
        }
    }

    /// Forgets what was used longest ago, of what makes room. `false` where there is nothing.
    pub(super) fn forget_one(&mut self, batch: &mut Batch) -> bool {
        match self {
            PrefixCache::Off => false,
            PrefixCache::Blocks(tree) => tree.forget_one(batch),
            PrefixCache::Snapshots(list) => list.forget_one(batch),
        }
    }
}

/// Blocks of tokens, each after those of its parent.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Option<Node>>,
    /// Places of `nodes` without a node.
    unused: Vec<usize>,
    /// First blocks, by salt.
    roots: HashMap<u64, BTreeMap<Tokens, usize>>,
    /// Nodes without children by when they were used.
    leaves: BTreeSet<(u64, usize)>,
    clock: u64,
}

type Tokens = Box<[u32]>;

#[derive(Debug)]
struct Node {
    block: Block,
    salt: u64,
    tokens: Tokens,
    parent: Option<usize>,
    children: BTreeMap<Tokens, usize>,
    used: u64,
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Tree {
    fn node(&self, at: usize) -> Option<&Node> {
        self.nodes.get(at).and_then(Option::as_ref)
    }

    fn children(&self, salt: u64, parent: Option<usize>) -> Option<&BTreeMap<Tokens, usize>> {
        match parent {
            None => self.roots.get(&salt),
            Some(at) => self.node(at).map(|node| &node.children),
        }
    }

    /// The nodes that `ids` begins with, the last of which it may leave on the way, and how many tokens that is.
    fn find(&self, salt: u64, ids: &[u32]) -> (Vec<usize>, usize) {
        let (mut path, mut known) = (Vec::new(), 0);
        while let Some(children) = self.children(salt, path.last().copied()) {
            let rest = &ids[known..];
            if let Some(&child) = rest.get(..BLOCK).and_then(|block| children.get(block)) {
                path.push(child);
                known += BLOCK;
                continue;
            }
            // In order of tokens, the one with most in common is beside where the rest would be.
            let rest = &rest[..rest.len().min(BLOCK)];
            let before = children.range::<[u32], _>((Unbounded, Excluded(rest))).next_back();
            let after = children.range::<[u32], _>((Included(rest), Unbounded)).next();
            let best = before
                .into_iter()
                .chain(after)
                .max_by_key(|(tokens, _)| common(tokens, rest));
            if let Some((tokens, &child)) = best {
                let tokens = common(tokens, rest);
                if tokens > 0 {
                    path.push(child);
                    known += tokens;
                }
            }
            break;
        }
        (path, known)
    }

    fn touch(&mut self, path: &[usize]) {
        for &at in path {
            self.clock += 1;
            let clock = self.clock;
            if let Some(node) = self.nodes.get_mut(at).and_then(Option::as_mut) {
                if self.leaves.remove(&(node.used, at)) {
                    self.leaves.insert((clock, at));
                }
                node.used = clock;
            }
        }
    }

    fn begin(&mut self, batch: &mut Batch, id: SequenceId, salt: u64, ids: &[u32]) -> Result<usize> {
        let (path, known) = self.find(salt, ids);
        if known > 0 {
            let blocks: Vec<&Block> = path.iter().filter_map(|&at| self.node(at)).map(|n| &n.block).collect();
            batch.begin_with(id, &blocks, known)?;
            self.touch(&path);
        }
        Ok(known)
    }

    fn keep(&mut self, batch: &mut Batch, id: SequenceId, salt: u64, ids: &[u32]) -> Result<()> {
        let (whole, _) = ids.as_chunks::<BLOCK>();
        let mut path = Vec::with_capacity(whole.len());
        for (i, tokens) in whole.iter().enumerate() {
            let parent = path.last().copied();
            let known = self.children(salt, parent).and_then(|c| c.get(&tokens[..]));
            path.push(match known {
                Some(&at) => at,
                None => {
                    let block = batch.block(id, i)?;
                    self.insert(salt, parent, tokens, block)
                }
            });
        }
        self.touch(&path);
        Ok(())
    }

    fn insert(&mut self, salt: u64, parent: Option<usize>, tokens: &[u32], block: Block) -> usize {
        let at = self.unused.pop().unwrap_or(self.nodes.len());
        if at == self.nodes.len() {
            self.nodes.push(None);
        }
        let siblings = match parent {
            None => Some(self.roots.entry(salt).or_default()),
            Some(parent) => self.nodes[parent].as_mut().map(|node| {
                self.leaves.remove(&(node.used, parent));
                &mut node.children
            }),
        };
        if let Some(siblings) = siblings {
            siblings.insert(tokens.into(), at);
        }
        self.clock += 1;
        self.leaves.insert((self.clock, at));
        self.nodes[at] = Some(Node {
            block,
            salt,
            tokens: tokens.into(),
            parent,
            children: BTreeMap::new(),
            used: self.clock,
        });
        at
    }

    fn forget_one(&mut self, batch: &mut Batch) -> bool {
        // What a sequence still holds would not make room.
        let mut leaves = self.leaves.iter();
        let found = leaves.find(|&&(_, at)| self.node(at).is_some_and(|node| batch.is_last_holder(&node.block)));
        let Some(&(used, at)) = found else { return false };
        let Some(node) = self.nodes[at].take() else {
            return false;
        };
        self.leaves.remove(&(used, at));
        self.unused.push(at);
        match node.parent {
            None => {
                if let Some(first) = self.roots.get_mut(&node.salt) {
                    first.remove(&node.tokens);
                    if first.is_empty() {
                        self.roots.remove(&node.salt);
                    }
                }
            }
            Some(parent) => {
                if let Some(above) = self.nodes[parent].as_mut() {
                    above.children.remove(&node.tokens);
                    if above.children.is_empty() {
                        self.leaves.insert((above.used, parent));
                    }
                }
            }
        }
        batch.release_block(node.block);
        true
    }
}

/// Whole sequences.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    entries: Vec<Entry>,
    most: usize,
    /// Whether a snapshot serves prompts that leave it shortly before its end.
    rewinds: bool,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    salt: u64,
    ids: Vec<u32>,
    snapshot: Snapshot,
    used: u64,
}

impl Snapshots {
    /// What serves `ids`, with how many of its tokens, the most first.
    fn find(&self, salt: u64, ids: &[u32]) -> Vec<(usize, usize)> {
        let entries = self.entries.iter().enumerate().filter(|(_, e)| e.salt == salt);
        let mut found: Vec<(usize, usize)> = entries
            .map(|(i, e)| (i, common(&e.ids, ids)))
            .filter(|&(i, keep)| keep > 0 && (self.rewinds || keep == self.entries[i].ids.len()))
            .collect();
        found.sort_by_key(|&(_, keep)| std::cmp::Reverse(keep));
        found
    }

    fn begin(&mut self, batch: &mut Batch, id: SequenceId, salt: u64, ids: &[u32]) -> Result<usize> {
        for (i, keep) in self.find(salt, ids) {
            if batch.restore(id, &self.entries[i].snapshot, keep)? {
                self.clock += 1;
                self.entries[i].used = self.clock;
                return Ok(keep);
            }
        }
        Ok(0)
    }

    fn keep(&mut self, batch: &mut Batch, id: SequenceId, salt: u64, ids: &[u32]) -> Result<()> {
        self.clock += 1;
        if let Some(known) = self.entries.iter_mut().find(|e| e.salt == salt && e.ids == ids) {
            known.used = self.clock;
            return Ok(());
        }
        if ids.len() < BLOCK {
            return Ok(());
        }
        while self.entries.len() >= self.most {
            if !self.forget_one(batch) {
                return Ok(());
            }
        }
        self.entries.push(Entry {
            salt,
            ids: ids.to_vec(),
            snapshot: batch.snapshot(id)?,
            used: self.clock,
        });
        Ok(())
    }

    /// The length to which a prompt with `common` tokens of another can use what that one leaves behind.
    fn last_cut(&self, common: usize) -> usize {
        match self.rewinds {
            true => common,
            false => common.saturating_sub(1) / BLOCK * BLOCK,
        }
    }

    fn stations(&self, salt: u64, ids: &[u32], held: usize) -> Vec<usize> {
        let others = self.entries.iter().filter(|e| e.salt == salt);
        let branches = others.map(|e| common(&e.ids, ids) / BLOCK * BLOCK);
        let mut stations: Vec<usize> = branches.max().into_iter().collect();
        // The next question about a picture begins behind it.
        stations.extend(media::ends(ids));
        if !self.rewinds {
            stations.push(ids.len().saturating_sub(1) / BLOCK * BLOCK);
        }
        stations.retain(|&at| at > held && at < ids.len());
        stations.sort_unstable();
        stations.dedup();
        stations
    }

    fn forget_one(&mut self, batch: &mut Batch) -> bool {
        let oldest = (0..self.entries.len()).min_by_key(|&i| self.entries[i].used);
        let Some(oldest) = oldest else { return false };
        batch.release(self.entries.swap_remove(oldest).snapshot);
        true
    }
}
