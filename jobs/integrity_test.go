package jobs

import (
	"strings"
	"testing"
)

// TestIntegrityWarnings checks that a job that requests integrity protection gets a warning about
// messages that are not protected.
func TestIntegrityWarnings(t *testing.T) {
	for _, tt := range []struct {
		name, integrity, more, want string
	}{
		{"default", "", "[command]\nargv = [\"a\"]\n", ""},
		{"checksum", "checksum", "[command]\nargv = [\"a\"]\n", ""},
		{"own program", "mac", "[command]\nargv = [\"a\"]\n", "user's program"},
		{"built-in trainer", "mac", integrityTrain(""), ""},
		{"on the CPU", "mac", integrityTrain("device = \"cpu\"\n"), ""},
		{"over TCP", "mac", integrityTrain("backend = \"tcp\"\n"), ""},
		{"MPI", "mac", integrityTrain("backend = \"mpi\"\n"), "MPI library"},
		{"NCCL", "mac", integrityTrain("backend = \"nccl\"\n"), "NCCL sends"},
		{"on GPUs", "mac", integrityTrain("device = \"cuda\"\n"), "NCCL sends"},
		{"on GPUs over TCP", "mac", integrityTrain("device = \"cuda\"\nbackend = \"tcp\"\n"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "name = \"t\"\n[slurm]\nnodes = 2\n"
			if tt.integrity != "" {
				text += "[network]\nintegrity = \"" + tt.integrity + "\"\n"
			}
			job, err := Parse("job.toml", []byte(text+tt.more))
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, d := range job.Warnings() {
				if strings.Contains(d.Message, "network.integrity") {
					all = append(all, d.Message)
				}
			}
			if found := strings.Join(all, "\n"); (found == "") != (tt.want == "") || !strings.Contains(found, tt.want) {
				t.Errorf("got %q, want %q", found, tt.want)
			}
		})
	}
}

// integrityTrain returns a small training job with additional keys.
func integrityTrain(keys string) string {
	return "[train]\nepochs = 1\nbatch = 2\n" + keys + "[train.model]\nkind = \"linear\"\n" +
		"[train.data]\nkind = \"synthetic\"\ntask = \"regression\"\nsamples = 8\ninputs = 2\noutputs = 1\n" +
		"[train.optimizer]\nkind = \"sgd\"\nlr = 0.1\n"
}
