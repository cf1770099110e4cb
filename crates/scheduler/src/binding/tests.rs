use std::sync::{Arc, Mutex};

use futures::{FutureExt, future::BoxFuture};
use serde_json::json;

use super::*;
use crate::{
    fixtures::{framework, pod},
    framework::{Bind, Event, Permit, Plugin, PostBind, PreBind, Rejection, Reserve, Step},
};

const NAME: &str = "Noting";

/// Notes what it is asked, and refuses one thing.
#[derive(Default)]
struct Noting {
    asked: Mutex<Vec<String>>,
    refuses: &'static str,
}

impl Noting {
    fn note(&self, what: &str, pod: &PodInfo, node: &str) -> Result<(), Rejection> {
        self.asked.lock().expect("nobody panicked").push(format!("{what} {} {node}", pod.uid));
        if what == self.refuses { Err(Rejection::for_now(NAME, "not now")) } else { Ok(()) }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("nobody panicked").clone()
    }
}

impl Plugin for Noting {
    fn name(&self) -> &'static str {
        NAME
    }

    fn helps(&self, _event: &Event<'_>, _pod: &PodInfo) -> bool {
        false
    }
}

impl Reserve for Noting {
    fn reserve(&self, pod: &PodInfo, node: &str) -> Result<(), Rejection> {
        self.note("reserve", pod, node)
    }

    fn unreserve(&self, pod: &PodInfo, node: &str) {
        let _ = self.note("unreserve", pod, node);
    }
}

impl Permit for Noting {
    fn permit<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> BoxFuture<'a, Result<(), Rejection>> {
        async move { self.note("permit", pod, node) }.boxed()
    }
}

impl PreBind for Noting {
    fn pre_bind<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> Step<'a> {
        async move { self.note("prepare", pod, node).map_err(BindError::Rejected) }.boxed()
    }
}

impl Bind for Noting {
    fn bind<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> Step<'a> {
        async move { self.note("bind", pod, node).map_err(BindError::Rejected) }.boxed()
    }
}

impl PostBind for Noting {
    fn post_bind(&self, pod: &PodInfo, node: &str) {
        let _ = self.note("bound", pod, node);
    }
}

fn with(noting: &Arc<Noting>) -> Framework {
    Framework {
        reserve: vec![noting.clone()],
        permit: vec![noting.clone()],
        pre_bind: vec![noting.clone()],
        bind: noting.clone(),
        post_bind: vec![noting.clone()],
        ..framework()
    }
}

#[tokio::test]
async fn everybody_is_asked_in_order_until_one_refuses() {
    let cases: [(&str, &[&str]); 4] = [
        ("", &["permit web one", "prepare web one", "bind web one", "bound web one"]),
        ("bind", &["permit web one", "prepare web one", "bind web one"]),
        ("prepare", &["permit web one", "prepare web one"]),
        ("permit", &["permit web one"]),
    ];
    for (refuses, asked) in cases {
        let noting = Arc::new(Noting { refuses, ..Noting::default() });
        let ended = bind(&with(&noting), &pod("web", json!({})), "one").await;
        assert_eq!(ended.is_ok(), refuses.is_empty());
        assert_eq!(noting.asked(), asked);
    }
}

#[test]
fn what_was_reserved_is_given_back_when_another_refuses() {
    let (willing, refusing) =
        (Arc::new(Noting::default()), Arc::new(Noting { refuses: "reserve", ..Noting::default() }));
    let framework = Framework { reserve: vec![willing.clone(), refusing], ..framework() };
    assert!(framework.reserve(&pod("web", json!({})), "one").is_err());
    assert_eq!(willing.asked(), ["reserve web one", "unreserve web one"]);
}
