//! Further machines of a cluster on this one: network namespaces with an address each, routed to this machine.
//!
//! Each is held by a file under `/run/ferry/hosts`, so that it outlives the process that made it, and has a pair of links to
//! this machine, which routes between them and masquerades what leaves it. Their addresses are from a block of ours that
//! nothing on this machine was routed to when the first of them was made; which one has which is written down first.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    net::{IpAddr, Ipv4Addr},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use nlink::netlink::{
    Connection, Route,
    addr::Ipv4Address,
    link::VethLink,
    nftables::{BaseChain, CmpOp, Expr, MetaKey, NatHook, NatStatement, Priority, Register},
    route::Ipv4Route,
    types::route::RouteScope,
};
use rustix::{
    fs::{FlockOperation, flock, statfs},
    mount::{UnmountFlags, mount_bind, unmount},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};
use serde::{Deserialize, Serialize};

use crate::{
    Error, RUNTIME,
    block::Block,
    is_at,
    links::{self, failed, fingerprint, open, there_now},
    nft::{Nft, from},
    remove_if_empty, sysctl,
};

/// Where a block for hosts is looked for. Neither pods nor Services are usually here.
const SPACE: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 213, 0, 0), 16);
const BLOCK: u8 = 24;
/// The kernel's name for the file system of namespaces.
const NSFS: u64 = 0x6e73_6673;
const IN_HOST: &str = "eth0";

/// A network namespace that stands for a machine.
#[derive(Debug, Clone)]
pub struct Host {
    pub name: String,
    /// Opens its network namespace.
    pub netns: PathBuf,
    /// By which this machine and the other hosts reach it.
    pub address: IpAddr,
    /// The address of this machine, as the host sees it.
    pub gateway: IpAddr,
}

/// What is written down of the hosts of a cluster.
#[derive(Serialize, Deserialize)]
struct Hosts {
    block: String,
    /// The number of each host in the block.
    hosts: BTreeMap<String, u32>,
}

/// Makes a host, or finds the one again that is there already.
pub async fn ensure(cluster: &str, name: &str) -> Result<Host, Error> {
    let book = Book::open(cluster)?;
    let kernel = open()?;
    let mut hosts = match book.read()? {
        Some(hosts) => hosts,
        None => Hosts { block: free_block(&kernel).await?.to_string(), hosts: BTreeMap::new() },
    };
    let block: Block = hosts.block.parse()?;
    let number = match hosts.hosts.get(name) {
        Some(number) => *number,
        None => {
            // The first address of the block is nobody's, the second this machine's.
            let free = (2..).find(|number| !hosts.hosts.values().any(|taken| taken == number)).unwrap_or(2);
            hosts.hosts.insert(name.to_owned(), free);
            book.write(&hosts)?;
            free
        }
    };
    let address = nth(block, number)?;
    let gateway = nth(block, 1)?;
    let pin = book.folder.join(name);
    hold_namespace(&pin)?;
    sysctl::want(&book.folder.join(Book::FILE), "net/ipv4/ip_forward", "1")?;
    masquerade(cluster, block).await?;
    connect(&kernel, cluster, name, &pin, address, gateway).await?;
    Ok(Host { name: name.to_owned(), netns: pin, address: address.into(), gateway: gateway.into() })
}

/// Removes a host with all that is in it.
pub async fn remove(cluster: &str, name: &str) -> Result<(), Error> {
    let book = Book::open(cluster)?;
    let kernel = open()?;
    let removed = kernel.del_link_if_exists(link_to(cluster, name).as_str()).await;
    removed.map_err(failed("cannot remove the link to a host"))?;
    let pin = book.folder.join(name);
    if is_namespace(&pin) {
        unmount(&pin, UnmountFlags::DETACH).map_err(|error| Error(format!("{}: {error}", pin.display())))?;
    }
    remove_file(&pin)?;
    let Some(mut hosts) = book.read()? else {
        // There never was a host; the folder was made to look for one.
        remove_if_empty(&book.folder);
        return Ok(());
    };
    hosts.hosts.remove(name);
    if !hosts.hosts.is_empty() {
        return book.write(&hosts);
    }
    Nft::open()?.remove_table(&table(cluster)).await?;
    sysctl::release(&book.folder.join(Book::FILE))?;
    fs::remove_dir_all(&book.folder).map_err(|error| Error(format!("{}: {error}", book.folder.display())))?;
    remove_if_empty(&Path::new(RUNTIME).join("hosts"));
    Ok(())
}

/// Runs something on a thread in the network of a host; in an empty network if that of the host is gone, as after a new
/// start of the machine. Never in the network of this machine.
pub fn inside<T: Send>(cluster: &str, name: &str, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let pin = folder_of(cluster).join(name);
    let enter = || match is_namespace(&pin) {
        true => {
            let namespace = File::open(&pin)?;
            Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
        }
        // SAFETY: only the network namespace of this thread changes, and the thread ends here.
        false => Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?),
    };
    in_thread(|| enter().map(|()| work()))
        .map_err(|error: io::Error| Error(format!("cannot enter the network namespace {}: {error}", pin.display())))
}

fn in_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let done = std::thread::scope(|threads| threads.spawn(work).join());
    done.unwrap_or_else(|_| Err(io::Error::other("the thread that does it panicked")))
}

fn folder_of(cluster: &str) -> PathBuf {
    Path::new(RUNTIME).join("hosts").join(cluster)
}

/// The folder of a cluster's hosts, locked.
struct Book {
    folder: PathBuf,
    _lock: File,
}

impl Book {
    /// Beside the hosts' own files; a host cannot have a name with a dot in front.
    const FILE: &str = ".hosts.json";

    fn open(cluster: &str) -> Result<Self, Error> {
        let folder = folder_of(cluster);
        let failed = |error: io::Error| Error(format!("{}: {error}", folder.display()));
        loop {
            let lock = match fs::create_dir_all(&folder).and_then(|()| File::open(&folder)) {
                // Another one has just removed it, because it was empty.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(failed)?,
            };
            flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
            if is_at(&lock, &folder) {
                return Ok(Self { folder, _lock: lock });
            }
        }
    }

    fn read(&self) -> Result<Option<Hosts>, Error> {
        match fs::read(self.folder.join(Self::FILE)) {
            Ok(text) => {
                serde_json::from_slice(&text).map(Some).map_err(|error| Error(format!("{}: {error}", Self::FILE)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error(format!("{}: {error}", self.folder.display()))),
        }
    }

    fn write(&self, hosts: &Hosts) -> Result<(), Error> {
        let (path, new) = (self.folder.join(Self::FILE), self.folder.join(".hosts.new"));
        let text = serde_json::to_vec(hosts).map_err(|error| Error(error.to_string()))?;
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
        written.map_err(|error| Error(format!("{}: {error}", path.display())))
    }
}

/// A block that nothing is routed to.
async fn free_block(kernel: &Connection<Route>) -> Result<Block, Error> {
    let routes = kernel.get_routes().await.map_err(failed("cannot read the routes of this machine"))?;
    let routed: Vec<Block> = routes
        .iter()
        .filter_map(|route| match route.destination() {
            Some(IpAddr::V4(first)) if route.dst_len() > 0 => Some(Block::around(*first, route.dst_len())),
            _ => None,
        })
        .collect();
    let space = Block::around(SPACE.0, SPACE.1);
    let mut parts = (0..).map_while(|index| space.part(BLOCK, index));
    parts.find(|part| !routed.iter().any(|other| other.overlaps(*part))).ok_or_else(|| {
        Error(format!("everything in {space} is in use on this machine, so further nodes get no addresses"))
    })
}

fn nth(block: Block, number: u32) -> Result<Ipv4Addr, Error> {
    let address = Ipv4Addr::from(u32::from(block.first()).saturating_add(number));
    let inside = block.contains(address) && address != block.last();
    inside.then_some(address).ok_or_else(|| Error(format!("{block} has no room for another node")))
}

fn is_namespace(pin: &Path) -> bool {
    statfs(pin).is_ok_and(|at| u64::try_from(at.f_type).is_ok_and(|kind| kind == NSFS))
}

/// Makes a network namespace that a file holds, unless the file holds one already.
fn hold_namespace(pin: &Path) -> Result<(), Error> {
    if is_namespace(pin) {
        return Ok(());
    }
    let failed = |error: io::Error| Error(format!("cannot make the network namespace {}: {error}", pin.display()));
    File::create(pin).map_err(failed)?;
    let made = in_thread(|| {
        // SAFETY: only the network namespace of this thread changes, and the thread ends here.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        Ok(mount_bind("/proc/thread-self/ns/net", pin)?)
    });
    made.map_err(failed)
}

/// The hosts' addresses are known on this machine only.
async fn masquerade(cluster: &str, block: Block) -> Result<(), Error> {
    let nft = Nft::open()?;
    let name = Register::R1;
    let change = nft
        .change(&table(cluster))
        .replace_table()
        .base_chain("postrouting", BaseChain::nat(NatHook::Postrouting, Priority::SrcNat))
        .rule("postrouting", |rule| {
            let leaves = from(rule, CmpOp::Eq, block)
                .expr(Expr::Meta { dreg: name, key: MetaKey::OifName })
                .expr(Expr::Cmp { sreg: name, op: CmpOp::Neq, data: links::PREFIX.as_bytes().to_vec() });
            leaves.nat(NatStatement::masquerade().fully_random())
        });
    nft.apply(change).await
}

fn table(cluster: &str) -> String {
    format!("ferry-hosts-{cluster}")
}

async fn connect(
    here: &Connection<Route>,
    cluster: &str,
    name: &str,
    pin: &Path,
    address: Ipv4Addr,
    gateway: Ipv4Addr,
) -> Result<(), Error> {
    let link = link_to(cluster, name);
    let namespace = File::open(pin).map_err(|error| Error(format!("{}: {error}", pin.display())))?;
    let there = Connection::<Route>::new_in(namespace.as_fd()).map_err(failed("cannot enter a host's network"))?;
    let known = here.get_link_by_name(link.as_str()).await.map_err(failed("cannot look for a link"))?.is_some();
    let inside = there.get_link_by_name(IN_HOST).await.map_err(failed("cannot look for a link in a host"))?.is_some();
    if known && !inside {
        here.del_link(link.as_str()).await.map_err(failed("cannot remove an old link"))?;
    }
    let steps = async {
        if !(known && inside) {
            here.add_link(VethLink::new(link.as_str(), IN_HOST).peer_netns_fd(&namespace)).await?;
        }
        there_now(here.add_address(Ipv4Address::new(link.as_str(), gateway, 32)).await)?;
        here.set_link_up(link.as_str()).await?;
        there.set_link_up("lo").await?;
        there_now(there.add_address(Ipv4Address::new(IN_HOST, address, 32)).await)?;
        there.set_link_up(IN_HOST).await?;
        let to = |address, link: &str| Ipv4Route::from_addr(address, 32).dev(link).scope(RouteScope::Link);
        there_now(here.add_route(to(address, &link)).await)?;
        there_now(there.add_route(to(gateway, IN_HOST)).await)?;
        there_now(there.add_route(Ipv4Route::default_route().gateway(gateway).dev(IN_HOST)).await)
    };
    steps.await.map_err(failed("cannot connect a host"))
}

fn link_to(cluster: &str, name: &str) -> String {
    format!("{}-{:09x}", links::PREFIX, fingerprint(&format!("{cluster}/{name}")) & 0xf_ffff_ffff)
}

fn remove_file(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error(format!("{}: {error}", path.display()))),
        _ => Ok(()),
    }
}
