use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;
use crate::proxy::plan::Port;

const TCP: u8 = 6;

fn plan(front: u8, endpoints: &[u8]) -> Plan {
    let all: Vec<Endpoint> =
        endpoints.iter().map(|last| Endpoint { address: Ipv4Addr::new(10, 244, 0, *last), port: 8080 }).collect();
    let front = Front { address: Ipv4Addr::new(10, 96, 0, front), protocol: TCP, port: 80 };
    let local = all.iter().filter(|endpoint| endpoint.address.octets()[3] % 2 == 0).copied().collect();
    let way =
        [Way::Inside, Way::Outside, Way::OutsideLocal, Way::InsideLocal][usize::from(front.address.octets()[3]) % 4];
    Plan {
        ports: vec![Port { name: "x".into(), fronts: vec![(front, way)], all, local, ..Port::default() }],
        cluster_addresses: vec![front.address],
        ..Plan::default()
    }
}

fn key(name: u8) -> ServiceKey {
    ServiceKey::new("default", name.to_string())
}

fn note(book: &mut Book, name: u8, plan: Plan) -> Edit {
    let mut changes = Changes::default();
    book.note(&key(name), plan, &mut changes);
    book.edit(&mut changes)
}

#[test]
fn one_endpoint_more_is_a_few_elements() {
    let mut book = Book::default();
    for name in 0..100 {
        note(&mut book, name, plan(name, &[1, 2]));
    }
    let edit = note(&mut book, 4, plan(4, &[1, 2, 3]));
    assert_eq!((edit.removed.len(), edit.added.len()), (1, 2), "the front, and the new endpoint");
    assert!(note(&mut book, 4, plan(4, &[1, 2, 3])).is_empty(), "nothing changes twice");
}

#[test]
fn an_address_that_two_want_belongs_to_the_first() {
    let mut book = Book::default();
    note(&mut book, 1, plan(4, &[1]));
    let second = note(&mut book, 2, plan(4, &[2]));
    assert!(second.added.iter().all(|((map, _), _)| *map == Map::Endpoints), "{second:?}");
    let gone = note(&mut book, 1, Plan::default());
    let fronts = gone.added.iter().filter(|((map, _), _)| *map == Map::Services).count();
    assert_eq!(fronts, 1, "and to the second when the first is gone");
    let gone = note(&mut book, 2, Plan::default());
    assert!(gone.added.is_empty() && book.wanted.is_empty() && book.services.is_empty());
}

#[test]
fn lists_have_the_same_numbers_after_every_start() {
    let all = |names: &mut dyn Iterator<Item = u8>| {
        let mut book = Book::default();
        names.for_each(|name| drop(note(&mut book, name, plan(name, &[1, 2]))));
        book.all().added.into_iter().collect::<HashMap<_, _>>()
    };
    assert_eq!(all(&mut (0..100)), all(&mut (0..100).rev()));
}

#[test]
fn no_two_lists_have_the_same_number() {
    let (mut book, list) = (Book::default(), ("x".to_owned(), false));
    let first = book.number(&key(1), &list);
    assert_eq!(book.number(&key(1), &list), first.wrapping_add(1), "it is taken");
    note(&mut book, 2, plan(0, &[1]));
    note(&mut book, 2, Plan::default());
    assert_eq!(book.numbers.len(), 2, "a list that is gone gives its number back");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However changes come, alone or together, the kernel has what the book has.
    #[test]
    fn edits_add_up(steps in prop::collection::vec(
        prop::collection::vec((0..6u8, 0..8u8, prop::collection::btree_set(1..9u8, 0..5), any::<bool>()), 1..4), 1..20)
    ) {
        let (mut book, mut kernel) = (Book::default(), HashMap::new());
        for together in steps {
            let mut changes = Changes::default();
            for (name, front, endpoints, gone) in together {
                let endpoints: Vec<u8> = endpoints.into_iter().collect();
                book.note(&key(name), if gone { Plan::default() } else { plan(front, &endpoints) }, &mut changes);
            }
            let edit = book.edit(&mut changes);
            for (element, value) in edit.removed {
                prop_assert_eq!(kernel.remove(&element), Some(value), "what is removed was there");
            }
            for (element, value) in edit.added {
                prop_assert!(kernel.insert(element, value).is_none(), "what is added was not");
            }
            let all: HashMap<_, _> = book.all().added.into_iter().collect();
            prop_assert_eq!(&kernel, &all);
        }
    }
}
