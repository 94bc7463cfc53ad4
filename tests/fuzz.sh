#!/bin/sh
# Fuzz the parsers of external input: fuzz.sh TIME REST. Each target of the main formats (job files,
# host lists, Slurm's environment, checkpoint headers, frames) runs for TIME, each other target for
# REST.
#
# A failing input is printed and stored in testdata/fuzz of its package, where go test uses it from
# then on. Inputs that only extend coverage stay in Go's build cache for the next run.
set -eu
cd "$(dirname "$0")/.."
time=$1
rest=$2
chief="jobs:FuzzParse slurm:FuzzExpandHosts slurm:FuzzTaskFromEnv trainer/safetensors:FuzzReadHeader trainer/collective/internal/mesh:FuzzFrame"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cache=$(go env GOCACHE)/fuzz
module=$(go list -m)
found=0

# fuzz DIRECTORY TARGET TIME
fuzz() {
	program=$work/$(echo "$1" | tr / -).test
	[ -e "$program" ] || go test -c -fuzz . -o "$program" "./$1"
	if (cd "$1" && exec "$program" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$3" -test.parallel 1 \
		-test.fuzzcachedir "$cache/$module/$1") >"$work/out" 2>&1; then
		if ! grep -q '^fuzz: elapsed: ' "$work/out"; then
			echo "fuzz: $1 $2 did not run:" >&2
			cat "$work/out" >&2
			exit 1
		fi
		inputs=$(sed -n 's/^fuzz: elapsed: .*execs: \([0-9]*\).*/\1/p' "$work/out" | tail -n 1)
		echo "fuzz: $1 $2: ${inputs:-only known} inputs in $3"
		return
	fi
	input=$(sed -n 's/^ *Failing input written to //p' "$work/out")
	# Before Go 1.27, reaching the time limit may look like a failure (go.dev/issue/75804).
	if [ -z "$input" ] && [ "$(grep -v '^fuzz: ' "$work/out" | sed 's/ ([0-9.]*s)//' | tr -s ' \n' ' ')" = "--- FAIL: $2 context deadline exceeded FAIL " ]; then
		echo "fuzz: $1 $2: no failure in $3"
		return
	fi
	found=$((found + 1))
	echo "fuzz: $1 $2 failed:" >&2
	cat "$work/out" >&2
	if [ -n "$input" ]; then
		echo "fuzz: $1/$input:" >&2
		cat "$1/$input" >&2
	fi
}

for target in $chief; do
	fuzz "${target%:*}" "${target#*:}" "$time"
done
grep -r --include='*_test.go' '^func Fuzz' . | sed 's|^\./\(.*\)/[^/]*_test\.go:func \(Fuzz[A-Za-z0-9_]*\).*|\1:\2|' | sort >"$work/all"
for target in $(cat "$work/all"); do
	case " $chief " in
	*" $target "*) ;;
	*) fuzz "${target%:*}" "${target#*:}" "$rest" ;;
	esac
done
[ "$found" = 0 ] || {
	echo "fuzz: $found failures" >&2
	exit 1
}
