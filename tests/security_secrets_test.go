package tests

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// attemptSecret matches the text form of an attempt's secret.
var attemptSecret = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// secretsOf returns the secret of the attempt that starts in a run directory. It reads the
// environment of the attempt's processes and the files whose names identify them as secrets.
func (p person) secretsOf(run string) (found []string) {
	p.t.Helper()
	add := func(text []byte) {
		for _, s := range attemptSecret.FindAll(text, -1) {
			found = append(found, string(s))
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, process := range processes {
		line, err := os.ReadFile(filepath.Join(process, "cmdline"))
		if err != nil || !bytes.Contains(line, []byte(p.s.binary)) || !bytes.Contains(line, []byte(run)) {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join(process, "environ"))
		for variable := range bytes.SplitSeq(environ, []byte{0}) {
			if bytes.HasPrefix(variable, []byte("DDPBATCH_SECRET=")) {
				add(variable)
			}
		}
	}
	err = filepath.WalkDir(run, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && strings.Contains(e.Name(), "secret") {
			text, _ := os.ReadFile(path)
			add(text)
		}
		return nil // files may disappear during the walk
	})
	if err != nil {
		p.t.Fatal(err)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// testSecretsOfAJob listens on the management network, and reads all processes and files as another
// user, while a job with secrets runs.
func testSecretsOfAJob(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	dir := alice.dir()
	run := filepath.Join(dir, "runs", "hush")
	fromFile, plain := "canary-file-"+rand.Text(), "canary-plain-"+rand.Text()
	alice.write(filepath.Join(dir, "keys"), "DATA_KEY="+fromFile+"\n")
	alice.sh(dir, "chmod 0600 keys")
	job := command("hush", 2, "/bin/sh", "-c", `printf %s "$DATA_KEY" | sha256sum >"digest.$RANK"; : >"began.$RANK"; until test -e go; do sleep 0.1; done`)
	alice.write(filepath.Join(dir, "job.toml"), job+fmt.Sprintf("[setup]\nenv = { PLAIN = %q }\n[setup.secrets]\nnames = [\"DATA_KEY\"]\nfile = \"keys\"\n", plain))

	// The ranks of n2 start late, so that the attempt still needs its secret.
	gate, real := filepath.Join(dir, "gate"), filepath.Join(s.dir, "bin", "late")
	wrapper := filepath.Join(s.dir, "bin", "wrapper")
	script := fmt.Sprintf("#!/bin/sh\nuntil test -e %s; do sleep 0.1; done\nexec %s \"$@\"\n", gate, real)
	if err := os.WriteFile(wrapper, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	late := func(argv ...string) {
		if o := finish(t, s.OnNode(t.Context(), "n2", argv...)); o.code != 0 {
			t.Fatal(o)
		}
	}
	late("sh", "-euc", `cp "$1" "$2" && chmod 0755 "$3" && mount --bind "$3" "$1"`, "sh", s.binary, real, wrapper)
	defer late("umount", s.binary)

	captured := filepath.Join(s.dir, "captured")
	listener, _ := startAttack(t, s.OnNode(t.Context(), "n2", s.attacker, "capture", "eth0", captured))
	id := alice.submit(dir, "job.toml")
	var secrets []string
	waitUntil(t, "the secret of the attempt", func() bool {
		secrets = alice.secretsOf(run)
		return len(secrets) > 0
	})
	alice.sh(dir, ": >gate")
	waitUntil(t, "both programs", func() bool {
		began, _ := filepath.Glob(filepath.Join(dir, "began.*"))
		return len(began) == 2
	})
	spy := []string{"sh", "-c", dump, "sh", dir, s.Dir()}
	seen := map[string]string{}
	for _, node := range []string{"n1", "n2"} {
		seen["mallory on "+node] = mallory.tryOn(node, "/", spy...).stdout
	}
	for _, ask := range [][]string{{"scontrol", "--details", "show", "job", id}, {"scontrol", "show", "step", id}, {"squeue", "--format=%all"}, {"squeue", "--steps", "--format=%all"}} {
		seen[strings.Join(ask, " ")] = mallory.try("/", ask...).stdout
	}
	alice.sh(dir, ": >go")
	s.completed(t, id)
	listener.stop()
	text, err := os.ReadFile(captured)
	if err != nil {
		t.Fatal(err)
	}
	seen["the listener"] = string(text)

	// The listener sees what Slurm sends, and mallory sees the processes and open files.
	mustContain(t, seen["the listener"], plain)
	for _, node := range []string{"n1", "n2"} {
		mustContain(t, seen["mallory on "+node], "run\x00--run-dir\x00"+run, "== "+filepath.Join(dir, "keys"))
	}
	for who, text := range seen {
		for _, secret := range append(secrets, fromFile) {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s has a secret: %q", who, text[max(0, i-80):i])
			}
			// Slurm does not encode what it sends, but another protocol could send bytes.
			if raw, err := hex.DecodeString(secret); err == nil && strings.Contains(text, string(raw)) {
				t.Errorf("%s has a secret in binary form", who)
			}
		}
	}
}

// testSecretsOfABatchScript converts a batch script with secrets to a job file that other users can
// read.
func testSecretsOfABatchScript(t *testing.T, s *twoUsers) {
	alice, mallory := s.people(t)
	dir := s.project(t)
	lines := []string{
		"export WANDB_API_KEY=%s", "export HF_TOKEN=%s", "export AWS_SECRET_ACCESS_KEY=%s", "export AWS_ACCESS_KEY_ID=%s",
		"export DATABASE_URL=postgres://u:%s@h/db", "export https_proxy=http://u:%s@proxy:3128", "export GITHUB_PAT=%s",
		"export PGPASSWORD=%s", "export OPENAI_KEY=%s", "export MY_SECRET=%s", "export MLFLOW_TRACKING_PASSWORD=%s",
		"export COMET_APIKEY=%s", "export SLACK_WEBHOOK=https://hooks.slack.com/services/%s", "export NEPTUNE_CREDENTIALS=%s",
		"export SSH_KEY_PASSPHRASE=%s", "export AUTH=%s", "export AZURE_STORAGE_SAS=%s",
		"wandb login %s", "huggingface-cli login --token %s", `curl -H "Authorization: Bearer %s" https://example.org`,
		"echo %s | docker login --password-stdin", `git config --global url."https://%s@github.com/".insteadOf https://github.com/`,
		"srun python3 train.py --api-key %s --lr 1", "srun python3 train.py --token=%s --lr 1", "srun python3 train.py --password %s --lr 1",
	}
	for i, line := range lines {
		secret := fmt.Sprintf("canary%02d", i)
		line = fmt.Sprintf(line, secret)
		script, job := fmt.Sprintf("%d.sh", i), fmt.Sprintf("%d.toml", i)
		text := "#!/bin/bash\n#SBATCH -N 1\n#SBATCH -t 1:00:00\n" + line + "\n"
		if !strings.HasPrefix(line, "srun ") {
			text += "srun python3 train.py --lr 1\n"
		}
		alice.write(filepath.Join(dir, script), text)
		o := alice.ddpbatch(dir, "init", "--from", script, job)
		if o.code != 0 {
			t.Errorf("%s: %v", line, o)
			continue
		}
		if strings.Contains(o.stdout+o.stderr, secret) {
			t.Errorf("%s: printed: %s", line, o)
		}
		if got := mallory.try(dir, "cat", job).stdout; strings.Contains(got, secret) {
			t.Errorf("%s: written to a file that others can read:\n%s", line, got)
		}
	}
}
