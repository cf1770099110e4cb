use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use hyper::{Response, body::Incoming, service::service_fn};
use hyper_util::{rt::TokioIo, server::conn::auto};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::serving::{
    ServerCertificate,
    authority::{Authority, Names},
    server_config,
};

/// A server over TLS that says who it was asked by and what it was sent.
async fn server(folder: &std::path::Path) -> (SocketAddr, Authority) {
    let authority = Authority::open(folder).expect("an authority");
    let names = Names { dns: vec!["peer.example".into()], addresses: vec!["127.0.0.1".parse().expect("an address")] };
    let certificate = Arc::new(ServerCertificate::new(&authority, &names).expect("a certificate"));
    let acceptor = TlsAcceptor::from(Arc::new(server_config(certificate).expect("settings")));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let Ok(tls) = acceptor.accept(tcp).await else { continue };
            tokio::spawn(async move {
                let service = service_fn(answer);
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(tls), service).await;
            });
        }
    });
    (address, authority)
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    if head.uri.path() == "/slow" {
        std::future::pending::<()>().await;
    }
    let who = head.headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()).unwrap_or("nobody").to_owned();
    let sent = body.collect().await.map(|all| all.to_bytes()).unwrap_or_default();
    let text = format!("{} {} {who} {}", head.method, head.uri.path(), String::from_utf8_lossy(&sent));
    Ok(Response::new(Full::new(text.into())))
}

fn write(folder: &std::path::Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

#[tokio::test]
async fn a_peer_of_a_kubeconfig() {
    let folder = tempfile::tempdir().expect("a folder");
    let (address, _authority) = server(folder.path()).await;
    write(folder.path(), "token", "secret\n");
    let config = write(
        folder.path(),
        "config",
        &format!(
            "current-context: a\nclusters:\n- name: c\n  cluster: {{server: 'https://{address}/base', \
             certificate-authority: ca.crt}}\nusers:\n- name: u\n  user: {{tokenFile: token}}\ncontexts:\n- name: a\n  \
             context: {{cluster: c, user: u}}\n"
        ),
    );
    let peer = Peer::from_kubeconfig(&config).expect("a peer");
    let client = Client::new(&peer, Duration::from_secs(10)).expect("a client");
    let said = client.post_json("/review", "{}").await.expect("an answer");
    assert_eq!(said.body, "POST /base/review Bearer secret {}");
    // Tokens are replaced in place.
    write(folder.path(), "token", "newer");
    assert_eq!(client.get("").await.expect("an answer").body, "GET /base Bearer newer ");
}

#[tokio::test]
async fn strangers_are_not_believed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (address, authority) = server(folder.path()).await;
    let url = format!("https://{address}");
    let limit = Duration::from_secs(10);
    let unknown = Client::new(&Peer::new(&url, None), limit).expect("a client").get("/").await;
    assert!(matches!(unknown, Err(Error::Unreachable { .. })), "{unknown:?}");
    let trusted = Peer::new(&url, Some(authority.certificate_pem().into()));
    let misnamed = Peer { server_name: Some("other.example".into()), ..trusted.clone() };
    assert!(Client::new(&misnamed, limit).expect("a client").get("/").await.is_err());
    let named = Peer { server_name: Some("peer.example".into()), ..trusted.clone() };
    assert!(Client::new(&named, limit).expect("a client").get("/").await.is_ok());
    let anybody = Peer { trust: Trust::Anybody, ..trusted.clone() };
    assert!(Client::new(&anybody, limit).expect("a client").get("/").await.is_ok());
    let impatient = Client::new(&trusted, Duration::from_millis(50)).expect("a client").get("/slow").await;
    assert!(matches!(impatient, Err(Error::TooSlow { .. })), "{impatient:?}");
}

#[test]
fn what_cannot_be_used_is_told_at_once() {
    for (peer, what) in [
        (Peer::new("ftp://x", None), "ftp://x"),
        (Peer::new("nothing", None), "nothing"),
        (Peer::new("https://x", Some(b"no certificate".to_vec())), "the certificate authority"),
    ] {
        let Err(error) = Client::new(&peer, IDLE) else { panic!("{what} is usable") };
        assert!(error.to_string().contains(what), "{error}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let exec = write(
        folder.path(),
        "exec",
        "clusters: [{name: c, cluster: {server: 'https://x'}}]\nusers: [{name: u, user: {exec: {command: x}}}]\n",
    );
    assert!(Peer::from_kubeconfig(&exec).expect_err("unusable").to_string().contains("exec is not supported"));
}
