//! Many Services: a change is as small as alone, and the kernel takes them all.

use std::net::Ipv4Addr;

use super::{
    plan::{Endpoint, Front, Port, Way},
    table::Edit,
    *,
};

fn plan(number: u32, endpoints: u32) -> Plan {
    let all = (0..endpoints)
        .map(|index| Endpoint { address: Ipv4Addr::from(0x0af4_0000 + (number * 7 + index) % 60_000), port: 8080 });
    let address = Ipv4Addr::from(0x0a60_0000 + number);
    Plan {
        ports: vec![Port {
            name: "http".into(),
            fronts: vec![(Front { address, protocol: 6, port: 80 }, Way::Inside)],
            all: all.collect(),
            ..Port::default()
        }],
        cluster_addresses: vec![address],
        ..Plan::default()
    }
}

fn key(number: u32) -> Key {
    Key::new("default", number.to_string())
}

fn five_thousand() -> Book {
    let (mut book, mut changes) = (Book::default(), Changes::default());
    (0..5000).for_each(|number| book.note(&key(number), plan(number, 2), &mut changes));
    book
}

/// A Service comes, has an endpoint more, one fewer, and goes.
fn one_comes_and_goes(book: &mut Book) -> [Edit; 4] {
    [plan(6000, 2), plan(6000, 3), plan(6000, 2), Plan::default()].map(|plan| {
        let mut changes = Changes::default();
        book.note(&key(6000), plan, &mut changes);
        book.edit(&mut changes)
    })
}

#[test]
fn a_change_is_as_small_among_five_thousand_services_as_alone() {
    let sizes = |edits: [Edit; 4]| edits.map(|edit| (edit.removed.len(), edit.added.len()));
    let alone = sizes(one_comes_and_goes(&mut Book::default()));
    assert!(alone[1].1 <= 4 && alone[2].0 <= 4, "an endpoint more or less is a few elements: {alone:?}");
    assert_eq!(sizes(one_comes_and_goes(&mut five_thousand())), alone);
}

#[test]
fn the_kernel_takes_five_thousand_services_at_once() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    // SAFETY: only the network namespace of this thread changes.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut book = five_thousand();
        let mut table = Table::open("10.244.0.0/16".parse().unwrap()).unwrap();
        table.replace(&book.all()).await.unwrap();
        for edit in one_comes_and_goes(&mut book) {
            table.edit(&edit).await.unwrap();
        }
        table.replace(&book.all()).await.unwrap();
    });
}
