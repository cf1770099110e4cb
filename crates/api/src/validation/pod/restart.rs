//! Restart policies of single containers.

use crate::validation::Field;

/// Of a container, and of an init container that says one.
pub fn policy(container: &Field) {
    let (policy, rules) = (container.at("restartPolicy"), container.at("restartPolicyRules"));
    if !policy.is_set() {
        if rules.is_empty() {
            return;
        }
        policy.missing("must specify restartPolicy when restart rules are used");
    } else {
        policy.one_of(&["Always", "Never", "OnFailure"]);
    }
    if rules.len() > 20 {
        rules.too_many(20);
    }
    for rule in rules.each() {
        rule.at("action").one_of(&["Restart", "RestartAllContainers"]);
        let codes = rule.at("exitCodes");
        if !codes.is_set() {
            codes.missing("must be specified");
            continue;
        }
        codes.at("operator").one_of(&["In", "NotIn"]);
        if codes.at("values").len() > 255 {
            codes.at("values").too_many(255);
        }
    }
}

/// Of an init container.
pub fn init_policy(container: &Field) {
    if container.at("restartPolicy").is_set() {
        policy(container);
    } else if !container.at("restartPolicyRules").is_empty() {
        container.at("restartPolicy").missing("must specify restartPolicy when restart rules are used");
    }
}
