//! Calls of the kernel that a command is refused.
//!
//! A list of what is refused, not of what is allowed: commands are whatever a system has, and a list of what they all need
//! would be wrong tomorrow. What matters is out of reach on several ways.
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
    apply_filter,
};
use std::collections::BTreeMap;

/// Network; looking into other processes; mounts, namespaces and modules; clocks and names of the machine; keys of the
/// kernel; and leaving the process group, by which a command is ended.
const REFUSED: &[i64] = &[
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

/// Calls that signal processes.
const SIGNALLING: &[i64] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

/// Which processes a command may signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signals {
    /// Those behind the same walls; somebody else sees to that.
    Kept,
    /// None.
    None,
}

/// Flags with which a new process would get a namespace of its own.
const NEW_NAMESPACES: u64 = 0x7e02_0000;

/// The same calls in the other numbering that some kernels of this architecture know.
#[cfg(target_arch = "x86_64")]
const OTHER_NUMBERS: i64 = 0x4000_0000;

/// Refuses the calls to this process and all it becomes and starts.
pub(super) fn refuse(signals: Signals) -> Result<(), String> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    if signals == Signals::None {
        refused.extend(SIGNALLING.iter().map(|call| (*call, Vec::new())));
    }
    refused.insert(libc::SYS_clone, namespaces().map_err(|cause| cause.to_string())?);
    // Injecting what somebody would have typed.
    refused.insert(libc::SYS_ioctl, typing().map_err(|cause| cause.to_string())?);
    install(refused, libc::EPERM)?;
    // Its flags are in memory and cannot be looked at. Who is told that there is no such call uses the older one.
    install(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)
}

fn namespaces() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let flags = (0..64).map(|bit| 1u64 << bit).filter(|flag| NEW_NAMESPACES & flag != 0);
    flags.map(|flag| rule(0, SeccompCmpOp::MaskedEq(flag), flag)).collect()
}

fn typing() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    const TIOCSTI: u64 = 0x5412;
    const TIOCLINUX: u64 = 0x541c;
    [TIOCSTI, TIOCLINUX]
        .into_iter()
        .map(|request| rule(1, SeccompCmpOp::MaskedEq(0xffff_ffff), request))
        .collect()
}

fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Qword, operator, value)?])
}

fn install(mut calls: BTreeMap<i64, Vec<SeccompRule>>, error: i32) -> Result<(), String> {
    #[cfg(target_arch = "x86_64")]
    calls.append(&mut calls.iter().map(|(call, rules)| (call | OTHER_NUMBERS, rules.clone())).collect());
    let arch: TargetArch =
        std::env::consts::ARCH.try_into().map_err(|_| "this processor has no filter".to_owned())?;
    let error = SeccompAction::Errno(error.unsigned_abs());
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, error, arch);
    let program: seccompiler::BpfProgram =
        filter.and_then(TryInto::try_into).map_err(|cause| cause.to_string())?;
    apply_filter(&program).map_err(|cause| cause.to_string())
}
