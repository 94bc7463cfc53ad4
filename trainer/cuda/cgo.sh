#!/bin/sh
# Runs a command with what building the tag cuda takes: our cuda.h for gorgonia.org/cu and package
# driver, and an empty libcuda.a, because loader.c has the driver's functions. No CUDA toolkit is
# used, even where there is one.
#
#	trainer/cuda/cgo.sh go test ./trainer/cuda/...
#
# netgo and osusergo have names and users looked up by Go, with the tag as without it.
set -eu
driver=$(cd "$(dirname "$0")/driver" && pwd)
# The program must not depend on where it was built, and debug information names the headers.
map="'-ffile-prefix-map=$driver=driver'"
# Go's build cache does not look into folders outside of a package.
headers=$(cat "$driver"/include/*.h | cksum | cut -d ' ' -f 1)
export CGO_ENABLED=1
export CGO_CFLAGS="-O2 '-I$driver/include' $map -DDDPBATCH_HEADERS=$headers"
export CGO_LDFLAGS="-O2 '-L$driver/lib'"
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-tags=cuda,netgo,osusergo"
exec "$@"
