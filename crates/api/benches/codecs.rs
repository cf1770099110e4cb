//! How long it takes to get ready and to read and write an object: `cargo bench -p api`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use object_model::codec::canonical::canonicalise;
use object_model::codec::{json, protobuf};
use object_model::schema::table::Table;
use serde_json::json;

fn codecs(criterion: &mut Criterion) {
    criterion.bench_function("parse the table of types", |bench| {
        bench.iter(|| Table::parse(black_box(include_str!("../tables/types.txt"))).expect("the table"));
    });

    let schema = api::schemas::schema_of("", "v1", "Pod").expect("Pod");
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-5d78c9869d-abcde", "namespace": "default", "labels": {"app": "web", "tier": "front"},
            "creationTimestamp": "2026-01-01T00:00:00Z", "uid": "7f3c0a52-8f1d-4d66-9f4b-2f0c1d9e4a11"},
        "spec": {"nodeName": "node-1", "restartPolicy": "Always", "serviceAccountName": "default", "containers": [
            {"name": "web", "image": "nginx:1.27", "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "env": [{"name": "A", "value": "b"}, {"name": "C", "value": "d"}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", "emptyDir": {}}]},
        "status": {"phase": "Running", "podIP": "10.0.0.7", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}]}
    });
    canonicalise(&schema, &mut pod).expect("a pod");
    let text = json::to_vec(&pod);
    let wire = protobuf::to_vec(&schema, &pod).expect("a pod");

    criterion.bench_function("pod: read JSON", |b| b.iter(|| json::read(black_box(&text)).expect("a pod")));
    criterion.bench_function("pod: canonicalise", |b| {
        b.iter_batched(
            || pod.clone(),
            |mut pod| {
                canonicalise(&schema, &mut pod).expect("a pod");
                pod
            },
            criterion::BatchSize::SmallInput,
        );
    });
    criterion.bench_function("pod: write JSON", |b| b.iter(|| json::to_vec(black_box(&pod))));
    criterion.bench_function("pod: read protobuf", |b| {
        b.iter(|| protobuf::read(black_box(&wire), |_, _| Some(schema.clone())).expect("a pod"));
    });
    criterion.bench_function("pod: write protobuf", |b| {
        b.iter(|| protobuf::to_vec(&schema, black_box(&pod)).expect("a pod"));
    });
}

criterion_group!(benches, codecs);
criterion_main!(benches);
