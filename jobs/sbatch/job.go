package sbatch

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// job is the job file under construction.
type job struct {
	name, site                   string
	nodes, tasks, allTasks, cpus int // 0 if not given
	gpus, allGPUs, taskGPUs      int
	memPerCPU                    string
	exclusive                    bool
	slurm                        map[string]string // other keys of [slurm]
	lines, modules               []string
	conda, venv                  string
	env                          map[string]string
	secrets                      []string // names of environment variables
	image, runtime               string
	containerOptions, mounts     []string
	torchrun                     bool
	argv                         []string
	workdir                      string
}

func newJob() *job { return &job{slurm: map[string]string{}, env: map[string]string{}} }

func (j *job) set(key, value string) { j.slurm[key] = value }

// setIfValid sets a key of [slurm] if the value is valid, and reports whether it is.
func (j *job) setIfValid(key, value string) bool {
	src := fmt.Sprintf("name = \"a\"\n[command]\nargv = [\"a\"]\n[slurm]\n%s = %s\n", key, quote(value))
	if value == "" || !isValidText(value) {
		return false
	}
	if _, err := jobs.Parse("", []byte(src)); err != nil {
		return false
	}
	j.slurm[key] = value
	return true
}

// divideTotals converts totals for the whole job to values per node.
func (j *job) divideTotals() {
	nodes := max(1, j.nodes)
	if j.tasks == 0 && j.allTasks > 0 && j.allTasks%nodes == 0 {
		j.tasks, j.allTasks = j.allTasks/nodes, 0
	}
	if j.gpus == 0 && j.taskGPUs > 0 {
		j.gpus = j.taskGPUs * max(1, j.tasks)
	}
	if j.gpus == 0 && j.allGPUs > 0 && j.allGPUs%nodes == 0 {
		j.gpus, j.allGPUs = j.allGPUs/nodes, 0
	}
}

// isValidText reports whether a job file may contain a text: valid UTF-8 without control
// characters or invisible marks.
func isValidText(s string) bool {
	var t jobs.Text
	return t.UnmarshalTOML(s) == nil && strings.ToValidUTF8(s, "") == s
}

// quote returns s as a TOML string.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func quoteAll(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// toml returns the job file.
func (j *job) toml() []byte {
	var b strings.Builder
	key := func(name, value string) { fmt.Fprintf(&b, "%s = %s\n", name, value) }
	number := func(name string, n int) {
		if n > 0 {
			key(name, strconv.Itoa(n))
		}
	}
	word := func(name, value string) {
		if value != "" {
			key(name, quote(value))
		}
	}
	list := func(name string, values []string) {
		if len(values) > 0 {
			key(name, quoteAll(values))
		}
	}
	b.WriteString("#:schema " + jobs.SchemaURL + "\n# A job file for ddpbatch, made of a batch script.\n\n")
	key("name", quote(j.name))
	word("site", j.site)
	b.WriteString("\n[slurm]\n")
	number("nodes", max(1, j.nodes))
	number("tasks_per_node", j.tasks)
	number("gpus_per_node", j.gpus)
	number("cpus_per_task", j.cpus)
	for _, name := range slices.Sorted(maps.Keys(j.slurm)) {
		word(name, j.slurm[name])
	}
	if j.exclusive {
		key("exclusive", "true")
	}
	if len(j.lines)+len(j.modules) > 0 || j.conda+j.venv != "" {
		b.WriteString("\n[setup]\n")
		list("lines", j.lines)
		list("modules", j.modules)
		word("conda", j.conda)
		word("venv", j.venv)
	}
	if len(j.env) > 0 {
		b.WriteString("\n[setup.env]\n")
		for _, name := range slices.Sorted(maps.Keys(j.env)) {
			key(name, quote(j.env[name]))
		}
	}
	if len(j.secrets) > 0 {
		b.WriteString("\n[setup.secrets]\n")
		list("names", j.secrets)
	}
	if j.image != "" {
		b.WriteString("\n[setup.container]\n")
		word("image", j.image)
		word("runtime", j.runtime)
		list("options", j.containerOptions)
		list("mounts", j.mounts)
	}
	b.WriteString("\n[command]\n")
	key("argv", quoteAll(j.argv))
	if j.torchrun {
		key("launcher", quote("torchrun"))
	}
	word("workdir", j.workdir)
	return []byte(b.String())
}
