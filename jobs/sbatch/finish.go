package sbatch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// maxRejections is the maximum number of attempts to remove rejected values from the job file.
const maxRejections = 20

// dropRejectedKeys removes values that the job file rejects, such as a number of ranks that cannot share
// the GPUs evenly, and adds a note for each.
func (r *reader) dropRejectedKeys() {
	j := r.job
	for range maxRejections {
		var found jobs.Diagnostics
		if _, err := jobs.Parse("", j.toml()); !errors.As(err, &found) {
			return
		}
		for _, d := range found {
			key, _, _ := strings.Cut(d.Key, "[")
			message := d.Message
			if r.isSuspicious(message) {
				message = "the job file does not take the value"
			}
			r.note(0, key, message)
			if into := map[string]*int{"slurm.nodes": &j.nodes, "slurm.tasks_per_node": &j.tasks, "slurm.gpus_per_node": &j.gpus,
				"slurm.cpus_per_task": &j.cpus}[key]; into != nil {
				*into = 0
			}
			if into := map[string]*string{"site": &j.site, "setup.conda": &j.conda, "setup.venv": &j.venv, "command.workdir": &j.workdir}[key]; into != nil {
				*into = ""
			}
			if into := map[string]*[]string{"setup.lines": &j.lines, "setup.modules": &j.modules, "setup.container.options": &j.containerOptions,
				"setup.container.mounts": &j.mounts}[key]; into != nil {
				*into = nil
			}
			if strings.HasPrefix(key, "setup.container.image") {
				j.image = ""
			}
			name := key[strings.LastIndexByte(key, '.')+1:]
			delete(j.slurm, name)
			delete(j.env, name)
		}
	}
}

// setMemory converts --mem-per-cpu to the memory per node.
func (r *reader) setMemory() {
	j := r.job
	if j.memPerCPU == "" || j.slurm["mem"] != "" {
		return
	}
	size := slurmMemory(j.memPerCPU)
	unit := size[max(0, len(size)-1):]
	size = strings.TrimSuffix(size, unit)
	n, err := strconv.Atoi(size)
	cores := max(1, j.tasks) * max(1, j.cpus)
	if err != nil || n <= 0 || n > 1<<20 || cores > 1<<20 || !j.setIfValid("mem", fmt.Sprintf("%d%s", n*cores, unit)) {
		r.note(0, "--mem-per-cpu="+j.memPerCPU, "write slurm.mem, for a node")
	}
}

// dropInvalid removes values that are not valid in a job file or that contain a secret, and adds a
// note for each.
func (r *reader) dropInvalid() {
	j := r.job
	if j.tasks == 0 && j.gpus == 0 {
		j.tasks = 1
	}
	if j.workdir == "." {
		j.workdir = "" // directory of the job file
	}
	var name jobs.Name
	if name.UnmarshalTOML(j.name) != nil {
		if j.name != "" {
			r.note(0, "--job-name="+j.name, "it cannot name a folder")
		}
		j.name = "job"
	}
	text := func(value *string, key string) {
		if hasSecret(*value) {
			r.note(0, *value, key+" must not have a secret")
			*value = ""
		}
		if *value != "" && (!isValidText(*value) || strings.HasPrefix(*value, "-")) {
			r.note(0, *value, key+" does not take it")
			*value = ""
		}
	}
	text(&j.conda, "setup.conda")
	text(&j.venv, "setup.venv")
	text(&j.workdir, "command.workdir")
	text(&j.image, "setup.container.image")
	keep := func(list []string, key string, ok func(string) bool) []string {
		var kept []string
		for _, s := range list {
			switch {
			case key != "command.argv" && hasSecret(s):
				r.note(0, s, key+" must not have a secret: keep it in a script that only you can read, or in a variable of setup.secrets")
			case ok(s) && isValidText(s):
				kept = append(kept, s)
			default:
				r.note(0, s, key+" does not take it")
			}
		}
		return kept
	}
	any := func(string) bool { return true }
	j.modules = keep(j.modules, "setup.modules", any)
	for name, value := range j.slurm {
		if hasSecret(value) {
			delete(j.slurm, name)
			r.note(0, "slurm."+name, "it must not have a secret")
		}
	}
	j.lines = keep(j.lines, "setup.lines", any)
	j.argv = keep(j.argv, "command.argv", any)
	j.mounts = keep(j.mounts, "setup.container.mounts", func(s string) bool {
		outside, inside, both := strings.Cut(s, ":")
		return strings.HasPrefix(outside, "/") && (!both || strings.HasPrefix(inside, "/"))
	})
	j.containerOptions = keep(j.containerOptions, "setup.container.options", func(s string) bool { return !strings.ContainsAny(s, " \t") })
	if len(j.argv) == 0 || j.argv[0] == "" {
		j.argv = []string{"false"}
		r.note(0, "the command", "write it as command.argv")
	}
}
