//! Certificates and kubeconfigs: how administrators and clients know the cluster, and keep doing so.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use api_server::{
    serving::{
        ServerCertificate,
        authority::{Authority, Names, RENEW_AFTER},
        kubeconfig,
    },
    streaming::Agents,
};

/// The first address of the service network, which the `kubernetes` Service has.
const SERVICE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1));
/// An address that is nowhere near: one of those for documentation.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);
/// How often it is looked whether certificates are due for renewal.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// The file that names what the cluster has made outside of its data folder, a path per line.
pub fn traces_file(data_dir: &Path) -> PathBuf {
    data_dir.join("traces")
}

/// How the person who started the cluster administers it.
pub struct AdminAccess {
    pub kubeconfig: PathBuf,
    pub address: SocketAddr,
}

impl AdminAccess {
    pub fn write(&self, authority: &Authority) -> anyhow::Result<()> {
        kubeconfig::write_admin(&self.kubeconfig, authority, self.address).context("cannot write the kubeconfig")
    }
}

/// Notes a file outside of the data folder before it is made, so that removing the cluster removes it too. A kubeconfig
/// that somebody else has made stays as it is: it may be the only way into another cluster.
pub fn remember(data_dir: &Path, file: &Path) -> anyhow::Result<()> {
    let (folder, file) = (std::path::absolute(data_dir)?, std::path::absolute(file)?);
    if file.starts_with(folder) {
        return Ok(());
    }
    let line = file.display().to_string();
    anyhow::ensure!(
        kubeconfig::is_ours(&file),
        "{line} exists, and ferry did not write it\nhint: name another file with --kubeconfig, or move that one away"
    );
    let path = traces_file(data_dir);
    let known = fs::read_to_string(&path).unwrap_or_default();
    if known.lines().any(|known| known == line) {
        return Ok(());
    }
    fs::write(&path, format!("{known}{line}\n")).with_context(|| format!("cannot write {}", path.display()))
}

/// Waits until certificates of a time want to be renewed, at least for a while: whoever could not renew them asks again.
pub async fn due(made: SystemTime) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        // By the calendar: timers stand still while a machine is suspended.
        if made.elapsed().unwrap_or_default() >= RENEW_AFTER {
            return;
        }
    }
}

/// Keeps all certificates young for as long as the server runs: those of servers in this process, each with its names, the
/// one that agents are shown, and the administrator's.
pub async fn renew(
    authority: Arc<Authority>,
    certificates: Vec<(Arc<ServerCertificate>, Names)>,
    agents: Arc<Agents>,
    admin: AdminAccess,
) {
    let mut made = SystemTime::now();
    loop {
        due(made).await;
        let renewed = certificates
            .iter()
            .try_for_each(|(certificate, names)| certificate.renew(&authority, names))
            .and_then(|()| agents.renew(&authority))
            .map_err(anyhow::Error::from)
            .and_then(|()| admin.write(&authority));
        match renewed {
            Ok(()) => made = SystemTime::now(),
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "cannot renew the certificates; trying again soon")
            }
        }
    }
}

/// Whom the certificate of an API server that listens on these addresses is for.
pub fn server_names(listening: &[IpAddr]) -> Names {
    let mut dns: Vec<String> = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    ]
    .map(String::from)
    .to_vec();
    dns.extend(host_name());
    let mut addresses = vec![Ipv4Addr::LOCALHOST.into(), SERVICE_ADDRESS];
    for address in listening {
        if address.is_unspecified() {
            addresses.push(Ipv6Addr::LOCALHOST.into());
            addresses.extend(outward_address());
        } else if !addresses.contains(address) {
            addresses.push(*address);
        }
    }
    Names { dns, addresses }
}

/// The address by which this machine speaks to others. Nothing is sent to find out.
pub fn outward_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(ELSEWHERE).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

pub fn host_name() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned())
}
