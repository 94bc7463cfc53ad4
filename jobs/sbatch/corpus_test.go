package sbatch

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// constructs are parts of batch scripts that the corpus of TestDifferential must have. A conversion that is never
// compared with its script can be wrong without a note.
var constructs = []string{
	// Directives.
	`#SBATCH.* --no-requeue`, `#SBATCH.* --exclusive\n`, `#SBATCH.* --exclusive=user`, `#SBATCH.* --cpus-per-gpu=`, `#SBATCH.* --mem-per-gpu=`,
	`#SBATCH.* --ntasks-per-gpu=`, `#SBATCH.* --gres-flags=`, `#SBATCH.* --overcommit`, `#SBATCH.* --licenses=`, `#SBATCH.* --time-min=`,
	`#SBATCH.* --environment=`, `#SBATCH.* --gres=gpu:1080Ti:1`, `#SBATCH.* --gpus-per-socket=`, `#SBATCH.* --gpus-per-task=`, `#SBATCH.* --array=`,
	// Options of srun.
	`srun.* --ntasks-per-gpu`, `srun.* --cpus-per-gpu`, `srun.* --tres-per-task`, `srun.* --hint`, `srun.* --threads-per-core`,
	`srun.* --bcast`, `srun.* --reservation`, `srun.* --export`, `srun.* --container-image`, `srun.* --distribution`,
	// Launchers and programs.
	`\nibrun `, `\nconda run `, `\nmpiexec `, `\nmpirun `, `\njupyter `, `xargs `, `torchrun `, `accelerate launch`, `deepspeed `, `singularity exec`,
}

// TestCorpus checks that each construct is in a script of the corpus.
func TestCorpus(t *testing.T) {
	files, err := filepath.Glob("testdata/differential/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var corpus []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		corpus = append(corpus, text...)
	}
	for _, construct := range constructs {
		if !regexp.MustCompile(construct).Match(corpus) {
			t.Errorf("no script of the corpus matches %s", construct)
		}
	}
}
