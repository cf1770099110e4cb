//! Images made from one executable, so that pods run without any registry.
//!
//! An executable that is linked dynamically needs its interpreter and its libraries beside it, where it has them here. The
//! interpreter knows which they are: it is asked (as `ldd` does).

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;

use super::{ImageError, ImageStore, NewImage, archive::architecture, content::Incoming};

const FOLDERS: &[(&str, u32)] = &[("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("tmp", 0o1777), ("usr", 0o755)];

const FILES: &[(&str, &str)] = &[
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
    ("etc/group", "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n"),
    ("etc/nsswitch.conf", "hosts: files dns\n"),
];

impl ImageStore {
    /// One layer with the executable in /bin under the name of the image, links to it for its commands, what it is linked
    /// with, and what programs expect to find anywhere: users, groups, /tmp. The first command is what runs unless a container
    /// says otherwise.
    ///
    /// An image that was made from the same file already is left as it is.
    pub fn make(&self, name: &str, executable: &Path, commands: &[String]) -> Result<String, ImageError> {
        let file = File::open(executable)?;
        let metadata = file.metadata()?;
        let (dev, ino) = (metadata.dev(), metadata.ino());
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        let made_from = format!("{dev}:{ino}:{}:{changed:?} {commands:?}", metadata.len());
        if let Some(known) = self.find(name).filter(|image| image.made_from.as_deref() == Some(&made_from)) {
            return Ok(known.summary.id.clone());
        }
        let program = name.rsplit('/').next().unwrap_or(name).split([':', '@']).next().unwrap_or(name);
        let layer = self.layer(program, file, metadata.len(), &linked_with(executable)?, commands)?;
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "Env": ["PATH=/bin"],
                "Entrypoint": [format!("/bin/{program}")],
                "Cmd": commands.first().into_iter().collect::<Vec<_>>(),
            },
            "rootfs": { "type": "layers", "diff_ids": [layer] },
        });
        let config = self.content.write(config.to_string().as_bytes())?;
        let _claim = self.claim(vec![layer.clone(), config.clone()]);
        self.add(NewImage {
            config,
            layers: vec![layer],
            tags: vec![name.to_owned()],
            digests: Vec::new(),
            manifest: None,
            made_from: Some(made_from),
        })
    }

    fn layer(
        &self,
        program: &str,
        executable: File,
        size: u64,
        libraries: &[PathBuf],
        commands: &[String],
    ) -> Result<super::Digest, ImageError> {
        let mut layer = tar::Builder::new(self.content.begin()?);
        for (folder, mode) in FOLDERS {
            append_folder(&mut layer, Path::new(folder), *mode)?;
        }
        for folder in folders_above(libraries) {
            append_folder(&mut layer, &folder, 0o755)?;
        }
        layer.append_data(
            &mut header(tar::EntryType::Regular, 0o755, size),
            format!("bin/{program}"),
            executable.take(size),
        )?;
        for library in libraries {
            let file = File::open(library)?;
            let mut entry = header(tar::EntryType::Regular, 0o755, file.metadata()?.len());
            layer.append_data(&mut entry, library.strip_prefix("/").unwrap_or(library), file)?;
        }
        for command in commands.iter().filter(|command| *command != program) {
            let mut entry = header(tar::EntryType::Symlink, 0o777, 0);
            layer.append_link(&mut entry, format!("bin/{command}"), program)?;
        }
        for (path, text) in FILES {
            let mut entry = header(tar::EntryType::Regular, 0o644, text.len() as u64);
            layer.append_data(&mut entry, path, text.as_bytes())?;
        }
        Ok(layer.into_inner()?.store()?)
    }
}

fn append_folder(layer: &mut tar::Builder<Incoming>, folder: &Path, mode: u32) -> io::Result<()> {
    let mut entry = header(tar::EntryType::Directory, mode, 0);
    layer.append_data(&mut entry, folder.join(""), io::empty())
}

/// The same input makes the same image: no times, no owners.
fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// The folders that files are in, relative to the root, those above first.
fn folders_above(files: &[PathBuf]) -> BTreeSet<PathBuf> {
    let above =
        files.iter().flat_map(|file| file.ancestors().skip(1)).filter_map(|folder| folder.strip_prefix("/").ok());
    let is_new =
        |folder: &&Path| !folder.as_os_str().is_empty() && FOLDERS.iter().all(|(known, _)| Path::new(known) != *folder);
    above.filter(is_new).map(Path::to_owned).collect()
}

/// The interpreter and the libraries of an executable, as paths here; nothing for a static one.
fn linked_with(executable: &Path) -> Result<Vec<PathBuf>, ImageError> {
    let damaged = |error: String| ImageError::Damaged { what: executable.display().to_string(), error };
    let Some(interpreter) = interpreter(&File::open(executable)?).map_err(|error| damaged(error.to_string()))? else {
        return Ok(Vec::new());
    };
    // That link means another file to another process.
    let named = match executable.strip_prefix("/proc/self") {
        Ok(rest) => Path::new("/proc").join(std::process::id().to_string()).join(rest),
        Err(_) => std::path::absolute(executable)?,
    };
    let output = Command::new(&interpreter).arg("--list").arg(named).output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(damaged(format!("its libraries are not found: {error}")));
    }
    let mut paths: Vec<PathBuf> = String::from_utf8_lossy(&output.stdout).lines().filter_map(listed).collect();
    paths.push(interpreter);
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// `name => /path (0x…)` or `/path (0x…)`; others, such as the kernel's own, are in no file.
fn listed(line: &str) -> Option<PathBuf> {
    let path = line.split_once(" => ").map_or(line, |(_, path)| path).trim();
    let path = path.rsplit_once(" (").map_or(path, |(path, _)| path);
    path.starts_with('/').then(|| path.into())
}

/// What the header of a 64-bit ELF file names as its interpreter (elf(5)).
fn interpreter(mut file: &File) -> io::Result<Option<PathBuf>> {
    const PT_INTERP: u64 = 3;
    let mut header = [0; 64];
    file.read_exact(&mut header)?;
    if header.get(..5) != Some(b"\x7fELF\x02") {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not an executable for a 64-bit system"));
    }
    let (table, size, count) = (number(&header, 32, 8), number(&header, 54, 2), number(&header, 56, 2));
    for index in 0..count {
        let mut entry = [0; 56];
        file.seek(SeekFrom::Start(table.saturating_add(index * size)))?;
        file.read_exact(&mut entry)?;
        if number(&entry, 0, 4) != PT_INTERP {
            continue;
        }
        let mut path = Vec::new();
        file.seek(SeekFrom::Start(number(&entry, 8, 8)))?;
        file.take(number(&entry, 32, 8).min(libc::PATH_MAX as u64)).read_to_end(&mut path)?;
        let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
        return Ok(Some(std::ffi::OsStr::from_bytes(path).into()));
    }
    Ok(None)
}

/// A number with its lowest byte first, as both of our processors have them.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let bytes = bytes.iter().skip(at).take(size);
    bytes.rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_is_linked_with() {
        let own = std::env::current_exe().expect("this program");
        let linked = linked_with(&own).expect("it is known");
        assert!(linked.iter().all(|path| path.is_absolute() && path.is_file()), "{linked:?}");
        assert!(linked.iter().any(|path| path.to_string_lossy().contains("libc.so")), "{linked:?}");
        assert!(linked_with(Path::new("/etc/passwd")).is_err());
    }

    #[test]
    fn lines_of_the_interpreter() {
        let paths =
            ["\tlinux-vdso.so.1 (0x1)", "\tlibc.so.6 => /lib/libc.so.6 (0x2)", "\t/lib64/ld.so (0x3)"].map(listed);
        assert_eq!(paths, [None, Some("/lib/libc.so.6".into()), Some("/lib64/ld.so".into())]);
    }
}
