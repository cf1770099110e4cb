//! HTTP/1.1 over TLS with as little work as possible: requests are bytes made beforehand, answers are counted and thrown
//! away.

use std::{io, sync::Arc};

use anyhow::{Context, bail, ensure};
use memchr::memmem;
use rustls::ClientConfig;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::kubeconfig::Cluster;

const BUFFER: usize = 64 << 10;

pub struct Connection {
    stream: TlsStream<TcpStream>,
    /// What was read and not yet taken is at `from..to`.
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
}

/// How the end of an answer is known.
#[derive(Clone, Copy)]
enum Length {
    Bytes(usize),
    Chunked,
}

impl Connection {
    pub async fn open(cluster: &Cluster) -> anyhow::Result<Self> {
        Self::with(cluster, &cluster.tls).await
    }

    /// Without a certificate, for those who come with a token.
    pub async fn open_as_nobody(cluster: &Cluster) -> anyhow::Result<Self> {
        Self::with(cluster, &cluster.tls_of_nobody).await
    }

    async fn with(cluster: &Cluster, tls: &Arc<ClientConfig>) -> anyhow::Result<Self> {
        let tcp = TcpStream::connect(cluster.address).await?;
        tcp.set_nodelay(true)?;
        let stream = TlsConnector::from(tls.clone()).connect(cluster.name.clone(), tcp).await?;
        Ok(Self { stream, buffer: vec![0; BUFFER].into(), from: 0, to: 0 })
    }

    /// Sends a request and reads its answer to the end; returns its size. Other codes than `code` are errors.
    pub async fn exchange(&mut self, request: &[u8], code: u16) -> anyhow::Result<usize> {
        let mut bytes = 0;
        self.stream(request, code, |chunk| bytes += chunk.len()).await?;
        Ok(bytes)
    }

    /// Sends a request and reads its answer, whatever it is.
    pub async fn ask(&mut self, request: &[u8]) -> anyhow::Result<(u16, Vec<u8>)> {
        self.keep(request, usize::MAX).await
    }

    /// As [`Connection::ask`], but of a long answer only the beginning is kept.
    pub async fn outcome(&mut self, request: &[u8]) -> anyhow::Result<(u16, Vec<u8>)> {
        self.keep(request, 512).await
    }

    async fn keep(&mut self, request: &[u8], at_most: usize) -> anyhow::Result<(u16, Vec<u8>)> {
        let mut kept = Vec::new();
        let (code, length) = self.send(request).await?;
        self.body(length, |chunk| {
            let room = at_most.saturating_sub(kept.len());
            kept.extend_from_slice(&chunk[..chunk.len().min(room)]);
        })
        .await?;
        Ok((code, kept))
    }

    async fn send(&mut self, request: &[u8]) -> anyhow::Result<(u16, Length)> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.head().await
    }

    /// Sends a request and hands its answer on as it comes, for as long as it lasts.
    pub async fn stream(&mut self, request: &[u8], code: u16, take: impl FnMut(&[u8])) -> anyhow::Result<()> {
        let (got, length) = self.send(request).await?;
        if got != code {
            let mut text = Vec::new();
            self.body(length, |chunk| text.extend_from_slice(chunk)).await?;
            bail!("the server answered {got} instead of {code}: {}", String::from_utf8_lossy(&text));
        }
        self.body(length, take).await
    }

    async fn body(&mut self, length: Length, mut take: impl FnMut(&[u8])) -> anyhow::Result<()> {
        match length {
            Length::Bytes(count) => self.pass(count, &mut take).await,
            Length::Chunked => loop {
                let size = self.line().await?;
                let size = size.split(|b| *b == b';').next().unwrap_or_default();
                let size = std::str::from_utf8(size).ok().and_then(|s| usize::from_str_radix(s.trim(), 16).ok());
                let size = size.context("a chunk without a size")?;
                self.pass(size, &mut take).await?;
                ensure!(self.line().await?.is_empty(), "a chunk longer than it says");
                if size == 0 {
                    return Ok(());
                }
            },
        }
    }

    async fn head(&mut self) -> anyhow::Result<(u16, Length)> {
        let end = loop {
            if let Some(end) = memmem::find(&self.buffer[self.from..self.to], b"\r\n\r\n") {
                break end;
            }
            self.fill().await?;
        };
        let head = std::str::from_utf8(&self.buffer[self.from..self.from + end])?;
        self.from += end + 4;
        let mut lines = head.split("\r\n");
        let code = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).context("not HTTP/1.1")?;
        let mut length = Length::Bytes(0);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                length = Length::Bytes(value.trim().parse()?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                length = Length::Chunked;
            }
        }
        Ok((code, length))
    }

    /// The next line, without its end.
    async fn line(&mut self) -> anyhow::Result<Vec<u8>> {
        loop {
            if let Some(end) = memmem::find(&self.buffer[self.from..self.to], b"\r\n") {
                let line = self.buffer[self.from..self.from + end].to_vec();
                self.from += end + 2;
                return Ok(line);
            }
            self.fill().await?;
        }
    }

    async fn pass(&mut self, mut count: usize, take: &mut impl FnMut(&[u8])) -> anyhow::Result<()> {
        while count > 0 {
            if self.from == self.to {
                self.fill().await?;
            }
            let part = count.min(self.to - self.from);
            take(&self.buffer[self.from..self.from + part]);
            self.from += part;
            count -= part;
        }
        Ok(())
    }

    async fn fill(&mut self) -> anyhow::Result<()> {
        if self.from > 0 {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        ensure!(self.to < self.buffer.len(), "a header of more than {BUFFER} bytes");
        match self.stream.read(&mut self.buffer[self.to..]).await? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            read => {
                self.to += read;
                Ok(())
            }
        }
    }
}
