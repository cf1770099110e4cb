//! The resources that a fresh server serves, from the table `tables/resources.txt`: one line per version of a group, with
//! its resources and, below each, its subresources, in the order in which discovery lists them.
//!
//! ```text
//! version apps v1
//!  deployments deployment Deployment namespaced create,get,… short=deploy in=all
//!   scale autoscaling/v1/Scale get,patch,update
//! ```

use std::sync::LazyLock;

/// One version of a group and its resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupVersion {
    pub group: &'static str,
    pub version: &'static str,
    pub resources: Vec<Resource>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The plural, as in paths.
    pub name: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    pub verbs: Vec<&'static str>,
    pub short_names: Vec<&'static str>,
    pub categories: Vec<&'static str>,
    pub subresources: Vec<Subresource>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    pub name: &'static str,
    /// Of its body; the group and version of the resource unless another one lends it.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub verbs: Vec<&'static str>,
}

#[expect(clippy::expect_used, reason = "the table is part of the program and parsed by its tests")]
static RESOURCES: LazyLock<Vec<GroupVersion>> =
    LazyLock::new(|| parse(include_str!("../tables/resources.txt")).expect("the table of resources is well formed"));

/// Every group and version, in the order of discovery.
pub fn all() -> &'static [GroupVersion] {
    &RESOURCES
}

/// A resource by its plural.
pub fn find(group: &str, version: &str, name: &str) -> Option<&'static Resource> {
    let found = RESOURCES.iter().find(|gv| gv.group == group && gv.version == version)?;
    found.resources.iter().find(|r| r.name == name)
}

/// The resource of a kind.
pub fn of_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    let found = RESOURCES.iter().find(|gv| gv.group == group && gv.version == version)?;
    found.resources.iter().find(|r| r.kind == kind)
}

/// None if a line is not as the module says.
fn parse(table: &'static str) -> Option<Vec<GroupVersion>> {
    let mut found: Vec<GroupVersion> = Vec::new();
    for line in table.lines() {
        if let Some(line) = line.strip_prefix("  ") {
            let current = found.last_mut()?;
            let sub = subresource(line, current.group, current.version)?;
            current.resources.last_mut()?.subresources.push(sub);
        } else if let Some(line) = line.strip_prefix(' ') {
            found.last_mut()?.resources.push(resource(line)?);
        } else {
            let (group, version) = line.strip_prefix("version ")?.split_once(' ')?;
            let group = if group == "-" { "" } else { group };
            found.push(GroupVersion { group, version, resources: Vec::new() });
        }
    }
    Some(found)
}

fn resource(line: &'static str) -> Option<Resource> {
    let mut words = line.split(' ');
    let mut resource = Resource {
        name: words.next()?,
        singular: words.next()?,
        kind: words.next()?,
        namespaced: match words.next()? {
            "namespaced" => true,
            "cluster" => false,
            _ => return None,
        },
        verbs: list(words.next()?),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
    };
    for word in words {
        match word.split_once('=')? {
            ("short", names) => resource.short_names = list(names),
            ("in", names) => resource.categories = list(names),
            _ => return None,
        }
    }
    Some(resource)
}

fn subresource(line: &'static str, group: &'static str, version: &'static str) -> Option<Subresource> {
    let mut words = line.split(' ');
    let (name, kind, verbs) = (words.next()?, words.next()?, list(words.next()?));
    let (group, version, kind) = match kind.rsplit_once('/') {
        Some((gv, kind)) => {
            let (group, version) = gv.split_once('/')?;
            (group, version, kind)
        }
        None => (group, version, kind),
    };
    Some(Subresource { name, group, version, kind, verbs })
}

fn list(words: &'static str) -> Vec<&'static str> {
    words.split(',').collect()
}
