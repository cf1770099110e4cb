//! The real kubectl, unmodified.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use testing::{TestServer, skipped};

use super::deployment;

pub struct Kubectl {
    pub server: TestServer,
    pub files: PathBuf,
}

impl Kubectl {
    /// None, loudly, where there is no kubectl.
    pub async fn new() -> Option<Self> {
        if Command::new("kubectl").arg("version").arg("--client").stdout(Stdio::null()).status().is_err() {
            skipped("kubectl is not on the PATH");
            return None;
        }
        let server = TestServer::embedded().await;
        let files = server.folder().to_owned();
        Some(Self { server, files })
    }

    /// kubectl with these arguments, which are separated by spaces.
    pub fn prepare(&self, arguments: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.server.kubeconfig()).args(arguments.split_whitespace());
        command.env("HOME", &self.files).env_remove("KUBECONFIG").current_dir(&self.files).stdin(Stdio::null());
        command
    }

    pub fn command(&self, arguments: &str) -> std::process::Output {
        self.prepare(arguments).output().expect("kubectl runs")
    }

    /// What it prints, if all is well.
    #[track_caller]
    pub fn run(&self, arguments: &str) -> String {
        let output = self.command(arguments);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "kubectl {arguments}\n{out}{err}");
        out.trim_end().to_owned()
    }

    /// What it says of what may be done, with a kubeconfig of somebody else.
    fn can_i(&self, kubeconfig: &Path, arguments: &str) -> String {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(kubeconfig).args(["auth", "can-i"]).args(arguments.split_whitespace());
        command.env("HOME", &self.files).env_remove("KUBECONFIG").current_dir(&self.files).stdin(Stdio::null());
        let output = command.output().expect("kubectl runs");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// What it complains of.
    #[track_caller]
    pub fn fails(&self, arguments: &str) -> String {
        let output = self.command(arguments);
        assert!(!output.status.success(), "kubectl {arguments} was expected to fail");
        String::from_utf8_lossy(&output.stderr).trim_end().to_owned()
    }

    pub fn write(&self, name: &str, object: &serde_json::Value) {
        std::fs::write(self.files.join(name), object.to_string()).expect("a file");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_with_kubectl() {
    let Some(kubectl) = Kubectl::new().await else { return };
    // kubectl asks OpenAPI whether the server checks fields; without it, it must be told not to check itself.
    let checks = kubectl.server.client().get("/openapi/v3").await.code == 200;
    let unchecked = if checks { "" } else { "--validate=false" };
    let k = |arguments: &str| kubectl.run(arguments);

    kubectl.write("d.json", &deployment("d"));
    assert_eq!(k(&format!("apply -f d.json {unchecked}")), "deployment.apps/d created");
    assert_eq!(k(&format!("apply -f d.json {unchecked}")), "deployment.apps/d unchanged");
    let mut changed = deployment("d");
    changed["spec"]["replicas"] = 4.into();
    kubectl.write("d.json", &changed);
    let diff = kubectl.command("diff -f d.json");
    assert_eq!(diff.status.code(), Some(1), "{}", String::from_utf8_lossy(&diff.stderr));
    assert!(String::from_utf8_lossy(&diff.stdout).contains("+  replicas: 4"));
    assert_eq!(k(&format!("apply -f d.json {unchecked}")), "deployment.apps/d configured");
    assert_eq!(k("get deployment d -o jsonpath={.spec.replicas}"), "4");

    kubectl.write("s.json", &deployment("s"));
    assert_eq!(k(&format!("apply --server-side -f s.json {unchecked}")), "deployment.apps/s serverside-applied");
    let conflict = {
        let mut taken = deployment("s");
        taken["spec"]["replicas"] = 9.into();
        kubectl.write("s.json", &taken);
        kubectl.fails(&format!("apply --server-side --field-manager=other -f s.json {unchecked}"))
    };
    assert!(conflict.contains("conflict with \"kubectl\"") && conflict.contains(".spec.replicas"), "{conflict}");

    assert_eq!(k("create configmap c --from-literal=a=1"), "configmap/c created");
    assert!(kubectl.fails("create configmap c --from-literal=a=1").contains("configmaps \"c\" already exists"));
    assert_eq!(k("create namespace n"), "namespace/n created");
    assert_eq!(k("label configmap c tier=web"), "configmap/c labeled");
    assert_eq!(k("annotate configmap c note=x"), "configmap/c annotated");
    assert_eq!(k("patch configmap c --type=merge -p {\"data\":{\"a\":\"2\"}}"), "configmap/c patched");
    assert_eq!(
        k("patch configmap c --type=json -p [{\"op\":\"add\",\"path\":\"/data/b\",\"value\":\"3\"}]"),
        "configmap/c patched"
    );
    assert_eq!(k("get configmap c -o jsonpath={.data}"), r#"{"a":"2","b":"3"}"#);
    assert_eq!(k("scale deployment d --replicas=6"), "deployment.apps/d scaled");
    assert_eq!(k("get deployment d -o jsonpath={.spec.replicas}"), "6");
    assert!(
        kubectl.fails("scale deployment d --current-replicas=2 --replicas=3").contains("Expected replicas to be 2")
    );
    kubectl.write("r.json", &deployment("d"));
    assert_eq!(k(&format!("replace -f r.json {unchecked}")), "deployment.apps/d replaced");
    assert_eq!(k("set image deployment/d c=registry.example/app:2"), "deployment.apps/d image updated");

    assert_eq!(k("wait --for=jsonpath={.data.a}=2 configmap/c --timeout=5s"), "configmap/c condition met");
    assert_eq!(k("delete configmap c"), "configmap \"c\" deleted");
    assert_eq!(k("wait --for=delete configmap/c --timeout=5s"), "");
    assert!(kubectl.fails("get configmap c").contains("configmaps \"c\" not found"));
    assert_eq!(k("delete deployment d --cascade=background"), "deployment.apps \"d\" deleted");
    assert_eq!(k("delete deployment s --cascade=orphan --wait=false"), "deployment.apps \"s\" deleted");
    assert_eq!(k("get deployment s -o jsonpath={.metadata.finalizers}"), r#"["orphan"]"#);
    k("create deployment f --image=registry.example/app:1");
    assert_eq!(k("delete deployment f --cascade=foreground --wait=false"), "deployment.apps \"f\" deleted");
    assert_eq!(k("get deployment f -o jsonpath={.metadata.finalizers}"), r#"["foregroundDeletion"]"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_with_kubectl() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let client = kubectl.server.client();
    client.post("/apis/apps/v1/namespaces/default/deployments", &deployment("d")).await.expect(201);
    let account = serde_json::json!({"metadata": {"name": "default"}});
    client.post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);
    let mut pod = super::pod("p");
    pod["spec"]["nodeName"] = "node-1".into();
    client.post("/api/v1/namespaces/default/pods", &pod).await.expect(201);
    let k = |arguments: &str| kubectl.run(arguments);
    let columns = |text: &str| -> Vec<Vec<String>> {
        text.lines()
            .map(|line| line.split("  ").map(str::trim).filter(|c| !c.is_empty()).map(String::from).collect())
            .collect()
    };

    let table = columns(&k("get pods"));
    assert_eq!(table[0], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert_eq!(table[1][..4], ["p", "0/1", "Pending", "0"]);
    let wide = columns(&k("get pods -o wide"));
    assert_eq!(wide[0][5..], ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]);
    assert_eq!(wide[1][6], "node-1");
    let table = columns(&k("get deployments -o wide"));
    assert_eq!(table[0], ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]);
    assert_eq!((&*table[1][1], &*table[1][7]), ("0/2", "app=d"));
    assert_eq!(k("get pods,deployments -o name"), "pod/p\ndeployment.apps/d");
    let json: serde_json::Value = serde_json::from_str(&k("get pod p -o json")).expect("JSON");
    assert_eq!((&json["kind"], &json["metadata"]["name"]), (&"Pod".into(), &"p".into()));
    assert!(k("get pods -o yaml").starts_with("apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod"));
    assert_eq!(
        k("get pods -o custom-columns=N:.metadata.name,I:.spec.containers[*].image")
            .split_whitespace()
            .collect::<Vec<_>>(),
        ["N", "I", "p", "registry.example/app:1"]
    );
    assert_eq!(k("get pods -A -l app=none"), "");
    assert_eq!(k("get pods --field-selector=spec.nodeName=node-1 -o name"), "pod/p");
    assert!(k("get namespaces").contains("kube-node-lease"));
    assert!(kubectl.fails("get wheels").contains("the server doesn't have a resource type \"wheels\""));
    assert_eq!(k("get --raw /livez"), "ok");

    let resources = k("api-resources --no-headers -o wide");
    for kind in ["Pod", "Deployment", "CronJob", "NetworkPolicy", "ClusterRole"] {
        assert!(resources.lines().any(|line| line.split_whitespace().any(|word| word == kind)), "{kind}");
    }
    assert!(k("api-versions").lines().any(|line| line == "networking.k8s.io/v1"));
    assert!(k("version").contains("Server Version: v1.36"));
    let described = k("describe pod p");
    assert!(described.contains("Node:") && described.contains("registry.example/app:1"), "{described}");
    assert!(k("describe deployment d").contains("2 desired"));
    assert!(k("describe namespace default").contains("Active"));
    assert!(k("rollout history deployment/d").contains("deployment.apps/d"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asks_what_may_be_done() {
    let Some(kubectl) = Kubectl::new().await else { return };
    kubectl.run("create namespace red");
    kubectl.run("create rolebinding admins --clusterrole=admin --user=ann -n red");
    kubectl.run("create clusterrole widgets --verb=get,list --resource=pods --resource-name=p");
    kubectl.run("create clusterrolebinding widgets --clusterrole=widgets --group=devs");
    kubectl.run("get rolebindings -A");
    let ann = kubectl.server.kubeconfig_of("ann", "devs");
    for (asked, answer) in [
        ("delete secrets -n red", "yes"),
        ("create rolebindings.rbac.authorization.k8s.io -n red", "yes"),
        ("delete secrets -n default", "no"),
        ("list nodes", "no"),
        ("get pods/p -n default", "yes"),
        ("get pods -n default", "no"),
        ("get pods --subresource=log -n red", "yes"),
        ("get /healthz", "yes"),
        ("get /metrics", "no"),
        ("* *", "no"),
    ] {
        let said = kubectl.can_i(&ann, asked);
        assert_eq!(said.lines().last().unwrap_or_default(), answer, "can-i {asked}: {said}");
    }
    let admin = kubectl.server.kubeconfig();
    assert_eq!(kubectl.can_i(&admin, "* *"), "yes");
    let listed = kubectl.can_i(&ann, "--list -n red");
    for line in ["selfsubjectaccessreviews.authorization.k8s.io", "secrets", "[/healthz]", "[p]"] {
        assert!(listed.contains(line), "{line} is not in\n{listed}");
    }
    assert!(!kubectl.can_i(&ann, "--list -n default").contains("secrets"));
    // An administrator asks for others.
    assert_eq!(kubectl.can_i(&admin, "delete secrets -n red --as ann"), "yes");
    assert_eq!(kubectl.can_i(&admin, "delete secrets -n default --as ann"), "no");
    assert_eq!(kubectl.can_i(&admin, "get pods/p -n default --as bob --as-group devs"), "yes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identities_with_kubectl() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let k = |arguments: &str| kubectl.run(arguments);
    k("create serviceaccount robot");
    let token = k("create token robot --duration=15m");
    assert_eq!(token.split('.').count(), 3);
    let me = k("auth whoami -o jsonpath={.status.userInfo.username}");
    assert_eq!(me, "ferry-admin");
    let robot = k("auth whoami --as=system:serviceaccount:default:robot -o jsonpath={.status.userInfo.groups}");
    assert_eq!(robot, r#"["system:serviceaccounts","system:serviceaccounts:default","system:authenticated"]"#);
    assert!(k("auth whoami").contains("Username") && k("auth whoami").contains("ferry-admin"));

    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "ada");
    let pem = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let request = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem);
    let spec = serde_json::json!({"request": request, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]});
    let object = serde_json::json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "ada"}, "spec": spec,
    });
    kubectl.write("csr.json", &object);
    k("create -f csr.json");
    assert!(k("get csr ada").contains("Pending"));
    assert_eq!(k("certificate approve ada"), "certificatesigningrequest.certificates.k8s.io/ada approved");
    k("wait --for=jsonpath={.status.certificate} csr/ada --timeout=30s");
    assert!(k("get csr ada").contains("Approved,Issued"));
}
