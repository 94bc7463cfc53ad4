#!/bin/sh
# Run a command in a root directory of Debian 13, which has Slurm 24.11 and PyTorch 2.6:
#
#   tests/debian13.sh [--compiler] COMMAND [ARGUMENT]...
#
# The command runs in tests/, as root, with this machine's Go, network, and processes. The first call
# builds the root directory from Debian's packages in about four minutes. Later calls use it again
# until the package list changes. Nothing of this machine changes.
#
# With --compiler, the root directory also has what torch.compile needs. It is a separate directory,
# which only benchmarks need.
set -eu
cd "$(dirname "$0")"

packages="slurmctld slurmd slurmdbd mariadb-server slurm-client munge iproute2 procps util-linux strace git
	ca-certificates python3-torch libopenblas0-pthread dataset-fashion-mnist mpich openmpi-bin libpmix-dev
	charliecloud gcc libc6-dev"
if [ "${1:-}" = --compiler ]; then
	packages="$packages g++ python3-dev python3-setuptools libtorch-dev"
	shift
fi
cache=/var/cache/ddpbatch-tests
list=$(echo $packages | tr ' ' ,)
root=$cache/debian13-$(echo "$list" | sha256sum | cut -c 1-12)

fail() {
	echo "tests/debian13.sh: $*" >&2
	exit 1
}
[ "$(id -u)" = 0 ] || fail "not root: run it with sudo, or as root in a container"
command -v mmdebstrap >/dev/null || fail "mmdebstrap not found: run tests/setup.sh"

# mirror prints the address from which this machine installs Debian's packages.
mirror() {
	apt-get indextargets --format '$(SITE) $(RELEASE)' 'Origin: Debian' 'Created-By: Packages' |
		awk '$2 !~ /-/ { print $1; exit }'
}

mkdir -p "$cache"
exec 9>"$root.lock"
flock 9
if [ ! -d "$root" ]; then
	site=$(mirror)
	if [ -z "$site" ]; then
		apt-get -q update >&2
		site=$(mirror)
	fi
	[ -n "$site" ] || fail "apt has no address of Debian's packages: run apt-get update"
	echo "tests/debian13.sh: building $root from $site" >&2
	rm -rf "$root.new"
	mmdebstrap --quiet --aptopt='Acquire::Retries "3"' --variant=minbase --include="$list" trixie "$root.new" "$site" 9>&-
	# Debian builds PyTorch without libuv. torchrun and its workers ignore USE_LIBUV.
	distributed=$root.new/usr/lib/python3/dist-packages/torch/distributed
	sed -i 's/multi_tenant=True,/multi_tenant=True, use_libuv=False,/' "$distributed"/elastic/rendezvous/*.py
	sed -i 's/is_master=False,/is_master=False, use_libuv=False,/' "$distributed/rendezvous.py"
	mv "$root.new" "$root"
fi
flock -u 9

# The root directory becomes the root of a mount namespace. A chroot is not enough, because tests
# enter the mount namespaces of nodes. This repository, Go, and Go's caches have the same paths inside.
repository=$(git rev-parse --show-toplevel)
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
PATH=$(go env GOROOT)/bin:$PATH
export PATH ROOT="$root" TEMPORARY="$temporary" DIRECTORY="$PWD"
export SHARED="$repository $(go env GOROOT GOMODCACHE GOCACHE | tr '\n' ' ')"
mkdir "$temporary/root"
mkdir -m 1777 "$temporary/tmp"
# shellcheck disable=SC2016 # the inner shell expands
unshare --mount --propagation private sh -euc '
	mount --rbind "$ROOT" "$TEMPORARY/root"
	cd "$TEMPORARY/root"
	mount --bind ../tmp tmp
	for d in proc sys dev; do
		mount --rbind "/$d" "$d"
	done
	for d in $SHARED; do
		mkdir -p ".$d"
		mount --bind "$d" ".$d"
	done
	for f in etc/hosts etc/resolv.conf; do
		if [ -e "/$f" ]; then
			: >>"$f"
			mount --bind "/$f" "$f"
		fi
	done
	pivot_root . mnt
	cd /
	umount --lazy /mnt
	exec env -C "$DIRECTORY" TMPDIR=/tmp USE_LIBUV=0 "$@"
' sh "$@"
