//! How long the kernel takes. `cargo test -p network --release --lib -- --ignored --nocapture` prints it.

use std::{net::Ipv4Addr, time::Instant};

use super::{
    plan::{Port, Way},
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

async fn timed(table: &mut Table, book: &mut Book, number: u32, plan: Plan) -> Duration {
    let begun = Instant::now();
    let mut changes = Changes::default();
    book.note(&Key::new("default", number.to_string()), plan, &mut changes);
    table.edit(&book.edit(&mut changes)).await.unwrap();
    begun.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
#[ignore = "a measurement"]
fn five_thousand_services() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    // SAFETY: only the network namespace of this thread changes.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut book, mut changes) = (Book::default(), Changes::default());
        let mut table = Table::open("10.244.0.0/16".parse().unwrap()).unwrap();
        for number in 0..5000 {
            book.note(&Key::new("default", number.to_string()), plan(number, 2), &mut changes);
        }
        let begun = Instant::now();
        table.replace(&book.all()).await.unwrap();
        eprintln!("5,000 services with 2 endpoints each, at once: {:?}", begun.elapsed());
        let begun = Instant::now();
        table.replace(&book.all()).await.unwrap();
        eprintln!("replacing them all: {:?}", begun.elapsed());
        let (mut added, mut more, mut fewer, mut removed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for number in 6000..6100 {
            added.push(timed(&mut table, &mut book, number, plan(number, 2)).await);
            more.push(timed(&mut table, &mut book, number, plan(number, 3)).await);
            fewer.push(timed(&mut table, &mut book, number, plan(number, 2)).await);
            removed.push(timed(&mut table, &mut book, number, Plan::default()).await);
        }
        let times = [
            ("one more service", added),
            ("one more endpoint", more),
            ("one fewer", fewer),
            ("one service less", removed),
        ];
        for (what, times) in times {
            eprintln!("{what}: median {:?}", median(times));
        }
    });
}
