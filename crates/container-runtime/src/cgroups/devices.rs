//! Which devices a container may use: rules, and for version 2 the small program in the kernel that applies them.

use std::{fmt, fs::File, io, os::fd::AsRawFd, path::Path};

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceKind {
    All,
    Char,
    Block,
}

/// Allows what it names; everything else is forbidden. `None` is any number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRule {
    pub kind: DeviceKind,
    pub major: Option<u32>,
    pub minor: Option<u32>,
    /// Of `r`, `w` and `m`.
    pub access: String,
}

impl DeviceRule {
    pub fn new(kind: DeviceKind, major: Option<u32>, minor: Option<u32>, access: &str) -> Self {
        Self { kind, major, minor, access: access.to_owned() }
    }

    /// Every device, for privileged containers.
    pub fn everything() -> Vec<Self> {
        vec![Self::new(DeviceKind::All, None, None, "rwm")]
    }

    /// What every container has: the devices in its /dev, terminals, and making nodes that it cannot open.
    pub fn defaults() -> Vec<Self> {
        let char_device = |major, minor| Self::new(DeviceKind::Char, Some(major), minor, "rwm");
        vec![
            Self::new(DeviceKind::Char, None, None, "m"),
            Self::new(DeviceKind::Block, None, None, "m"),
            char_device(1, Some(3)), // null
            char_device(1, Some(5)), // zero
            char_device(1, Some(7)), // full
            char_device(1, Some(8)), // random
            char_device(1, Some(9)), // urandom
            char_device(5, Some(0)), // tty
            char_device(5, Some(2)), // ptmx
            char_device(136, None),  // pts
        ]
    }
}

/// As version 1's files take it.
impl fmt::Display for DeviceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            DeviceKind::All => return write!(f, "a *:* {}", self.access),
            DeviceKind::Char => 'c',
            DeviceKind::Block => 'b',
        };
        let number = |n: Option<u32>| n.map_or("*".to_owned(), |n| n.to_string());
        write!(f, "{kind} {}:{} {}", number(self.major), number(self.minor), self.access)
    }
}

/// One instruction, as the kernel takes it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn op(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: destination | source << 4, offset, immediate }
}

// The codes of eBPF used here (Documentation/bpf/standardization/instruction-set.rst).
const LOAD_WORD: u8 = 0x61;
const AND: u8 = 0x54;
const SHIFT_RIGHT: u8 = 0x74;
const MOVE: u8 = 0xb4;
const MOVE_REGISTER: u8 = 0xbc;
const JUMP_NOT_EQUAL: u8 = 0x56;
const JUMP_NOT_EQUAL_REGISTER: u8 = 0x5e;
const EXIT: u8 = 0x95;

/// The context is `{ access_type: u32 (kind in the lower half, access above), major: u32, minor: u32 }`; the answer is 1 for yes.
/// Each rule is a block that answers yes or jumps to the next; the end is no.
pub(super) fn program(rules: &[DeviceRule]) -> Vec<Instruction> {
    // r2 kind, r3 access asked for, r4 major, r5 minor
    let mut code = vec![
        op(LOAD_WORD, 2, 1, 0, 0),
        op(AND, 2, 0, 0, 0xffff),
        op(LOAD_WORD, 3, 1, 0, 0),
        op(SHIFT_RIGHT, 3, 0, 0, 16),
        op(LOAD_WORD, 4, 1, 4, 0),
        op(LOAD_WORD, 5, 1, 8, 0),
    ];
    for rule in rules {
        let mut block = Vec::new();
        match rule.kind {
            DeviceKind::All => {}
            DeviceKind::Block => block.push(op(JUMP_NOT_EQUAL, 2, 0, 0, 1)),
            DeviceKind::Char => block.push(op(JUMP_NOT_EQUAL, 2, 0, 0, 2)),
        }
        let access = rule.access.chars().fold(0, |mask, c| {
            mask | match c {
                'm' => 1,
                'r' => 2,
                'w' => 4,
                _ => 0,
            }
        });
        if access != 7 {
            // All that is asked for must be among what is allowed.
            block.push(op(MOVE_REGISTER, 1, 3, 0, 0));
            block.push(op(AND, 1, 0, 0, access));
            block.push(op(JUMP_NOT_EQUAL_REGISTER, 1, 3, 0, 0));
        }
        if let Some(major) = rule.major {
            block.push(op(JUMP_NOT_EQUAL, 4, 0, 0, major as i32));
        }
        if let Some(minor) = rule.minor {
            block.push(op(JUMP_NOT_EQUAL, 5, 0, 0, minor as i32));
        }
        block.push(op(MOVE, 0, 0, 0, 1));
        block.push(op(EXIT, 0, 0, 0, 0));
        let length = block.len();
        for (at, instruction) in block.iter_mut().enumerate() {
            if matches!(instruction.code, JUMP_NOT_EQUAL | JUMP_NOT_EQUAL_REGISTER) {
                instruction.offset = (length - at - 1) as i16;
            }
        }
        code.extend(block);
    }
    code.extend([op(MOVE, 0, 0, 0, 0), op(EXIT, 0, 0, 0, 0)]);
    code
}

/// `union bpf_attr` as BPF_PROG_LOAD reads it, up to the last field used.
#[repr(C)]
struct LoadAttributes {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
}

/// `union bpf_attr` as BPF_PROG_ATTACH reads it.
#[repr(C)]
struct AttachAttributes {
    target: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
}

const BPF_PROG_LOAD: i32 = 5;
const BPF_PROG_ATTACH: i32 = 8;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
const BPF_F_ALLOW_MULTI: u32 = 2;

/// Attaches the rules to a group of version 2. The kernel keeps the program as long as the group exists. A group of a container
/// gets them once, when it is made; with several programs all must allow.
pub(super) fn attach(folder: &Path, rules: &[DeviceRule]) -> io::Result<()> {
    use std::os::fd::{FromRawFd, OwnedFd};

    let code = program(rules);
    let license = c"Apache-2.0";
    let load = LoadAttributes {
        program_type: BPF_PROG_TYPE_CGROUP_DEVICE,
        instruction_count: code.len() as u32,
        instructions: code.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buffer: 0,
        kernel_version: 0,
        flags: 0,
    };
    let program = bpf(BPF_PROG_LOAD, &load)?;
    // SAFETY: the call has just made this descriptor, and nobody else has it.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    let group = File::open(folder)?;
    let attach = AttachAttributes {
        target: group.as_raw_fd() as u32,
        program: program.as_raw_fd() as u32,
        attach_type: BPF_CGROUP_DEVICE,
        flags: BPF_F_ALLOW_MULTI,
    };
    bpf(BPF_PROG_ATTACH, &attach)?;
    Ok(())
}

fn bpf<T>(command: i32, attributes: &T) -> io::Result<i32> {
    // SAFETY: the attributes are laid out as this command reads them, and what they point to lives through the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}
