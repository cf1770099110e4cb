//! Machines made of network namespaces: each is a thread in a namespace of its own that runs what it is given. Nothing of
//! the machine that runs the tests is touched.

use std::{
    fs,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::PathBuf,
    sync::mpsc,
    thread,
    time::Duration,
};

use nlink::netlink::{Connection, Nftables, Route, addr::Ipv4Address, link::VethLink, route::Ipv4Route};

/// Runs a test in a network namespace of its own. Says so when it cannot.
pub fn in_own_network<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    let ran = thread::spawn(move || {
        enter_new_network();
        let _notes = Notes::of_this_network();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let links = Connection::<Route>::new().unwrap();
            links.set_link_up("lo").await.unwrap();
            test().await;
        });
    });
    if let Err(panic) = ran.join() {
        std::panic::resume_unwind(panic);
    }
}

fn enter_new_network() {
    // SAFETY: only the network namespace of this thread changes, and nothing else of the process depends on it.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.expect("unshare needs root");
}

/// What is written down of the settings of this thread's network. It goes with the network.
struct Notes(PathBuf);

impl Notes {
    fn of_this_network() -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let namespace = fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        Self(format!("/run/ferry/sysctl/{}-{namespace}", boot.trim()).into())
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// A network namespace with a thread in it.
pub struct Machine {
    pub netns: PathBuf,
    work: mpsc::Sender<Work>,
}

impl Machine {
    pub fn new() -> Self {
        Self::entering(enter_new_network)
    }

    /// In a network namespace that is there already.
    pub fn at(netns: PathBuf) -> Self {
        Self::entering(move || {
            let namespace = fs::File::open(netns).unwrap();
            let network = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(namespace.as_fd(), network).unwrap();
        })
    }

    fn entering(enter: impl FnOnce() + Send + 'static) -> Self {
        let (work, todo) = mpsc::channel::<Work>();
        let (say, started) = mpsc::channel();
        thread::spawn(move || {
            enter();
            let _notes = Notes::of_this_network();
            let (process, thread) = (rustix::process::getpid(), rustix::thread::gettid());
            let netns = format!("/proc/{}/task/{}/ns/net", process.as_raw_nonzero(), thread.as_raw_nonzero());
            say.send(PathBuf::from(netns)).unwrap();
            todo.iter().for_each(|work| work());
        });
        Self { netns: started.recv().unwrap(), work }
    }

    /// Runs something in the namespace.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (say, done) = mpsc::channel();
        self.work.send(Box::new(move || say.send(work()).unwrap())).unwrap();
        done.recv().expect("the work did not panic")
    }

    /// Runs something asynchronous in the namespace, to its end.
    pub fn block_on<T: Send + 'static, F: Future<Output = T>>(&self, work: impl FnOnce() -> F + Send + 'static) -> T {
        self.run(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let done = runtime.block_on(work());
            // What it left running goes on.
            std::mem::forget(runtime);
            done
        })
    }

    /// Answers every connection and every datagram on a port with the name and the address of who asked.
    pub fn serve(&self, port: u16, name: &str) {
        let (tcp, udp) = self.run(move || {
            let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap())
        });
        let named = name.to_owned();
        thread::spawn(move || {
            for mut stream in tcp.incoming().flatten() {
                let from = stream.peer_addr().unwrap().ip();
                let _ = stream.write_all(format!("{named} {from}").as_bytes());
            }
        });
        let named = name.to_owned();
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((_, from)) = udp.recv_from(&mut buffer) {
                let _ = udp.send_to(format!("{named} {}", from.ip()).as_bytes(), from);
            }
        });
    }

    /// What [`Machine::serve`] answers at an address.
    pub fn ask(&self, address: impl Into<IpAddr>, port: u16) -> Result<String, String> {
        let to = SocketAddr::new(address.into(), port);
        self.run(move || ask(to))
    }

    pub fn ask_udp(&self, address: impl Into<IpAddr>, port: u16) -> Result<String, String> {
        let to = SocketAddr::new(address.into(), port);
        self.run(move || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|error| error.to_string())?;
            ask_udp_from(&socket, to)
        })
    }
}

pub fn ask(to: SocketAddr) -> Result<String, String> {
    let mut stream =
        TcpStream::connect_timeout(&to, Duration::from_secs(2)).map_err(|error| error.kind().to_string())?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|error| error.kind().to_string())?;
    Ok(answer)
}

pub fn ask_udp_from(socket: &UdpSocket, to: SocketAddr) -> Result<String, String> {
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket.connect(to).map_err(|error| error.kind().to_string())?;
    socket.send(b"?").map_err(|error| error.kind().to_string())?;
    let mut buffer = [0; 512];
    let length = socket.recv(&mut buffer).map_err(|error| error.kind().to_string())?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

pub const NODE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// A machine outside the cluster, wired to the one that the test runs on, which is the node.
pub async fn outside() -> Machine {
    let outside = Machine::new();
    let here = Connection::<Route>::new().unwrap();
    let there = Connection::<Route>::new_in(outside.netns.as_path()).unwrap();
    let namespace = fs::File::open(&outside.netns).unwrap();
    here.add_link(VethLink::new("outside0", "eth0").peer_netns_fd(namespace)).await.unwrap();
    here.add_address(Ipv4Address::new("outside0", NODE, 24)).await.unwrap();
    here.set_link_up("outside0").await.unwrap();
    there.add_address(Ipv4Address::new("eth0", OUTSIDE, 24)).await.unwrap();
    there.set_link_up("lo").await.unwrap();
    there.set_link_up("eth0").await.unwrap();
    here.add_route(Ipv4Route::default_route().gateway(OUTSIDE)).await.unwrap();
    outside
}

/// As `nft flush ruleset` does, and programs that keep the rules of a firewall.
pub async fn flush_rules() {
    let rules = Connection::<Nftables>::new().unwrap();
    for table in rules.list_tables().await.unwrap() {
        rules.del_table(table.name.as_str(), table.family).await.unwrap();
    }
}

/// Everything in the network of this thread that a purge must leave as it was.
pub async fn state_of_the_network() -> Vec<String> {
    let route = Connection::<Route>::new().unwrap();
    let mut state = Vec::new();
    for link in route.get_links().await.unwrap() {
        state.push(format!("link {:?}", link.name()));
    }
    // IPv6 addresses of links come when the kernel has made sure that nobody else has them.
    for known in route.get_routes().await.unwrap().iter().filter(|route| route.is_ipv4()) {
        state.push(format!("route {:?}/{} {:?}", known.destination(), known.dst_len(), known.gateway()));
    }
    for table in Connection::<Nftables>::new().unwrap().list_tables().await.unwrap() {
        state.push(format!("table {table:?}"));
    }
    state.push(format!("forwarding {}", fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap()));
    state.sort();
    state
}
