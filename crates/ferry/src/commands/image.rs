//! `ferry image`: the images of a node.
//!
//! While a cluster runs, its runtime is asked over its socket; otherwise the folder is opened here.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use container_runtime::{
    cri::wire::{self, FERRY, IMAGES},
    images::{Images, Reference},
    registry::{Progress, from_docker_config},
    services::AuthConfig,
};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::{
    runtime::{self, Client, human, short, table},
    up::default_data_dir,
};
use crate::running;

#[derive(Args)]
pub struct Image {
    /// The data folder of the cluster, or of one of its nodes
    #[arg(long, value_name = "FOLDER", global = true, default_value_os_t = default_data_dir())]
    data_dir: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the images
    Ls,
    /// Fetch an image from its registry
    Pull {
        image: String,
        #[command(flatten)]
        credentials: Credentials,
    },
    /// Send an image to a registry
    Push {
        image: String,
        /// The name to send it under, if not its own
        name: Option<String>,
        #[command(flatten)]
        credentials: Credentials,
    },
    /// Take the images of archives that `docker save` or another tool has written
    Import { archives: Vec<PathBuf> },
    /// Remove images that no container uses
    Rm { images: Vec<String> },
    /// Show all that is known of an image
    Inspect { image: String },
}

#[derive(Args)]
struct Credentials {
    /// Who to be to the registry: NAME:PASSWORD
    #[arg(long, value_name = "NAME:PASSWORD", conflicts_with = "authfile")]
    creds: Option<String>,
    /// A file with credentials, such as ~/.docker/config.json
    #[arg(long, value_name = "FILE")]
    authfile: Option<PathBuf>,
}

impl Credentials {
    fn of(&self, image: &str) -> anyhow::Result<Option<AuthConfig>> {
        if let Some(pair) = &self.creds {
            let (name, password) = pair.split_once(':').context("--creds is not NAME:PASSWORD")?;
            return Ok(Some(AuthConfig { username: name.into(), password: password.into(), ..Default::default() }));
        }
        match &self.authfile {
            Some(file) => Ok(from_docker_config(file, &Reference::parse(image)?.registry)?),
            None => Ok(None),
        }
    }
}

/// Where the images are.
enum Store {
    Running(Client),
    Here(Images),
}

impl Image {
    pub fn run(self) -> anyhow::Result<()> {
        runtime::block_on(async {
            let store = match runtime::connect(&self.data_dir).await? {
                Some(client) => Store::Running(client),
                None => {
                    let folder = self.data_dir.display();
                    ensure!(
                        running::process(&self.data_dir)?.is_none(),
                        "the cluster in {folder} has no node, or not yet\nhint: if it is starting, try again in a moment"
                    );
                    let root = runtime::root(&self.data_dir);
                    let images = Images::open(&root, root.join("registries.yaml"));
                    Store::Here(images.with_context(|| format!("cannot open the images in {}", root.display()))?)
                }
            };
            store.perform(self.verb).await
        })
    }
}

impl Store {
    async fn perform(&self, verb: Verb) -> anyhow::Result<()> {
        match verb {
            Verb::Ls => {
                let mut rows = Vec::new();
                for image in self.list().await? {
                    let id = short(&image.id);
                    let names = if image.repo_tags.is_empty() { vec!["<none>".into()] } else { image.repo_tags };
                    rows.extend(names.into_iter().map(|name| [name, id.clone(), human(image.size)]));
                }
                table(&["IMAGE", "ID", "SIZE"], &rows)
            }
            Verb::Pull { image, credentials } => {
                let auth = credentials.of(&image)?;
                let id = self.transfer("Pull", &image, "", auth).await?;
                say(&id)
            }
            Verb::Push { image, name, credentials } => {
                let name = name.unwrap_or_else(|| image.clone());
                let auth = credentials.of(&name)?;
                let digest = self.transfer("Push", &image, &name, auth).await?;
                say(&digest)
            }
            Verb::Import { archives } => {
                ensure!(!archives.is_empty(), "which archive?");
                for archive in archives {
                    let path = std::path::absolute(&archive)?;
                    for id in self.import(path).await.with_context(|| archive.display().to_string())? {
                        let names = self.find(&id).await?.map(|image| image.repo_tags.join(" ")).unwrap_or_default();
                        say(&format!("{} {names}", short(&id)))?;
                    }
                }
                Ok(())
            }
            Verb::Rm { images } => {
                for name in images {
                    ensure!(self.find(&name).await?.is_some(), "image {name:?} is not here");
                    self.remove(&name).await.with_context(|| format!("cannot remove {name}"))?;
                }
                Ok(())
            }
            Verb::Inspect { image } => {
                let found = self.find(&image).await?;
                let found = found.with_context(|| format!("image {image:?} is not here"))?;
                say(&serde_json::to_string_pretty(&found)?)
            }
        }
    }

    async fn list(&self) -> anyhow::Result<Vec<wire::Image>> {
        Ok(match self {
            Self::Running(client) => {
                let all: wire::ListImagesResponse =
                    client.call(IMAGES, "ListImages", wire::ListImagesRequest::default()).await?;
                all.images
            }
            Self::Here(images) => images.all().iter().map(|image| image.summary.clone().into()).collect(),
        })
    }

    async fn find(&self, name: &str) -> anyhow::Result<Option<wire::Image>> {
        Ok(match self {
            Self::Running(client) => {
                let found: wire::ImageStatusResponse = client.call(IMAGES, "ImageStatus", request(name)).await?;
                found.image
            }
            Self::Here(images) => images.find(name).map(|image| image.summary.clone().into()),
        })
    }

    async fn remove(&self, name: &str) -> anyhow::Result<()> {
        match self {
            Self::Running(client) => {
                let _: wire::Empty = client.call(IMAGES, "RemoveImage", request(name)).await?;
            }
            Self::Here(images) => images.remove(name).await?,
        }
        Ok(())
    }

    async fn import(&self, path: PathBuf) -> anyhow::Result<Vec<String>> {
        Ok(match self {
            Self::Running(client) => {
                let path = path.to_string_lossy().into_owned();
                let done: wire::ImportResponse = client.call(FERRY, "Import", wire::ImportRequest { path }).await?;
                done.ids
            }
            Self::Here(images) => images.import(path).await?,
        })
    }

    /// Pulls or pushes, and shows how far it is.
    async fn transfer(
        &self,
        method: &str,
        image: &str,
        name: &str,
        auth: Option<AuthConfig>,
    ) -> anyhow::Result<String> {
        let bars = Arc::new(Bars::new());
        let client = match self {
            Self::Running(client) => client,
            Self::Here(images) => {
                let watcher = Some(Arc::new(move |progress| bars.show(progress)) as _);
                let done = match method {
                    "Push" => images.push(image, name, auth.as_ref(), watcher).await,
                    _ => images.pull(image, auth.as_ref(), watcher).await,
                };
                return Ok(done?);
            }
        };
        let request = wire::TransferRequest { image: image.into(), name: name.into(), auth: auth.map(Into::into) };
        let mut news = client.watch::<_, wire::Transfer>(FERRY, method, request).await?;
        while let Some(message) = news.message().await.map_err(|status| anyhow::anyhow!(status.message().to_owned()))? {
            if !message.result.is_empty() {
                return Ok(message.result);
            }
            bars.show(Progress { digest: message.digest, done: message.done, total: message.total });
        }
        bail!("the runtime has ended")
    }
}

fn request(name: &str) -> wire::ImageRequest {
    wire::ImageRequest { image: Some(wire::ImageSpec { image: name.into(), ..Default::default() }) }
}

fn say(line: &str) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{line}")?)
}

/// A bar for each layer on a terminal, a line for each that is done otherwise.
struct Bars {
    all: MultiProgress,
    known: Mutex<BTreeMap<String, ProgressBar>>,
}

impl Bars {
    fn new() -> Self {
        Self { all: MultiProgress::new(), known: Mutex::default() }
    }

    fn show(&self, progress: Progress) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = known.entry(progress.digest.clone()).or_insert_with(|| {
            let style = ProgressStyle::with_template("{prefix} {bar:30} {bytes:>10} of {total_bytes}");
            let bar = ProgressBar::new(progress.total).with_prefix(short(&progress.digest));
            let bar = style.map(|style| bar.clone().with_style(style)).unwrap_or(bar);
            if io::stderr().is_terminal() { self.all.add(bar) } else { bar }
        });
        if bar.is_finished() {
            return;
        }
        bar.set_position(progress.done);
        if progress.done < progress.total {
            return;
        }
        bar.abandon();
        if !io::stderr().is_terminal() {
            let _ = writeln!(io::stderr(), "{} {}", short(&progress.digest), human(progress.total));
        }
    }
}
