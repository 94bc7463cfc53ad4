#!/bin/sh
# Puts what belongs to the program where a system looks for it: install.sh PROGRAM ROOT DAY writes manual
# pages, completion of bash, zsh and fish, the schema of the job file, and examples below ROOT/share. The
# program itself is put into ROOT/bin by the caller. `make install` and release.sh call it.
set -eu
program=$1 root=$2 day=$3
share=$root/share
install -d "$share/man/man1" "$share/man/man5" "$share/bash-completion/completions" \
	"$share/zsh/site-functions" "$share/fish/vendor_completions.d" "$share/ddpbatch"
"$program" manual man --day "$day" "$share/man/man1"
mv "$share"/man/man1/*.5 "$share/man/man5/"
"$program" completion bash >"$share/bash-completion/completions/ddpbatch"
"$program" completion zsh >"$share/zsh/site-functions/_ddpbatch"
"$program" completion fish >"$share/fish/vendor_completions.d/ddpbatch.fish"
"$program" schema >"$share/ddpbatch/job.schema.json"
install -d "$share/ddpbatch/examples"
install -m 644 "$(dirname "$0")"/../../jobs/examples/* "$share/ddpbatch/examples/"
