//! WebSockets: the server's side, and the subprotocols that Kubernetes has for them.

mod channels;
pub mod frame;
mod messages;
mod tunnel;

pub(crate) use channels::channel_frame;
pub use channels::{Channel, Channels};
pub use messages::{Messages, Payload};
pub use tunnel::tunnel;

/// What makes a connection unusable.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("a frame has reserved bits or an unknown kind")]
    Reserved,
    #[error("a client's frames must be masked, and a server's must not")]
    Mask,
    #[error("a control frame is too long or in pieces")]
    Control,
    #[error("a frame's length is impossible")]
    Length,
    #[error("the pieces of a message are out of order")]
    Order,
}
