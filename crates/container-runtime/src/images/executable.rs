//! Images made from one executable that needs nothing else, so that pods run without any registry.

use std::{fs::File, io, path::Path};

use serde_json::json;

use super::{ImageError, ImageStore, archive::architecture, content::Digest};

impl ImageStore {
    /// One layer with the executable in /bin under the name of the image, links to it for its commands, and what programs expect
    /// to find anywhere: users, groups, /tmp.
    pub fn make(&self, name: &str, executable: &Path, commands: &[String]) -> Result<String, ImageError> {
        let program = name.rsplit('/').next().unwrap_or(name).split([':', '@']).next().unwrap_or(name);
        let mut layer = tar::Builder::new(Vec::new());
        for (folder, mode) in [("bin", 0o755), ("etc", 0o755), ("root", 0o700), ("tmp", 0o1777), ("usr", 0o755)] {
            let mut header = header(tar::EntryType::Directory, mode, 0);
            layer.append_data(&mut header, format!("{folder}/"), io::empty())?;
        }
        let file = File::open(executable)?;
        let mut entry = header(tar::EntryType::Regular, 0o755, file.metadata()?.len());
        layer.append_data(&mut entry, format!("bin/{program}"), file)?;
        for command in commands.iter().filter(|command| *command != program) {
            let mut entry = header(tar::EntryType::Symlink, 0o777, 0);
            layer.append_link(&mut entry, format!("bin/{command}"), program)?;
        }
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
        let group = "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n";
        for (path, text) in [("etc/passwd", passwd), ("etc/group", group)] {
            let mut entry = header(tar::EntryType::Regular, 0o644, text.len() as u64);
            layer.append_data(&mut entry, path, text.as_bytes())?;
        }
        let layer = layer.into_inner()?;
        let diff_id = Digest::of(&layer);
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": { "Env": ["PATH=/bin"], "Entrypoint": [format!("/bin/{program}")] },
            "rootfs": { "type": "layers", "diff_ids": [diff_id] },
        });
        let config = self.content.write(config.to_string().as_bytes())?;
        if !self.content.has(&diff_id) {
            self.content.write(layer.as_slice())?;
        }
        self.add(&config, vec![diff_id], &[name.to_owned()], None, true)
    }
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
