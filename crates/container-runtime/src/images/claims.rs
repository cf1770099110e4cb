//! Claims to content by those who are about to record an image that has it. Content is removed when no image has it and nobody claims
//! it: whichever ends last, the last image or the last claim.

use std::sync::Arc;

use super::{ImageStore, content::Digest};
use crate::runtime::locked;

pub struct Claim<'a> {
    store: &'a ImageStore,
    digests: Vec<Digest>,
}

impl ImageStore {
    /// Keeps content, also what is not here yet, until the claim is dropped.
    pub fn claim(&self, digests: Vec<Digest>) -> Claim<'_> {
        let mut claims = locked(&self.claims);
        for digest in &digests {
            *claims.entry(digest.clone()).or_default() += 1;
        }
        Claim { store: self, digests }
    }
}

impl Claim<'_> {
    /// Claims one more.
    pub fn add(&mut self, digest: Digest) {
        *locked(&self.store.claims).entry(digest.clone()).or_default() += 1;
        self.digests.push(digest);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let images: Vec<Arc<super::ImageRecord>> = self.store.all();
        let mut claims = locked(&self.store.claims);
        for digest in &self.digests {
            if let Some(count) = claims.get_mut(digest) {
                *count -= 1;
                if *count > 0 {
                    continue;
                }
            }
            claims.remove(digest);
            let is_used = images.iter().any(|image| image.content().any(|used| used == *digest));
            if !is_used && let Err(error) = self.store.content.remove(digest) {
                tracing::warn!(%digest, %error, "content that nobody uses cannot be removed");
            }
        }
    }
}
