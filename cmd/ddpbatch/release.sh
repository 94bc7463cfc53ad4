#!/bin/sh
# Build the files of a release in the directory DIST: release.sh DIST VERSION. `make release` calls it.
#
# For amd64 and arm64 there are two kinds: a program with GPU support, which needs glibc 2.17 or later
# to run and a C compiler for that architecture to build, and a static program, which runs on any Linux
# and loads neither MPI nor NVIDIA's libraries. KINDS selects kinds. Each archive contains the manual
# pages, completion, schema, and examples. The same commit gives the same bytes in any directory:
# `make release-check` builds it twice.
set -eu
cd "$(dirname "$0")/../.."
dist=$1 version=$2
kinds=${KINDS:-amd64 arm64 amd64-static arm64-static}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
go=${GO:-go}
mkdir -p "$dist"
dist=$(cd "$dist" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# static ARCHITECTURE FILE builds the static program.
static() {
	GOARCH=$1 CGO_ENABLED=0 $go build -trimpath -tags static -buildvcs=false -ldflags "-buildid= -X main.linkVersion=$version" -o "$2" ./cmd/ddpbatch
}

# build ARCHITECTURE KIND writes the program to bin/ in the directory KIND.
build() {
	case $2 in
	"$host-static")
		install -D "$work/here" "$work/$2/bin/ddpbatch"
		;;
	*-static)
		static "$1" "$work/$2/bin/ddpbatch"
		;;
	*)
		case $1 in amd64) cc=x86_64-linux-gnu-gcc ;; arm64) cc=aarch64-linux-gnu-gcc ;; esac
		GOARCH=$1 CC=${CC:-$cc} ${MAKE:-make} -s build BIN="$work/$2/bin" VERSION="$version" GO="$go"
		rm -r "$work/$2/bin/glibc"
		;;
	esac
}

# The program for this machine writes the files that are equal for all kinds.
host=$($go env GOHOSTARCH)
static "$host" "$work/here"
for kind in $kinds; do
	arch=${kind%-static}
	build "$arch" "$kind"
	cmd/ddpbatch/install.sh "$work/here" "$work/$kind" "$(date -u -d "@$epoch" +%F)"
	cp LICENSE README.md "$work/$kind/"
	name=ddpbatch-$version-linux-$kind
	mv "$work/$kind" "$work/$name"
	find "$work/$name" -exec chmod u=rwX,go=rX {} +
	tar -C "$work" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --format=ustar -cf - "$name" | gzip -9n >"$dist/$name.tar.gz"
	rm -r "${work:?}/$name"
done
(cd "$dist" && sha256sum ddpbatch-"$version"-linux-*.tar.gz >SHA256SUMS && cat SHA256SUMS)
