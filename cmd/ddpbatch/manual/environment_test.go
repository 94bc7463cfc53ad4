package manual

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// looksLikeVariable matches strings that can be names of environment variables.
var looksLikeVariable = regexp.MustCompile(`^((DDPBATCH|SLURM|SLURMD|NCCL|GLOO|TP|UCX|OMPI|PMIX|PMI|MPI|SM|JOB|PET|TRAINING|CUDA|ROCR|PYTHON|GIT|OMP|LD|MASTER|LOCAL|GROUP|WORLD|NODE|TORCHELASTIC|KUBERNETES|XDG)_[A-Za-z0-9_]*[A-Za-z0-9]|PYTHON[A-Z]+|RANK|HOME|VIRTUAL_ENV|CONDA_PREFIX|COLUMNS|TERM|NO_COLOR)$`)

// notVariables matches such strings that are not environment variables.
var notVariables = regexp.MustCompile(`^(NODE_FAIL|SLURM_VERSION|GIT_OPTIONAL_LOCKS|GIT_TERMINAL_PROMPT|GIT_NO_LAZY_FETCH|RANK|MPI_[A-Z][a-z_]+|DDPBATCH_TEST_[A-Z]+|PET_|(JOB|SLURM|GIT)_.*_)$`)

// TestVariablesMatchCode checks that the reference lists exactly the variables in the code.
func TestVariablesMatchCode(t *testing.T) {
	documented := map[string]string{}
	for _, g := range Variables {
		for _, v := range g.Variables {
			if documented[v.Name] != "" {
				t.Errorf("%s is listed twice", v.Name)
			}
			documented[v.Name] = v.Use
		}
	}
	const top = "../../.."
	found := map[string]string{}
	for _, dir := range []string{"cmd", "jobs", "slurm", "netif", "nccl", "templates", "trainer"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, d fs.DirEntry, err error) error {
			// sbatch contains the variables of user scripts, and this package contains all of
			// them.
			if err == nil && (path == top+"/jobs/sbatch" || path == top+"/cmd/ddpbatch/manual") {
				return filepath.SkipDir
			}
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					if s, err := strconv.Unquote(l.Value); err == nil {
						found[strings.TrimSuffix(s, "=")] = path
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for s, path := range found {
		if looksLikeVariable.MatchString(s) && !notVariables.MatchString(s) && documented[s] == "" && !strings.HasPrefix(s, "CUDA_ERROR_") {
			t.Errorf("%s: the variable %s is not in cmd/ddpbatch/manual/environment.go; add it and run `make reference`", path, s)
		}
	}
	for name, use := range documented {
		if found[name] == "" && use != "read by the loader" {
			t.Errorf("cmd/ddpbatch/manual/environment.go lists %s, which the code does not use", name)
		}
	}
}
