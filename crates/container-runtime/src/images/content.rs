//! Content by digest: files that are written once and never changed.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::state::{hex, new_id};

/// `sha256:` and sixty-four hexadecimal digits; nothing else can become a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    pub fn parse(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("sha256:").unwrap_or_default();
        if digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("{text:?} is not a sha256 digest"))
    }

    pub fn of(bytes: &[u8]) -> Self {
        Self::from_hash(ring::digest::digest(&SHA256, bytes).as_ref())
    }

    fn from_hash(hash: &[u8]) -> Self {
        Self(format!("sha256:{}", hex(hash)))
    }

    pub fn hex(&self) -> &str {
        self.0.trim_start_matches("sha256:")
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

/// Reads through, and knows the digest of what was read.
pub(crate) struct Hashing<R> {
    inner: R,
    context: Context,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, context: Context::new(&SHA256) }
    }

    /// The digest of everything, including what nobody has read yet.
    pub(crate) fn finish(mut self) -> io::Result<Digest> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(Digest::from_hash(self.context.finish().as_ref()))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.context.update(buffer.get(..length).unwrap_or_default());
        Ok(length)
    }
}

pub struct ContentStore {
    blobs: PathBuf,
    incoming: PathBuf,
}

impl ContentStore {
    pub fn open(folder: &Path) -> io::Result<Self> {
        let (blobs, incoming) = (folder.join("sha256"), folder.join("incoming"));
        fs::create_dir_all(&blobs)?;
        // What was being written when a runtime ended is of no use to the next.
        if incoming.exists() {
            fs::remove_dir_all(&incoming)?;
        }
        fs::create_dir(&incoming)?;
        Ok(Self { blobs, incoming })
    }

    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.blobs.join(digest.hex())
    }

    /// Everything that is stored.
    pub fn all(&self) -> io::Result<Vec<Digest>> {
        let names = crate::state::names(&self.blobs)?;
        Ok(names.iter().filter_map(|name| Digest::parse(&format!("sha256:{name}")).ok()).collect())
    }

    pub fn has(&self, digest: &Digest) -> bool {
        self.path(digest).exists()
    }

    pub fn size(&self, digest: &Digest) -> io::Result<u64> {
        Ok(fs::metadata(self.path(digest))?.len())
    }

    pub fn file(&self, digest: &Digest) -> io::Result<File> {
        File::open(self.path(digest))
    }

    pub fn read(&self, digest: &Digest) -> io::Result<Vec<u8>> {
        fs::read(self.path(digest))
    }

    /// Stores what a reader gives; durable when this returns.
    pub fn write(&self, mut source: impl Read) -> io::Result<Digest> {
        let mut incoming = self.begin()?;
        io::copy(&mut source, &mut incoming)?;
        incoming.store()
    }

    /// Begins to store something that comes in parts.
    pub fn begin(&self) -> io::Result<Incoming> {
        let temporary = self.incoming.join(new_id()?);
        let file = File::options().create_new(true).write(true).open(&temporary)?;
        Ok(Incoming { file, temporary, blobs: self.blobs.clone(), context: Context::new(&SHA256) })
    }

    pub fn remove(&self, digest: &Digest) -> io::Result<()> {
        match fs::remove_file(self.path(digest)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Content that is being written. Dropped before it is stored, it leaves nothing.
pub struct Incoming {
    file: File,
    temporary: PathBuf,
    blobs: PathBuf,
    context: Context,
}

impl Incoming {
    /// The digest of what has been written so far.
    pub fn digest(&self) -> Digest {
        Digest::from_hash(self.context.clone().finish().as_ref())
    }

    /// Makes it content; durable when this returns.
    pub fn store(self) -> io::Result<Digest> {
        self.file.sync_all()?;
        let digest = self.digest();
        fs::rename(&self.temporary, self.blobs.join(digest.hex()))?;
        Ok(digest)
    }
}

impl Write for Incoming {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.file.write(bytes)?;
        self.context.update(bytes.get(..length).unwrap_or_default());
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // Where it was stored, there is no such file any more.
        let _ = fs::remove_file(&self.temporary);
    }
}
