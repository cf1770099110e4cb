//! Figures in Prometheus' text format, under Kubernetes' names.

use std::fmt::Write;

use container_runtime::services::{ContainerFilter, ContainerState, ContainerStats, PodSandboxFilter, PodSandboxState};
use hyper::StatusCode;

use super::{
    Server,
    answer::{Answer, Content, text, with_type},
    figures::{Node, by_pod},
};
use crate::configuration::{labels, machine::Machine, resources::amount};

/// The text that is written so far.
#[derive(Default)]
struct Page(String);

impl Page {
    fn describe(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to text does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        if !labels.is_empty() {
            let each: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let _ = write!(self.0, "{{{}}}", each.join(","));
        }
        let _ = writeln!(self.0, " {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.describe(name, kind, help);
        self.value(name, &[], value);
    }

    fn answer(self) -> Answer {
        with_type(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", Content::from(self.0))
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Of the agent itself.
pub(super) async fn agent(server: &Server) -> Answer {
    let runtime = &server.settings.runtime;
    let ready = PodSandboxFilter { state: Some(PodSandboxState::Ready), ..PodSandboxFilter::default() };
    let (pods, containers) =
        (runtime.list_pod_sandbox(&ready).await, runtime.list_containers(&ContainerFilter::default()).await);
    let (pods, containers) = match (pods, containers) {
        (Ok(pods), Ok(containers)) => (pods, containers),
        (Err(error), _) | (_, Err(error)) => return text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    };
    let mut page = Page::default();
    page.describe("kubelet_node_name", "gauge", "The node's name. The count is always 1.");
    page.value("kubelet_node_name", &[("node", &server.settings.node_name)], 1.0);
    page.one("kubelet_running_pods", "gauge", "Number of pods that have a running pod sandbox", pods.len() as f64);
    page.describe("kubelet_running_containers", "gauge", "Number of containers by state");
    for (state, name) in [
        (ContainerState::Created, "created"),
        (ContainerState::Running, "running"),
        (ContainerState::Exited, "exited"),
        (ContainerState::Unknown, "unknown"),
    ] {
        let count = containers.iter().filter(|container| container.state == state).count();
        page.value("kubelet_running_containers", &[("container_state", name)], count as f64);
    }
    page.answer()
}

/// What schedules by use goes by: nodes, pods and containers.
pub(super) async fn resource(server: &Server) -> Answer {
    let all = match server.settings.runtime.list_container_stats(&ContainerFilter::default()).await {
        Ok(all) => all,
        Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    };
    let (mut page, node) = (Page::default(), Node::look());
    let cpu = "Cumulative cpu time consumed by the";
    let memory = "Current working set of the";
    page.describe("container_cpu_usage_seconds_total", "counter", &format!("{cpu} container in core-seconds"));
    for one in &all {
        let value = seconds(one.usage.cpu_usage_core_nano_seconds);
        page.value("container_cpu_usage_seconds_total", &names(one), value);
    }
    page.describe("container_memory_working_set_bytes", "gauge", &format!("{memory} container in bytes"));
    for one in &all {
        page.value("container_memory_working_set_bytes", &names(one), one.usage.memory_working_set_bytes as f64);
    }
    page.one(
        "node_cpu_usage_seconds_total",
        "counter",
        &format!("{cpu} node in core-seconds"),
        seconds(node.cpu_nanos),
    );
    page.one("node_memory_working_set_bytes", "gauge", &format!("{memory} node in bytes"), node.working_set() as f64);
    let pods = by_pod(&all);
    page.describe("pod_cpu_usage_seconds_total", "counter", &format!("{cpu} pod in core-seconds"));
    for containers in pods.values() {
        let used = containers.iter().map(|one| one.usage.cpu_usage_core_nano_seconds).sum();
        page.value("pod_cpu_usage_seconds_total", &pod_names(containers), seconds(used));
    }
    page.describe("pod_memory_working_set_bytes", "gauge", &format!("{memory} pod in bytes"));
    for containers in pods.values() {
        let used: u64 = containers.iter().map(|one| one.usage.memory_working_set_bytes).sum();
        page.value("pod_memory_working_set_bytes", &pod_names(containers), used as f64);
    }
    let help = "1 if there was an error while getting container metrics, 0 otherwise";
    page.one("resource_scrape_error", "gauge", help, 0.0);
    page.answer()
}

/// Those of cAdvisor that dashboards begin with.
pub(super) async fn containers(server: &Server) -> Answer {
    let all = match server.settings.runtime.list_container_stats(&ContainerFilter::default()).await {
        Ok(all) => all,
        Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    };
    let (machine, mut page) = (Machine::look(&server.settings.root), Page::default());
    let cores = amount(Some(&machine.allocatable), "cpu").map_or(0.0, |cpu| cpu.as_f64());
    page.one("machine_cpu_cores", "gauge", "Number of logical CPU cores.", cores);
    page.one("machine_memory_bytes", "gauge", "Amount of memory installed on the machine.", machine.memory as f64);
    type Of = fn(&ContainerStats) -> f64;
    let kinds: [(&str, &str, &str, Of); 5] = [
        ("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.", |one| {
            seconds(one.usage.cpu_usage_core_nano_seconds)
        }),
        ("container_memory_usage_bytes", "gauge", "Current memory usage in bytes.", |one| {
            one.usage.memory_usage_bytes as f64
        }),
        ("container_memory_working_set_bytes", "gauge", "Current working set in bytes.", |one| {
            one.usage.memory_working_set_bytes as f64
        }),
        ("container_memory_rss", "gauge", "Size of RSS in bytes.", |one| one.usage.memory_rss_bytes as f64),
        ("container_processes", "gauge", "Number of processes running inside the container.", |one| {
            one.usage.process_count as f64
        }),
    ];
    for (name, kind, help, of) in kinds {
        page.describe(name, kind, help);
        for one in &all {
            let mut labels = vec![("id", one.id.as_str())];
            labels.extend(names(one));
            page.value(name, &labels, of(one));
        }
    }
    page.answer()
}

fn label<'a>(stats: &'a ContainerStats, name: &str) -> &'a str {
    stats.labels.get(name).map_or("", String::as_str)
}

fn names(stats: &ContainerStats) -> [(&'static str, &str); 3] {
    [
        ("container", &stats.metadata.name),
        ("namespace", label(stats, labels::POD_NAMESPACE)),
        ("pod", label(stats, labels::POD_NAME)),
    ]
}

fn pod_names<'a>(containers: &[&'a ContainerStats]) -> Vec<(&'static str, &'a str)> {
    let first = containers.first();
    first.map_or(Vec::new(), |stats| {
        vec![("namespace", label(stats, labels::POD_NAMESPACE)), ("pod", label(stats, labels::POD_NAME))]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_with_their_labels() {
        let mut page = Page::default();
        page.describe("a", "gauge", "What it is");
        page.value("a", &[("x", "quo\"te"), ("y", "1")], 2.5);
        page.value("a", &[], 3.0);
        assert_eq!(page.0, "# HELP a What it is\n# TYPE a gauge\na{x=\"quo\\\"te\",y=\"1\"} 2.5\na 3\n");
    }
}
