package sbatch

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// TestIsSecret checks which variables count as secrets, by name and by value.
func TestIsSecret(t *testing.T) {
	hex40 := strings.Repeat("0123456789", 4)
	for _, c := range []struct {
		name, value string
		want        bool
	}{
		{name: "WANDB_API_KEY", value: "a1b2c3d4", want: true},
		{name: "HF_TOKEN", value: "a1b2c3d4", want: true},
		{name: "AWS_ACCESS_KEY_ID", value: "a1b2c3d4", want: true},
		{name: "AWS_SECRET_ACCESS_KEY", value: "/a1b2/c3d4", want: true},
		{name: "GITHUB_PAT", value: "a1b2c3d4", want: true},
		{name: "PGPASSWORD", value: "a1b2c3d4", want: true},
		{name: "MYSQL_PWD", value: "a1b2c3d4", want: true},
		{name: "SSHPASS", value: "a1b2c3d4", want: true},
		{name: "DB_PASS", value: "a1b2c3d4", want: true},
		{name: "OPENAI_KEY", value: "a1b2c3d4", want: true},
		{name: "MASTER_KEY", value: "a1b2c3d4", want: true},
		{name: "COMET_APIKEY", value: "a1b2c3d4", want: true},
		{name: "SLACK_WEBHOOK_URL", value: "https://example.org/a", want: true},
		{name: "NEPTUNE_CREDENTIALS", value: "a1b2c3d4", want: true},
		{name: "SSH_KEY_PASSPHRASE", value: "a1b2 c3d4", want: true},
		{name: "AUTH", value: "a1b2c3d4", want: true},
		{name: "NGROK_AUTHTOKEN", value: "a1b2c3d4", want: true},
		{name: "AZURE_STORAGE_SAS", value: "sv=2022&sig=abc", want: true},
		{name: "AZURE_STORAGE_CONNECTION_STRING", value: "AccountName=a", want: true},
		{name: "mlflow_tracking_password", value: "a1b2c3d4", want: true},
		{name: "API_TOKENS", value: "a1b2c3d4", want: true},
		{name: "KEY", value: "abcdefghijklmnop", want: true},
		{name: "KEY", value: "SwordFish", want: true},
		{name: "key", value: "abcdefghijklmnop", want: true},
		{name: "--api-key", value: "a1b2c3d4", want: true},
		{name: "logger.api_key", value: "a1b2c3d4", want: true},

		{name: "URL", value: "postgres://u:a1b2@host/db", want: true},
		{name: "URL", value: "redis://:a1b2@host:6379/0", want: true},
		{name: "https_proxy", value: "http://u:a1b2@proxy:3128", want: true},
		{name: "URL", value: "https://a1b2@github.com/x", want: true},
		{name: "URL", value: "https://h/x?access_token=a1b2", want: true},
		{name: "URL", value: "https://hooks.slack.com/services/T0/B0/x", want: true},
		{name: "X", value: "hf_" + hex40, want: true},
		{name: "X", value: "sk-proj-A1b2c3d4e5f6g7h8i9j0k", want: true},
		{name: "X", value: "ghp_" + hex40, want: true},
		{name: "X", value: "github_pat_" + hex40, want: true},
		{name: "X", value: "glpat-" + hex40, want: true},
		{name: "X", value: "xoxb-123456789012-abc", want: true},
		{name: "X", value: "AKIAIOSFODNN7EXAMPLE", want: true},
		{name: "X", value: hex40, want: true},
		{name: "X", value: "local-" + hex40, want: true},
		{name: "X", value: "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", want: true},
		{name: "HEADERS", value: "Authorization: Bearer a1b2c3", want: true},
		{name: "HEADERS", value: "x-api-key: a1b2c3", want: true},
		{name: "EXTRA_ARGS", value: "--lr 1 --token a1b2c3", want: true},
		{name: "EXTRA_ARGS", value: "--token ${X:-a1b2c3}", want: true},
		{name: "EXTRA_ARGS", value: "--name ${API_KEY:-a1b2c3}", want: true},
		{name: "HF_TOKEN", value: "${HF_TOKEN:-a1b2c3}", want: true},
		{name: "CONFIG", value: `{"api_key": "a1b2c3"}`, want: true},
		{name: "DSN", value: "Server=x;Password=a1b2;", want: true},

		{name: "prompt_key", value: "a1b2c3d4", want: true},
		{name: "my_api_key", value: "swordfish", want: true},
		{name: "--encryption-key", value: "swordfish", want: true},
		{name: "DATABASE_KEY", value: "swordfish", want: true},
		{name: "--wandbKey", value: "a1b2c3", want: true},
		{name: "apiKey", value: "a1b2c3", want: true},
		{name: "os.environ['API_KEY']", value: "a1b2c3", want: true},
		{name: "LOGIN_OTP", value: "a1b2c3", want: true},
		{name: "SEED_PHRASE", value: "gold fox", want: true},
		{name: "SERVICE", value: "sk_live_a1b2c3d4e5f6g7h8", want: true},
		{name: "SERVICE", value: "SG.a1b2c3d4e5f6g7h8.a1b2c3d4e5f6g7h8", want: true},
		{name: "BOT", value: "123456789:AAa1b2c3d4e5f6g7h8a1b2c3d4e5f6g7", want: true},
		{name: "URL", value: "https://b.s3.example.org/k?X-Amz-Signature=a1b2c3", want: true},
		{name: "ODBC", value: "Server=h;Uid=u;Pwd=a1b2c3;", want: true},
		{name: "HEADER", value: "Authorization: token a1b2c3", want: true},
		{name: "CURL", value: "-uada:a1b2c3", want: true},
		{name: "CURL", value: "--user=ada:a1b2c3", want: true},

		{name: "padToken", value: "<pad>"},
		{name: "sortKey", value: "length"},
		{name: "data.messages_key", value: "prompt"},
		{name: "--energy-key", value: "total_energy"},
		{name: "DOCKER", value: "-u 1000:1000"},
		{name: "PYTHON_OPTIONS", value: "-u -X dev"},
		{name: "SINGULARITY_OPTIONS", value: "--pwd=/work"},
		{name: "TOKENIZERS_PARALLELISM", value: "false"},
		{name: "TOKENIZER", value: "gpt2"},
		{name: "MAX_TOKENS", value: "2048"},
		{name: "MAX_TOKENS", value: "${MAX_TOKENS:-2048}"},
		{name: "MAX_N_TOKEN", value: "${MAX_N_TOKEN-640}"},
		{name: "HF_TOKEN", value: "${HF_TOKEN:-}"},
		{name: "TRAIN_TOKENS", value: "300B"},
		{name: "TRAIN_TOKENS", value: "2*10^11"},
		{name: "COMMENT", value: "Key=Monitoring,Value=ON"},
		{name: "CODE", value: "log.event(key=constants.CACHE_CLEAR)"},
		{name: "EOS_TOKEN", value: "</s>"},
		{name: "placeholder_token", value: "<cat-toy>"},
		{name: "--initializer_token", value: "toy"},
		{name: "PAD_TOKEN_ID", value: "50256"},
		{name: "AUTHOR", value: "Ada"},
		{name: "GIT_AUTHOR_NAME", value: "Ada"},
		{name: "PATH", value: "/opt/bin:/usr/bin"},
		{name: "PATCH_SIZE", value: "16"},
		{name: "PATIENCE", value: "10"},
		{name: "PWD", value: "/home/ada"},
		{name: "MY_KEYBINDINGS", value: "emacs"},
		{name: "KEYBOARD", value: "us"},
		{name: "SORT_KEY", value: "length"},
		{name: "BYPASS", value: "dataloader"},
		{name: "NUM_PASS", value: "3"},
		{name: "USE_AUTH", value: "true"},
		{name: "SSH_AUTH_SOCK", value: "/tmp/agent"},
		{name: "XAUTHORITY", value: "/home/ada/.Xauthority"},
		{name: "GOOGLE_APPLICATION_CREDENTIALS", value: "/home/ada/gcp.json"},
		{name: "SSH_KEY", value: "$HOME/.ssh/id_ed25519"},
		{name: "SSL_PRIVATE_KEY", value: "/etc/ssl/private.pem"},
		{name: "HF_TOKEN_PATH", value: "/home/ada/token"},
		{name: "HF_TOKEN", value: ""},
		{name: "HF_TOKEN", value: "$TOKEN"},
		{name: "HF_TOKEN", value: "$(cat token)"},
		{name: "NCCL_IB_PKEY", value: "0x8001"},
		{name: "NCCL_DEBUG", value: "INFO"},
		{name: "OMP_NUM_THREADS", value: "8"},
		{name: "TORCH_DISTRIBUTED_DEBUG", value: "DETAIL"},
		{name: "MASTER_ADDR", value: "n1"},
		{name: "GIT_COMMIT", value: hex40},
		{name: "SASREC_LAYERS", value: "24"},
		{name: "MODEL", value: "/hub/models--a--b/snapshots/" + hex40 + "/model.bin"},
		{name: "URL", value: "https://example.org:8080/a@v2"},
		{name: "URL", value: "ssh://git@example.org/a.git"},
		{name: "URL", value: "abfss://data@account.dfs.core.windows.net/a"},
		{name: "http_proxy", value: "http://proxy:3128"},
		{name: "URL", value: "postgres://u:$PW@host/db"},
		{name: "NOTES", value: "token pruning, with a secret sauce"},
		{name: "ENVNAME", value: "sk-learn-benchmarks-and-others"},
		{name: "EXTRA_ARGS", value: "--token $HF_TOKEN --max-tokens 2048"},
		{name: "EXTRA_ARGS", value: "--token ${HF_TOKEN:-} --max-n-token \"${MAX_N_TOKEN:-640}\""},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			if got := isSecret(c.name, c.value); got != c.want {
				t.Errorf("isSecret(%q, %q) is %v", c.name, c.value, got)
			}
		})
	}
}

// TestReadKeepsNoSecret checks that neither the job file nor a note contains a secret. Each canary
// in the script represents one.
func TestReadKeepsNoSecret(t *testing.T) {
	src, err := os.ReadFile("testdata/canaries.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, launch, names string }{
		{name: "python", launch: "srun python train.py", names: "API_KEY TOKEN"},
		{name: "torchrun", launch: "torchrun --nproc_per_node 2 train.py", names: "API_KEY TOKEN"},
		{name: "container", launch: "srun apptainer exec --env MY_TOKEN=canary50 image.sif python train.py", names: "API_KEY TOKEN MY_TOKEN"},
		{name: "inline", launch: `srun bash -c 'export DB_PASS=canary51; python train.py --lr 1'`, names: "DB_PASS"},
		{name: "inline, not understood", launch: `srun bash -c 'for i in 1 2; do OTHER_TOKEN=canary52 ./run; done'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			script := strings.ReplaceAll(string(src), "LAUNCH", c.launch)
			got, err := Read("job.sh", []byte(script), testOptions)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := jobs.Parse("job.toml", got.TOML); err != nil {
				t.Errorf("%v\n%s", err, got.TOML)
			}
			canary := regexp.MustCompile(`canary\d+`)
			if found := canary.FindAllString(string(got.TOML), -1); len(found) > 0 {
				t.Errorf("the job file has %q:\n%s", found, got.TOML)
			}
			var names []string
			for _, n := range got.Notes {
				if found := canary.FindAllString(n.Text+n.Reason, -1); len(found) > 0 {
					t.Errorf("note %+v has %q", n, found)
				}
				names = append(names, n.Text)
			}
			if !got.HasEnviron {
				t.Error("HasEnviron is false, and the script exports a variable")
			}
			// The notes name every omitted variable and how to set it.
			notes := strings.Join(names, "\n") + "\n"
			for name := range strings.FieldsSeq(`WANDB_API_KEY AWS_ACCESS_KEY_ID DATABASE_URL https_proxy GITHUB_PAT OPENAI_KEY
				COMET_APIKEY SLACK_WEBHOOK NEPTUNE_CREDENTIALS SSH_KEY_PASSPHRASE AUTH AZURE_STORAGE_SAS COPY PLAIN_TOKEN ` + c.names) {
				if !strings.Contains(notes, "the value of "+name+"\n") {
					t.Errorf("no note has %s", name)
				}
				if !strings.Contains(string(got.TOML), `"`+name+`"`) {
					t.Errorf("setup.secrets.names does not have %s:\n%s", name, got.TOML)
				}
			}
			if !strings.Contains(string(got.TOML), "export EPOCHS=3") {
				t.Errorf("the harmless variable is missing:\n%s", got.TOML)
			}
		})
	}
}

// TestReadNotesSecretArguments checks that a note says that a secret remains an argument of the program.
func TestReadNotesSecretArguments(t *testing.T) {
	got, err := Read("job.sh", []byte("#!/bin/bash\n#SBATCH --nodes=1\nsrun python train.py --api-key a1b2c3d4\n"), testOptions)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, n := range got.Notes {
		if n.Text == "$API_KEY" && strings.Contains(n.Reason, "every user of a node can read") {
			found++
		}
	}
	if found != 1 {
		t.Errorf("got notes %+v", got.Notes)
	}
}

// TestReadHidesSecretsUsedElsewhere checks that a value is hidden wherever the script uses it,
// also before a line shows that it is a secret.
func TestReadHidesSecretsUsedElsewhere(t *testing.T) {
	for _, c := range []struct{ name, lines string }{
		{name: "exported before", lines: "export OTHER=canary\nexport API_TOKEN=$OTHER\nsrun python train.py"},
		{name: "exported in one line", lines: "export OTHER=canary API_TOKEN=canary\nsrun python train.py"},
		{name: "printed before", lines: "echo canary\nexport API_TOKEN=canary\nsrun python train.py"},
		{name: "default of a secret", lines: "export OTHER=${API_TOKEN:-canary}\nsrun python train.py --name ${API_TOKEN:-canary}"},
		{name: "argument before", lines: "T=canary\nsrun python train.py --name $T --token $T"},
		{name: "part of an argument", lines: "T=canary\nsrun python train.py --token $T --name run-$T"},
		{name: "part of an option", lines: "export API_TOKEN=canary\nsrun python train.py --canary"},
		{name: "registry of the image", lines: "srun apptainer exec --docker-password canary docker://image python train.py"},
		{name: "code", lines: `srun python -c "import os; os.environ['API_TOKEN'] = 'x'; os.environ['API_TOKEN']='canary'"`},
		{name: "input of a command", lines: "ssh-add <<< canary\nsrun python train.py"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Read("job.sh", []byte("#!/bin/bash\n#SBATCH --nodes=1\n"+c.lines+"\n"), testOptions)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := jobs.Parse("job.toml", got.TOML); err != nil {
				t.Errorf("%v\n%s", err, got.TOML)
			}
			if strings.Contains(string(got.TOML), "canary") {
				t.Errorf("the job file has it:\n%s", got.TOML)
			}
			for _, n := range got.Notes {
				if strings.Contains(n.Text+n.Reason, "canary") {
					t.Errorf("note %+v has it", n)
				}
			}
		})
	}
}

// TestFilesOfSecrets checks that the setup reads a secret from a file as the script does, and that the
// job file contains no secret.
func TestFilesOfSecrets(t *testing.T) {
	for _, c := range []struct {
		lines string
		want  string // in the job file; empty if a note changes what runs or setup.secrets has the name
	}{
		{"export HF_TOKEN=$(cat ~/.hf_token)", `export HF_TOKEN=$(cat ~/.hf_token)`},
		{"export HF_TOKEN=\"$(< $HOME/token)\"", `export HF_TOKEN=\"$(<$HOME/token)\"`},
		{"hf_token=`cat $HOME/token.txt`\nhuggingface-cli login --token $hf_token", `huggingface-cli login --token $hf_token`},
		{"wandb login $WANDB_API_KEY", `wandb login $WANDB_API_KEY`},
		{"export HF_TOKEN=$(cat <<< canary)", ""},
		{"export HF_TOKEN=$(echo canary)", ""},
		{"export HF_TOKEN=canary$(cat token)", ""},
		{"huggingface-cli login --token canary", ""},
		{"huggingface-cli login --token=canary", ""},
		{"docker login -uada -pcanary", ""},
		{"wandb login --relogin canary", ""},
	} {
		t.Run(c.lines, func(t *testing.T) {
			got, err := Read("job.sh", []byte("#!/bin/bash\n#SBATCH --ntasks=1\nsource ~/.bashrc\n"+c.lines+"\nsrun python train.py\n"), testOptions)
			if err != nil {
				t.Fatal(err)
			}
			job, err := jobs.Parse("job.toml", got.TOML)
			if err != nil {
				t.Fatal(err)
			}
			isNoted := got.Changes() > 0 || len(job.Setup.Secrets.Names) > 0
			if text := string(got.TOML); !strings.Contains(text, c.want) || strings.Contains(text, "canary") || isNoted != (c.want == "") {
				t.Errorf("got notes %+v and\n%s\nwant %q", got.Notes, text, c.want)
			}
		})
	}
}
