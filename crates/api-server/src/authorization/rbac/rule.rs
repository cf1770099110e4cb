//! One rule of a role: which verbs on which objects or paths.

use std::{collections::BTreeMap, fmt};

use object_model::{go_text::quote, value::Fields};
use serde::Serialize;
use serde_json::Value;

use crate::authorization::Attributes;

const ALL: &str = "*";

type Texts = Vec<Box<str>>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    pub verbs: Texts,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Texts,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Texts,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Texts,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Texts,
}

impl Rule {
    /// The rules of a Role or ClusterRole.
    pub fn of_role(role: &Value) -> Vec<Self> {
        role.items("rules").iter().map(Self::read).collect()
    }

    fn read(rule: &Value) -> Self {
        let texts = |name: &str| rule.items(name).iter().filter_map(Value::as_str).map(Box::from).collect();
        Self {
            verbs: texts("verbs"),
            api_groups: texts("apiGroups"),
            resources: texts("resources"),
            resource_names: texts("resourceNames"),
            non_resource_urls: texts("nonResourceURLs"),
        }
    }

    /// What an administrator of everything has.
    pub fn everything() -> [Self; 2] {
        let all = || vec![Box::from(ALL)];
        [
            Self { verbs: all(), api_groups: all(), resources: all(), ..Self::default() },
            Self { verbs: all(), non_resource_urls: all(), ..Self::default() },
        ]
    }

    /// Does the rule allow this? `combined` is the resource with its subresource.
    pub fn allows(&self, attributes: &Attributes<'_>, combined: &str) -> bool {
        if !has(&self.verbs, attributes.verb) {
            return false;
        }
        if !attributes.is_resource {
            return self.non_resource_urls.iter().any(|url| covers_url(url, attributes.path));
        }
        has(&self.api_groups, attributes.group)
            && self.resources.iter().any(|r| covers_resource(r, combined))
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|n| **n == *attributes.name))
    }

    /// How many [parts](Self::parts) it has: a few lines can say what fills the memory when it is spelt out.
    fn size(&self) -> usize {
        let names = self.resource_names.len().max(1);
        let things = [self.api_groups.len(), self.resources.len(), names].into_iter().fold(1, usize::saturating_mul);
        things.saturating_add(self.non_resource_urls.len()).saturating_mul(self.verbs.len())
    }

    /// The rule in parts of one verb on one thing each, which another rule has or has not as a whole.
    fn parts(&self) -> Vec<Part<'_>> {
        let mut parts = Vec::new();
        let names =
            if self.resource_names.is_empty() { vec![None] } else { self.resource_names.iter().map(Some).collect() };
        for (group, resource) in self.api_groups.iter().flat_map(|g| self.resources.iter().map(move |r| (g, r))) {
            for verb in &self.verbs {
                for name in &names {
                    parts.push(Part::Resource { verb, group, resource, name: name.map(|n| &**n) });
                }
            }
        }
        for url in &self.non_resource_urls {
            parts.extend(self.verbs.iter().map(|verb| Part::Url { verb, url }));
        }
        parts
    }

    fn covers(&self, part: &Part<'_>) -> bool {
        match *part {
            Part::Resource { verb, group, resource, name } => {
                has(&self.verbs, verb)
                    && has(&self.api_groups, group)
                    && self.resources.iter().any(|r| covers_resource(r, resource))
                    && (self.resource_names.is_empty()
                        || name.is_some_and(|name| self.resource_names.iter().any(|n| **n == *name)))
            }
            Part::Url { verb, url } => {
                // A rule for named objects is never one for paths.
                has(&self.verbs, verb)
                    && self.resource_names.is_empty()
                    && self.non_resource_urls.iter().any(|own| covers_url(own, url))
            }
        }
    }
}

/// An indivisible right.
#[derive(Clone, Copy)]
enum Part<'a> {
    Resource { verb: &'a str, group: &'a str, resource: &'a str, name: Option<&'a str> },
    Url { verb: &'a str, url: &'a str },
}

fn has(list: &[Box<str>], wanted: &str) -> bool {
    list.iter().any(|own| **own == *ALL || **own == *wanted)
}

/// `*` is everything, `*/scale` the subresource of everything.
fn covers_resource(own: &str, wanted: &str) -> bool {
    own == ALL
        || own == wanted
        || own.strip_prefix("*/").is_some_and(|sub| wanted.split_once('/').is_some_and(|(_, wanted)| wanted == sub))
}

fn covers_url(own: &str, wanted: &str) -> bool {
    own == wanted || (own.ends_with('*') && wanted.starts_with(own.trim_end_matches('*')))
}

/// How many parts these rules have together.
pub fn size(rules: &[Rule]) -> usize {
    rules.iter().map(Rule::size).fold(0, usize::saturating_add)
}

/// What of `wanted` is not covered by `owned`, in as few rules as it can be said. Empty if all is covered.
pub fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let mut rules = Vec::new();
    // What differs in its verb only is told as one.
    let mut by_resource: BTreeMap<_, Vec<Box<str>>> = BTreeMap::new();
    for part in wanted.iter().flat_map(Rule::parts).filter(|part| !owned.iter().any(|rule| rule.covers(part))) {
        match part {
            Part::Resource { verb, group, resource, name } => {
                by_resource.entry((group, resource, name)).or_default().push(verb.into());
            }
            Part::Url { verb, url } => {
                rules.push(Rule { verbs: vec![verb.into()], non_resource_urls: vec![url.into()], ..Rule::default() })
            }
        }
    }
    rules.extend(by_resource.into_iter().map(|((group, resource, name), verbs)| Rule {
        verbs,
        api_groups: vec![group.into()],
        resources: vec![resource.into()],
        resource_names: name.map(Box::from).into_iter().collect(),
        ..Rule::default()
    }));
    rules
}

/// As refusals of escalations show it.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let shown =
            fields.iter().filter(|(_, list)| !list.is_empty()).map(|(name, list)| format!("{name}:{}", quoted(list)));
        write!(f, "{{{}}}", shown.collect::<Vec<_>>().join(", "))
    }
}

/// A list as Go's `%q` prints it.
pub fn quoted(list: &[impl AsRef<str>]) -> String {
    format!("[{}]", list.iter().map(|text| quote(text.as_ref())).collect::<Vec<_>>().join(" "))
}
