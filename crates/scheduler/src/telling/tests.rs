use std::{io::Read, net::TcpListener, time::Duration};

use controller_runtime::SystemClock;
use tokio::sync::oneshot;

use super::*;
use crate::fixtures::{client, pod};

impl Teller {
    /// What it has to write goes to the test.
    pub fn overheard(self) -> (Self, mpsc::UnboundedReceiver<(Arc<PodInfo>, Value)>) {
        let (writer, told) = mpsc::unbounded_channel();
        (Self { writer, ..self }, told)
    }
}

/// A server that takes a request and never answers sees that it is given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_being_said_ends_with_the_teller() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let teller = Teller::new(client(port), Recorder::new(client(1), "tester", clock.clone()), clock);
    teller.tell(&pod("web", json!({})), Reason::Unschedulable, "no nodes", &Nominated::Unchanged);
    let (begin, began) = oneshot::channel();
    let server = tokio::task::spawn_blocking(move || {
        let (mut connection, _) = listener.accept().expect("a connection");
        connection.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        let mut some = [0; 4096];
        let taken = connection.read(&mut some).expect("a request");
        begin.send(taken).expect("somebody waits");
        while connection.read(&mut some)? > 0 {}
        Ok::<_, std::io::Error>(())
    });
    assert!(began.await.expect("a request") > 0);
    drop(teller);
    server.await.expect("no panic").expect("the connection is closed");
}
