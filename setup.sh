#!/usr/bin/env bash
# Makes this checkout ready to use: the Debian packages that are missing, and .venv.
# Called by `make setup`. `make docs` calls it with `docs`, which adds what builds the site; `make
# test` with `test`, which adds BIRD, a container engine and an SSH server, none of which is started, a
# browser, Dask and checkers; drills of programs with `torch`, `mpi` or `iperf`, which add Debian's PyTorch,
# OpenMPI with mpi4py, or iperf3. `test` adds the last two also, which are small.
# Safe to run again. Exit 3: this machine lacks something that cannot be installed from here, which
# is then named.
set -euo pipefail
cd "$(dirname "$0")"
# On Debian a user's own PATH does not hold the folders of ip, tcpdump and ethtool.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

unusable() {
    printf 'setup: %s\n' "$@" >&2
    exit 3
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        unusable "this needs root, and there is no sudo: $*"
    fi
}

# The newest Python that rocelab runs on and that can make a virtual environment.
newest_python() {
    local candidate
    for candidate in $(compgen -c python3. | grep -xE 'python3\.[0-9]+' | sort -rVu) python3; do
        if "$candidate" -c '
import ensurepip, sys, venv
sys.exit(sys.version_info < (3, 11) or sys.version_info.releaselevel != "final")' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

has_frr() {
    [ -x /usr/lib/frr/bgpd ] || [ -x /usr/libexec/frr/bgpd ]
}

has_sshd() {
    [ -x /usr/sbin/sshd ]
}

has_torch() {
    /usr/bin/python3 -c 'import torch' 2>/dev/null
}

has_mpi() {
    command -v mpirun >/dev/null && /usr/bin/python3 -c 'import mpi4py' 2>/dev/null
}

has_engine() {
    { command -v dockerd && command -v docker; } >/dev/null
}

missing_packages() {
    has_frr || echo frr
    command -v mn >/dev/null || echo mininet
    { command -v ip && command -v tc; } >/dev/null || echo iproute2
    command -v ethtool >/dev/null || echo ethtool
    command -v tcpdump >/dev/null || echo tcpdump
    command -v ping >/dev/null || echo iputils-ping
    command -v tshark >/dev/null || echo tshark
    command -v clang >/dev/null || echo clang
    [ -e /usr/include/bpf/bpf_helpers.h ] || echo libbpf-dev
    command -v mmdebstrap >/dev/null || echo mmdebstrap
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || echo debian-archive-keyring
    newest_python >/dev/null || echo python3-venv
    case "${1-}" in torch) has_torch || echo python3-torch ;; esac
    case "${1-}" in mpi | test) has_mpi || printf '%s\n' openmpi-bin python3-mpi4py ;; esac
    case "${1-}" in iperf | test) command -v iperf3 >/dev/null || echo iperf3 ;; esac
    [ "${1-}" = test ] || return 0
    command -v bird >/dev/null || echo bird2
    has_sshd || echo openssh-server
    has_engine || echo docker.io
    command -v node >/dev/null || echo nodejs
    command -v chromium-headless-shell >/dev/null || echo chromium-headless-shell
}

apt() {
    as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
        apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"
}

# Labs start FRR's daemons and sshd themselves, in namespaces of their own, and tests an engine: the
# packages' services are not to run in the machine's, neither now nor after a restart. In a subshell,
# which ends by taking away what held the services, however it ends.
install_with_services_held() (
    policy=/usr/sbin/policy-rc.d
    note='# Here while rocelab installs FRR.'
    if [ -d /run/systemd/system ]; then
        trap 'as_root systemctl --runtime --quiet unmask "${services[@]}"' EXIT
        as_root systemctl --runtime --quiet mask "${services[@]}"
    elif [ ! -e $policy ] || grep -q "$note" $policy; then
        trap 'as_root rm -f $policy' EXIT
        printf '#!/bin/sh\n%s\nexit 101\n' "$note" | as_root install -m 755 /dev/stdin $policy
    fi
    apt install --no-install-recommends "$@"
)

# Units that a package does not have (ssh.socket in Debian 12) are no error.
disable_services() {
    local service
    for service in "${services[@]}"; do
        if [ -d /run/systemd/system ]; then
            as_root systemctl --quiet disable "$service" || true
        elif [ -e "/etc/init.d/${service%.*}" ]; then
            as_root update-rc.d "${service%.*}" disable
        fi
    done
}

install_packages() {
    echo "setup: installing $*"
    apt update
    # Since Debian 13 the client is a package of its own, which docker.io only recommends.
    if [[ " $* " = *" docker.io "* ]] && apt-cache show docker-cli >/dev/null 2>&1; then
        set -- "$@" docker-cli
    fi
    local services=()
    has_frr || services+=(frr.service)
    [[ " $* " != *" bird2 "* ]] || services+=(bird.service)
    [[ " $* " != *" openssh-server "* ]] || services+=(ssh.service ssh.socket)
    [[ " $* " != *" docker.io "* ]] ||
        services+=(docker.service docker.socket containerd.service)
    if [ ${#services[@]} = 0 ]; then
        apt install --no-install-recommends "$@"
    else
        install_with_services_held "$@"
        disable_services
    fi
}

pip_install() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile "$@"
}

make_environment() {
    local python large extras=sim,report,remote,live,drawings,metrics,packets,sweep,chakra,pytest
    [ "${1-}" != test ] || extras+=,cluster,dev
    [ "${1-}" != docs ] || extras+=,docs
    if ! .venv/bin/python -c '' 2>/dev/null; then
        python=$(newest_python) ||
            unusable "no Python 3.11 or later with venv: install one (Debian 12 and Ubuntu 24.04 have it)"
        echo "setup: making .venv with $("$python" --version)"
        "$python" -m venv --clear .venv
    else
        echo "setup: bringing .venv up to date"
    fi
    # The simulator's engines take a CPU half a minute to compile: while the other one installs.
    pip_install --editable ".[sim]"
    .venv/bin/rocelab simulate --compile-only 2>/dev/null &
    pip_install --editable ".[$extras]"
    wait $! || echo "setup: the simulator's engines will be compiled when they are first used"
    # Tests start hundreds of processes, as root too, which is not to write here. Of the large
    # packages little is loaded, and some have templates that are no Python.
    large='/(tests?|dask|distributed|hypothesis|llvmlite|matplotlib|mypy|numba|pyarrow|scipy)/'
    [ "${1-}" != test ] || .venv/bin/python -m compileall -qq -j 0 -x "$large" .venv/lib || true
}

mapfile -t missing < <(missing_packages "$@")
if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null ||
        unusable "this system has no apt; install what these Debian packages hold, then try again:" "  ${missing[*]}"
    install_packages "${missing[@]}"
fi
make_environment "$@"
