//! What a request asks for, read from its query.

use object_model::{
    field::{Errors, Path},
    identity::GroupKind,
    status::Status,
    time::Time,
};
use serde_json::{Value, json};
use streaming::remote_command::Streams;

use crate::{
    options::{boolean, integer},
    request_info::pairs,
};

/// `PodAttachOptions`; those of exec have a command as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachOptions {
    pub container: String,
    pub streams: Streams,
}

impl AttachOptions {
    pub fn read(query: &str) -> Self {
        let mut options = Self::default();
        for (key, value) in pairs(query) {
            match key.as_str() {
                "container" => options.container = value,
                "stdin" => options.streams.stdin = boolean(&value),
                "stdout" => options.streams.stdout = boolean(&value),
                "stderr" => options.streams.stderr = boolean(&value),
                "tty" => options.streams.tty = boolean(&value),
                _ => {}
            }
        }
        options
    }

    /// The query by which an agent is asked for the same.
    pub fn agent_query(&self) -> Vec<(&'static str, String)> {
        let Streams { stdin, stdout, stderr, tty } = self.streams;
        let asked = [("input", stdin), ("output", stdout), ("error", stderr), ("tty", tty)];
        asked.into_iter().filter(|(_, asked)| *asked).map(|(name, _)| (name, "1".to_owned())).collect()
    }

    /// The options as admission sees them.
    pub fn object(&self, kind: &str) -> Value {
        let Streams { stdin, stdout, stderr, tty } = self.streams;
        let mut object = json!({"kind": kind, "apiVersion": "v1"});
        for (name, asked) in [("stdin", stdin), ("stdout", stdout), ("stderr", stderr), ("tty", tty)] {
            if asked {
                object[name] = true.into();
            }
        }
        if !self.container.is_empty() {
            object["container"] = self.container.clone().into();
        }
        object
    }
}

/// `PodExecOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOptions {
    pub attach: AttachOptions,
    pub command: Vec<String>,
}

impl ExecOptions {
    pub fn read(query: &str) -> Self {
        let command = pairs(query).filter(|(key, _)| key == "command").map(|(_, value)| value).collect();
        Self { attach: AttachOptions::read(query), command }
    }

    pub fn object(&self, kind: &str) -> Value {
        let mut object = self.attach.object(kind);
        object["command"] = self.command.clone().into();
        object
    }
}

/// `PodPortForwardOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortForwardOptions {
    pub ports: Vec<i32>,
}

impl PortForwardOptions {
    pub fn read(query: &str) -> Result<Self, Status> {
        let mut ports = Vec::new();
        for (_, value) in pairs(query).filter(|(key, _)| key == "ports") {
            let port = integer(&value)?;
            ports.push(i32::try_from(port).map_err(|_| {
                Status::bad_request(format!("strconv.ParseInt: parsing {value:?}: value out of range"))
            })?);
        }
        Ok(Self { ports })
    }

    pub fn object(&self) -> Value {
        json!({"kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": self.ports})
    }
}

/// `PodLogOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    pub container: String,
    /// Believe the agent without proof of who it is.
    pub insecure: bool,
    follow: bool,
    previous: bool,
    timestamps: bool,
    since_seconds: Option<i64>,
    since_time: Option<Time>,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
}

impl LogOptions {
    /// `pod` is the pod's name, for the refusal.
    pub fn read(query: &str, pod: &str) -> Result<Self, Status> {
        let mut options = Self::default();
        let mut stream = false;
        for (key, value) in pairs(query) {
            match key.as_str() {
                "container" => options.container = value,
                "insecureSkipTLSVerifyBackend" => options.insecure = boolean(&value),
                "follow" => options.follow = boolean(&value),
                "previous" => options.previous = boolean(&value),
                "timestamps" => options.timestamps = boolean(&value),
                "sinceSeconds" => options.since_seconds = Some(integer(&value)?),
                "sinceTime" => {
                    let time = Time::parse(&value).map_err(|e| Status::bad_request(e.to_string()))?;
                    options.since_time = Some(time);
                }
                "tailLines" => options.tail_lines = Some(integer(&value)?),
                "limitBytes" => options.limit_bytes = Some(integer(&value)?),
                "stream" => stream = true,
                _ => {}
            }
        }
        options.validate(pod, stream)?;
        Ok(options)
    }

    fn validate(&self, pod: &str, stream: bool) -> Result<(), Status> {
        let (root, mut errors) = (Path::root(), Errors::new());
        if let Some(lines) = self.tail_lines.filter(|lines| *lines < 0) {
            errors.invalid(&root.child("tailLines"), lines, "must be greater than or equal to 0");
        }
        if let Some(bytes) = self.limit_bytes.filter(|bytes| *bytes < 1) {
            errors.invalid(&root.child("limitBytes"), bytes, "must be greater than 0");
        }
        match (self.since_seconds, self.since_time) {
            (Some(_), Some(_)) => {
                errors.forbidden(&root, "at most one of `sinceTime` or `sinceSeconds` may be specified");
            }
            (Some(seconds), None) if seconds < 1 => {
                errors.invalid(&root.child("sinceSeconds"), seconds, "must be greater than 0");
            }
            _ => {}
        }
        // Choosing stdout or stderr is not on by default in Kubernetes v1.36.
        if stream {
            errors.forbidden(&root.child("stream"), "may not be specified");
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(&GroupKind::new("", "PodLogOptions"), pod, &errors))
    }

    /// The query by which an agent is asked for the same.
    pub fn agent_query(&self) -> Vec<(&'static str, String)> {
        let flags = [("follow", self.follow), ("previous", self.previous), ("timestamps", self.timestamps)];
        let numbers =
            [("sinceSeconds", self.since_seconds), ("tailLines", self.tail_lines), ("limitBytes", self.limit_bytes)];
        let flags = flags.into_iter().filter(|(_, asked)| *asked).map(|(name, _)| (name, "true".to_owned()));
        let numbers = numbers.into_iter().filter_map(|(name, number)| Some((name, number?.to_string())));
        let since = self.since_time.map(|time| ("sinceTime", time.to_seconds().to_string()));
        flags.chain(numbers).chain(since).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_options_are_checked() {
        for (query, problem) in [
            ("tailLines=-1", "tailLines: Invalid value: -1: must be greater than or equal to 0"),
            ("limitBytes=0", "limitBytes: Invalid value: 0: must be greater than 0"),
            ("sinceSeconds=0", "sinceSeconds: Invalid value: 0: must be greater than 0"),
            ("sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", "at most one of `sinceTime` or `sinceSeconds`"),
            ("stream=Stdout", "stream: Forbidden: may not be specified"),
        ] {
            let status = LogOptions::read(query, "p").unwrap_err();
            assert_eq!(status.code, 422);
            assert!(status.message.starts_with("PodLogOptions \"p\" is invalid"), "{}", status.message);
            assert!(status.message.contains(problem), "{}", status.message);
        }
        assert_eq!(LogOptions::read("tailLines=x", "p").unwrap_err().code, 400);
        assert_eq!(LogOptions::read("sinceTime=yesterday", "p").unwrap_err().code, 400);
    }

    #[test]
    fn agents_are_asked_for_the_same() {
        let options = LogOptions::read("follow=true&tailLines=3&previous=false&sinceTime=2026-01-01T00:00:00Z", "p");
        let asked = options.unwrap().agent_query();
        let wanted = [("follow", "true"), ("tailLines", "3"), ("sinceTime", "2026-01-01T00:00:00Z")];
        assert_eq!(asked, wanted.map(|(k, v)| (k, v.to_owned())));
        let options = ExecOptions::read("command=sh&command=-c&stdin=1&stdout=true&stderr=false&container=c");
        assert_eq!(options.command, ["sh", "-c"]);
        assert_eq!(options.attach.agent_query(), [("input", "1".to_owned()), ("output", "1".to_owned())]);
    }
}
