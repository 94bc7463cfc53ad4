package sbatch

import (
	"errors"
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
	b.WriteString("#:schema " + jobs.SchemaURL + "\n# A job file for ddpbatch, converted from a batch script.\n\n")
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

// maxRejections is the maximum number of attempts to remove rejected values from the job file.
const maxRejections = 20

// dropRejectedKeys removes values that the job file rejects, such as a number of ranks that
// cannot share the GPUs evenly, and adds a note for each.
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
				message = "not valid in a job file"
			}
			r.note(0, key, message)
			if field := map[string]*int{"slurm.nodes": &j.nodes, "slurm.tasks_per_node": &j.tasks, "slurm.gpus_per_node": &j.gpus,
				"slurm.cpus_per_task": &j.cpus}[key]; field != nil {
				*field = 0
			}
			if field := map[string]*string{"site": &j.site, "setup.conda": &j.conda, "setup.venv": &j.venv, "command.workdir": &j.workdir}[key]; field != nil {
				*field = ""
			}
			if field := map[string]*[]string{"setup.lines": &j.lines, "setup.modules": &j.modules, "setup.container.options": &j.containerOptions,
				"setup.container.mounts": &j.mounts}[key]; field != nil {
				*field = nil
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
		r.note(0, "--mem-per-cpu="+j.memPerCPU, "set slurm.mem, the memory per node")
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
			r.note(0, "--job-name="+j.name, "not a valid run name")
		}
		j.name = "job"
	}
	text := func(value *string, key string) {
		if hasSecret(*value) {
			r.note(0, *value, key+" must not contain a secret")
			*value = ""
		}
		if *value != "" && (!isValidText(*value) || strings.HasPrefix(*value, "-")) {
			r.note(0, *value, "not a valid value of "+key)
			*value = ""
		}
	}
	text(&j.conda, "setup.conda")
	text(&j.venv, "setup.venv")
	text(&j.workdir, "command.workdir")
	text(&j.image, "setup.container.image")
	filter := func(list []string, key string, ok func(string) bool) []string {
		var kept []string
		for _, s := range list {
			switch {
			case key != "command.argv" && hasSecret(s):
				r.note(0, s, key+" must not contain a secret: keep it in a script that only you can read, or in a variable of setup.secrets")
			case ok(s) && isValidText(s):
				kept = append(kept, s)
			default:
				r.note(0, s, "not a valid value of "+key)
			}
		}
		return kept
	}
	acceptAll := func(string) bool { return true }
	j.modules = filter(j.modules, "setup.modules", acceptAll)
	for name, value := range j.slurm {
		if hasSecret(value) {
			delete(j.slurm, name)
			r.note(0, "slurm."+name, "it must not contain a secret")
		}
	}
	j.lines = filter(j.lines, "setup.lines", acceptAll)
	j.argv = filter(j.argv, "command.argv", acceptAll)
	j.mounts = filter(j.mounts, "setup.container.mounts", func(s string) bool {
		outside, inside, both := strings.Cut(s, ":")
		return strings.HasPrefix(outside, "/") && (!both || strings.HasPrefix(inside, "/"))
	})
	j.containerOptions = filter(j.containerOptions, "setup.container.options", func(s string) bool { return !strings.ContainsAny(s, " \t") })
	if len(j.argv) == 0 || j.argv[0] == "" {
		j.argv = []string{"false"}
		r.note(0, "the command", "set command.argv")
	}
}
