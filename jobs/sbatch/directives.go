package sbatch

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// shortOptions maps one-letter options of sbatch to their long names (sbatch(1)).
var shortOptions = map[string]string{
	"B": "extra-node-info", "b": "begin", "H": "hold", "k": "no-kill", "m": "distribution", "O": "overcommit", "Q": "quiet", "s": "oversubscribe", "S": "core-spec", "v": "verbose", "W": "wait", "F": "nodefile",
	"A": "account", "a": "array", "c": "cpus-per-task", "C": "constraint", "D": "chdir", "d": "dependency", "e": "error",
	"G": "gpus", "i": "input", "J": "job-name", "L": "licenses", "M": "clusters", "N": "nodes", "n": "ntasks", "o": "output",
	"p": "partition", "q": "qos", "t": "time", "w": "nodelist", "x": "exclude",
}

// flagOptions are options that do not use the next word as their value. Some accept a value after "=".
var flagOptions = map[string]bool{"exclusive": true, "requeue": true, "no-requeue": true, "hold": true, "contiguous": true, "overcommit": true, "oversubscribe": true, "get-user-env": true, "parsable": true, "verbose": true, "quiet": true, "no-kill": true, "spread-job": true, "reboot": true, "use-min-nodes": true, "wait": true, "ignore-pbs": true, "test-only": true, "nice": true, "propagate": true}

// readDirectives reads the #SBATCH lines. Like sbatch, it stops at the first command.
func (r *reader) readDirectives(src []byte) {
	number := 0
	for line := range bytes.Lines(src) {
		number++
		s := strings.TrimSpace(string(line))
		rest, directive := strings.CutPrefix(s, "#SBATCH")
		switch {
		case directive && (rest == "" || rest[0] == ' ' || rest[0] == '\t'):
			if strings.HasPrefix(strings.TrimSpace(rest), "hetjob") || strings.HasPrefix(strings.TrimSpace(rest), "packjob") {
				if r.components == 0 {
					r.change(number, s, "the job gets the directives of the first component only: describe each component in a [[slurm.group]]")
				}
				r.components++
				continue
			}
			if r.components > 0 {
				continue // of another component
			}
			r.convertOptions(number, splitWords(rest))
		case s == "" || s[0] == '#':
		default:
			return
		}
	}
}

// splitWords splits the options of a directive. It handles spaces, quotes, and a comment after a
// "#".
func splitWords(s string) (list []string) {
	var word strings.Builder
	quote, inside := rune(0), false
	for _, c := range s {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '"' || c == '\'':
			quote, inside = c, true
		case c == ' ' || c == '\t':
			if inside {
				list = append(list, word.String())
			}
			word.Reset()
			inside = false
		case c == '#' && !inside:
			return list
		default:
			word.WriteRune(c)
			inside = true
		}
	}
	if inside {
		list = append(list, word.String())
	}
	return list
}

// convertOptions parses --name=value, --name value, -N 2, and -N2.
func (r *reader) convertOptions(line int, list []string) {
	for i := 0; i < len(list); i++ {
		word := list[i]
		name, value, has := "", "", false
		switch {
		case strings.HasPrefix(word, "--"):
			name, value, has = strings.Cut(word[2:], "=")
		case len(word) >= 2 && word[0] == '-' && shortOptions[word[1:2]] != "":
			name, value = shortOptions[word[1:2]], strings.TrimPrefix(word[2:], "=")
			has = value != ""
		default:
			r.note(line, word, "unknown option")
			continue
		}
		if !has && !flagOptions[name] && i+1 < len(list) {
			i++
			value = list[i]
		}
		r.convertOption(line, name, value)
	}
}

// directOptions maps options to keys of [slurm] that accept the same values.
var directOptions = map[string]string{"partition": "partition", "account": "account", "qos": "qos", "reservation": "reservation", "constraint": "constraint",
	"gpu-bind": "gpu_bind", "cpu-bind": "cpu_bind", "mpi": "mpi", "time": "time"}

// rawOptions maps options to keys of [slurm] with the same values.
var rawOptions = map[string]string{"exclude": "exclude", "nodelist": "nodelist", "hint": "hint", "licenses": "licenses", "switches": "switches", "begin": "begin",
	"wckey": "wckey", "comment": "comment", "open-mode": "open_mode"}

// unsupportedOptions contains the reasons for notes about options that the job file cannot contain.
// They do not change what runs.
var unsupportedOptions = map[string]string{
	"output": "the log is in the run directory: ddpbatch logs", "error": "the log is in the run directory: ddpbatch logs", "parsable": "ddpbatch submit prints the job ID",
	"ntasks-per-socket": "use slurm.cpu_bind",
	"get-user-env":      "the job gets the environment", "verbose": "ddpbatch submit prints the job ID", "quiet": "ddpbatch submit prints the job ID",
}

// noteInvalid adds a note about an option whose value a key of [slurm] does not accept.
func (r *reader) noteInvalid(line int, option, key string) {
	r.note(line, option, "not a valid value of slurm."+key)
}

// signalNumbers maps numbers of signals to names.
var signalNumbers = map[string]string{"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM"}

// typedCount matches a number of GPUs with an optional type, such as 4, a100:4, or gpu:a100:4(S:0-1).
var typedCount = lazyregexp.New(`^(?:gpu:)?(?:([A-Za-z0-9][\w.-]*):)?(\d+)(?:\(.*\))?$`)

// convertOption converts one option of sbatch, or the same option of srun.
func (r *reader) convertOption(line int, name, value string) {
	j := r.job
	option := "--" + name
	if value != "" {
		option += "=" + value
	}
	count := func(into *int, text string) {
		if n, err := strconv.Atoi(text); err == nil && n > 0 && n <= 1<<20 {
			*into = n
		} else {
			r.change(line, option, "not a single number")
		}
	}
	gpus := func(into *int, text string) {
		if kind, isName := strings.CutPrefix(text, "gpu:"); text == "gpu" || text != "" && strings.Trim(text, "0123456789") != "" && !strings.Contains(kind, ":") && !typedCount().MatchString(text) {
			if isName || text == "gpu" {
				text += ":1" // gpu:a100 is one GPU
			}
		}
		m := typedCount().FindStringSubmatch(text)
		if m == nil {
			r.change(line, option, "not a number of GPUs")
			return
		}
		if m[2] == "0" {
			return
		}
		if kind := m[1]; kind != "" && kind != "gpu" {
			if j.setRaw("gpus_per_node", quote(kind+":1")) {
				j.gpuType = kind
			} else {
				r.note(line, option, "the GPU type is dropped: use slurm.constraint if the center supports it")
			}
		}
		count(into, m[2])
	}
	switch name {
	case "job-name":
		j.name, j.nameGiven = value, true
	case "nodes":
		if before, after, isRange := strings.Cut(value, "-"); isRange && before == after {
			value = before
		}
		count(&j.nodes, value)
	case "ntasks":
		count(&j.allTasks, value)
	case "ntasks-per-node", "tasks-per-node":
		count(&j.tasks, value)
	case "cpus-per-task":
		count(&j.cpus, value)
	case "gpus-per-node":
		j.gpusPerNodeGiven = true
		gpus(&j.gpus, value)
	case "gres":
		var others []string
		for _, part := range strings.Split(value, ",") {
			if part == "gpu" || strings.HasPrefix(part, "gpu:") {
				gpus(&j.gpus, part)
			} else if part != "" && part != "none" {
				others = append(others, part)
			}
		}
		if len(others) > 0 && !j.setRaw("gres", quote(strings.Join(others, ","))) {
			r.change(line, "--gres="+strings.Join(others, ","), "only GPUs are converted")
		}
	case "gpus":
		gpus(&j.allGPUs, value)
	case "gpus-per-task":
		gpus(&j.taskGPUs, value)
	case "ntasks-per-gpu":
		count(&j.gpuTasks, value)
	case "cpus-per-gpu":
		count(&j.gpuCPUs, value)
	case "mem-per-cpu":
		j.memPerCPU = value
	case "mem-per-gpu":
		j.memPerGPU = value
	case "exclusive":
		if value != "" && value != "exclusive" {
			if !j.addOption(option) {
				r.note(line, option, "the job may share its nodes: set slurm.exclusive if it must not")
			}
			return
		}
		j.exclusive = true
	case "distribution":
		j.distribution = value
	case "chdir":
		j.workdir = value
		if pwd := value; strings.HasPrefix(pwd, "/") {
			r.setString("PWD", pwd)
		}
	case "signal":
		signal, seconds, _ := strings.Cut(value, "@")
		if _, err := strconv.Atoi(seconds); err == nil {
			j.set("signal_before_end", seconds+"s")
			signal = strings.TrimPrefix(signal[strings.LastIndexByte(signal, ':')+1:], "SIG")
			switch signal = cmp.Or(signalNumbers[signal], signal); signal {
			case "USR1":
			case "USR2", "TERM", "INT", "HUP":
				j.stopSignal = signal
			default:
				r.change(line, option, "command.stop_signal does not have this signal")
			}
		} else {
			r.change(line, option, "it does not contain a time")
		}
	case "mem":
		if value == "0" && j.setRaw("mem", quote("0")) {
			return
		}
		if !j.setIfValid("mem", slurmMemory(value)) {
			if !(value == "0" && j.addOption(option)) {
				r.noteInvalid(line, option, "mem")
			}
		}
	case "array":
		var list jobs.ArrayRange
		if err := list.UnmarshalTOML(value); err != nil {
			r.change(line, option, "not a valid value of sweep.array")
			return
		}
		j.array = value
	case "dependency":
		if value != string(jobs.Singleton) || !j.setRaw("dependency", quoteAll([]string{value})) {
			r.change(line, option, "use slurm.dependency or --after with the name of a run")
		}
	case "export":
		first, _, _ := strings.Cut(value, ",")
		switch {
		case strings.EqualFold(first, "ALL"):
			for _, part := range strings.Split(value, ",")[1:] {
				if name, v, assigned := strings.Cut(part, "="); assigned && isSecret(name, v) {
					r.hideVariable(name, v)
					r.addSecretName(line, name)
				} else if assigned && isPlainName(name) {
					r.setString(name, v)
					r.exported[name] = true
					r.steps = append(r.steps, step{kind: stepEnv, line: line, name: name, value: v, text: "export " + name + "=" + quoteWord(v)})
				}
			}
		case strings.EqualFold(value, "NONE") && j.setRaw("export", quote("none")):
		default:
			r.change(line, option, "the job gets the environment of the shell that submits it, without Slurm's variables")
		}
	case "no-requeue", "requeue":
		j.setRaw("requeue", strconv.FormatBool(name == "requeue"))
	case "nice":
		if n, err := strconv.Atoi(value); err != nil || !j.setRaw("nice", strconv.Itoa(n)) {
			r.note(line, option, "no equivalent key")
		}
	case "segment":
		if n, err := strconv.Atoi(value); err != nil || !j.setRaw("segment", strconv.Itoa(n)) {
			r.note(line, option, "no equivalent key")
		}
	case "mail-type", "mail-user":
		r.convertMail(line, name, value)
	case "image":
		j.directiveImage = value
	case "environment", "container-image":
		j.image, j.runtime = value, map[string]string{"environment": "edf", "container-image": "pyxis"}[name]
		r.change(line, option, "the whole script runs in the container; the job starts only its ranks in it")
	default:
		if key, ok := rawOptions[name]; ok {
			if hasSecret(value) || !j.setRaw(key, quote(value)) {
				r.noteInvalid(line, option, key)
			}
			return
		}
		if key, ok := directOptions[name]; ok {
			if !j.setIfValid(key, value) {
				r.noteInvalid(line, option, key)
			}
			return
		}
		if why, ok := unsupportedOptions[name]; ok {
			r.note(line, option, why)
			return
		}
		if !j.addOption(option) {
			r.note(line, option, "no equivalent key")
		}
	}
}

// convertMail converts --mail-type and --mail-user.
func (r *reader) convertMail(line int, name, value string) {
	j := r.job
	user, events := j.mailUser, j.mailEvents
	if name == "mail-user" {
		user = value
	} else {
		events = strings.Split(strings.ToLower(strings.ReplaceAll(value, " ", "")), ",")
		if value == "NONE" {
			return
		}
	}
	j.mailUser, j.mailEvents = user, events
	var parts []string
	if user != "" {
		parts = append(parts, "user = "+quote(user))
	}
	if len(events) > 0 {
		parts = append(parts, "events = "+quoteAll(events))
	}
	if len(events) > 0 && !j.setRaw("mail", "{ "+strings.Join(parts, ", ")+" }") {
		r.noteInvalid(line, "--"+name+"="+value, "mail")
	}
}

// slurmMemory returns an amount of memory in the format of the job file. sbatch also accepts
// "32GB", "32g", and a number of megabytes.
func slurmMemory(s string) string {
	s = strings.TrimSuffix(strings.ToUpper(s), "B")
	if s != "" && s != "0" && strings.Trim(s, "0123456789") == "" {
		s += "M"
	}
	return s
}
