//! What pods need of the packet filter: masquerade to the outside and to themselves, and ports of the node.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr},
};

use nlink::netlink::{
    nftables::{
        BaseChain, CmpOp, Expr, FibFlags, FilterHook, NatHook, NatStatement, Priority, Register, Rule, Set,
        SetDataType, SetElement, SetKeyType,
    },
    types::route::RouteType,
};

use super::addresses::Pod;
use crate::{
    Error,
    block::Block,
    links,
    nft::{
        Change, Fields, Nft, destination_address, destination_port, fields_of, from, is_in, jump, look_up, protocol,
        set_of, source_address, to, to_destination,
    },
    protocol_number,
};

const TABLE: &str = "ferry-pods";
const PORTS: &str = "ports";

/// The table of the node's pods.
pub(super) struct Filter {
    nft: Nft,
    /// Pods that are there from the time when the node had another block are in it, too.
    cluster_block: Block,
    /// Source and destination of a packet that a pod sends to itself, by way of a Service.
    to_itself: Set,
    /// Ports on one address of the node.
    ports_at: Set,
    /// Ports on all addresses of the node.
    ports: Set,
}

impl Filter {
    pub async fn open<'a>(cluster_block: Block, pods: impl Iterator<Item = &'a Pod>) -> Result<Self, Error> {
        use SetKeyType::{InetProto, InetService, Ipv4Addr};
        let target = || SetDataType::Value(fields_of(&[Ipv4Addr, InetService]));
        let filter = Self {
            nft: Nft::open()?,
            cluster_block,
            to_itself: set_of(TABLE, "to-itself", &[Ipv4Addr, Ipv4Addr]),
            ports_at: set_of(TABLE, "ports-at", &[Ipv4Addr, InetProto, InetService]).map(target()),
            ports: set_of(TABLE, "ports-everywhere", &[InetProto, InetService]).map(target()),
        };
        filter.write(pods).await?;
        for chain in filter.nft.dropping_forward_chains().await? {
            tracing::warn!(
                chain,
                block = %cluster_block,
                "this chain drops what it does not know, so pods may not reach anything: allow the block of the pods in it"
            );
        }
        Ok(filter)
    }

    /// Makes the table anew, in one step, with everything that these pods need.
    pub async fn write<'a>(&self, pods: impl Iterator<Item = &'a Pod>) -> Result<(), Error> {
        let (mut change, mut taken) = (self.layout(), HashSet::new());
        for pod in pods {
            // A pod may have been written down whose ports cannot be had, and not be gone yet; the others must not suffer.
            let mut ports = Ports::of(pod).unwrap_or_default();
            ports.at.retain(|(key, _)| taken.insert((true, *key)));
            ports.everywhere.retain(|(key, _)| taken.insert((false, *key)));
            change = self.add(change, pod, &ports);
        }
        self.nft.apply(change).await
    }

    pub async fn is_there(&self) -> Result<bool, Error> {
        self.nft.has_table(TABLE).await
    }

    fn layout(&self) -> Change {
        let pods = self.cluster_block;
        let (a, b, c) = (Register::Reg32_00, Register::Reg32_01, Register::Reg32_02);
        let (address, port) = (Register::Reg32_08, Register::Reg32_09);
        let masquerade = |rule: Rule| rule.nat(NatStatement::masquerade().fully_random());
        let loopback = Block::around(Ipv4Addr::LOCALHOST, 8);
        let change = self.nft.change(TABLE).replace_table().set(&self.to_itself).set(&self.ports_at).set(&self.ports);
        let change = change
            .chain(PORTS)
            .base_chain("guard", BaseChain::filter(FilterHook::Prerouting, Priority::Raw))
            .base_chain("prerouting", BaseChain::nat(NatHook::Prerouting, Priority::DstNat))
            .base_chain("output", BaseChain::nat(NatHook::Output, Priority::DstNat))
            .base_chain("postrouting", BaseChain::nat(NatHook::Postrouting, Priority::SrcNat));
        ["prerouting", "output"]
            .into_iter()
            .fold(change, |change, chain| change.rule(chain, |rule| rule.expr(Expr::Verdict(jump(PORTS)))))
            // The links of pods with ports take packets to the loopback, for the answers to the node's own programs. Those get
            // that address after this rule; what has it before was sent by a pod, to what only the node may reach.
            .rule("guard", |rule| to(rule.match_iif_prefix(links::PREFIX), CmpOp::Eq, loopback).drop())
            .rule(PORTS, |rule| {
                let key = rule.expr(destination_address(a)).expr(protocol(b)).expr(destination_port(c));
                key.expr(look_up(&self.ports_at, a, address)).expr(to_destination(address, port))
            })
            .rule(PORTS, |rule| {
                let here = rule.match_fib_type(FibFlags::DADDR, RouteType::Local);
                let key = here.expr(protocol(a)).expr(destination_port(b));
                key.expr(look_up(&self.ports, a, address)).expr(to_destination(address, port))
            })
            .rule("postrouting", |rule| {
                let both = rule.expr(source_address(a)).expr(destination_address(b));
                masquerade(both.expr(is_in(&self.to_itself, a)))
            })
            .rule("postrouting", |rule| masquerade(to(from(rule, CmpOp::Eq, loopback), CmpOp::Eq, pods)))
            .rule("postrouting", |rule| masquerade(to(from(rule, CmpOp::Eq, pods), CmpOp::Neq, pods)))
    }

    /// False if somebody else has removed the table.
    pub async fn let_in(&self, pod: &Pod) -> Result<bool, Error> {
        let change = self.add(self.nft.change(TABLE), pod, &Ports::of(pod)?);
        self.nft.apply_if_there(change).await
    }

    /// False if somebody else has removed the table.
    pub async fn shut_out(&self, pod: &Pod) -> Result<bool, Error> {
        let Ports { at, everywhere } = Ports::of(pod)?;
        let change = self.nft.change(TABLE).remove(&self.to_itself, &[to_itself(pod)]);
        let change = change.remove(&self.ports_at, &elements(&at)).remove(&self.ports, &elements(&everywhere));
        self.nft.apply_if_there(change).await
    }

    fn add(&self, change: Change, pod: &Pod, ports: &Ports) -> Change {
        let change = change.add(&self.to_itself, &[to_itself(pod)]);
        change.add(&self.ports_at, &elements(&ports.at)).add(&self.ports, &elements(&ports.everywhere))
    }

    pub async fn purge(self) -> Result<(), Error> {
        self.nft.remove_table(TABLE).await
    }
}

/// The ports of a pod, as keys and values: those on one address of the node, and those on all.
#[derive(Default)]
struct Ports {
    at: Vec<(Fields, Fields)>,
    everywhere: Vec<(Fields, Fields)>,
}

impl Ports {
    fn of(pod: &Pod) -> Result<Self, Error> {
        let (mut at, mut everywhere) = (Vec::new(), Vec::new());
        for port in &pod.ports {
            let number = protocol_number(&port.protocol)
                .ok_or_else(|| Error(format!("{} is not a protocol that has ports", port.protocol)))?;
            let target = Fields::default().address(pod.address).port(port.container_port);
            match port.host.ip() {
                IpAddr::V4(host) if !host.is_unspecified() => {
                    at.push((Fields::default().address(host).protocol(number).port(port.host.port()), target));
                }
                IpAddr::V6(host) if !host.is_unspecified() => {
                    return Err(Error(format!("port {} of {host}: pods have IPv4 addresses only", port.host.port())));
                }
                _ => everywhere.push((Fields::default().protocol(number).port(port.host.port()), target)),
            }
        }
        Ok(Self { at, everywhere })
    }
}

fn elements(ports: &[(Fields, Fields)]) -> Vec<SetElement> {
    ports.iter().map(|(key, target)| key.to(target)).collect()
}

fn to_itself(pod: &Pod) -> SetElement {
    Fields::default().address(pod.address).address(pod.address).element()
}
