//! Which numbers a user has, by the files of the container.

use std::{fs, io};

use super::spec::UserSpec;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    pub(super) home: String,
}

/// Reads the container's /etc/passwd and /etc/group, which need not exist.
pub(super) fn resolve(spec: &UserSpec) -> io::Result<User> {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let group = fs::read_to_string("/etc/group").unwrap_or_default();
    resolve_in(spec, &passwd, &group).map_err(|message| io::Error::new(io::ErrorKind::NotFound, message))
}

fn resolve_in(spec: &UserSpec, passwd: &str, group: &str) -> Result<User, String> {
    let (user, group_of_user) = match spec.user.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (spec.user.as_str(), None),
    };
    let user = if user.is_empty() { "0" } else { user };
    let number = user.parse::<u32>().ok();
    // name:password:uid:gid:comment:home:shell
    let entry = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| match number {
        Some(number) => fields.get(2).and_then(|uid| uid.parse().ok()) == Some(number),
        None => fields.first() == Some(&user),
    });
    let field = |index: usize| entry.as_ref().and_then(|fields| fields.get(index)).copied();
    let uid = match number.or_else(|| field(2)?.parse().ok()) {
        Some(uid) => uid,
        None => return Err(format!("unable to find user {user}: no matching entries in passwd file")),
    };
    let gid_of = |name: &str| {
        // name:password:gid:members
        let mut lines = group.lines().map(|line| line.split(':'));
        lines.find_map(|mut fields| (fields.next() == Some(name)).then(|| fields.nth(1)?.parse::<u32>().ok())?)
    };
    let gid = match (spec.group, group_of_user) {
        (Some(gid), _) => gid,
        (None, Some(name)) => match name.parse().ok().or_else(|| gid_of(name)) {
            Some(gid) => gid,
            None => return Err(format!("unable to find group {name}: no matching entries in group file")),
        },
        (None, None) => field(3).and_then(|gid| gid.parse().ok()).unwrap_or(0),
    };
    let mut groups = vec![gid];
    groups.extend(&spec.additional_groups);
    if let (false, Some(name)) = (spec.strict_groups, field(0)) {
        groups.extend(group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let gid = fields.nth(2)?.parse::<u32>().ok()?;
            fields.next()?.split(',').any(|member| member == name).then_some(gid)
        }));
    }
    let mut seen = std::collections::BTreeSet::new();
    groups.retain(|group| seen.insert(*group));
    let home = field(5).filter(|home| !home.is_empty()).unwrap_or("/").to_owned();
    Ok(User { uid, gid, groups, home })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:web:/var/www:/bin/false\n";
    const GROUP: &str = "root:x:0:\nwww:x:34:\nlogs:x:4:root,web\n";

    fn resolved(user: &str, group: Option<u32>, more: &[u32]) -> Result<(u32, u32, Vec<u32>, String), String> {
        let spec = UserSpec { user: user.into(), group, additional_groups: more.into(), strict_groups: false };
        resolve_in(&spec, PASSWD, GROUP).map(|user| (user.uid, user.gid, user.groups, user.home))
    }

    #[test]
    fn names_and_numbers() {
        assert_eq!(resolved("", None, &[]), Ok((0, 0, vec![0, 4], "/root".into())));
        assert_eq!(resolved("web", None, &[99]), Ok((33, 34, vec![34, 99, 4], "/var/www".into())));
        assert_eq!(resolved("33", Some(7), &[7]), Ok((33, 7, vec![7, 4], "/var/www".into())));
        assert_eq!(resolved("1000", None, &[]), Ok((1000, 0, vec![0], "/".into())));
        assert_eq!(resolved("1000:logs", None, &[]), Ok((1000, 4, vec![4], "/".into())));
    }

    #[test]
    fn unknown_names_are_errors() {
        assert!(resolved("nobody", None, &[]).is_err());
        assert!(resolved("web:nogroup", None, &[]).is_err());
    }

    #[test]
    fn strict_leaves_the_files_groups_out() {
        let spec = UserSpec { user: "web".into(), strict_groups: true, ..Default::default() };
        assert_eq!(resolve_in(&spec, PASSWD, GROUP).map(|user| user.groups), Ok(vec![34]));
    }
}
