use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ObjectReference;
use proptest::prelude::*;

use super::*;

const MOST: usize = 5;

fn template() -> Template {
    Template {
        namespace: "ns".into(),
        name: "web".into(),
        owner: OwnerReference { uid: "owner".into(), ..OwnerReference::default() },
        labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        annotations: None,
        most: MOST,
        never_none: true,
    }
}

fn endpoint(number: usize, node: &str) -> Endpoint {
    Endpoint {
        addresses: vec![format!("10.0.0.{number}")],
        node_name: Some(node.to_owned()),
        target_ref: Some(ObjectReference { name: Some(format!("pod-{number}")), ..ObjectReference::default() }),
        ..Endpoint::default()
    }
}

fn port(number: i32) -> Vec<EndpointPort> {
    vec![EndpointPort { port: Some(number), ..EndpointPort::default() }]
}

fn wanted(groups: &[(i32, Vec<Endpoint>)]) -> BTreeMap<PortsKey, Group> {
    let group = |(number, endpoints): &(i32, Vec<Endpoint>)| {
        (ports_key(&port(*number)), Group { ports: port(*number), endpoints: endpoints.clone() })
    };
    groups.iter().map(group).collect()
}

/// The slices after a plan was carried out.
fn after(existing: &[Arc<EndpointSlice>], plan: Plan, names: &mut usize) -> Vec<Arc<EndpointSlice>> {
    let mut slices: BTreeMap<String, Arc<EndpointSlice>> =
        existing.iter().map(|slice| (slice.metadata.name.clone().unwrap_or_default(), slice.clone())).collect();
    for slice in plan.delete {
        slices.remove(slice.metadata.name.as_deref().unwrap_or_default()).expect("it was there");
    }
    for slice in plan.update {
        let name = slice.metadata.name.clone().expect("a name");
        slices.insert(name, Arc::new(slice)).expect("it was there");
    }
    for mut slice in plan.create {
        *names += 1;
        slice.metadata.name = Some(format!("slice-{names}"));
        slices.insert(format!("slice-{names}"), Arc::new(slice));
    }
    slices.into_values().collect()
}

fn sizes(slices: &[Arc<EndpointSlice>]) -> Vec<usize> {
    let mut sizes: Vec<usize> = slices.iter().map(|slice| length(slice)).collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn there_is_always_a_slice() {
    let mut names = 0;
    let first = plan(&template(), "IPv4", Vec::new(), BTreeMap::new());
    assert_eq!((first.create.len(), first.update.len(), first.delete.len()), (1, 0, 0));
    let slices = after(&[], first, &mut names);
    assert_eq!(slices[0].metadata.generate_name.as_deref(), Some("web-"));
    let again = plan(&template(), "IPv4", slices.clone(), BTreeMap::new());
    assert_eq!((again.create.len(), again.update.len(), again.delete.len()), (0, 0, 0));

    // The empty one is used for the first endpoints, and emptied after the last.
    let some = plan(&template(), "IPv4", slices.clone(), wanted(&[(80, vec![endpoint(1, "n")])]));
    assert_eq!((some.create.len(), some.update.len(), some.delete.len()), (0, 1, 0));
    let slices = after(&slices, some, &mut names);
    let none = plan(&template(), "IPv4", slices.clone(), BTreeMap::new());
    assert_eq!((none.create.len(), none.update.len(), none.delete.len()), (0, 1, 0));
    let slices = after(&slices, none, &mut names);
    assert_eq!((slices[0].ports.clone(), length(&slices[0])), (Some(Vec::new()), 0));
}

#[test]
fn slices_of_a_former_owner_go() {
    let mut names = 0;
    let slices = after(&[], plan(&template(), "IPv4", Vec::new(), BTreeMap::new()), &mut names);
    let other = Template { owner: OwnerReference { uid: "other".into(), ..OwnerReference::default() }, ..template() };
    let plan = plan(&other, "IPv4", slices, BTreeMap::new());
    assert_eq!((plan.create.len(), plan.update.len(), plan.delete.len()), (1, 0, 1));
}

#[test]
fn as_little_as_possible_is_written() {
    let mut names = 0;
    let of = |range: std::ops::Range<usize>| range.map(|number| endpoint(number, "n")).collect::<Vec<_>>();
    let slices = after(&[], plan(&template(), "IPv4", Vec::new(), wanted(&[(80, of(0..12))])), &mut names);
    assert_eq!(sizes(&slices), [2, 5, 5]);
    // Two more fit into the slice that has room.
    let grown = plan(&template(), "IPv4", slices.clone(), wanted(&[(80, of(0..14))]));
    assert_eq!((grown.create.len(), grown.update.len(), grown.delete.len()), (0, 1, 0));
    let slices = after(&slices, grown, &mut names);
    assert_eq!(sizes(&slices), [4, 5, 5]);
    // One goes and another comes: it takes the place in the slice that is written anyway.
    let mut others = of(1..15);
    let changed = plan(&template(), "IPv4", slices.clone(), wanted(&[(80, others.clone())]));
    assert_eq!((changed.create.len(), changed.update.len(), changed.delete.len()), (0, 1, 0));
    let slices = after(&slices, changed, &mut names);
    // One that is in another state is written, and nothing else.
    others[3].node_name = Some("m".to_owned());
    let moved = plan(&template(), "IPv4", slices.clone(), wanted(&[(80, others)]));
    assert_eq!((moved.create.len(), moved.update.len(), moved.delete.len()), (0, 1, 0));
}

proptest! {
    #[test]
    fn every_wanted_endpoint_is_in_one_slice(
        rounds in prop::collection::vec(
            (prop::collection::btree_map(0..40_usize, "[nm]", 0..30), prop::collection::btree_set(0..10_usize, 0..5)),
            1..6,
        )
    ) {
        let (mut slices, mut names) = (Vec::new(), 0);
        for (some, others) in rounds {
            let some: Vec<Endpoint> = some.iter().map(|(number, node)| endpoint(*number, node)).collect();
            let others: Vec<Endpoint> = others.into_iter().map(|number| endpoint(number, "n")).collect();
            let mut groups = vec![(80, some.clone())];
            groups.extend((!others.is_empty()).then(|| (81, others.clone())));
            slices = after(&slices, plan(&template(), "IPv4", slices.clone(), wanted(&groups)), &mut names);
            prop_assert!(!slices.is_empty());
            for (number, expected) in groups {
                let of_group = slices.iter().filter(|slice| slice.ports.as_ref() == Some(&port(number)));
                let found: Vec<&Endpoint> = of_group.flat_map(|slice| slice.endpoints.iter().flatten()).collect();
                let text = |endpoint: &Endpoint| format!("{:?} {:?}", endpoint.addresses, endpoint.node_name);
                prop_assert_eq!(found.len(), expected.len());
                let found: BTreeSet<String> = found.into_iter().map(text).collect();
                prop_assert_eq!(found, expected.iter().map(text).collect::<BTreeSet<_>>());
            }
            prop_assert!(slices.iter().all(|slice| length(slice) <= MOST));
            // Once everything is as it should be, nothing is written.
            let again = plan(&template(), "IPv4", slices.clone(), wanted(&{
                let mut groups = vec![(80, some)];
                groups.extend((!others.is_empty()).then_some((81, others)));
                groups
            }));
            prop_assert_eq!((again.create.len(), again.update.len(), again.delete.len()), (0, 0, 0));
        }
    }
}
