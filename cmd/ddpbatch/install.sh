#!/bin/sh
# Install the files that belong to the program: install.sh PROGRAM ROOT DAY writes manual pages,
# completion for bash, zsh, and fish, the schema of the job file, and examples below ROOT/share. The
# caller installs the program itself in ROOT/bin. `make install` and release.sh call it.
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
