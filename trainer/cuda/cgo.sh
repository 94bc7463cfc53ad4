#!/bin/sh
# Run a command with the environment that the build tag cuda requires: ddpbatch's cuda.h for
# gorgonia.org/cu and package driver, and an empty libcuda.a, because loader.c defines the driver's
# functions. No CUDA toolkit is used, even if one is installed. If the generated C files of package
# driver are missing or older than their sources, cgo.sh generates them first, with ${GO:-go}.
#
#	trainer/cuda/cgo.sh go test ./trainer/cuda/...
#
# netgo and osusergo make Go resolve host and user names with and without the tag in the same way.
set -eu
driver=$(cd "$(dirname "$0")/driver" && pwd)
if [ ! -e "$driver/loader.c" ] || [ -n "$(find "$driver/driver.tbl" "$driver/internal/tablegen" -newer "$driver/loader.c")" ]; then
	(cd "$driver" && env -u GOOS -u GOARCH CGO_ENABLED=0 "${GO:-go}" run ./internal/tablegen)
fi
# The program must not depend on its build directory, and debug information contains header paths.
map="'-ffile-prefix-map=$driver=driver'"
# Go's build cache does not track directories outside of a package.
headers=$(cat "$driver"/include/*.h | cksum | cut -d ' ' -f 1)
export CGO_ENABLED=1
export CGO_CFLAGS="-O2 '-I$driver/include' $map -DDDPBATCH_HEADERS=$headers"
export CGO_LDFLAGS="-O2 '-L$driver/lib'"
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-tags=cuda,netgo,osusergo"
exec "$@"
