#!/bin/sh
# Format, vet, staticcheck, generated assembly against its generators, and the house's own
# rules (tests/house_test.go).
set -eu
cd "$(dirname "$0")/.."
echo "lint: gofmt, go vet, staticcheck, generated code, house rules"
unformatted=$(git ls-files --cached --others --exclude-standard '*.go' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
	echo "lint: not formatted by gofmt:" >&2
	echo "$unformatted" >&2
	exit 1
fi
go vet ./...
go tool staticcheck ./...
go test -count=1 ./trainer/gemm/internal/asmgen ./trainer/vec/internal/vecgen
go test -count=1 -run 'TestHouse' ./tests
