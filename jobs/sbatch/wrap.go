package sbatch

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// wrap returns the script with `ddpbatch launch` instead of the launcher of its program. The
// program, its arguments, and all other lines are unchanged. It returns nil if the launcher has
// options that ddpbatch launch cannot apply.
func (r *reader) wrap(program *candidate) (script []byte) {
	args := r.args(program.call.Args)
	if readsInput(program.stmt) {
		return nil // ranks have no standard input
	}
	for i, a := range args {
		if !isMultiline(a) {
			continue
		}
		// A job has no arguments of several lines. Only shell code may become one line.
		line, ok := singleLine(a.word)
		if ok { // a variable can hold line breaks
			values, _ := r.fields(line)
			ok = !slices.ContainsFunc(values, func(v string) bool { return strings.ContainsAny(v, "\n\t") })
		}
		if slices.ContainsFunc(args[:i], isMultiline) {
			return nil // only one argument of several lines can be replaced
		}
		if !ok || i < 2 || args[i-1].text != "-c" || !slices.Contains(words("bash sh"), path.Base(args[i-2].text)) {
			return nil
		}
		start, end := int(a.word.Pos().Offset()), int(a.word.End().Offset())
		defer func() { // replace the argument, at its distance from the end of the script
			if script != nil {
				tail := len(r.src) - end
				script = slices.Concat(script[:len(script)-tail-(end-start)], []byte(sourceText(line)), script[len(script)-tail:])
			}
		}()
	}
	for len(args) > 1 && args[0].known {
		base := path.Base(args[0].text)
		isWrapper := slices.Contains(words("exec time nohup command builtin"), base) && !strings.HasPrefix(args[1].text, "-")
		isAssignment := base == "env" && args[1].known && strings.Contains(args[1].text, "=") || strings.Contains(args[0].text, "=") && isPlainName(args[0].text[:strings.IndexByte(args[0].text, '=')])
		if !isWrapper && !isAssignment {
			break
		}
		args = args[1:]
	}
	if len(args) > 0 && args[0].known && wrappers[path.Base(args[0].text)] {
		// Commands such as timeout then limit ddpbatch launch instead of srun.
		if inner := skipWrapper(path.Base(args[0].text), args[1:]); len(inner) > 0 && inner[0].known && path.Base(inner[0].text) == "srun" {
			args = inner
		}
	}
	if len(args) == 0 || args[0].word == nil {
		return nil
	}
	start := int(args[0].word.Pos().Offset())
	if args[0].known && args[0].text == "eval" {
		return nil // not a program
	}
	if !args[0].known || path.Base(args[0].text) != "srun" {
		if before := r.before(program, args[0]); before {
			return nil
		}
		return r.replace(start, start, "ddpbatch launch -n 1 -- ")
	}
	options, inner, ok := parseSrun(args[1:])
	if !ok || len(inner) == 0 || inner[0].word == nil || startsSeveral(inner) {
		return nil
	}
	if slices.ContainsFunc(args[:len(args)-len(inner)], func(a arg) bool { return a.word == inner[0].word }) {
		return nil // one variable holds the options and the program
	}
	if !r.hasDirectives() && len(options) > 0 {
		return nil // srun requests the nodes, which ddpbatch launch does not do
	}
	if r.components > 0 {
		if options = withoutGroups(options, r.components+1); options == nil {
			return nil // ddpbatch launch starts ranks in all components
		}
	}
	flags, ok := launchFlags(options)
	if !ok {
		return nil
	}
	return r.replace(start, int(inner[0].word.Pos().Offset()), "ddpbatch launch "+flags+"-- ")
}

// withoutGroups returns the options of srun without --het-group, or nil if the step does not run in all
// components of the job, or if other options describe its size.
func withoutGroups(options []option, components int) []option {
	var all []string
	for i := range components {
		all = append(all, strconv.Itoa(i))
	}
	rest, found := []option{}, false
	for _, o := range options {
		switch o.name {
		case "het-group", "pack-group":
			if !o.known || o.value != strings.Join(all, ",") && o.value != fmt.Sprintf("0-%d", components-1) {
				return nil
			}
			found = true
		case "nodes", "ntasks", "ntasks-per-node", "tasks-per-node", "cpus-per-task", "distribution":
			return nil
		default:
			rest = append(rest, o)
		}
	}
	if !found {
		return nil
	}
	return rest
}

// readsInput reports whether a statement redirects its standard input from a file or a here-document.
func readsInput(s *syntax.Stmt) bool {
	return slices.ContainsFunc(s.Redirs, func(d *syntax.Redirect) bool {
		switch d.Op {
		case syntax.RdrIn:
			return sourceText(d.Word) != "/dev/null"
		case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
			return true
		}
		return false
	})
}

// isMultiline reports whether an argument has characters that command.argv rejects.
func isMultiline(a arg) bool {
	return strings.ContainsAny(a.text, "\n\t") || a.word != nil && strings.ContainsAny(sourceText(a.word), "\n\t")
}

// before reports whether the word of a also holds earlier arguments, such as "exec" in a variable.
func (r *reader) before(program *candidate, a arg) bool {
	for _, other := range r.args(program.call.Args) {
		if other.word == a.word {
			return other.text != a.text
		}
	}
	return false
}

// replace replaces bytes of the script.
func (r *reader) replace(start, end int, text string) []byte {
	if start < 0 || start > end || end > len(r.src) {
		return nil
	}
	return slices.Concat(r.src[:start], []byte(text), r.src[end:])
}

// droppedFlags are options of srun that ddpbatch launch sets or does not need.
var droppedFlags = words(`label unbuffered kill-on-bad-exit output error wait quiet verbose no-kill open-mode disable-status quit-on-interrupt job-name
	no-requeue requeue jobid`)

// launchFlags returns the flags of ddpbatch launch that replace options of srun.
func launchFlags(options []option) (flags string, ok bool) {
	var b strings.Builder
	for _, o := range options {
		value := quoteWord(o.value)
		if !o.known {
			value = sourceText(o.source.word)
			if strings.HasPrefix(value, "-") { // --nodes=$N, -N$N
				if _, after, has := strings.Cut(value, "="); has {
					value = after
				} else {
					value = value[2:]
				}
			}
			if value == "" {
				return "", false
			}
		}
		add := func(flag string) { b.WriteString(flag + value + " ") }
		switch o.name {
		case "nodes":
			add("--nodes=")
		case "ntasks":
			add("--ntasks=")
		case "ntasks-per-node", "tasks-per-node":
			add("--tasks-per-node=")
		case "cpus-per-task":
			add("--cpus-per-task=")
		case "distribution":
			if strings.HasPrefix(o.value, "arbitrary") {
				return "", false // its hostfile places the ranks
			}
			add("--srun-option=--distribution=")
		case "container-image":
			add("--container-image=")
		case "container-mounts":
			add("--container-mounts=")
		case "mpi":
			add("--set slurm.mpi=")
		case "cpu-bind", "cpu_bind":
			add("--set slurm.cpu_bind=")
		case "gpu-bind", "gpu_bind":
			add("--set slurm.gpu_bind=")
		case "multi-prog", "pty", "het-group", "pack-group", "no-allocate", "export", "container-workdir", "environment":
			if o.name == "export" && o.known && o.value == "ALL" {
				continue // the default of ddpbatch launch
			}
			return "", false
		case "ntasks-per-gpu", "gpus", "gpus-per-node", "gpus-per-task", "cpus-per-gpu", "gres", "mem", "mem-per-cpu", "mem-per-gpu", "exact", "overlap", "exclusive":
			return "", false // the step would have other ranks or resources
		case "input":
			if !o.known || o.value != "none" && o.value != "/dev/null" {
				return "", false
			}
		default:
			if slices.Contains(droppedFlags, o.name) {
				continue
			}
			if probe := "--" + o.name; !newJob().addStepOption(probe) && !newJob().addStepOption(probe+"=1") {
				if slices.Contains(ignoredSrunOptions, o.name) {
					continue // the step has the resources of the job
				}
				return "", false
			}
			if o.value == "" && o.known {
				b.WriteString("--srun-option=--" + o.name + " ")
			} else {
				add("--srun-option=--" + o.name + "=")
			}
		}
	}
	return b.String(), true
}
