use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn block() -> Block {
    "10.1.2.0/28".parse().unwrap()
}

#[test]
fn an_address_is_not_reused_at_once_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut addresses = Addresses::open(folder.path(), block()).unwrap();
    let first = addresses.take("a", &[]).unwrap().address;
    assert_eq!(first, Ipv4Addr::new(10, 1, 2, 1));
    addresses.give_back("a").unwrap();
    drop(addresses);
    let mut addresses = Addresses::open(folder.path(), block()).unwrap();
    assert_eq!(addresses.take("b", &[]).unwrap().address, Ipv4Addr::new(10, 1, 2, 2));
    assert_eq!(addresses.take("b", &[]).unwrap().address, Ipv4Addr::new(10, 1, 2, 2));
}

#[test]
fn what_was_not_finished_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.json.new"), "{\"id\":").unwrap();
    fs::write(folder.path().join("b.json"), "").unwrap();
    let addresses = Addresses::open(folder.path(), block()).unwrap();
    assert_eq!(addresses.all().count(), 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_name_does_not_leave_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut addresses = Addresses::open(folder.path(), block()).unwrap();
    addresses.take("../../etc/x", &[]).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    let addresses = Addresses::open(folder.path(), block()).unwrap();
    assert!(addresses.get("../../etc/x").is_some());
}

#[derive(Debug, Clone)]
enum Step {
    Take(u8),
    GiveBack(u8),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..20u8).prop_map(Step::Take),
        3 => (0..20u8).prop_map(Step::GiveBack),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Against a plain map of who has what: nobody shares, nobody loses its address, nothing is refused while one is free.
    #[test]
    fn addresses_are_shared_by_nobody(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let mut addresses = Addresses::open(folder.path(), block()).unwrap();
        let mut model = BTreeMap::<u8, Ipv4Addr>::new();
        for step in steps {
            match step {
                Step::Take(id) => match addresses.take(&id.to_string(), &[]) {
                    Ok(pod) => {
                        prop_assert!(block().contains(pod.address));
                        let before = model.insert(id, pod.address);
                        prop_assert!(before.is_none_or(|before| before == pod.address));
                        let distinct: HashSet<_> = model.values().collect();
                        prop_assert_eq!(distinct.len(), model.len());
                    }
                    Err(_) => prop_assert_eq!(model.len(), 14),
                },
                Step::GiveBack(id) => {
                    addresses.give_back(&id.to_string()).unwrap();
                    model.remove(&id);
                }
                Step::Restart => addresses = Addresses::open(folder.path(), block()).unwrap(),
            }
            prop_assert_eq!(addresses.all().count(), model.len());
        }
    }
}
