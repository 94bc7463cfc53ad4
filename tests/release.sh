#!/bin/sh
# Check that a release is reproducible: two clones of the last commit, in directories with names of
# different lengths, must give archives with the same digests. KINDS selects the archives.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for copy in a another-folder-with-a-longer-name; do
	git clone -q --shared . "$work/$copy"
	make -s -C "$work/$copy" release VERSION=v0.0.0-check >"$work/$copy.sums"
done
if ! diff "$work/a.sums" "$work/another-folder-with-a-longer-name.sums"; then
	echo "release: two builds of the same commit differ" >&2
	exit 1
fi
cat "$work/a.sums"
echo "release: two builds have the same digests"
