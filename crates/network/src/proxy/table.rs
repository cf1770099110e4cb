//! Services as the kernel sees them: a fixed set of rules over maps, and all that changes is in the maps.
//!
//! `services` says for an address, a protocol and a port ([`Front`]) which list of endpoints to take and how long the list
//! is; `endpoints` has the endpoints of all lists by number. A random number picks one. Since the kernel draws numbers
//! below a constant only, there is a chain for each length that occurs, shared by all lists of that length, and `lengths`
//! leads to it. A change of a Service or of its endpoints thus changes a few elements, however many others there are.
//!
//! Fronts without endpoints are in `refused` or `dropped`, which the filter hooks look at.

use std::collections::{BTreeSet, HashMap};

use nlink::netlink::{
    nftables::{
        BaseChain, CmpOp, CtState, DynsetExpr, DynsetOp, Expr, FibFlags, FilterHook, NatHook, NatStatement, NumgenKind,
        Priority, Register, Rule, Set, SetDataType, SetElement, SetKeyType,
    },
    types::route::RouteType,
};

use super::plan::{Endpoint, Front, Way};
use crate::{
    Error,
    block::Block,
    nft::{
        Change, Fields, NUMBER, Nft, destination_address, destination_port, fields_of, from, goto, is_in, jump,
        look_up, protocol, set_of, source_address, to_destination,
    },
};

pub(super) const TABLE: &str = "ferry-services";
/// Connections with this mark are masqueraded. The same bit that Kubernetes uses.
const MASQUERADE: u32 = 0x4000;
/// Before the destination is changed.
const BEFORE_SERVICES: Priority = Priority::Custom(-110);
const ICMP_UNREACHABLE: u32 = 0;
const PORT_UNREACHABLE: u8 = 3;
/// How many clients are remembered. Beyond that, affinity is not kept.
const CLIENTS: u32 = 1 << 18;

/// The maps and sets whose elements Services make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Map {
    /// Where a front leads.
    Services,
    /// Where a front leads from inside the cluster, if that is elsewhere.
    Inside,
    /// The endpoints of a list by number.
    Endpoints,
    /// Which endpoints are in a list; of lists with affinity.
    Members,
    /// Fronts that nobody serves.
    Refused,
    /// Fronts that somebody serves, but nobody on this node.
    Dropped,
    /// The addresses of Services: what no front matched is refused there.
    Addresses,
    /// The blocks that those are taken from: what goes to one that nobody has would leave the cluster.
    Blocks,
    /// Fronts that only some may enter.
    Guarded,
    /// Who may: a front and the first address of a block; the value is the same with the last.
    Allowed,
}

impl Map {
    const ALL: [Self; 10] = [
        Self::Services,
        Self::Inside,
        Self::Endpoints,
        Self::Members,
        Self::Refused,
        Self::Dropped,
        Self::Addresses,
        Self::Blocks,
        Self::Guarded,
        Self::Allowed,
    ];

    fn set(self) -> Set {
        use SetKeyType::{InetProto, InetService, Ipv4Addr};
        let front = [Ipv4Addr, InetProto, InetService];
        let way = || SetDataType::Value(fields_of(&[NUMBER, NUMBER, NUMBER, NUMBER]));
        match self {
            Self::Services => set_of(TABLE, "services", &front).map(way()),
            Self::Inside => set_of(TABLE, "services-inside", &front).map(way()),
            Self::Endpoints => {
                let endpoint = SetDataType::Value(fields_of(&[Ipv4Addr, InetService]));
                set_of(TABLE, "endpoints", &[NUMBER, NUMBER]).map(endpoint)
            }
            Self::Members => set_of(TABLE, "members", &[NUMBER, Ipv4Addr, InetService]),
            Self::Refused => set_of(TABLE, "refused", &front),
            Self::Dropped => set_of(TABLE, "dropped", &front),
            Self::Addresses => set_of(TABLE, "addresses", &[Ipv4Addr]),
            Self::Blocks => set_of(TABLE, "blocks", &[Ipv4Addr]).interval(),
            Self::Guarded => set_of(TABLE, "guarded", &front),
            Self::Allowed => set_of(TABLE, "allowed", &[Ipv4Addr, InetProto, InetService, Ipv4Addr]).interval(),
        }
    }

    fn element(self, key: &Fields, value: &Fields) -> SetElement {
        match self {
            Self::Services | Self::Inside | Self::Endpoints => key.to(value),
            Self::Allowed | Self::Blocks => key.up_to(value),
            _ => key.element(),
        }
    }
}

/// An element of a map; those of sets have an empty value.
pub(super) type Key = (Map, Fields);

/// What is looked up for a front: how it is entered, how long its list is, how long a client stays, and the list.
pub(super) fn way(way: Way, length: u32, affinity: u32, list: u32) -> Fields {
    let entrance = match way {
        Way::Inside | Way::InsideLocal => INSIDE,
        Way::Outside => OUTSIDE,
        Way::OutsideLocal => OUTSIDE_LOCAL,
    };
    Fields::default().number(entrance).number(length).number(affinity).number(list)
}

pub(super) fn front(front: Front) -> Fields {
    Fields::default().address(front.address).protocol(front.protocol).port(front.port)
}

pub(super) fn endpoint(endpoint: Endpoint) -> Fields {
    Fields::default().address(endpoint.address).port(endpoint.port)
}

const INSIDE: u32 = 0;
const OUTSIDE: u32 = 1;
const OUTSIDE_LOCAL: u32 = 2;

/// How an endpoint is picked: from which map, from how many, with which affinity. There is a chain for each that occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Pick {
    pub inside: bool,
    pub length: u32,
    pub affinity: u32,
}

/// What is to be done to the table.
#[derive(Debug, Default)]
pub(super) struct Edit {
    pub removed: Vec<(Key, Fields)>,
    pub added: Vec<(Key, Fields)>,
    /// Everything that the added elements need.
    pub picks: BTreeSet<Pick>,
}

impl Edit {
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }
}

pub(super) struct Table {
    nft: Nft,
    cluster: Block,
    sets: HashMap<Map, Set>,
    ways: Set,
    /// Which chain picks, for the fronts of `services` and those of `services-inside`.
    lengths: [Set; 2],
    clients: Set,
    picks: BTreeSet<Pick>,
    /// Whether the clients that the kernel remembers are kept when the table is replaced.
    keep_clients: bool,
}

// Registers, as every rule uses them.
const ADDRESS: Register = Register::Reg32_00;
const PROTOCOL: Register = Register::Reg32_01;
const PORT: Register = Register::Reg32_02;
const WAY: Register = Register::Reg32_04;
const LENGTH: Register = Register::Reg32_05;
const LIST: Register = Register::Reg32_07;
const BESIDE_LIST: Register = Register::Reg32_08;
const BESIDE_THAT: Register = Register::Reg32_09;

impl Table {
    pub fn open(cluster: Block) -> Result<Self, Error> {
        use SetKeyType::{InetService, Ipv4Addr};
        let lengths = |name| set_of(TABLE, name, &[NUMBER, NUMBER]).vmap();
        let client = SetDataType::Value(fields_of(&[NUMBER, Ipv4Addr, InetService]));
        Ok(Self {
            nft: Nft::open()?,
            cluster,
            sets: Map::ALL.into_iter().map(|map| (map, map.set())).collect(),
            ways: set_of(TABLE, "ways", &[NUMBER]).vmap(),
            lengths: [lengths("lengths"), lengths("lengths-inside")],
            clients: set_of(TABLE, "clients", &[NUMBER, Ipv4Addr])
                .map(client)
                .dynamic()
                .per_element_timeouts()
                .size(CLIENTS),
            picks: BTreeSet::new(),
            keep_clients: true,
        })
    }

    /// Replaces the table by one that has exactly these elements. There is no moment without a table, and clients with affinity
    /// stay where they are.
    pub async fn replace(&mut self, edit: &Edit) -> Result<(), Error> {
        self.picks.clear();
        let clients = if self.keep_clients { self.nft.remembered(&self.clients).await } else { Ok(Vec::new()) };
        let change = self.layout(self.nft.change(TABLE).replace_table());
        let replaced = match clients {
            Ok(clients) => self.apply(change.add(&self.clients, &clients), edit).await,
            Err(error) => Err(error),
        };
        // That Services work is worth more than that clients stay: whatever failed, the next attempt is without them.
        self.keep_clients = replaced.is_ok();
        replaced
    }

    pub async fn is_there(&self) -> Result<bool, Error> {
        self.nft.has_table(TABLE).await
    }

    pub async fn edit(&mut self, edit: &Edit) -> Result<(), Error> {
        if edit.is_empty() {
            return Ok(());
        }
        self.apply(self.nft.change(TABLE), edit).await
    }

    async fn apply(&mut self, mut change: Change, edit: &Edit) -> Result<(), Error> {
        let new: Vec<Pick> = edit.picks.difference(&self.picks).copied().collect();
        for pick in &new {
            change = self.add_pick(change, *pick);
        }
        let by_map = |elements: &[(Key, Fields)]| {
            let mut by_map: HashMap<Map, Vec<SetElement>> = HashMap::new();
            for ((map, key), value) in elements {
                by_map.entry(*map).or_default().push(map.element(key, value));
            }
            by_map
        };
        let (removed, added) = (by_map(&edit.removed), by_map(&edit.added));
        for (map, set) in &self.sets {
            change = change.remove(set, removed.get(map).map_or(&[], Vec::as_slice));
            change = change.add(set, added.get(map).map_or(&[], Vec::as_slice));
        }
        self.nft.apply(change).await?;
        self.picks.extend(new);
        Ok(())
    }

    fn of(&self, map: Map) -> &Set {
        // Every map has its set, from the start.
        &self.sets[&map]
    }

    fn layout(&self, change: Change) -> Change {
        let sets = self.sets.values().chain([&self.ways, &self.clients]).chain(&self.lengths);
        let change = sets.fold(change, |change, set| change.set(set));
        let chains = ["services", "inside", "outside", "outside-local", "pick", "pick-inside", "own-inside", "refuse"];
        let change = chains.into_iter().fold(change, Change::chain);
        let change = self.filter_rules(self.base_chains(change));
        self.entrance_rules(change)
    }

    fn base_chains(&self, change: Change) -> Change {
        let nat = |hook| BaseChain::nat(hook, Priority::DstNat);
        let filter = |hook| BaseChain::filter(hook, Priority::Filter);
        let change = change
            .base_chain("prerouting", nat(NatHook::Prerouting))
            .base_chain("output", nat(NatHook::Output))
            .base_chain("postrouting", BaseChain::nat(NatHook::Postrouting, Priority::SrcNat))
            .base_chain("guard", BaseChain::filter(FilterHook::Prerouting, BEFORE_SERVICES))
            .base_chain("guard-output", BaseChain::filter(FilterHook::Output, BEFORE_SERVICES))
            .base_chain("filter-input", filter(FilterHook::Input))
            .base_chain("filter-forward", filter(FilterHook::Forward))
            .base_chain("filter-output", filter(FilterHook::Output));
        let to = |chain: &'static str| move |rule: Rule| rule.expr(Expr::Verdict(jump(chain)));
        let new_to_refuse = |rule: Rule| to("refuse")(rule.match_ct_state(CtState::NEW));
        // A pod's packet that belongs to no connection does not get the Service's address as its sender: whoever asked would
        // not know it, and would break off.
        let stray = |rule: Rule| from(rule.match_ct_state(CtState::INVALID), CmpOp::Eq, self.cluster).drop();
        // Twice: between two lookups of the same packet a change may come, and then the second finds nothing for what the
        // first has found. Whoever was sent somewhere does not come to the second rule.
        ["prerouting", "prerouting", "output", "output"]
            .into_iter()
            .fold(change, |change, chain| change.rule(chain, to("services")))
            .rule("filter-input", stray)
            .rule("filter-input", new_to_refuse)
            .rule("filter-forward", stray)
            .rule("filter-forward", new_to_refuse)
            .rule("filter-output", new_to_refuse)
            .rule("postrouting", |rule| {
                let marked = rule.match_mark_masked(MASQUERADE, MASQUERADE).set_mark_masked(0, MASQUERADE);
                marked.nat(NatStatement::masquerade().fully_random())
            })
    }

    /// Who may not enter is dropped. Whoever comes to `refuse` with the address of a Service was sent nowhere.
    fn filter_rules(&self, change: Change) -> Change {
        let reject = Expr::Reject { reject_type: ICMP_UNREACHABLE, icmp_code: PORT_UNREACHABLE };
        let guard = |rule: Rule| {
            let guarded = at_front(rule.match_ct_state(CtState::NEW)).expr(is_in(self.of(Map::Guarded), ADDRESS));
            let asker = guarded.expr(source_address(Register::Reg32_03));
            asker.expr(is_in(self.of(Map::Allowed), ADDRESS).invert()).drop()
        };
        change
            .rule("guard", guard)
            .rule("guard-output", guard)
            .rule("refuse", |rule| at_front(rule).expr(is_in(self.of(Map::Dropped), ADDRESS)).drop())
            .rule("refuse", |rule| at_front(rule).expr(is_in(self.of(Map::Refused), ADDRESS)).expr(reject.clone()))
            // It leads somewhere, but changed while this packet was looked at. The client tries again.
            .rule("refuse", |rule| at_front(rule).expr(look_up(self.of(Map::Services), ADDRESS, WAY)).drop())
            .rule("refuse", |rule| {
                rule.expr(destination_address(ADDRESS))
                    .expr(is_in(self.of(Map::Addresses), ADDRESS))
                    .expr(reject.clone())
            })
            // Not refused: a Service that is on its way is there when the client tries again.
            .rule("refuse", |rule| {
                rule.expr(destination_address(ADDRESS)).expr(is_in(self.of(Map::Blocks), ADDRESS)).drop()
            })
    }

    fn entrance_rules(&self, change: Change) -> Change {
        let way = |number: u32, chain: &str| Fields::default().number(number).to_verdict(goto(chain));
        let ways = [way(INSIDE, "inside"), way(OUTSIDE, "outside"), way(OUTSIDE_LOCAL, "outside-local")];
        let services = self.of(Map::Services);
        let mark = |rule: Rule| rule.set_mark_masked(MASQUERADE, MASQUERADE);
        let go = |chain: &'static str| move |rule: Rule| rule.expr(Expr::Verdict(goto(chain)));
        change
            .add(&self.ways, &ways)
            .rule("services", |rule| {
                let way = at_front(rule).expr(look_up(services, ADDRESS, WAY));
                way.expr(look_up(&self.ways, WAY, Register::Verdict))
            })
            // The endpoint's answer must come back here, unless it is a pod's own network that asks.
            .rule("inside", |rule| mark(from(rule, CmpOp::Neq, self.cluster)))
            .rule("inside", go("pick"))
            .rule("outside", mark)
            .rule("outside", go("pick"))
            .rule("outside-local", |rule| go("pick-inside")(from(rule, CmpOp::Eq, self.cluster)))
            .rule("outside-local", |rule| go("own-inside")(rule.match_fib_type(FibFlags::SADDR, RouteType::Local)))
            .rule("outside-local", go("pick"))
            .rule("own-inside", mark)
            .rule("own-inside", go("pick-inside"))
            .rule("pick", |rule| self.by_length(rule, false))
            .rule("pick-inside", |rule| self.by_length(rule, true))
    }

    fn by_length(&self, rule: Rule, inside: bool) -> Rule {
        let [lengths, lengths_inside] = &self.lengths;
        let lengths = if inside { lengths_inside } else { lengths };
        let way = at_front(rule).expr(look_up(self.fronts(inside), ADDRESS, WAY));
        way.expr(look_up(lengths, LENGTH, Register::Verdict))
    }

    fn fronts(&self, inside: bool) -> &Set {
        self.of(if inside { Map::Inside } else { Map::Services })
    }

    /// A chain that picks an endpoint from a list of some length, and what leads to it.
    fn add_pick(&self, change: Change, pick: Pick) -> Change {
        let name = format!("pick-{}{}-{}", if pick.inside { "inside-" } else { "" }, pick.length, pick.affinity);
        let fronts = self.fronts(pick.inside);
        let [lengths, lengths_inside] = &self.lengths;
        let lengths = if pick.inside { lengths_inside } else { lengths };
        let way = |rule: Rule| at_front(rule).expr(look_up(fronts, ADDRESS, WAY));
        let number =
            Expr::Numgen { dreg: BESIDE_LIST, kind: NumgenKind::Random, modulus: pick.length.max(1), offset: 0 };
        // The endpoint's address takes the place of its number in the list.
        let pick_one =
            |rule: Rule| way(rule).expr(number.clone()).expr(look_up(self.of(Map::Endpoints), LIST, BESIDE_LIST));
        let leave = to_destination(BESIDE_LIST, BESIDE_THAT);
        let mut change = change.chain(&name);
        if pick.affinity > 0 {
            change = self.add_affinity(change, &name, pick, &pick_one);
        }
        let length = Fields::default().number(pick.length).number(pick.affinity);
        change.rule(&name, |rule| pick_one(rule).expr(leave)).add(lengths, &[length.to_verdict(goto(&name))])
    }

    /// A client that came before goes where it went, if that is still there. The endpoint that is picked for any other is
    /// remembered. If there is no room to remember it, the rule that follows picks one all the same.
    fn add_affinity(&self, change: Change, chain: &str, pick: Pick, pick_one: &impl Fn(Rule) -> Rule) -> Change {
        const KNOWN: Register = Register::Reg32_12;
        const KNOWN_ADDRESS: Register = Register::Reg32_13;
        const KNOWN_PORT: Register = Register::Reg32_14;
        const AGAIN: Register = Register::Reg32_10;
        const AGAIN_LIST: Register = Register::Reg32_13;
        const AGAIN_CLIENT: Register = Register::Reg32_14;
        let stay = std::time::Duration::from_secs(pick.affinity.into());
        let fronts = self.fronts(pick.inside);
        let client = |rule: Rule| at_front(rule).expr(look_up(fronts, ADDRESS, WAY)).expr(source_address(BESIDE_LIST));
        let remember =
            |op, key, endpoint| DynsetExpr::new(op, self.clients.name(), key).sreg_data(endpoint).timeout(stay);
        change
            .rule(chain, |rule| {
                let known = client(rule).expr(look_up(&self.clients, LIST, KNOWN));
                let there = known.expr(is_in(self.of(Map::Members), KNOWN));
                there.expr(remember(DynsetOp::Update, LIST, KNOWN)).expr(to_destination(KNOWN_ADDRESS, KNOWN_PORT))
            })
            // The kernel wants a value here as well, and does not look at it.
            .rule(chain, |rule| client(rule).expr(remember(DynsetOp::Delete, LIST, WAY)))
            .rule(chain, |rule| {
                let picked = pick_one(rule).expr(look_up(fronts, ADDRESS, AGAIN)).expr(source_address(AGAIN_CLIENT));
                let remembered = picked.expr(remember(DynsetOp::Add, AGAIN_LIST, LIST));
                remembered.expr(to_destination(BESIDE_LIST, BESIDE_THAT))
            })
    }
}

/// Loads the front that a packet goes to.
fn at_front(rule: Rule) -> Rule {
    rule.expr(destination_address(ADDRESS)).expr(protocol(PROTOCOL)).expr(destination_port(PORT))
}

pub(super) async fn remove() -> Result<(), Error> {
    Nft::open()?.remove_table(TABLE).await
}
