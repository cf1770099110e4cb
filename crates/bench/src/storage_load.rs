//! Durable puts from many writers, as an API server makes them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use storage::{Error, Store, Transaction};

/// About what a small Pod takes.
pub const VALUE_BYTES: usize = 1536;
pub const WRITERS: usize = 32;
/// Objects of one writer; each is written again and again.
const OBJECTS: usize = 100;

/// How many puts took how long.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    pub puts: u64,
    pub time: Duration,
}

impl Measured {
    pub fn add(&mut self, other: Self) {
        self.puts += other.puts;
        self.time += other.time;
    }

    pub fn per_second(&self) -> f64 {
        self.puts as f64 / self.time.as_secs_f64().max(f64::EPSILON)
    }
}

/// Every writer puts `each` values of [`VALUE_BYTES`], one after the other, each acknowledged before the next.
pub async fn durable_puts(store: Arc<dyn Store>, each: u64) -> Result<Measured, Error> {
    let begun = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for i in 0..each {
                    let key = format!("/registry/pods/bench-{writer}/pod-{}", i as usize % OBJECTS);
                    store.commit(Transaction::default().put(key, value(writer, i))).await?;
                }
                Ok::<_, Error>(())
            })
        })
        .collect();
    for writer in writers {
        writer.await.map_err(|panic| Error::Unavailable(panic.to_string()))??;
    }
    Ok(Measured { puts: each * WRITERS as u64, time: begun.elapsed() })
}

/// Bytes that differ from put to put and do not compress to nothing.
fn value(writer: usize, i: u64) -> Vec<u8> {
    let mut state = (writer as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ i;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..VALUE_BYTES).map(|_| next()).collect()
}
