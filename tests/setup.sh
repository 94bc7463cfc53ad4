#!/bin/sh
# Installs what the tests need on a Debian machine: a real Slurm with its accounting (MariaDB), munge,
# ip, PyTorch for comparison with OpenBLAS under it (Debian's reference BLAS, which it has otherwise,
# is thirty times as slow), the Fashion-MNIST images, Open MPI and MPICH (libpmix-dev has the name by
# which Slurm looks for PMIx), btrfs (which has quotas on every kernel), and C compilers (for arm64
# too) for what is built with the tag cuda; clang-19 for the GPU kernels, with AddressSanitizer; mandoc, zsh, fish and jsonschema for what is generated; Chromium, in
# which a run's report is looked at; and what a container of Debian lacks: make, git, and the certificates
# by which Go gets its modules. Go itself is the machine's. Run it as root, as often as you like; it installs only what is
# missing, starts no daemon, and changes no service that was there before.
set -eu

packages="make git ca-certificates clang-19 libclang-rt-19-dev slurmctld slurmd slurmdbd slurm-client mariadb-server munge iproute2 python3-torch libopenblas0-pthread dataset-fashion-mnist procps util-linux gcc libc6-dev strace protobuf-compiler gcc-aarch64-linux-gnu libc6-dev-arm64-cross openmpi-bin libopenmpi3 mpich libmpich12 libpmix-dev mandoc zsh fish python3-jsonschema chromium btrfs-progs"
# These bring a service of the same name, but that of mariadb-server is mariadb.
with_service="slurmctld slurmd slurmdbd munge mariadb-server"

say() { echo "tests/setup.sh: $*"; }
fail() {
	say "$*" >&2
	exit 1
}

[ "$(id -u)" = 0 ] || fail "not root: run it with sudo, or as root in a container"
distribution=$( (. /etc/os-release && echo "$ID") 2>/dev/null) || distribution=unknown
[ "$distribution" = debian ] || fail "this is not Debian but $distribution: use a Debian 12 machine or container (debian:bookworm)"

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=
for p in $packages; do
	installed "$p" || missing="$missing $p"
done
if [ -z "$missing" ]; then
	say "everything the tests need is installed"
	exit 0
fi
new_services=
for p in $with_service; do
	installed "$p" || new_services="$new_services ${p%-server}"
done

# Debian asks this program before it starts a daemon after an installation; 101 means no. The
# machine's own one comes back at the end, also of an earlier run that was killed.
policy=/usr/sbin/policy-rc.d
saved=$policy.before-tests
none=$policy.none-before-tests
restore() {
	if [ -e "$saved" ]; then
		mv -f "$saved" "$policy"
	elif [ -e "$none" ]; then
		rm -f "$policy" "$none"
	fi
}
trap restore EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
restore
if [ -e "$policy" ]; then
	mv "$policy" "$saved"
else
	: >"$none"
fi
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 755 "$policy"

export DEBIAN_FRONTEND=noninteractive
apt() { apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@"; }

# retry runs a command up to three times, because a mirror may fail for a moment.
retry() {
	for pause in 5 20 0; do
		"$@" && return
		[ "$pause" = 0 ] || {
			say "failed; again in $pause seconds: $*"
			sleep "$pause"
		}
	done
	fail "failed three times: $*"
}

say "installing$missing"
retry apt update
# shellcheck disable=SC2086 # the list is meant to be split
retry apt install --no-install-recommends $missing

# Where systemd runs, the new services would start with the machine.
if [ -n "$new_services" ] && [ -d /run/systemd/system ]; then
	# shellcheck disable=SC2086
	systemctl disable --now $new_services
fi
say "done"
