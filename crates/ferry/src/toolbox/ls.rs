//! `ls [-la] [PATH…]`: what is in folders; with -l also kind, mode, owner, group and size.

use std::{
    fs,
    io::{Write, stdout},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use anyhow::Context;

use super::{Outcome, options::Options};

pub fn run(arguments: &[String]) -> Outcome {
    let options = Options::parse(arguments, "la1")?;
    let here = [".".to_owned()];
    let paths = if options.rest.is_empty() { &here } else { options.rest };
    for path in paths {
        let metadata = fs::metadata(path).with_context(|| path.clone())?;
        if !metadata.is_dir() {
            tell(Path::new(path), path, &options)?;
            continue;
        }
        if paths.len() > 1 {
            writeln!(stdout(), "{path}:")?;
        }
        let entries =
            fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>).with_context(|| path.clone())?;
        let mut names: Vec<String> =
            entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        for name in names.iter().filter(|name| options.has('a') || !name.starts_with('.')) {
            tell(&Path::new(path).join(name), name, &options)?;
        }
    }
    Ok(0)
}

fn tell(path: &Path, name: &str, options: &Options<'_>) -> anyhow::Result<()> {
    if !options.has('l') {
        writeln!(stdout(), "{name}")?;
        return Ok(());
    }
    let metadata = fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
    let kind = match metadata.file_type() {
        kind if kind.is_dir() => 'd',
        kind if kind.is_symlink() => 'l',
        kind if kind.is_char_device() => 'c',
        kind if kind.is_block_device() => 'b',
        kind if kind.is_fifo() => 'p',
        kind if kind.is_socket() => 's',
        _ => '-',
    };
    let bits = |shift: u32, special: u32, mark: char| {
        let mode = metadata.mode() >> shift;
        let execute = match (mode & 1 != 0, metadata.mode() & special != 0) {
            (true, true) => mark,
            (false, true) => mark.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        };
        format!("{}{}{execute}", if mode & 4 != 0 { 'r' } else { '-' }, if mode & 2 != 0 { 'w' } else { '-' })
    };
    let mode = bits(6, 0o4000, 's') + &bits(3, 0o2000, 's') + &bits(0, 0o1000, 't');
    let target = fs::read_link(path).map(|target| format!(" -> {}", target.display())).unwrap_or_default();
    let (uid, gid, size) = (metadata.uid(), metadata.gid(), metadata.len());
    writeln!(stdout(), "{kind}{mode} {uid:>5} {gid:>5} {size:>10} {name}{target}")?;
    Ok(())
}
