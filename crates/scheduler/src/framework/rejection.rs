//! Why a pod cannot go to a node, or to any.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// The word of one plugin about one node, or about all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub plugin: &'static str,
    /// Whether it stays so even if all pods of the node went.
    pub unresolvable: bool,
    pub reasons: Vec<Cow<'static, str>>,
}

impl Rejection {
    /// It may fit when other pods have gone.
    pub fn for_now(plugin: &'static str, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { plugin, unresolvable: false, reasons: vec![reason.into()] }
    }

    /// No pod's going would help.
    pub fn for_good(plugin: &'static str, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { unresolvable: true, ..Self::for_now(plugin, reason) }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reasons.join(", "))
    }
}

/// Why a pod fits nowhere.
#[derive(Clone, Debug, Default)]
pub struct Diagnosis {
    /// How many nodes there are.
    pub nodes: usize,
    /// Why no node will do at all.
    pub by_all: Option<Rejection>,
    /// Why single nodes, by slot, will not do.
    pub by_node: Vec<(usize, Arc<Rejection>)>,
    /// Plugins that named the only nodes that could do; the others were not looked at.
    pub narrowed_by: BTreeSet<&'static str>,
    /// What was said about making room.
    pub making_room: Option<String>,
}

impl Diagnosis {
    /// The plugins without which it might fit.
    pub fn plugins(&self) -> BTreeSet<&'static str> {
        let by_node = self.by_node.iter().map(|(_, rejection)| rejection.plugin);
        by_node.chain(self.by_all.as_ref().map(|rejection| rejection.plugin)).chain(self.narrowed_by.clone()).collect()
    }

    /// How many nodes were not looked at, and why.
    fn left_out(&self) -> Option<(usize, String)> {
        let count = self.nodes.saturating_sub(self.by_node.len());
        let names: Vec<&str> = self.narrowed_by.iter().copied().collect();
        (count > 0 && !names.is_empty())
            .then(|| (count, format!("node(s) didn't satisfy plugin(s) [{}]", names.join(" "))))
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes == 0 {
            return f.write_str("no nodes available to schedule pods");
        }
        let why = match &self.by_all {
            Some(rejection) => rejection.to_string(),
            None => {
                let mut counts: BTreeMap<Cow<'_, str>, usize> = BTreeMap::new();
                for reason in self.by_node.iter().flat_map(|(_, rejection)| &rejection.reasons) {
                    *counts.entry(Cow::Borrowed(reason)).or_default() += 1;
                }
                if let Some((count, reason)) = self.left_out() {
                    *counts.entry(reason.into()).or_default() += count;
                }
                histogram(counts.iter().map(|(reason, count)| (&**reason, *count)))
            }
        };
        write!(f, "0/{} nodes are available:", self.nodes)?;
        if !why.is_empty() {
            write!(f, " {why}.")?;
        }
        match &self.making_room {
            Some(said) => write!(f, " {said}"),
            None => Ok(()),
        }
    }
}

/// How often which reason was given, in the order of Kubernetes: that of the words, the count included.
pub fn histogram<'a>(counts: impl Iterator<Item = (&'a str, usize)>) -> String {
    let mut words: Vec<String> = counts.map(|(reason, count)| format!("{count} {reason}")).collect();
    words.sort();
    words.join(", ")
}
