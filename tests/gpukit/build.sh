#!/bin/sh
# Build the archive for checks on a GPU machine: build.sh ARCHIVE. `make gpu-kit` calls it. The
# archive has the program, the tests of the GPU device, and run.py, and is smaller than 48 MiB.
# BIN is a directory with ddpbatch and engine.test that are built already.
set -eu
archive=$1
kit=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$kit/../.." && pwd)
max=$((48 << 20))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
to=$work/ddpbatch-gpu-kit
mkdir -p "$to/bin"

if [ -n "${BIN:-}" ]; then
	cp "$BIN/ddpbatch" "$BIN/engine.test" "$to/bin/"
else
	(cd "$root" && ${MAKE:-make} -s build BIN="$work/build")
	cp "$work/build/ddpbatch" "$to/bin/"
	glibc=$work/build/glibc
	(cd "$root" && trainer/cuda/cgo.sh "${GO:-go}" test -c -trimpath -ldflags "-s -w -extldflags '$glibc/libdl.so $glibc/libpthread.so'" -o "$to/bin/engine.test" ./trainer/cuda/engine)
	strip "$to/bin/ddpbatch"
fi
cp "$kit/run.py" "$kit/peer.py" "$kit/limits.py" "$root/LICENSE" "$to/"
mkdir -p "$(dirname "$archive")"
tar -C "$work" --owner=0 --group=0 --numeric-owner -czf "$archive.new" ddpbatch-gpu-kit
size=$(stat -c %s "$archive.new")
if [ "$size" -ge "$max" ]; then
	rm "$archive.new"
	echo "build.sh: the archive has $size bytes, want less than $max" >&2
	exit 1
fi
mv "$archive.new" "$archive"
echo "$archive: $size bytes"
