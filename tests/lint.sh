#!/bin/sh
# Check the format, vet, staticcheck, generated files against their generators, and the
# repository's conventions (tests/conventions_test.go).
set -eu
cd "$(dirname "$0")/.."
echo "lint: gofmt, go vet, staticcheck, generated code, conventions"
unformatted=$(git ls-files --cached --others --exclude-standard '*.go' | xargs gofmt -l)
if [ -n "$unformatted" ]; then
	echo "lint: not formatted by gofmt:" >&2
	echo "$unformatted" >&2
	exit 1
fi
go vet ./...
go tool staticcheck ./...
# Code with the build tag cuda needs a C compiler.
if command -v gcc >/dev/null; then
	trainer/cuda/cgo.sh go vet ./trainer/... ./nccl/... ./cmd/... ./tests/gpusim/...
	trainer/cuda/cgo.sh go tool staticcheck ./trainer/cuda/... ./nccl/... ./trainer ./cmd/... ./tests/gpusim/...
elif [ -n "${CI:-}" ]; then
	echo "lint: CI requires gcc for the build tag cuda" >&2
	exit 1
else
	echo "lint: gcc not found: skipping code with the build tag cuda"
fi
go test -count=1 ./trainer/gemm/internal/asmgen ./trainer/vec/internal/vecgen ./trainer/cuda/driver/internal/tablegen ./trainer/cuda/kernels/internal/ptxgen
go test -count=1 -run 'TestImportRules|TestTopLevelEntries|TestPackageDocs|TestDocComments|TestDocumentLinks|TestDebian13Tests' ./tests
go test -count=1 -run 'TestReferenceIsCurrent|TestVariablesMatchCode' ./cmd/ddpbatch/...
