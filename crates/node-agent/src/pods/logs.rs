//! The logs of pods on disk: `logs/<namespace>_<name>_<uid>/<container>/<restarts>.log` below the agent's folder.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

fn entries(folder: &Path) -> impl Iterator<Item = (String, PathBuf)> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
}

/// The uid of a pod whose logs are in a folder of this name.
fn uid_of(name: &str) -> Option<&str> {
    name.rsplit_once('_').map(|(_, uid)| uid).filter(|uid| !uid.is_empty())
}

/// The uids of pods that have logs.
pub fn pods(root: &Path) -> Vec<String> {
    entries(&root.join("logs")).filter_map(|(name, _)| uid_of(&name).map(str::to_owned)).collect()
}

/// The folders of a pod's containers, by their names.
pub fn containers(root: &Path, uid: &str) -> Vec<(String, PathBuf)> {
    let own = entries(&root.join("logs")).filter(|(name, _)| uid_of(name) == Some(uid));
    own.flat_map(|(_, folder)| entries(&folder).collect::<Vec<_>>()).collect()
}

/// Removes all logs of a pod.
pub fn remove(root: &Path, uid: &str) -> io::Result<()> {
    for (_, folder) in entries(&root.join("logs")).filter(|(name, _)| uid_of(name) == Some(uid)) {
        fs::remove_dir_all(folder)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_found_by_the_pods_uid() {
        let root = tempfile::tempdir().expect("a folder");
        for pod in ["ns_a_u1", "ns_b_u2"] {
            fs::create_dir_all(root.path().join("logs").join(pod).join("main")).expect("a folder");
        }
        let mut uids = pods(root.path());
        uids.sort();
        assert_eq!(uids, ["u1", "u2"]);
        assert_eq!(containers(root.path(), "u1"), [("main".to_owned(), root.path().join("logs/ns_a_u1/main"))]);
        remove(root.path(), "u1").expect("it is removed");
        assert_eq!(pods(root.path()), ["u2"]);
        remove(root.path(), "u1").expect("it is gone already");
    }
}
