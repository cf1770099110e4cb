//! Files of a volume that lie on or below each other.

use std::{collections::BTreeMap, ops::Bound};

use serde_json::Value;

use super::{items, text};
use crate::warnings::Warnings;

/// Warns of files of a volume that overlap, and of projected sources that are empty.
pub fn overlapping(volume: &Value, all: &mut Warnings) {
    let name = text(&volume["name"]);
    let (config_map, secret) = (&volume["configMap"], &volume["secret"]);
    for (source, kind) in [
        (config_map, format!("ConfigMap {:?}", text(&config_map["name"]))),
        (secret, format!("Secret {:?}", text(&secret["secretName"]))),
        (&volume["downwardAPI"], "DownwardAPI".to_owned()),
    ] {
        let mut known = Known::default();
        items_of(source).for_each(|path| known.add(path, "", &format!("volume {name:?} ({kind})"), all));
    }
    let mut known = Known::default();
    for (_, source) in items(&volume["projected"]["sources"]) {
        if source.as_object().is_none_or(|fields| fields.is_empty()) {
            all.push(format!("volume {name:?} (Projected) has no sources provided"));
        }
        for (path, told) in projected(source) {
            known.add(path, &told, &format!("volume {name:?} (Projected)"), all);
        }
    }
}

fn items_of(source: &Value) -> impl Iterator<Item = &str> {
    items(&source["items"]).map(|(_, item)| text(&item["path"]))
}

/// The files of a projected source, and what each is said to be of.
fn projected(source: &Value) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    for (field, kind) in [("configMap", "ConfigMap"), ("secret", "Secret"), ("downwardAPI", "DownwardAPI")] {
        let source = &source[field];
        let told = source["name"].as_str().map_or(kind.to_owned(), |name| format!("{kind} {name:?}"));
        found.extend(items_of(source).map(|path| (path, told.clone())));
    }
    if let Some(path) = source["serviceAccountToken"]["path"].as_str() {
        found.push((path, "ServiceAccountToken".to_owned()));
    }
    let bundle = &source["clusterTrustBundle"];
    if let Some(path) = bundle["path"].as_str() {
        let name = bundle["name"].as_str().unwrap_or(text(&bundle["signerName"]));
        found.push((path, format!("ClusterTrustBundle {name:?}")));
    }
    for (field, told) in [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ] {
        found.extend(source["podCertificate"][field].as_str().map(|path| (path, told.to_owned())));
    }
    found
}

/// The files so far, by path with a slash at its end: what is below a path has that for a beginning, and so follows it in
/// this order.
#[derive(Default)]
struct Known {
    files: BTreeMap<String, Vec<File>>,
    count: usize,
}

/// A file of a source. One that comes again is kept once: whatever meets it later would be told the same.
struct File {
    source: String,
    came: usize,
    /// It has been told together with those that came before this.
    told: usize,
}

impl Known {
    /// Warns of a file together with each that it overlaps, in the order in which they came.
    fn add(&mut self, path: &str, source: &str, volume: &str, all: &mut Warnings) {
        let path = path.trim_end_matches('/');
        if path.is_empty() || all.is_full() {
            return;
        }
        let key = format!("{path}/");
        let below = self.files.range(key.clone()..).take_while(|(known, _)| known.starts_with(&key));
        let overlapping = self.above(path).into_iter().chain(below);
        let mut found: Vec<_> =
            overlapping.flat_map(|(key, files)| files.iter().map(move |file| (key, file))).collect();
        found.sort_unstable_by_key(|(_, file)| file.came);
        let itself = found.iter().find(|(known, file)| **known == key && file.source == source);
        let told = itself.map_or(0, |(_, file)| file.told);
        for (known, other) in found.into_iter().filter(|(_, other)| other.came >= told) {
            if all.is_full() {
                return;
            }
            let other = shown(known.trim_end_matches('/'), &other.source);
            all.push(format!("{volume}: overlapping paths: {} with {other}", shown(path, source)));
        }
        let same = self.files.entry(key).or_default();
        match same.iter_mut().find(|file| file.source == source) {
            Some(file) => file.told = self.count,
            None => {
                same.push(File { source: source.to_owned(), came: self.count, told: self.count });
                self.count += 1;
            }
        }
    }

    /// The files that a path is below of.
    ///
    /// All of them are the beginning of whatever is known between them and the path: what the path has in common with its
    /// neighbour is all that needs to be looked for next.
    fn above(&self, path: &str) -> Vec<(&String, &Vec<File>)> {
        let mut found = Vec::new();
        let mut rest = parent(path);
        let before = |path| self.files.range::<str, _>((Bound::Unbounded, Bound::Included(path))).next_back();
        while let Some((known, files)) = before(rest).filter(|_| !rest.is_empty()) {
            if rest.starts_with(known.as_str()) {
                found.push((known, files));
                rest = parent(known.trim_end_matches('/'));
            } else {
                let common = known.bytes().zip(rest.bytes()).take_while(|(a, b)| a == b).count();
                let last = rest.as_bytes().get(..common).and_then(|common| common.iter().rposition(|b| *b == b'/'));
                rest = last.and_then(|last| path.get(..=last)).unwrap_or_default();
            }
        }
        found
    }
}

/// The folder of a path, with its slash; empty if there is none.
fn parent(path: &str) -> &str {
    path.rfind('/').and_then(|last| path.get(..=last)).unwrap_or_default()
}

fn shown(path: &str, source: &str) -> String {
    if source.is_empty() { format!("{path:?}") } else { format!("{path:?} ({source})") }
}
