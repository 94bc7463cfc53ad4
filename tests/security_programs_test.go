package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testGitConfiguration uses a directory from another user whose Git configuration names a program.
func testGitConfiguration(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	home, project := alice.dir(), s.project(t)
	canary := filepath.Join(home, "ran-by-git")
	mallory.sh(project, `mkdir repository && cd repository
git init -q . && git config user.email mallory@example.org && git config user.name mallory
echo 'print("hello")' >train.py
printf '%s' "$1" >job.toml
echo '*.py filter=x diff=x merge=x' >.gitattributes
git add -A && git commit -qm one
program="sh -c 'id -un >>$2; cat'"
git config filter.x.clean "$program"
git config filter.x.smudge "$program"
git config filter.x.process "$program"
git config diff.x.textconv "$program"
git config diff.external "$program"
git config core.fsmonitor "$program"
git config core.sshCommand "$program"
git config core.pager "$program"
git config core.hooksPath hooks
mkdir hooks && for hook in post-index-change reference-transaction pre-commit; do
	printf '#!/bin/sh\nid -un >>%s\n' "$2" >hooks/$hook && chmod +x hooks/$hook
done
tar -cf ../received.tar .`, command("git", 1, "/bin/true"), canary)
	unpack := func(name string) string {
		dir := filepath.Join(home, name)
		alice.sh(home, `mkdir "$1" && tar -C "$1" --no-same-owner -xf "$2" && touch "$1/train.py"`, dir, filepath.Join(project, "received.tar"))
		return dir
	}
	alice.sh(unpack("control"), "git diff >/dev/null 2>&1 || true; git add train.py >/dev/null 2>&1 || true")
	if _, err := os.Stat(canary); err != nil {
		t.Fatalf("git itself runs no program of this configuration: %v", err)
	}
	for _, args := range [][]string{{"check"}, {"submit", "--dry-run"}, {"launch"}, {"submit", "--wait"}} {
		os.Remove(canary)
		dir := unpack(strings.Join(args, ""))
		if o := alice.ddpbatch(dir, append(args, "job.toml")...); o.code != 0 {
			t.Errorf("%v: %v", args, o)
		}
		if _, err := os.Stat(canary); err == nil {
			t.Errorf("%v ran a program of the Git configuration", args)
		}
	}
}

// testValuesAreNoInstructions uses values in a job file that a shell, sbatch, or Slurm could
// interpret as instructions.
func testValuesAreNoInstructions(t *testing.T, s *twoUsers) {
	alice, _ := s.people(t)
	dir := alice.dir()
	canary := filepath.Join(dir, "canary")
	values := []string{
		"$(touch " + canary + ")", "`touch " + canary + "`", "a; touch " + canary, "a' ; touch " + canary + " ; '",
		`a" ; touch ` + canary + ` ; "`, "--wrap=touch " + canary, "x #SBATCH --wrap=id", "%j%u%%", "*", "~", `\`, `a\`, "${IFS}", "!!", "&& id", "-rf", "é", "a  b",
	}
	text, err := json.Marshal(append([]string{"/usr/bin/printf", `<%s>\n`}, values...))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"$(touch x)", "a'b", "a;b", "--wrap=id", "a#b"} {
		path := fmt.Sprintf("%d.toml", i)
		alice.write(filepath.Join(dir, path), fmt.Sprintf("name = %q\n[slurm]\nnodes = 1\ntime = \"00:10:00\"\n[command]\nargv = [\"true\"]\n", name))
		o := alice.ddpbatch(dir, "submit", "--dry-run", path)
		if o.code == 0 { // the name is valid; bash must be able to parse the script
			if got := alice.try(dir, "bash", "-n", "-c", o.stdout); got.code != 0 {
				t.Errorf("name %q: the script is %v\n%s", name, got, o.stdout)
			}
		}
	}
	job := fmt.Sprintf("name = \"values\"\n[slurm]\nnodes = 1\ntime = \"00:10:00\"\n[setup.env]\nVALUE = %q\n[command]\nargv = %s\n", values[0], text)
	alice.write(filepath.Join(dir, "job.toml"), job)
	log := s.completed(t, alice.submit(dir, "job.toml"))
	for _, v := range values {
		mustContain(t, log, "<"+v+">")
	}
	mustNotExist(t, canary)
}

// testInventoryOfAnotherUser reads another user's description of a host's interfaces. The interface
// names would become values of shell variables.
func testInventoryOfAnotherUser(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	dir, project := alice.dir(), s.project(t)
	canary := filepath.Join(dir, "canary")
	o := alice.ddpbatch(dir, "netif", "--dump")
	if o.code != 0 || !strings.Contains(o.stdout, `"hsn0"`) {
		t.Fatal(o)
	}
	for i, name := range []string{
		"x';touch " + canary + ";'", "$(touch " + canary + ")", "`touch " + canary + "`", "a\ntouch " + canary + "\n", `a\'`, "=a", "^a", "a,b", "eth0 -x", "x\u2028y", "'\x00'",
	} {
		quoted, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(project, fmt.Sprintf("%d.json", i))
		mallory.write(path, strings.NewReplacer(`"hsn0"`, string(quoted), `"eth0"`, string(quoted), `"docker0"`, string(quoted)).Replace(o.stdout))
		got := alice.try(dir, append(bareRank(0, 1, 1), "sh", "-c", `lines=$("$1" env --inventory "$2"); code=$?; eval "$lines"; exit $code`, "sh", s.binary, path)...)
		if got.code < 0 || got.code > 5 {
			t.Errorf("%q: %v", name, got)
		}
		mustSteerNothing(t, []string{"env", name}, got)
	}
	mustNotExist(t, canary)
}
