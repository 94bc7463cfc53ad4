package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A batch script with secrets is converted to a job file, which others may read.
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
