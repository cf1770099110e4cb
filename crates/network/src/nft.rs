//! The edge to the kernel's packet filter: a table of our own, changed by transactions.
//!
//! A [`Change`] is applied whole or not at all, and no packet sees half of it. Everything is in tables of the family `ip`.
//! Values that go from one expression of a rule to the next are in registers of four bytes; they do not outlive the rule.

use std::{collections::HashSet, net::Ipv4Addr, time::Duration};

use nlink::netlink::{
    Connection, Nftables,
    nftables::{
        BaseChain, Chain, ChainName, CmpOp, Expr, Family, LookupExpr, MetaKey, PayloadBase, RawExpr, RawMessage,
        Register, Rule, Set, SetElement, SetKeyType, Transaction, Verdict,
    },
};
use rustix::net::sockopt;

use crate::{Error, block::Block};

/// A transaction with all services of a large cluster must fit into the socket's buffer.
const SEND_BUFFER: usize = 64 << 20;
/// One message has all its elements in an attribute, whose length has 16 bits.
const ELEMENTS_PER_MESSAGE: usize = 500;
const NEW_TABLE: u8 = 0;
const CREATE: u16 = 0x400;

/// A socket to the packet filter of the network namespace in which it was opened.
pub(crate) struct Nft {
    connection: Connection<Nftables>,
}

impl Nft {
    pub fn open() -> Result<Self, Error> {
        let connection = Connection::<Nftables>::new().map_err(|error| {
            Error(format!("cannot reach the kernel's packet filter: {error}; nf_tables and root's rights are needed"))
        })?;
        // Forcing it needs a right that root may lack in a container; then small transactions still work.
        let _ = sockopt::set_socket_send_buffer_size_force(connection.socket(), SEND_BUFFER)
            .or_else(|_| sockopt::set_socket_send_buffer_size(connection.socket(), SEND_BUFFER));
        Ok(Self { connection })
    }

    /// Begins a change of a table.
    pub fn change(&self, table: &str) -> Change {
        Change { table: table.to_owned(), transaction: self.connection.transaction(), empty: true }
    }

    pub async fn apply(&self, change: Change) -> Result<(), Error> {
        let table = change.table.clone();
        match self.apply_if_there(change).await? {
            true => Ok(()),
            false => Err(Error(format!("cannot change the nftables table {table}: something in it is missing"))),
        }
    }

    /// False if what is to be changed is not there, such as the table itself.
    pub async fn apply_if_there(&self, change: Change) -> Result<bool, Error> {
        if change.empty {
            return Ok(true);
        }
        let table = change.table;
        match change.transaction.commit(&self.connection).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(Error(format!("cannot change the nftables table {table}: {error}"))),
        }
    }

    pub async fn has_table(&self, table: &str) -> Result<bool, Error> {
        let tables = self.connection.list_tables_in(Family::Ip).await;
        let tables = tables.map_err(|error| Error(format!("cannot list the tables of nftables: {error}")))?;
        Ok(tables.iter().any(|known| known.name == table))
    }

    /// What packets have written into a map and is not forgotten yet, to be written again with the time that is left to it.
    pub async fn remembered(&self, map: &Set) -> Result<Vec<SetElement>, Error> {
        // Less than a tick of the kernel's clock would be forever.
        const AT_LEAST: Duration = Duration::from_secs(1);
        let elements = match self.connection.list_set_elements(map.table(), map.name(), Family::Ip).await {
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            read => read.map_err(|error| Error(format!("cannot read the nftables map {}: {error}", map.name())))?,
        };
        // While the map grows, the kernel may tell of an element twice.
        let mut known = HashSet::new();
        let left =
            |element: SetElement| Some(element.expiration()?.max(AT_LEAST)).map(|left| element.with_timeout(left));
        Ok(elements.into_iter().filter(|element| known.insert(element.key().to_vec())).filter_map(left).collect())
    }

    pub async fn remove_table(&self, table: &str) -> Result<(), Error> {
        let removed = self.connection.del_table_if_exists(table, Family::Ip).await;
        removed.map(drop).map_err(|error| Error(format!("cannot remove the nftables table {table}: {error}")))
    }

    /// Names of chains of others that drop what is forwarded unless they know it. Nothing of ours can overrule them.
    pub async fn dropping_forward_chains(&self) -> Result<Vec<String>, Error> {
        use nlink::netlink::nftables::{Hook, Policy};
        let chains = self.connection.list_chains().await;
        let chains = chains.map_err(|error| Error(format!("cannot list the chains of nftables: {error}")))?;
        let dropping = chains.into_iter().filter(|chain| {
            let base = chain.kind().and_then(|kind| kind.base().cloned());
            base.is_some_and(|base| base.hook() == Hook::Forward && base.default_policy() == Some(Policy::Drop))
        });
        Ok(dropping.map(|chain| format!("{} {}", chain.table, chain.name)).collect())
    }
}

/// A change of one table, in order.
pub(crate) struct Change {
    table: String,
    transaction: Transaction,
    empty: bool,
}

impl Change {
    fn then(self, step: impl FnOnce(Transaction) -> Transaction) -> Self {
        Self { transaction: step(self.transaction), empty: false, ..self }
    }

    /// Begins the table anew, whether it was there or not.
    pub fn replace_table(self) -> Self {
        let table = self.table.clone();
        // Deleting what is not there fails, and creating what is there does not: so it is created first.
        let mut name = Vec::from([0, 0, 1, 0]);
        name.extend(table.bytes().chain([0]));
        let length = u16::try_from(name.len()).unwrap_or(u16::MAX).to_ne_bytes();
        name[..2].copy_from_slice(&length);
        name[2..4].copy_from_slice(&1u16.to_ne_bytes());
        name.resize(name.len().next_multiple_of(4), 0);
        let ensure = RawMessage::new(NEW_TABLE, Family::Ip).flags(CREATE).attrs(name);
        self.then(|t| t.raw(ensure).del_table(&table, Family::Ip).add_table(&table, Family::Ip))
    }

    pub fn base_chain(self, name: &str, base: BaseChain) -> Self {
        let chain = Chain::new(self.table.as_str(), name).map(|chain| chain.family(Family::Ip).base(base));
        self.chain_of(chain)
    }

    pub fn chain(self, name: &str) -> Self {
        let chain = Chain::new(self.table.as_str(), name).map(|chain| chain.family(Family::Ip));
        self.chain_of(chain)
    }

    fn chain_of(self, chain: nlink::netlink::Result<Chain>) -> Self {
        match chain {
            Ok(chain) => self.then(|t| t.add_chain(chain)),
            // Only our own names come here, and they are neither empty nor long.
            Err(_) => self,
        }
    }

    /// Adds a rule; `make` gets it empty.
    pub fn rule(self, chain: &str, make: impl FnOnce(Rule) -> Rule) -> Self {
        let rule = make(Rule::new(&self.table, chain).family(Family::Ip));
        self.then(|t| t.add_rule(rule))
    }

    pub fn set(self, set: &Set) -> Self {
        let set = set.clone();
        self.then(|t| t.add_set(set))
    }

    pub fn add(self, set: &Set, elements: &[SetElement]) -> Self {
        elements.chunks(ELEMENTS_PER_MESSAGE).fold(self, |change, some| change.then(|t| t.add_set_elements(set, some)))
    }

    pub fn remove(self, set: &Set, elements: &[SetElement]) -> Self {
        elements.chunks(ELEMENTS_PER_MESSAGE).fold(self, |change, some| change.then(|t| t.del_set_elements(set, some)))
    }
}

/// A set or map of a table; its key has fields.
pub(crate) fn set_of(table: &str, name: &str, fields: &[SetKeyType]) -> Set {
    Set::new(table, name).family(Family::Ip).key_type(fields_of(fields))
}

pub(crate) fn fields_of(fields: &[SetKeyType]) -> SetKeyType {
    match fields {
        [one] => one.clone(),
        many => SetKeyType::Concat(many.to_vec()),
    }
}

/// A number of ours in a key or a value, in the byte order of the machine.
pub(crate) const NUMBER: SetKeyType = SetKeyType::Mark;

/// The bytes of a key or a value: up to four fields of four bytes each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Fields {
    words: [[u8; 4]; 4],
    length: u8,
}

impl Fields {
    pub fn address(self, address: Ipv4Addr) -> Self {
        self.with(address.octets())
    }

    pub fn protocol(self, number: u8) -> Self {
        self.with([number, 0, 0, 0])
    }

    pub fn port(self, port: u16) -> Self {
        let [high, low] = port.to_be_bytes();
        self.with([high, low, 0, 0])
    }

    pub fn number(self, number: u32) -> Self {
        self.with(number.to_ne_bytes())
    }

    /// No key or value of ours has a fifth field.
    fn with(mut self, word: [u8; 4]) -> Self {
        if let Some(free) = self.words.get_mut(usize::from(self.length)) {
            *free = word;
            self.length += 1;
        }
        self
    }

    fn bytes(&self) -> Vec<u8> {
        self.words.iter().take(usize::from(self.length)).flatten().copied().collect()
    }

    pub fn element(&self) -> SetElement {
        SetElement::new(self.bytes())
    }

    /// Everything from these fields to those, each by itself.
    pub fn up_to(&self, last: &Self) -> SetElement {
        SetElement::range(self.bytes(), last.bytes())
    }

    pub fn to(&self, value: &Self) -> SetElement {
        self.element().value(value.element())
    }

    pub fn to_verdict(self, verdict: Verdict) -> SetElement {
        self.element().verdict(verdict)
    }
}

/// Our own names of chains are neither empty nor long, so they are always taken.
pub(crate) fn goto(chain: &str) -> Verdict {
    ChainName::new(chain).map_or(Verdict::Return, Verdict::GotoTo)
}

pub(crate) fn jump(chain: &str) -> Verdict {
    ChainName::new(chain).map_or(Verdict::Return, Verdict::JumpTo)
}

pub(crate) fn source_address(to: Register) -> Expr {
    Expr::Payload { dreg: to, base: PayloadBase::Network, offset: 12, len: 4 }
}

pub(crate) fn destination_address(to: Register) -> Expr {
    Expr::Payload { dreg: to, base: PayloadBase::Network, offset: 16, len: 4 }
}

pub(crate) fn protocol(to: Register) -> Expr {
    Expr::Meta { dreg: to, key: MetaKey::L4Proto }
}

/// TCP, UDP and SCTP have it in the same place.
pub(crate) fn destination_port(to: Register) -> Expr {
    Expr::Payload { dreg: to, base: PayloadBase::Transport, offset: 2, len: 2 }
}

/// Goes on only if the key that begins in a register is in the set.
pub(crate) fn is_in(set: &Set, key: Register) -> LookupExpr {
    LookupExpr::new(set.name(), key)
}

/// Goes on with the value of the key, if there is one.
pub(crate) fn look_up(map: &Set, key: Register, to: Register) -> LookupExpr {
    LookupExpr::new(map.name(), key).dreg(to)
}

/// Sends the connection to the address and the port in two registers.
pub(crate) fn to_destination(address: Register, port: Register) -> RawExpr {
    const DESTINATION: u32 = 1;
    const IPV4: u32 = 2;
    let attributes = [(1, DESTINATION), (2, IPV4), (3, address.wire()), (5, port.wire())];
    let bytes = attributes.into_iter().flat_map(|(kind, value): (u16, u32)| {
        let header = [8u16.to_ne_bytes(), kind.to_ne_bytes()].concat();
        header.into_iter().chain(value.to_be_bytes())
    });
    RawExpr::new("nat", bytes.collect())
}

/// Goes on if a packet comes from a block, or does not.
pub(crate) fn from(rule: Rule, is: CmpOp, block: Block) -> Rule {
    in_block(rule.expr(source_address(Register::Reg32_00)), is, block)
}

/// Goes on if a packet goes to a block, or does not.
pub(crate) fn to(rule: Rule, is: CmpOp, block: Block) -> Rule {
    in_block(rule.expr(destination_address(Register::Reg32_00)), is, block)
}

/// Compares the address in the first register with a block.
fn in_block(rule: Rule, is: CmpOp, block: Block) -> Rule {
    let register = Register::Reg32_00;
    let mask = block.mask().octets().to_vec();
    let masked = Expr::Bitwise { sreg: register, dreg: register, len: 4, mask, xor: vec![0; 4] };
    rule.expr(masked).expr(Expr::Cmp { sreg: register, op: is, data: block.first().octets().to_vec() })
}
