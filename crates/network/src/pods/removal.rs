//! Links are removed many at once: for each removal the kernel waits until no processor uses the link any more, which takes
//! as long for fifty as for one, and nobody else can change links meanwhile.

use std::sync::{Arc, Mutex, PoisonError};

use nlink::netlink::{
    Connection, Error, MessageBuilder, MessageIter, NetlinkSocket, NlMsgType, Protocol, Result, Route,
    message::{NLM_F_ACK, NLM_F_REQUEST, NlMsgError},
};
use tokio::runtime::Handle;

/// The links that are to be removed are put into this group first. Nobody else has it.
const GROUP: u32 = 0x6665_7279;
/// The attribute of a link's group, and the length of the header before the attributes.
const IFLA_GROUP: u16 = 27;
const HEADER: [u8; 16] = [0; 16];

pub(super) struct Removals {
    socket: Arc<NetlinkSocket>,
    waiting: Mutex<Vec<String>>,
    turn: tokio::sync::Mutex<()>,
}

impl Removals {
    pub fn open() -> Result<Self> {
        let socket = Arc::new(NetlinkSocket::new(Protocol::Route)?);
        Ok(Self { socket, waiting: Mutex::default(), turn: tokio::sync::Mutex::default() })
    }

    /// Removes a link, if it is there, together with all others that wait to be removed.
    pub async fn remove(&self, links: &Connection<Route>, name: &str) -> Result<()> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
        let _turn = self.turn.lock().await;
        let together = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        if !together.is_empty() {
            for link in &together {
                match links.set_link_group(link.as_str(), GROUP).await {
                    Err(error) if !error.is_not_found() && !error.is_no_device() => return Err(error),
                    _ => {}
                }
            }
            self.remove_group().await?;
        }
        // In case that whoever took it along has failed. Otherwise there is nothing to wait for.
        links.del_link_if_exists(name).await.map(drop)
    }

    /// The kernel does it while we send, so the thread that sends is one that may wait.
    async fn remove_group(&self) -> Result<()> {
        let (socket, runtime) = (self.socket.clone(), Handle::current());
        let sent = tokio::task::spawn_blocking(move || runtime.block_on(send_removal(&socket)));
        sent.await.unwrap_or_else(|error| Err(Error::invalid_message(error.to_string())))
    }
}

async fn send_removal(socket: &NetlinkSocket) -> Result<()> {
    let mut message = MessageBuilder::new(NlMsgType::RTM_DELLINK, NLM_F_REQUEST | NLM_F_ACK);
    let number = socket.next_seq();
    message.append_bytes(&HEADER);
    message.append_attr_u32(IFLA_GROUP, GROUP);
    message.set_seq(number);
    message.set_pid(socket.pid());
    socket.send(&message.finish()).await?;
    loop {
        let bytes = socket.recv_msg().await?;
        for answer in MessageIter::new(&bytes) {
            let (header, payload) = answer?;
            if header.nlmsg_seq != number || !header.is_error() {
                continue;
            }
            let status = NlMsgError::from_bytes(payload)?;
            // No link is in the group if all of them went by themselves.
            let nothing_to_do = std::io::Error::from_raw_os_error(-status.error).kind() == std::io::ErrorKind::NotFound;
            let no_device = -status.error == rustix::io::Errno::NODEV.raw_os_error();
            return if status.is_ack() || nothing_to_do || no_device {
                Ok(())
            } else {
                Err(std::io::Error::from_raw_os_error(-status.error).into())
            };
        }
    }
}
