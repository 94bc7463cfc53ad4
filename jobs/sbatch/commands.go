package sbatch

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// ignoredCommands are commands without an effect on the job.
var ignoredCommands = map[string]bool{"echo": true, "printf": true, "date": true, "hostname": true, "set": true, "true": true, ":": true, "sleep": true,
	"wait": true, "exit": true, "nvidia-smi": true, "env": true, "pwd": true, "ls": true, "free": true, "scontrol": true, "which": true}

// managedVariables are variables that ddpbatch determines or sets for each rank.
var managedVariables = map[string]string{
	"MASTER_ADDR": "ddpbatch sets it for each rank", "MASTER_PORT": "ddpbatch sets it for each rank, to a free port",
	"NCCL_SOCKET_IFNAME": "ddpbatch selects the network; set it in [setup.env] to override", "GLOO_SOCKET_IFNAME": "ddpbatch selects the network; set it in [setup.env] to override",
}

// convertCall converts a simple command.
func (r *reader) convertCall(s *syntax.Stmt, c *syntax.CallExpr) {
	line := r.line(s)
	if len(c.Args) == 0 {
		for _, a := range c.Assigns {
			r.assign(line, a)
		}
		return
	}
	name, known := r.word(c.Args[0])
	base := path.Base(name)
	args, all := r.arguments(c.Args[1:])
	switch {
	case known && (base == "module" || base == "ml"):
		r.convertModule(line, base, args, all, sourceText(s))
	case known && (base == "source" || base == "."):
		r.convertSource(line, args, all, sourceText(s))
	case known && base == "conda" || known && base == "mamba":
		if all && len(args) == 2 && args[0] == "activate" {
			r.job.conda = args[1]
		} else {
			r.note(line, sourceText(s), "setup.conda only activates an environment")
		}
	case known && base == "cd":
		if all && len(args) == 1 {
			r.job.workdir = args[0]
		} else {
			r.note(line, sourceText(s), "the directory is known only to a shell: set command.workdir")
		}
	case known && base == "ulimit":
		r.job.lines = append(r.job.lines, sourceText(s))
	case known && base == "unset":
		for _, a := range args {
			delete(r.job.env, a)
			r.job.secrets = slices.DeleteFunc(r.job.secrets, func(s string) bool { return s == a })
		}
		r.note(line, sourceText(s), "variables of the submitting shell are not unset")
	case known && ignoredCommands[base]:
	case known && base == "eval" && strings.Contains(sourceText(s), "conda"):
		// setup.conda replaces this command
	case r.startsProgram(base, known):
		for _, a := range c.Assigns {
			r.exported[a.Name.Value] = true
			r.assign(line, a)
		}
		r.convertLaunch(s, c.Args)
	case !known:
		r.note(line, sourceText(s), "the command is known only to a shell")
	default:
		r.note(line, sourceText(s), "only the batch script runs it: add it to setup.lines, which run on the first node")
	}
}

// arguments returns the values of words. all reports whether all values are known.
func (r *reader) arguments(list []*syntax.Word) (args []string, all bool) {
	all = true
	for _, w := range list {
		v, known := r.word(w)
		all = all && known
		args = append(args, v)
	}
	return args, all
}

func (r *reader) convertModule(line int, base string, args []string, all bool, src string) {
	if base == "ml" && len(args) > 0 && args[0] != "purge" && args[0] != "load" && args[0] != "use" && args[0] != "unload" && args[0] != "swap" && !strings.HasPrefix(args[0], "-") {
		args = append([]string{"load"}, args...)
	}
	switch {
	case !all || len(args) == 0:
		r.note(line, src, "the module is known only to a shell")
	case args[0] == "load" || args[0] == "add":
		for _, m := range args[1:] {
			var w jobs.Word
			if w.UnmarshalTOML(m) != nil {
				r.note(line, src, "setup.modules does not support options")
				continue
			}
			r.job.modules = append(r.job.modules, m)
		}
	case len(r.job.modules) > 0:
		r.note(line, src, "it follows a loaded module, but setup.lines run before all modules")
	default:
		r.job.lines = append(r.job.lines, src)
	}
}

func (r *reader) convertSource(line int, args []string, all bool, src string) {
	switch {
	case all && len(args) >= 1 && strings.HasSuffix(args[0], "/bin/activate") && !strings.Contains(args[0], "conda"):
		r.job.venv = strings.TrimSuffix(args[0], "/bin/activate")
	case len(args) == 2 && args[1] != "" && strings.Contains(src, "/bin/activate"):
		r.job.conda = args[1]
		r.findConda(line, strings.Replace(strings.TrimSuffix(src, " "+args[1]), "/bin/activate", "/etc/profile.d/conda.sh", 1), src)
	case strings.Contains(src, "conda.sh"):
		r.findConda(line, src, src)
	case strings.Contains(src, "/bin/activate"):
		r.note(line, src, "the directory is known only to a shell: set setup.venv")
	default:
		r.job.lines = append(r.job.lines, src)
	}
}

// findConda keeps the line that makes conda available. In a batch shell, conda is in PATH only
// through such a line, a module, or the submitting shell.
func (r *reader) findConda(line int, command, src string) {
	switch {
	case strings.Contains(src, "conda info"):
		// conda is already in PATH
	case strings.ContainsAny(strings.NewReplacer("${HOME}", "", "$HOME", "", "$USER", "").Replace(command), "$`"):
		r.note(line, src, "the directory is known only to a shell: add conda to PATH with a module or in setup.lines")
	case !slices.Contains(r.job.lines, command):
		r.job.lines = append(r.job.lines, command)
	}
}

// setVariable adds a variable for the ranks.
func (r *reader) setVariable(line int, name, value string) {
	if why, ok := managedVariables[name]; ok {
		r.note(line, name+"="+value, why)
		return
	}
	var n jobs.EnvName
	if n.UnmarshalTOML(name) != nil {
		r.note(line, name, "ddpbatch sets it for each rank")
		return
	}
	if !isValidText(value) {
		r.note(line, name, "its value contains a control character")
		return
	}
	r.job.env[name] = value
}

func (r *reader) noteUnknownVariable(line int, name, src string) {
	if why, ok := managedVariables[name]; ok {
		r.note(line, src, why)
		return
	}
	var n jobs.EnvName
	if n.UnmarshalTOML(name) != nil {
		r.note(line, src, "ddpbatch sets it for each rank")
		return
	}
	if isSecretName(name) {
		r.hideVariable(name, "")
		r.addSecretName(line, name)
		return
	}
	delete(r.job.env, name)
	r.note(line, src, "the value is known only to a shell: set it in [setup.env]")
}

// lostVariables returns the variables in words that only the script sets. They are empty if a
// different shell runs the words.
func (r *reader) lostVariables(words []*syntax.Word) (names []string) {
	for _, w := range words {
		syntax.Walk(w, func(n syntax.Node) bool {
			if e, ok := n.(*syntax.ParamExp); ok && e.Param != nil && r.scriptVars[e.Param.Value] {
				name := e.Param.Value
				_, inEnv := r.job.env[name]
				if !inEnv && managedVariables[name] == "" && !slices.Contains(r.job.secrets, name) && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
			return true
		})
	}
	return names
}
