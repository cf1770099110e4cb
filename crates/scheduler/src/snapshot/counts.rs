//! How many pods of each node a selector means, and how many pods of each node say the same of others.
//!
//! Both are kept up to date with every pod that comes and goes, so that a cycle never looks at all pods. A count begins when it is
//! first asked for, and is let go when nobody has asked for long. Most of them are about pods of one namespace, and stand under its
//! name: a pod that comes or goes concerns only those of its own. The others stand under [`SEVERAL`].

use std::{collections::HashMap, sync::Arc};

use super::NodeInfo;
use crate::{
    affinity::Term,
    pod::PodInfo,
    selection::{Labels, PodSelector},
};

/// With more questions than this, those that were not asked for longest are forgotten.
const MOST_QUESTIONS: usize = 1024;

/// In the place of a namespace, which is never named so.
const SEVERAL: &str = "";

pub type Namespaces = HashMap<String, Labels>;

/// Which pods are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// Those that every one of these means.
    pub pods: Vec<PodSelector>,
    /// Whether those count that are about to end.
    pub terminating: bool,
}

impl Question {
    pub fn selects(&self, pod: &PodInfo, namespaces: &Namespaces) -> bool {
        let namespace = &pod.key.namespace;
        (self.terminating || !pod.is_terminating())
            && self.pods.iter().all(|pods| pods.selects(namespace, pod.labels(), || namespaces.get(namespace)))
    }

    /// The one namespace that it is about, or [`SEVERAL`]. All selectors must mean a pod, so one with a home is enough.
    fn home(&self) -> &str {
        self.pods.iter().find_map(PodSelector::home).unwrap_or(SEVERAL)
    }

    fn depends_on_namespaces(&self) -> bool {
        self.pods.iter().any(|pods| pods.namespace_selector.is_some())
    }
}

#[derive(Default)]
pub struct Counts {
    /// By namespace.
    answers: HashMap<String, HashMap<Question, Answer>>,
    asked: u64,
}

struct Answer {
    per_node: Arc<Vec<u32>>,
    asked: u64,
}

impl Counts {
    pub fn ask(&mut self, question: &Question, nodes: &[NodeInfo], namespaces: &Namespaces) -> Arc<Vec<u32>> {
        self.asked += 1;
        if let Some(answer) = self.answers.get_mut(question.home()).and_then(|answers| answers.get_mut(question)) {
            answer.asked = self.asked;
            return answer.per_node.clone();
        }
        self.make_room();
        let count = |node: &NodeInfo| node.pods().iter().filter(|pod| question.selects(pod, namespaces)).count() as u32;
        let per_node = Arc::new(nodes.iter().map(count).collect::<Vec<_>>());
        let answer = Answer { per_node: per_node.clone(), asked: self.asked };
        self.answers.entry(question.home().to_owned()).or_default().insert(question.clone(), answer);
        per_node
    }

    /// Forgets the half that was not asked for longest, if there are too many.
    fn make_room(&mut self) {
        let mut asked: Vec<u64> = self.answers.values().flat_map(HashMap::values).map(|answer| answer.asked).collect();
        if asked.len() >= MOST_QUESTIONS {
            let (_, middle, _) = asked.select_nth_unstable(MOST_QUESTIONS / 2);
            let middle = *middle;
            self.retain(|_, answer| answer.asked > middle);
        }
    }

    fn retain(&mut self, keep: impl Fn(&Question, &Answer) -> bool) {
        self.answers.retain(|_, answers| {
            answers.retain(|question, answer| keep(question, answer));
            !answers.is_empty()
        });
    }

    pub fn change(&mut self, slot: usize, pod: &PodInfo, namespaces: &Namespaces, by: i32) {
        for home in [SEVERAL, pod.key.namespace.as_str()] {
            for (question, answer) in self.answers.get_mut(home).into_iter().flatten() {
                if question.selects(pod, namespaces) {
                    // Nobody holds an answer between two cycles, so nothing is copied.
                    add(Arc::make_mut(&mut answer.per_node), slot, by);
                }
            }
        }
    }

    /// The labels of a namespace have changed, and with them who is meant.
    pub fn forget_namespaces(&mut self) {
        self.retain(|question, _| !question.depends_on_namespaces());
    }
}

/// What pods say of other pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Saying {
    Required,
    Forbidden,
    Preferred(i64),
}

/// How many say something, and how many of them are on each node.
type PerNode = HashMap<(Saying, Term), (u32, Vec<u32>)>;

/// Who says what, on which node.
#[derive(Default)]
pub struct Sayings {
    /// By namespace.
    per_node: HashMap<String, PerNode>,
}

impl Sayings {
    pub fn change(&mut self, slot: usize, pod: &PodInfo, by: i32) {
        let affinity = &pod.affinity;
        for term in &affinity.required {
            self.change_one(slot, (Saying::Required, term.clone()), by);
        }
        for term in &affinity.forbidden {
            self.change_one(slot, (Saying::Forbidden, term.clone()), by);
        }
        for (weight, term) in &affinity.preferred {
            self.change_one(slot, (Saying::Preferred(*weight), term.clone()), by);
        }
    }

    fn change_one(&mut self, slot: usize, said: (Saying, Term), by: i32) {
        let home = said.1.pods.home().unwrap_or(SEVERAL).to_owned();
        let alike = self.per_node.entry(home.clone()).or_default();
        let (total, per_node) = alike.entry(said.clone()).or_default();
        *total = total.saturating_add_signed(by);
        if *total > 0 {
            return add(per_node, slot, by);
        }
        alike.remove(&said);
        if alike.is_empty() {
            self.per_node.remove(&home);
        }
    }

    /// What is said of a pod: what, which label says what near means, and how many on each node say it.
    pub fn about<'a>(
        &'a self,
        pod: &'a PodInfo,
        namespaces: &'a Namespaces,
    ) -> impl Iterator<Item = (&'a Saying, &'a str, &'a [u32])> {
        let namespace = &pod.key.namespace;
        let about = move |term: &Term| term.pods.selects(namespace, pod.labels(), || namespaces.get(namespace));
        let homes = [SEVERAL, namespace.as_str()].into_iter();
        let said = homes.filter_map(move |home| self.per_node.get(home)).flatten();
        let said = said.filter(move |((_, term), _)| about(term));
        said.map(|((saying, term), (_, per_node))| (saying, &*term.topology, per_node.as_slice()))
    }
}

fn add(per_node: &mut Vec<u32>, slot: usize, by: i32) {
    if per_node.len() <= slot {
        per_node.resize(slot + 1, 0);
    }
    per_node[slot] = per_node[slot].saturating_add_signed(by);
}
