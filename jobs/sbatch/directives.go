package sbatch

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
)

// shortOptions maps one-letter options of sbatch to their long names (sbatch(1)).
var shortOptions = map[string]string{
	"A": "account", "a": "array", "c": "cpus-per-task", "C": "constraint", "D": "chdir", "d": "dependency", "e": "error",
	"G": "gpus", "i": "input", "J": "job-name", "L": "licenses", "M": "clusters", "N": "nodes", "n": "ntasks", "o": "output",
	"p": "partition", "q": "qos", "t": "time", "w": "nodelist", "x": "exclude",
}

// flagOptions are options without a value.
var flagOptions = map[string]bool{"exclusive": true, "requeue": true, "no-requeue": true, "hold": true, "contiguous": true, "overcommit": true, "oversubscribe": true, "get-user-env": true, "parsable": true, "verbose": true, "quiet": true}

// readDirectives reads the #SBATCH lines. Like sbatch, it stops at the first command.
func (r *reader) readDirectives(src []byte) {
	number := 0
	for line := range bytes.Lines(src) {
		number++
		s := strings.TrimSpace(string(line))
		rest, directive := strings.CutPrefix(s, "#SBATCH")
		switch {
		case directive && (rest == "" || rest[0] == ' ' || rest[0] == '\t'):
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

// unsupportedOptions contains options without a key in [slurm], and the alternative for each.
var unsupportedOptions = map[string]string{
	"output": "the log is in the run directory: ddpbatch logs", "error": "the log is in the run directory: ddpbatch logs", "open-mode": "the log is always appended",
	"array":     "use a [sweep] for the values that differ: docs/slurm.md",
	"mail-type": "ddpbatch sends no mail; use `ddpbatch wait`", "mail-user": "ddpbatch sends no mail",
	"export": "the job gets the environment without Slurm's variables", "parsable": "ddpbatch submit prints the job ID",
	"nodelist": "use slurm.constraint", "exclude": "use restart.spare_nodes, which excludes nodes that fail",
	"dependency": "use slurm.dependency or --after with the name of a run", "requeue": "use restart.requeue", "no-requeue": "requeues at the time limit need restart.requeue",
	"distribution": "ranks are placed in blocks", "ntasks-per-socket": "use slurm.cpu_bind", "comment": "ddpbatch uses the comment to find its jobs",
	"get-user-env": "the job gets the environment",
}

var typedCount = regexp.MustCompile(`^(?:gpu:)?(?:[A-Za-z][\w.-]*:)?(\d+)(?:\(.*\))?$`)

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
			r.note(line, option, "not a single number")
		}
	}
	gpus := func(into *int, text string) {
		m := typedCount.FindStringSubmatch(text)
		if m == nil {
			r.note(line, option, "not a number of GPUs")
			return
		}
		if strings.Contains(strings.TrimPrefix(text, "gpu:"), ":") {
			r.note(line, option, "the GPU type is dropped: use slurm.constraint if the center supports it")
		}
		count(into, m[1])
	}
	switch name {
	case "job-name":
		j.name = value
	case "nodes":
		count(&j.nodes, value)
	case "ntasks":
		count(&j.allTasks, value)
	case "ntasks-per-node":
		count(&j.tasks, value)
	case "cpus-per-task":
		count(&j.cpus, value)
	case "gpus-per-node":
		gpus(&j.gpus, value)
	case "gres":
		if strings.HasPrefix(value, "gpu") && !strings.Contains(value, ",") {
			if value == "gpu" {
				value = "gpu:1"
			}
			gpus(&j.gpus, value)
		} else {
			r.note(line, option, "only GPUs are converted")
		}
	case "gpus":
		gpus(&j.allGPUs, value)
	case "gpus-per-task":
		gpus(&j.taskGPUs, value)
	case "mem-per-cpu":
		j.memPerCPU = value
	case "exclusive":
		j.exclusive = true
	case "chdir":
		j.workdir = value
	case "signal":
		_, seconds, _ := strings.Cut(value, "@")
		if _, err := strconv.Atoi(seconds); err == nil {
			j.set("signal_before_end", seconds+"s")
			r.note(line, option, "slurm.signal_before_end sends SIGUSR1 to each rank")
		} else {
			r.note(line, option, "it does not contain a time")
		}
	case "mem":
		if !j.setIfValid("mem", slurmMemory(value)) {
			r.note(line, option, "not a valid value of slurm.mem")
		}
	default:
		if key, ok := directOptions[name]; ok {
			if !j.setIfValid(key, value) {
				r.note(line, option, "not a valid value of slurm."+key)
			}
			return
		}
		why, ok := unsupportedOptions[name]
		if !ok {
			why = "no equivalent key"
		}
		r.note(line, option, why)
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
