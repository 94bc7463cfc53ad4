#!/bin/sh
# Install the requirements of the tests on a Debian machine:
# - Slurm with accounting (MariaDB), munge, and ip
# - PyTorch, with OpenBLAS because Debian's reference BLAS is thirty times slower, and Fashion-MNIST
# - Open MPI and MPICH; libpmix-dev provides the name by which Slurm finds PMIx
# - btrfs, which has quotas on every kernel
# - C compilers, also for arm64, for the build tag cuda; clang-19 with AddressSanitizer for GPU kernels
# - mandoc, zsh, fish, and jsonschema for generated files; Chromium for reports
# - Charliecloud, a container runtime
# - mmdebstrap, which builds a root directory of Debian 13
# - packages that a Debian container lacks: make, git, and the certificates for Go modules
#
# Go itself must be installed. Run this script as root, as often as you like. It installs only missing
# packages, starts no daemon, and does not change existing services.
set -eu

packages="make git ca-certificates clang-19 libclang-rt-19-dev slurmctld slurmd slurmdbd slurm-client mariadb-server munge iproute2 python3-torch libopenblas0-pthread dataset-fashion-mnist procps util-linux gcc libc6-dev strace protobuf-compiler gcc-aarch64-linux-gnu libc6-dev-arm64-cross openmpi-bin libopenmpi3 mpich libmpich12 libpmix-dev mandoc zsh fish python3-jsonschema chromium btrfs-progs mmdebstrap charliecloud"
# These packages install a service of the same name, except mariadb-server, whose service is mariadb.
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
	say "all requirements of the tests are installed"
	exit 0
fi
new_services=
for p in $with_service; do
	installed "$p" || new_services="$new_services ${p%-server}"
done

# Debian runs this program before it starts a daemon after an installation; 101 means no. The
# original is restored at the end, also after an earlier run that was killed.
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

# retry runs a command up to three times, because a mirror may fail temporarily.
retry() {
	for pause in 5 20 0; do
		"$@" && return
		[ "$pause" = 0 ] || {
			say "failed; retrying in $pause s: $*"
			sleep "$pause"
		}
	done
	fail "failed three times: $*"
}

say "installing$missing"
retry apt update
# shellcheck disable=SC2086 # splitting is intended
retry apt install --no-install-recommends $missing

# With systemd, the new services would start at boot.
if [ -n "$new_services" ] && [ -d /run/systemd/system ]; then
	# shellcheck disable=SC2086
	systemctl disable --now $new_services
fi
say "done"
