//! Projected volumes: several sources in one folder.
//!
//! `clusterTrustBundle` and `podCertificate` belong to features that are off; they are dropped before validation.

use std::collections::HashSet;

use super::Options;
use super::volume_sources::{downward_api_file, key_to_path};
use crate::validation::{Field, paths};

pub fn projected(volume: &Field, options: &Options) {
    volume.at("defaultMode").file_mode();
    let mut seen = HashSet::new();
    for source in volume.at("sources").each() {
        let mut count = 0;
        for kind in ["secret", "configMap"] {
            let projection = source.at(kind);
            if !projection.is_set() {
                continue;
            }
            count += 1;
            projection.at("name").required();
            for item in projection.at("items").each() {
                key_to_path(&item);
                once(volume, item.at("path").text(), projection.at("name").text(), &mut seen);
            }
        }
        let downward = source.at("downwardAPI");
        if downward.is_set() {
            count += 1;
            for item in downward.at("items").each() {
                downward_api_file(&downward.with(item.value()));
                once(volume, item.at("path").text(), item.at("path").text(), &mut seen);
            }
        }
        let token = source.at("serviceAccountToken");
        if token.is_set() {
            count += 1;
            service_account_token(volume, &token, options);
        }
        if count > 1 {
            source.forbidden("may not specify more than 1 volume type per source");
        }
    }
}

/// No two sources may make the same file.
fn once<'v>(volume: &Field, path: &'v str, told: &str, seen: &mut HashSet<&'v str>) {
    if !path.is_empty() {
        if seen.contains(&path) {
            volume.invalid_value(told, "conflicting duplicate paths");
        } else {
            seen.insert(path);
        }
    }
}

fn service_account_token(volume: &Field, token: &Field, options: &Options) {
    let seconds = token.at("expirationSeconds");
    if seconds.number() < 600 {
        seconds.invalid_value(seconds.number(), "may not specify a duration less than 10 minutes");
    }
    if seconds.number() > 1 << 32 {
        seconds.invalid("may not specify a duration larger than 2^32 seconds");
    }
    let path = volume.at("path").with(token.at("path").value());
    if path.required() && !options.non_local_token_path {
        paths::local_non_reserved(&path);
    }
}
