package sbatch

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// job is the job file under construction.
type job struct {
	name, site string
	nameGiven  bool

	// Directives; 0 if not given.
	nodes, tasks, allTasks, cpus int
	gpus, allGPUs, taskGPUs      int
	gpuTasks, gpuCPUs            int // --ntasks-per-gpu, --cpus-per-gpu
	gpusPerNodeGiven             bool
	distribution                 string // placement of the ranks
	gpuType                      string
	memPerCPU, memPerGPU         string
	exclusive                    bool
	outNodes, outTasks, outGPUs  int // layout of the job file
	outCPUs                      jobs.Cores

	slurm                    map[string]string // other keys of [slurm] with a string
	raw                      map[string]string // other keys of [slurm], in TOML
	options, stepOptions     []string
	array                    string // sweep.array
	mailUser                 string
	mailEvents               []string
	lines, modules           []string
	steps                    []string // [setup] steps, in TOML; they replace lines and modules
	conda, venv              string
	env                      map[string]string
	secrets                  []string // names of environment variables
	image, runtime           string
	directiveImage           string // sbatch --image, which only shifter reads
	containerOptions, mounts []string
	torchrun                 bool
	once                     bool // the program runs once, on the first node
	single                   bool // the script starts one process, which is not a launcher of ranks
	torchTasks               int
	argv                     []string
	workdir                  string
	stopSignal               string
	shellDir                 string // directory as bash code, if only a shell knows it
}

func newJob() *job {
	return &job{slurm: map[string]string{}, raw: map[string]string{}, env: map[string]string{}}
}

// setRaw sets a key of [slurm] to a value in TOML if ddpbatch accepts it, and reports whether it
// does. It only checks gpus_per_node, which toml writes.
func (j *job) setRaw(key, value string) bool {
	section := fmt.Sprintf("[slurm]\n%s = %s\n", key, value)
	if key == "gpus_per_node" {
		return isValidText(value) && isAccepted(section)
	}
	if !isValidText(value) || !isAccepted(section+"gpus_per_node = 1\n") {
		return false
	}
	j.raw[key] = value
	return true
}

// isAccepted reports whether ddpbatch accepts a section of a job file.
func isAccepted(section string) bool {
	_, err := jobs.Parse("", []byte("name = \"a\"\n[command]\nargv = [\"a\"]\n"+section))
	return err == nil
}

// addOption adds an option of sbatch that has no key, and reports whether the job file accepts it.
func (j *job) addOption(option string) bool { return j.addTo(&j.options, "options", option) }

// addStepOption adds an option of srun that has no key, and reports whether the job file accepts
// it.
func (j *job) addStepOption(option string) bool {
	return j.addTo(&j.stepOptions, "step_options", option)
}

func (j *job) addTo(list *[]string, key, option string) bool {
	all := append(slices.Clone(*list), option)
	if hasSecret(option) || !isValidText(option) || !j.setRaw(key, quoteAll(all)) {
		return false
	}
	*list = all
	return true
}

// setIfValid sets a key of [slurm] if the value is valid, and reports whether it is.
func (j *job) setIfValid(key, value string) bool {
	if value == "" || !isValidText(value) || !isAccepted(fmt.Sprintf("[slurm]\n%s = %s\n", key, quote(value))) {
		return false
	}
	j.slurm[key] = value
	return true
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

// A tomlWriter writes a job file. Its methods number, text, and list omit empty values.
type tomlWriter struct{ strings.Builder }

func (w *tomlWriter) section(name string) { w.WriteString("\n[" + name + "]\n") }

func (w *tomlWriter) key(name, value string) { w.WriteString(name + " = " + value + "\n") }

func (w *tomlWriter) number(name string, n int) {
	if n > 0 {
		w.key(name, strconv.Itoa(n))
	}
}

func (w *tomlWriter) text(name, value string) {
	if value != "" {
		w.key(name, quote(value))
	}
}

func (w *tomlWriter) list(name string, values []string) {
	if len(values) > 0 {
		w.key(name, quoteAll(values))
	}
}

// toml returns the text of the job file.
func (j *job) toml() []byte {
	var w tomlWriter
	w.WriteString("#:schema " + jobs.SchemaURL + "\n# A job file for ddpbatch, converted from a batch script.\n\n")
	w.key("name", quote(j.name))
	w.text("site", j.site)
	j.writeSlurm(&w)
	j.writeSetup(&w)
	w.section("command")
	w.key("argv", quoteAll(j.argv))
	if j.torchrun {
		w.text("launcher", "torchrun")
	}
	if j.once {
		w.text("run", "once")
	}
	w.text("stop_signal", j.stopSignal)
	w.text("workdir", j.workdir)
	if j.array != "" {
		w.section("sweep")
		w.text("array", j.array)
	}
	return []byte(w.String())
}

func (j *job) writeSlurm(w *tomlWriter) {
	w.section("slurm")
	w.number("nodes", max(1, j.outNodes))
	w.number("tasks_per_node", j.outTasks)
	if j.gpuType != "" && j.outGPUs > 0 {
		w.text("gpus_per_node", j.gpuType+":"+strconv.Itoa(j.outGPUs))
	} else {
		w.number("gpus_per_node", j.outGPUs)
	}
	if j.outCPUs == jobs.AllCores {
		w.text("cpus_per_task", "all")
	} else {
		w.number("cpus_per_task", int(j.outCPUs))
	}
	for _, name := range slices.Sorted(maps.Keys(j.slurm)) {
		w.text(name, j.slurm[name])
	}
	if j.exclusive {
		w.key("exclusive", "true")
	}
	for _, name := range slices.Sorted(maps.Keys(j.raw)) {
		w.key(name, j.raw[name])
	}
}

func (j *job) writeSetup(w *tomlWriter) {
	if len(j.lines)+len(j.modules)+len(j.steps) > 0 || j.conda+j.venv != "" {
		w.section("setup")
		if len(j.steps) > 0 {
			w.key("steps", "[\n    "+strings.Join(j.steps, ",\n    ")+",\n]")
		}
		w.list("lines", j.lines)
		w.list("modules", j.modules)
		w.text("conda", j.conda)
		w.text("venv", j.venv)
	}
	if len(j.env) > 0 {
		w.section("setup.env")
		for _, name := range slices.Sorted(maps.Keys(j.env)) {
			w.key(name, quote(j.env[name]))
		}
	}
	if len(j.secrets) > 0 {
		w.section("setup.secrets")
		w.list("names", j.secrets)
	}
	if j.image != "" {
		w.section("setup.container")
		w.text("image", j.image)
		w.text("runtime", j.runtime)
		w.list("options", j.containerOptions)
		w.list("mounts", j.mounts)
	}
}

// maxRejections is the maximum number of attempts to remove rejected values from the job file.
const maxRejections = 20

// dropRejectedKeys removes values that the job file rejects, such as a number of ranks that
// cannot share the GPUs evenly, and adds a note for each.
func (r *reader) dropRejectedKeys() {
	j := r.job
	fields := map[string]any{"site": &j.site, "slurm.nodes": &j.outNodes, "slurm.tasks_per_node": &j.outTasks, "slurm.gpus_per_node": &j.outGPUs, "slurm.cpus_per_task": &j.outCPUs,
		"setup.steps": &j.steps, "setup.lines": &j.lines, "setup.modules": &j.modules, "setup.conda": &j.conda, "setup.venv": &j.venv, "setup.container.image": &j.image,
		"setup.container.options": &j.containerOptions, "setup.container.mounts": &j.mounts, "command.workdir": &j.workdir, "sweep": &j.array, "sweep.array": &j.array}
	for range maxRejections {
		var found jobs.Diagnostics
		if _, err := jobs.Parse("", j.toml()); !errors.As(err, &found) {
			return
		}
		for _, d := range found {
			key, _, _ := strings.Cut(d.Key, "[")
			message := strings.TrimPrefix(d.Message, d.Key+": ")
			if r.isSuspicious(message) {
				message = "not valid in a job file"
			}
			if name, isSlurm := strings.CutPrefix(key, "slurm."); isSlurm && j.raw[name]+j.slurm[name] != "" && name != "ranks_per_node" {
				r.note(0, key, message) // it does not change what runs
			} else {
				r.change(0, key, message)
			}
			switch field := fields[key].(type) {
			case *int:
				*field = 0
			case *jobs.Cores:
				*field = 0
			case *string:
				*field = ""
			case *[]string:
				*field = nil
			}
			if key == "command.argv" {
				j.argv, j.torchrun = []string{"false"}, false
			}
			name := key[strings.LastIndexByte(key, '.')+1:]
			delete(j.slurm, name)
			delete(j.raw, name)
			delete(j.env, name)
		}
	}
}

// dropInvalid removes values that are not valid in a job file or that contain a secret, and adds a
// note for each.
func (r *reader) dropInvalid() {
	j := r.job
	if filepath.Clean(j.workdir) == "." || j.workdir != "" && j.workdir == r.options.Dir {
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
			r.change(0, *value, key+" must not contain a secret")
			*value = ""
		}
		if *value != "" && (!isValidText(*value) || strings.HasPrefix(*value, "-")) {
			r.change(0, *value, "not a valid value of "+key)
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
				r.change(0, s, key+" must not contain a secret: keep it in a script that only you can read, or in a variable of setup.secrets")
			case ok(s) && isValidText(s):
				kept = append(kept, s)
			default:
				r.change(0, s, "not a valid value of "+key)
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
		j.argv, j.torchrun = []string{"false"}, false
		r.change(0, "the command", "set command.argv")
	}
}
