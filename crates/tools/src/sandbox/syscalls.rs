//! The system calls that a sandboxed command is refused.
//!
//! This is a deny-list, not an allow-list. Commands are arbitrary programs of the system, and a list of everything they
//! need would soon be outdated. The critical resources are also protected in other ways.
use super::Isolation;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use std::collections::BTreeMap;

/// Network; inspecting other processes; mounts, namespaces and modules; clocks and names of the machine; kernel keys;
/// and leaving the process group, by which a command is ended.
const REFUSED_CALLS: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_fanotify_init,
    libc::SYS_process_mrelease,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_vhangup,
    libc::SYS_setsid,
    libc::SYS_setpgid,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
];

/// Calls that send signals.
const SIGNAL_CALLS: &[i64] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

/// Calls on every architecture that have no name in `libc` yet.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_FILE_SETATTR: i64 = 469;

/// Calls that change the permissions, owners, attributes or times of a file, or its size without opening it.
const METADATA_CALLS: &[i64] = &[
    libc::SYS_truncate,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_SETXATTRAT,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

/// Calls that share memory, semaphores and messages with any process of the system.
const SHARED_MEMORY_CALLS: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Calls whose first argument is the process that they change; zero is the calling one.
const PROCESS_CALLS: &[i64] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

/// The processes that a command may signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalScope {
    /// Those in the same sandbox. Another mechanism enforces this.
    SameSandbox,
    /// None.
    None,
}

/// Flags that put a new process into its own namespace.
const NEW_NAMESPACES: u64 = 0x7e02_0000;

/// The same calls in the alternative numbering (x32) of some kernels.
#[cfg(target_arch = "x86_64")]
const X32_BIT: i64 = 0x4000_0000;

/// The set-user-ID and set-group-ID bits of a file's mode.
const SET_ID: [u64; 2] = [0o4000, 0o2000];

/// The flags with which `open` creates a file and uses the mode.
const CREATE_FLAGS: [u64; 2] = [
    0o100,        // O_CREAT
    0o20_000_000, // O_TMPFILE, without O_DIRECTORY
];

/// Requests of `ioctl` that inject input into a terminal or change the flags of a file.
const IOCTL_REQUESTS: [u64; 5] = [
    0x5412,      // TIOCSTI
    0x541c,      // TIOCLINUX
    0x4008_6602, // FS_IOC_SETFLAGS
    0x4004_6602, // FS_IOC32_SETFLAGS
    0x401c_5820, // FS_IOC_FSSETXATTR
];

/// Requests of `ioctl` and `fcntl` that make the kernel send signals to any process.
const OWNER_REQUESTS: [u64; 2] = [0x8901, 0x8902];
const OWNER_COMMANDS: [u64; 3] = [8, 10, 15]; // F_SETOWN, F_SETSIG, F_SETOWN_EX

/// Refuses these calls to this process and all its descendants.
pub(super) fn install_filter(signals: SignalScope, isolation: Isolation) -> Result<(), String> {
    let refused = refused_calls(signals, isolation).map_err(|cause| cause.to_string())?;
    install(refused, libc::EPERM)?;
    // Their arguments are in memory and cannot be inspected. With `ENOSYS`, programs fall back to the older calls.
    let hidden = [libc::SYS_clone3, libc::SYS_openat2];
    install(hidden.into_iter().map(|call| (call, Vec::new())).collect(), libc::ENOSYS)
}

type SyscallRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns the refused calls with the refused arguments. A call without arguments is refused entirely.
fn refused_calls(signals: SignalScope, isolation: Isolation) -> Result<SyscallRules, BackendError> {
    let whole = |calls: &[i64]| calls.iter().map(|call| (*call, Vec::new())).collect::<SyscallRules>();
    let mut refused = whole(REFUSED_CALLS);
    refused.insert(libc::SYS_clone, namespaces()?);
    refused.extend(set_id()?);
    let mut requests = IOCTL_REQUESTS.to_vec();
    if signals == SignalScope::None {
        refused.append(&mut whole(SIGNAL_CALLS));
        requests.extend(OWNER_REQUESTS);
        refused.insert(libc::SYS_fcntl, one_of(1, &OWNER_COMMANDS)?);
    }
    refused.insert(libc::SYS_ioctl, one_of(1, &requests)?);
    if isolation == Isolation::Filter {
        refused.append(&mut whole(METADATA_CALLS));
        refused.append(&mut whole(SHARED_MEMORY_CALLS));
        // An open file may get the current time, as `touch` does.
        let named_or_timed = [1, 2]
            .map(|argument| rule(vec![condition(argument, ArgumentWidth::Pointer, SeccompCmpOp::Ne, 0)?]));
        refused.insert(libc::SYS_utimensat, named_or_timed.into_iter().collect::<Result<_, _>>()?);
        for call in PROCESS_CALLS {
            refused.insert(*call, vec![other_than(0, 0)?]);
        }
        refused.insert(libc::SYS_setpriority, vec![other_than(0, 0)?, other_than(1, 0)?]);
        // IOPRIO_WHO_PROCESS
        refused.insert(libc::SYS_ioprio_set, vec![other_than(0, 1)?, other_than(1, 0)?]);
    }
    Ok(refused)
}

/// Returns rules for the flags that put a new process into its own namespace.
fn namespaces() -> Result<Vec<SeccompRule>, BackendError> {
    let flags = (0..64).map(|bit| 1u64 << bit).filter(|flag| NEW_NAMESPACES & flag != 0);
    flags.map(|flag| rule(vec![has_all_bits(0, flag)?])).collect()
}

/// Returns rules for every way to set the set-user-ID or set-group-ID bit. A later user of such a file would run it as
/// its owner.
fn set_id() -> Result<SyscallRules, BackendError> {
    let mode = |argument| {
        SET_ID.iter().map(move |bit| rule(vec![has_all_bits(argument, *bit)?])).collect::<Result<Vec<_>, _>>()
    };
    let created = |flags: u8, mode: u8| {
        let both = CREATE_FLAGS.iter().flat_map(|creates| SET_ID.iter().map(move |bit| (*creates, *bit)));
        both.map(|(creates, bit)| rule(vec![has_all_bits(flags, creates)?, has_all_bits(mode, bit)?]))
            .collect::<Result<Vec<_>, _>>()
    };
    let mut refused = BTreeMap::from([
        (libc::SYS_fchmod, mode(1)?),
        (libc::SYS_fchmodat, mode(2)?),
        (SYS_FCHMODAT2, mode(2)?),
        (libc::SYS_mknodat, mode(2)?),
        (libc::SYS_openat, created(2, 3)?),
    ]);
    #[cfg(target_arch = "x86_64")]
    refused.extend([
        (libc::SYS_chmod, mode(1)?),
        (libc::SYS_creat, mode(1)?),
        (libc::SYS_mknod, mode(1)?),
        (libc::SYS_open, created(1, 2)?),
    ]);
    Ok(refused)
}

/// Matches an argument that is one of these numbers.
fn one_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    let is = |value: &u64| rule(vec![condition(argument, ArgumentWidth::Number, SeccompCmpOp::Eq, *value)?]);
    values.iter().map(is).collect()
}

/// Matches an argument that differs from this number.
fn other_than(argument: u8, value: u64) -> Result<SeccompRule, BackendError> {
    rule(vec![condition(argument, ArgumentWidth::Number, SeccompCmpOp::Ne, value)?])
}

/// Matches an argument that has all these bits.
fn has_all_bits(argument: u8, bits: u64) -> Result<SeccompCondition, BackendError> {
    condition(argument, ArgumentWidth::Pointer, SeccompCmpOp::MaskedEq(bits), bits)
}

/// The part of an argument that the kernel uses.
#[derive(Clone, Copy)]
enum ArgumentWidth {
    Number,
    Pointer,
}

fn condition(
    argument: u8,
    width: ArgumentWidth,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    let length = match width {
        ArgumentWidth::Number => SeccompCmpArgLen::Dword,
        ArgumentWidth::Pointer => SeccompCmpArgLen::Qword,
    };
    SeccompCondition::new(argument, length, operator, value)
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions)
}

fn install(mut calls: BTreeMap<i64, Vec<SeccompRule>>, error: i32) -> Result<(), String> {
    #[cfg(target_arch = "x86_64")]
    calls.append(&mut calls.iter().map(|(call, rules)| (call | X32_BIT, rules.clone())).collect());
    let arch: TargetArch = std::env::consts::ARCH
        .try_into()
        .map_err(|_| "there is no seccomp filter for this processor".to_owned())?;
    let error = SeccompAction::Errno(error.unsigned_abs());
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, error, arch);
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(|cause| cause.to_string())?;
    apply_filter(&program).map_err(|cause| cause.to_string())
}
