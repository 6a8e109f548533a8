//! Reports which sandbox protections are active on this machine.
use super::fact;
use outlast::tools::sandbox::{EnvironmentExposure, LandlockSupport, Protections, protections};

/// Reports each protection, and the fallback if it is missing.
pub(super) fn report() {
    let Protections { landlock, namespaces, environment, cgroup } = protections();
    let status = match landlock {
        LandlockSupport::Missing => "missing: `shell` and MCP servers with `sandbox` do not start",
        LandlockSupport::Files => "commands are restricted to their directories",
        LandlockSupport::FilesAndSignals => {
            "commands are restricted to their directories and cannot signal other processes"
        }
    };
    fact("landlock", status);
    match namespaces {
        Ok(()) => fact(
            "namespaces",
            "commands see other files read-only, and no processes or shared memory outside",
        ),
        Err(why) => fact(
            "namespaces",
            &format!(
                "missing ({why}): seccomp refuses `chmod`, `chown`, attributes, times and shared memory"
            ),
        ),
    }
    let status = if cgroup {
        "unsandboxed programs are killed together"
    } else {
        "none: unsandboxed programs are killed one by one"
    };
    fact("cgroup", status);
    let status = match environment {
        EnvironmentExposure::Hidden => "hidden from other processes of this user",
        EnvironmentExposure::UnsandboxedPrograms => {
            "readable for programs without a sandbox, because root may not drop CAP_SYS_PTRACE here; grant CAP_SETPCAP"
        }
        EnvironmentExposure::SameUser => "readable for this user",
    };
    fact("environment", status);
}
