//! A container as its shim holds it: from its start until the runtime has taken note of its exit.
//!
//! Its output is read here, written to the log and copied to whoever is attached. Someone attached who does not read stops the
//! container's output until it reads or leaves, as a terminal does; but only while the container runs. The exit counts when the output
//! has ended, so that the log is complete by then; a process elsewhere that still holds the output delays that by [`PATIENCE`]
//! at most. Those attached get the rest of the output however long they take.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use super::{
    complain,
    log::{Log, Source},
    protocol::Report,
    spec::{ContainerSpec, Exit},
};
use crate::{
    cgroups::Group,
    state::{self, now},
};

const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct Container {
    pub(super) id: String,
    pub(super) pid: i32,
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) started_at: i64,
    pub(super) group: Group,
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdin_once: bool,
    pub(super) terminal: Option<OwnedFd>,
    pub(super) outputs: Vec<(Source, OwnedFd)>,
    pub(super) exit: Option<Exit>,
    log: Option<Log>,
    /// Whether the last that was written to the log came to be there.
    log_works: bool,
    attached: Vec<Attached>,
    exit_file: std::path::PathBuf,
    /// The exit code, and until when the rest of the output is waited for.
    reaped: Option<(i32, Instant)>,
}

/// One stream of someone attached.
struct Attached {
    source: Source,
    to: OwnedFd,
    pending: Vec<u8>,
}

impl Container {
    /// A container about to be started.
    pub(super) fn new(spec: &ContainerSpec) -> io::Result<Self> {
        Ok(Self {
            id: spec.id.clone(),
            pid: 0,
            pidfd: None,
            started_at: now(),
            group: spec.group.clone(),
            stdin: None,
            stdin_once: spec.stdin_once,
            terminal: None,
            outputs: Vec::new(),
            exit: None,
            log: spec.log.clone().map(Log::open).transpose()?,
            log_works: true,
            attached: Vec::new(),
            exit_file: spec.exit_file.clone(),
            reaped: None,
        })
    }

    pub(super) fn report(&self) -> Report {
        let exit = self.exit.clone();
        Report { container_id: self.id.clone(), pid: self.pid, started_at: self.started_at, exit }
    }

    pub(super) fn is_running(&self) -> bool {
        self.reaped.is_none() && self.exit.is_none()
    }

    /// What to wait for: output to read, or room to write it to.
    pub(super) fn readable(&self) -> impl Iterator<Item = (Source, BorrowedFd<'_>)> {
        let stalled = self.reaped.is_none() && self.attached.iter().any(|attached| !attached.pending.is_empty());
        self.outputs.iter().filter(move |_| !stalled).map(|(source, end)| (*source, end.as_fd()))
    }

    pub(super) fn writable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.attached.iter().filter(|attached| !attached.pending.is_empty()).map(|attached| attached.to.as_fd())
    }

    /// Reads once from an output that is ready.
    pub(super) fn read(&mut self, source: Source, buffer: &mut [u8]) {
        let Some(at) = self.outputs.iter().position(|(known, _)| *known == source) else { return };
        let result = self.outputs.get(at).map(|(_, end)| rustix::io::read(end, &mut *buffer));
        match result {
            Some(Ok(length)) if length > 0 => self.distribute(source, &buffer[..length]),
            Some(Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN)) => {}
            // The end; a terminal that nobody has open any more says so by an error.
            _ => drop(self.outputs.remove(at)),
        }
    }

    fn distribute(&mut self, source: Source, bytes: &[u8]) {
        if let Some(log) = &mut self.log {
            let written = log.write(source, bytes);
            // The disk is full, most likely. The container goes on; what it says now is lost.
            if let (Err(error), true) = (&written, self.log_works) {
                complain(format_args!("cannot write the log of {}: {error}", self.id));
            }
            self.log_works = written.is_ok();
        }
        for attached in self.attached.iter_mut().filter(|attached| attached.source == source) {
            attached.pending.extend_from_slice(bytes);
        }
        self.flush();
    }

    /// Writes what is pending, as far as those attached take it; drops those who have left.
    pub(super) fn flush(&mut self) {
        let has_ended = self.exit.is_some();
        self.attached.retain_mut(|attached| {
            while !attached.pending.is_empty() {
                match rustix::io::write(&attached.to, &attached.pending) {
                    Ok(length) => drop(attached.pending.drain(..length)),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(rustix::io::Errno::AGAIN) => return true,
                    Err(_) => return false,
                }
            }
            !has_ended
        });
    }

    pub(super) fn attach(&mut self, source: Source, to: OwnedFd) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&to, true)?;
        self.attached.push(Attached { source, to, pending: Vec::new() });
        Ok(())
    }

    pub(super) fn reopen_log(&mut self) -> io::Result<()> {
        self.log.as_mut().map_or(Ok(()), Log::reopen)
    }

    pub(super) fn signal(&self, signal: i32) -> io::Result<()> {
        let (Some(pidfd), true) = (&self.pidfd, self.is_running()) else { return Ok(()) };
        // SAFETY: any number is a signal or an error.
        let signal = unsafe { rustix::process::Signal::from_raw_unchecked(signal) };
        match rustix::process::pidfd_send_signal(pidfd, signal) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            result => Ok(result?),
        }
    }

    /// The first process has ended. Where others share its pid namespace, the rest of the container ends now.
    pub(super) fn reaped(&mut self, exit_code: i32) {
        self.reaped = Some((exit_code, Instant::now() + PATIENCE));
        self.group.kill();
    }

    /// When to look at [`Container::finish`] again, though nothing has happened.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.reaped.filter(|_| self.exit.is_none()).map(|(_, deadline)| deadline)
    }

    /// Records the exit if it is complete, and tells whether it has just become so.
    pub(super) fn finish(&mut self) -> bool {
        let Some((exit_code, deadline)) = self.reaped.filter(|_| self.exit.is_none()) else { return false };
        if !self.outputs.is_empty() && Instant::now() < deadline {
            return false;
        }
        if let Some(mut log) = self.log.take()
            && let Err(error) = log.finish()
        {
            complain(format_args!("cannot write the log of {}: {error}", self.id));
        }
        let exit = Exit {
            exit_code,
            started_at: self.started_at,
            finished_at: now(),
            oom_killed: self.group.oom_kills() > 0,
            start_error: None,
        };
        self.record(exit);
        self.group.kill();
        (self.stdin, self.terminal, self.pidfd) = (None, None, None);
        self.outputs.clear();
        self.flush();
        true
    }

    /// Its command was never executed; what is to be told of that.
    pub(super) fn failed(mut self, error: &str) -> Exit {
        let exit = Exit {
            exit_code: 128,
            started_at: self.started_at,
            finished_at: now(),
            oom_killed: false,
            start_error: Some(error.to_owned()),
        };
        self.record(exit.clone());
        exit
    }

    fn record(&mut self, exit: Exit) {
        if let Err(error) = state::write(&self.exit_file, &exit) {
            complain(format_args!("cannot record the exit of {}: {error}", self.id));
        }
        self.exit = Some(exit);
    }
}
