//! Filters of system calls from files: `Localhost` profiles, in the format of the OCI runtime specification.
//!
//! A profile has any number of actions, so its program is made here: the calls one after the other, each with its conditions and
//! its action, and the default at the end. Calls of another architecture than the machine's end the process.

use std::{collections::BTreeSet, path::Path};

use serde::Deserialize;

use super::{capabilities::bit, seccomp};

/// The kernel takes no longer programs.
const LONGEST: usize = 4096;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    default_action: String,
    default_errno_ret: Option<u32>,
    #[serde(default)]
    syscalls: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    #[serde(default)]
    names: Vec<String>,
    action: String,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Option<Vec<Argument>>,
    #[serde(default)]
    includes: Option<Filter>,
    #[serde(default)]
    excludes: Option<Filter>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Argument {
    index: u32,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

/// On which machines, and with which capabilities, a rule holds.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Filter {
    caps: Vec<String>,
    arches: Vec<String>,
}

/// The programs of the profile in a file, for a container with these capabilities.
pub fn read(file: &Path, capabilities: u64) -> Result<seccomp::Programs, String> {
    let unusable = |error: String| format!("cannot use the seccomp profile {}: {error}", file.display());
    let text = std::fs::read(file).map_err(|error| unusable(error.to_string()))?;
    let profile: Profile = serde_json::from_slice(&text).map_err(|error| unusable(error.to_string()))?;
    Ok(vec![compile(&profile, capabilities).map_err(unusable)?])
}

impl Rule {
    fn holds(&self, capabilities: u64) -> bool {
        let has = |name: &String| bit(name).is_some_and(|bit| capabilities & bit != 0);
        let here = |name: &String| *name == architecture();
        let included = self.includes.as_ref().is_none_or(|filter| {
            filter.caps.iter().all(has) && (filter.arches.is_empty() || filter.arches.iter().any(here))
        });
        let excluded =
            self.excludes.as_ref().is_some_and(|filter| filter.caps.iter().any(has) || filter.arches.iter().any(here));
        included && !excluded
    }

    /// The sets of conditions under each of which it counts. An argument that is named twice means either.
    fn alternatives(&self) -> Vec<Vec<Argument>> {
        let args = self.args.clone().unwrap_or_default();
        let distinct: BTreeSet<u32> = args.iter().map(|argument| argument.index).collect();
        if distinct.len() == args.len() { vec![args] } else { args.into_iter().map(|one| vec![one]).collect() }
    }
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" }
}

/// The answer of the kernel's filters for an action (seccomp(2)).
fn answer(action: &str, errno: Option<u32>) -> Result<u32, String> {
    let errno = errno.unwrap_or(libc::EPERM as u32) & 0xffff;
    Ok(match action {
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => libc::SECCOMP_RET_KILL_THREAD,
        "SCMP_ACT_KILL_PROCESS" => libc::SECCOMP_RET_KILL_PROCESS,
        "SCMP_ACT_TRAP" => libc::SECCOMP_RET_TRAP,
        "SCMP_ACT_ERRNO" => libc::SECCOMP_RET_ERRNO | errno,
        "SCMP_ACT_TRACE" => libc::SECCOMP_RET_TRACE | errno,
        "SCMP_ACT_LOG" => libc::SECCOMP_RET_LOG,
        "SCMP_ACT_ALLOW" => libc::SECCOMP_RET_ALLOW,
        other => return Err(format!("the action {other:?} is not known")),
    })
}

/// Where a comparison leads.
#[derive(Clone, Copy)]
enum To {
    Next,
    /// The condition holds.
    Pass,
    /// The rule does not count.
    Fail,
}

enum Step {
    Load(u32),
    And(u32),
    Jump { code: u32, value: u32, then: To, otherwise: To },
}

pub(super) fn instruction(code: u32, then: u8, otherwise: u8, value: u32) -> u64 {
    u64::from(code) << 48 | u64::from(then) << 40 | u64::from(otherwise) << 32 | u64::from(value)
}

pub(super) const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
pub(super) const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const GREATER: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
pub(super) const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
pub(super) const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// `struct seccomp_data`: where the number of the call and the architecture are.
pub(super) const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// Where the numbers of the x32 calls begin, which count as this architecture's.
const X32: u32 = 0x4000_0000;

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCHITECTURE: u32 = 0xc000_00b7;

fn compile(profile: &Profile, capabilities: u64) -> Result<Vec<u64>, String> {
    let mut program = vec![
        instruction(LOAD, 0, 0, ARCHITECTURE_AT),
        instruction(EQUAL, 1, 0, AUDIT_ARCHITECTURE),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        instruction(LOAD, 0, 0, NUMBER_AT),
    ];
    if cfg!(target_arch = "x86_64") {
        // The same calls under other numbers, which no rule would see.
        program.push(instruction(AT_LEAST, 0, 1, X32));
        program.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS));
    }
    for rule in profile.syscalls.iter().filter(|rule| rule.holds(capabilities)) {
        let answer = answer(&rule.action, rule.errno_ret)?;
        let alternatives = rule.alternatives();
        // A call that this machine does not have needs no rule.
        for number in rule.names.iter().filter_map(|name| seccomp::number(name)) {
            for conditions in &alternatives {
                program.extend(block(number, conditions, answer)?);
            }
        }
    }
    let default = answer(&profile.default_action, profile.default_errno_ret)?;
    program.push(instruction(RETURN, 0, 0, default));
    if program.len() > LONGEST {
        return Err(format!("it is too long: {} instructions, of which the kernel takes {LONGEST}", program.len()));
    }
    Ok(program)
}

/// The answer for one call, where the conditions hold.
fn block(number: u32, conditions: &[Argument], answer: u32) -> Result<Vec<u64>, String> {
    let conditions = conditions.iter().map(condition).collect::<Result<Vec<_>, _>>()?;
    let steps: usize = conditions.iter().map(Vec::len).sum();
    // After a condition that does not hold, the number is loaded again for the next block.
    let again = usize::from(steps > 0);
    let offset = |distance: usize| u8::try_from(distance).map_err(|_| "it has too many conditions".to_owned());
    let mut program = vec![instruction(EQUAL, 0, offset(steps + 1 + again)?, number)];
    let fail = steps + 2;
    for steps in conditions {
        let pass = program.len() + steps.len();
        for step in steps {
            let here = program.len() + 1;
            let to = |to: To| match to {
                To::Next => Ok(0),
                To::Pass => offset(pass - here),
                To::Fail => offset(fail - here),
            };
            program.push(match step {
                Step::Load(at) => instruction(LOAD, 0, 0, at),
                Step::And(mask) => instruction(AND, 0, 0, mask),
                Step::Jump { code, value, then, otherwise } => instruction(code, to(then)?, to(otherwise)?, value),
            });
        }
    }
    program.push(instruction(RETURN, 0, 0, answer));
    if again > 0 {
        program.push(instruction(LOAD, 0, 0, NUMBER_AT));
    }
    Ok(program)
}

/// An argument has 64 bits, and the machine that runs the program 32: the upper half is looked at first.
fn condition(argument: &Argument) -> Result<Vec<Step>, String> {
    use To::{Fail, Next, Pass};
    if argument.index > 5 {
        return Err(format!("there is no argument {}", argument.index));
    }
    let low = 16 + 8 * argument.index;
    let high = low + 4;
    let halves = |value: u64| ((value >> 32) as u32, value as u32);
    let (upper, lower) = halves(argument.value);
    let jump = |code, value, then, otherwise| Step::Jump { code, value, then, otherwise };
    let (load_high, load_low) = (Step::Load(high), Step::Load(low));
    Ok(match argument.op.as_str() {
        "SCMP_CMP_EQ" => vec![load_high, jump(EQUAL, upper, Next, Fail), load_low, jump(EQUAL, lower, Next, Fail)],
        "SCMP_CMP_NE" => vec![load_high, jump(EQUAL, upper, Next, Pass), load_low, jump(EQUAL, lower, Fail, Next)],
        "SCMP_CMP_MASKED_EQ" => {
            let (upper_value, lower_value) = halves(argument.value_two);
            vec![
                load_high,
                Step::And(upper),
                jump(EQUAL, upper_value, Next, Fail),
                load_low,
                Step::And(lower),
                jump(EQUAL, lower_value, Next, Fail),
            ]
        }
        op @ ("SCMP_CMP_GT" | "SCMP_CMP_GE") => {
            let code = if op == "SCMP_CMP_GT" { GREATER } else { AT_LEAST };
            vec![
                load_high,
                jump(GREATER, upper, Pass, Next),
                jump(EQUAL, upper, Next, Fail),
                load_low,
                jump(code, lower, Next, Fail),
            ]
        }
        op @ ("SCMP_CMP_LT" | "SCMP_CMP_LE") => {
            let code = if op == "SCMP_CMP_LT" { AT_LEAST } else { GREATER };
            vec![
                load_high,
                jump(GREATER, upper, Fail, Next),
                jump(EQUAL, upper, Next, Pass),
                load_low,
                jump(code, lower, Fail, Next),
            ]
        }
        other => return Err(format!("the comparison {other:?} is not known")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel does.
    fn run(program: &[u64], number: u32, args: [u64; 6]) -> u32 {
        let load = |at: u32| match at {
            NUMBER_AT => number,
            ARCHITECTURE_AT => AUDIT_ARCHITECTURE,
            at => {
                let argument = args[(at as usize - 16) / 8];
                if at % 8 == 0 { argument as u32 } else { (argument >> 32) as u32 }
            }
        };
        let (mut register, mut at) = (0, 0);
        loop {
            let word = program[at];
            let (code, then, otherwise, value) =
                ((word >> 48) as u32, (word >> 40) as u8, (word >> 32) as u8, word as u32);
            let branch = |holds: bool| usize::from(if holds { then } else { otherwise });
            at += 1;
            match code {
                LOAD => register = load(value),
                AND => register &= value,
                EQUAL => at += branch(register == value),
                GREATER => at += branch(register > value),
                AT_LEAST => at += branch(register >= value),
                RETURN => return value,
                other => panic!("instruction {other:x}"),
            }
        }
    }

    fn profile(text: &str, capabilities: u64) -> Vec<u64> {
        compile(&serde_json::from_str(text).expect("a profile"), capabilities).expect("it compiles")
    }

    #[test]
    fn actions_and_capabilities() {
        let text = r#"{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "architectures": ["SCMP_ARCH_X86_64"], "syscalls": [
            {"names": ["read", "no_such_call"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["mkdirat"], "action": "SCMP_ACT_ERRNO"},
            {"names": ["mount"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
            {"names": ["chroot"], "action": "SCMP_ACT_KILL_PROCESS", "excludes": {"caps": ["CAP_SYS_ADMIN"]}}]}"#;
        let call = |name: &str| seccomp::number(name).expect("it is known");
        let plain = profile(text, 0);
        let answers = |program: &[u64]| {
            ["read", "mkdirat", "mount", "chroot", "write"].map(|name| run(program, call(name), [0; 6]))
        };
        let (allow, errno) = (libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_ERRNO);
        assert_eq!(answers(&plain), [allow, errno | 1, errno | 38, libc::SECCOMP_RET_KILL_PROCESS, errno | 38]);
        let admin = profile(text, bit("SYS_ADMIN").expect("it is known"));
        assert_eq!(answers(&admin), [allow, errno | 1, allow, errno | 38, errno | 38]);
        let unknown: Profile = serde_json::from_str(r#"{"defaultAction": "SCMP_ACT_NOTIFY"}"#).expect("it is read");
        assert!(compile(&unknown, 0).is_err());
    }

    #[test]
    fn every_comparison_in_64_bits() {
        let value = 0x1_0000_0005u64;
        let near = [0, 4, 5, 6, value - 1, value, value + 1, 0x2_0000_0000, u64::MAX];
        type Holds = fn(u64, u64) -> bool;
        let table: [(&str, Holds); 6] = [
            ("EQ", |a, b| a == b),
            ("NE", |a, b| a != b),
            ("GT", |a, b| a > b),
            ("GE", |a, b| a >= b),
            ("LT", |a, b| a < b),
            ("LE", |a, b| a <= b),
        ];
        for (op, holds) in table {
            let text = format!(
                r#"{{"defaultAction": "SCMP_ACT_KILL", "syscalls": [
                    {{"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [
                        {{"index": 0, "value": 7, "op": "SCMP_CMP_EQ"}},
                        {{"index": 2, "value": {value}, "op": "SCMP_CMP_{op}"}}]}},
                    {{"names": ["write"], "action": "SCMP_ACT_LOG"}}]}}"#
            );
            let program = profile(&text, 0);
            let read = seccomp::number("read").expect("it is known");
            for argument in near {
                let expected = if holds(argument, value) { libc::SECCOMP_RET_ALLOW } else { 0 };
                assert_eq!(run(&program, read, [7, 0, argument, 0, 0, 0]), expected, "{argument} {op} {value}");
                assert_eq!(run(&program, read, [8, 0, argument, 0, 0, 0]), 0);
            }
            // What comes after a condition that failed is still looked at.
            assert_eq!(run(&program, seccomp::number("write").expect("it is known"), [0; 6]), libc::SECCOMP_RET_LOG);
        }
    }

    #[test]
    fn calls_that_seem_not_to_exist() {
        let answers = |capabilities: u64| {
            let programs = seccomp::runtime_default(capabilities).expect("it compiles");
            [libc::SYS_read as u32, libc::SYS_clone3 as u32, 5000].map(|call| run(&programs[1], call, [0; 6]))
        };
        let (allow, missing) = (libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
        assert_eq!(answers(0), [allow, missing, missing]);
        assert_eq!(answers(bit("SYS_ADMIN").expect("it is known")), [allow, allow, missing]);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_other_numbers_of_the_same_calls() {
        let text =
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mount"], "action": "SCMP_ACT_ERRNO"}]}"#;
        let (program, mount) = (profile(text, 0), seccomp::number("mount").expect("it is known"));
        assert_eq!(run(&program, mount, [0; 6]), libc::SECCOMP_RET_ERRNO | 1);
        assert_eq!(run(&program, mount | X32, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS);
    }

    #[test]
    fn masks_and_alternatives() {
        let text = r#"{"defaultAction": "SCMP_ACT_KILL", "syscalls": [{"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [
            {"index": 0, "value": 4294967295, "valueTwo": 8, "op": "SCMP_CMP_MASKED_EQ"},
            {"index": 0, "value": 131072, "op": "SCMP_CMP_EQ"}]}]}"#;
        let program = profile(text, 0);
        let number = seccomp::number("personality").expect("it is known");
        let allowed = [8, 0x5_0000_0008, 131_072, 9].map(|value| run(&program, number, [value, 0, 0, 0, 0, 0]) != 0);
        assert_eq!(allowed, [true, true, true, false]);
    }
}
