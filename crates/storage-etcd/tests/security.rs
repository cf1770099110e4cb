//! TLS with client certificates, and etcd's users.

mod harness;

use std::{fs, path::PathBuf, time::Duration};

use harness::{changes, committed, open, options, put};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use storage::{Error, Store};
use storage_etcd::{
    Credentials, Options, Tls,
    testing::{Server, etcd_is_installed},
};

const IMPATIENT: Duration = Duration::from_millis(500);

/// A certificate authority and what it signed, as files.
struct Certificates {
    folder: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Certificates {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("params");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("key")).expect("authority");
        fs::write(folder.path().join("ca.pem"), authority.pem()).expect("write");
        Self { folder, authority }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The certificate and key files of a new identity.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("key");
        let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).expect("params");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.authority).expect("certificate");
        let (certificate_file, key_file) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}-key.pem")));
        fs::write(&certificate_file, certificate.pem()).expect("write");
        fs::write(&key_file, key.serialize_pem()).expect("write");
        (certificate_file, key_file)
    }
}

#[tokio::test]
async fn tls_proves_both_sides() {
    if !etcd_is_installed() {
        return;
    }
    let (ours, others) = (Certificates::new(), Certificates::new());
    let (certificate, key) = ours.sign("server");
    let ca = ours.path("ca.pem");
    let text = |path: &PathBuf| path.display().to_string();
    let arguments = [text(&certificate), text(&key), text(&ca)];
    let server = Server::start_with_tls(&[
        "--cert-file",
        &arguments[0],
        "--key-file",
        &arguments[1],
        "--trusted-ca-file",
        &arguments[2],
        "--client-cert-auth",
    ])
    .await
    .expect("etcd starts");
    let (certificate, key) = ours.sign("client");
    let address = format!(
        "etcd://{}/ferry?ca={}&cert={}&key={}",
        server.endpoint(),
        ca.display(),
        certificate.display(),
        key.display()
    );
    let store = open(address.parse().expect("a valid address"));
    let revision = committed(&*store, put("/a", "1")).await;
    let mut watch = store.watch("/", storage::Revision(revision.0 - 1)).await.expect("watch");
    assert_eq!(changes(&mut watch).await.expect("event").0, revision);

    let with = |tls: Tls| Options { tls: Some(tls), patience: IMPATIENT, ..options(&[&server]) };
    let strangers = with(Tls { ca: ca.clone(), identity: Some(others.sign("stranger")) });
    let nobody = with(Tls { ca, identity: None });
    let wrong_server = with(Tls { ca: others.path("ca.pem"), identity: Some((certificate, key)) });
    let plain = Options { tls: None, ..nobody.clone() };
    for options in [strangers, nobody, wrong_server, plain] {
        let answer = open(options.clone()).get("/a", None).await;
        assert!(matches!(answer, Err(Error::Unavailable(_))), "{options:?}: {answer:?}");
    }
    let missing = with(Tls { ca: "missing.pem".into(), identity: None });
    assert!(storage_etcd::Etcd::open(missing).err().expect("no such file").to_string().contains("missing.pem"));
}

#[tokio::test]
async fn users_log_in_and_stay_in_across_restarts() {
    if !etcd_is_installed() {
        return;
    }
    let mut server = Server::start(&[]).await.expect("etcd starts");
    let login = |user: &str, password: &str| Options {
        credentials: Some(Credentials { user: user.into(), password: password.into() }),
        patience: Duration::from_secs(10),
        ..options(&[&server])
    };
    // Credentials do no harm where etcd wants none, and serve once it does.
    let store = open(login("ferry", "secret"));
    let first = committed(&*store, put("/a", "1")).await;
    let mut watch = store.watch("/", first).await.expect("watch");
    let prefix = r#""key":"L2ZlcnJ5","range_end":"L2ZlcnJ6""#; // "/ferry" and "/ferrz"
    for (path, body) in [
        ("/v3/auth/user/add", r#"{"name":"root","password":"root"}"#.to_owned()),
        ("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#.into()),
        ("/v3/auth/user/add", r#"{"name":"ferry","password":"secret"}"#.into()),
        ("/v3/auth/role/add", r#"{"name":"ferry"}"#.into()),
        ("/v3/auth/role/grant", format!(r#"{{"name":"ferry","perm":{{"permType":"READWRITE",{prefix}}}}}"#)),
        ("/v3/auth/user/grant", r#"{"user":"ferry","role":"ferry"}"#.into()),
        ("/v3/auth/enable", "{}".into()),
    ] {
        server.post(path, &body).await.expect("the user is set up");
    }
    let second = committed(&*store, put("/a", "2")).await;
    assert_eq!(changes(&mut watch).await.expect("event").0, second);

    let outside = open(Options { prefix: "/other".into(), ..login("ferry", "secret") });
    let refusals = [
        (outside.get("/a", None).await.err(), "permission denied"),
        (open(login("ferry", "wrong")).get("/a", None).await.err(), "invalid user ID or password"),
        (open(options(&[&server])).get("/a", None).await.err(), "user name is empty"),
    ];
    for (refused, reason) in refusals {
        let refused = refused.expect("refused").to_string();
        assert!(refused.contains(reason), "{refused}");
    }
    let mut denied = outside.watch("/", second).await.expect("watch");
    assert!(matches!(denied.next().await, Some(Err(Error::Unavailable(_)))));

    // etcd keeps its tokens in memory: after a restart all of them are unknown.
    server.kill();
    server.restart().await.expect("etcd starts again");
    let third = committed(&*store, put("/a", "3")).await;
    assert_eq!(changes(&mut watch).await.expect("event").0, third);
}
