package sbatch

import (
	"bytes"
	"cmp"
	"path"
	"slices"
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
var flagOptions = wordSet(`exclusive requeue no-requeue hold contiguous overcommit oversubscribe get-user-env parsable verbose quiet no-kill spread-job reboot use-min-nodes wait ignore-pbs
	test-only nice propagate`)

// readFirstLine reads the options of the shell in the first line, such as #!/bin/bash -e.
func (r *reader) readFirstLine() {
	line, _, _ := strings.Cut(string(r.src), "\n")
	command, _ := strings.CutPrefix(line, "#!")
	args := strings.Fields(command)
	switch {
	case len(args) > 2 && path.Base(args[0]) == "env" && args[1] == "-S":
		args = args[2:]
	case len(args) > 1 && path.Base(args[0]) == "env":
		args = args[1:]
	}
	if command == line || len(args) == 0 {
		return
	}
	if !slices.Contains(words("bash sh dash ksh"), path.Base(args[0])) {
		r.change(1, line, "the script is converted as a script of bash, which may do something different")
		return
	}
	if isLoginShell(args[1:]) {
		profiles := []string{". /etc/profile", "[ ! -r ~/.profile ] || . ~/.profile"}
		if path.Base(args[0]) == "bash" {
			profiles[1] = "if [ -r ~/.bash_profile ]; then . ~/.bash_profile; elif [ -r ~/.bash_login ]; then . ~/.bash_login; elif [ -r ~/.profile ]; then . ~/.profile; fi"
		}
		for _, code := range profiles { // the batch shell of a job is not a login shell
			r.addStep(step{kind: stepRun, line: 1, text: code, mayEnd: true})
		}
	}
	r.readShellOptions(1, line, slices.DeleteFunc(args[1:], func(a string) bool { return a == "-" || strings.HasPrefix(a, "--") }))
}

// isLoginShell reports whether options of a shell make it a login shell.
func isLoginShell(options []string) bool {
	return slices.ContainsFunc(options, func(o string) bool {
		return o == "--login" || strings.HasPrefix(o, "-") && !strings.HasPrefix(o, "--") && strings.Contains(o, "l")
	})
}

// readDirectives reads the #SBATCH lines. Like sbatch, it stops at the first command.
func (r *reader) readDirectives(src []byte) {
	number, isCode := 0, false
	for line := range bytes.Lines(src) {
		number++
		s := strings.TrimSpace(string(line))
		rest, found := strings.CutPrefix(s, "#SBATCH")
		isDirective := found && (rest == "" || rest[0] == ' ' || rest[0] == '\t')
		isSeparator := strings.HasPrefix(strings.TrimSpace(rest), "hetjob") || strings.HasPrefix(strings.TrimSpace(rest), "packjob")
		switch {
		case isCode && isDirective:
			r.note(number, s, "sbatch ignores directives after the first command")
			return
		case isCode:
		case isDirective && isSeparator:
			if r.components == 0 {
				r.change(number, s, "the job gets the directives of the first component only: describe each component in a [[slurm.group]]")
			}
			r.components++
		case isDirective && r.components > 0: // of another component
		case isDirective:
			r.directives = true
			r.convertOptions(number, splitWords(rest))
		case s == "" || s[0] == '#':
		default:
			isCode = true
		}
	}
}

var commentStart = lazyregexp.New(`(?:^|[ \t;])#`)

// readComments reports comments inside commands that end with a backslash. They end the command, but the parser
// continues it with the next line of code.
func (r *reader) readComments(src []byte) {
	number, isContinued := 0, false
	comment, text := 0, "" // the first comment of the command; 0 if there is none
	for line := range bytes.Lines(src) {
		number++
		line = bytes.TrimSuffix(line, []byte("\n"))
		code := bytes.TrimSpace(line)
		isComment := bytes.HasPrefix(code, []byte("#"))
		endsWithBackslash := bytes.HasSuffix(line, []byte(`\`))
		if comment > 0 && len(code) > 0 && (!isComment || strings.HasSuffix(text, `#\`)) { // the parser joins #\ and the next line
			r.change(comment, text, "the comment ends the command: write it on a line of its own before the command")
			comment = 0
		}
		switch {
		case isComment && !isContinued: // it continues nothing
			continue
		case comment == 0 && endsWithBackslash && commentStart().Match(line):
			comment, text = number, string(line)
		case !endsWithBackslash:
			comment = 0
		}
		isContinued = endsWithBackslash
	}
}

// readOwnPath reports code that asks Slurm for the path of the script.
func (r *reader) readOwnPath(src []byte) {
	if !bytes.Contains(src, []byte("scontrol show job")) {
		return
	}
	number := 0
	for line := range bytes.Lines(src) {
		number++
		if text := string(bytes.TrimSpace(line)); strings.Contains(text, "Command=") && !strings.HasPrefix(text, "#") {
			r.change(number, text, "Slurm runs the script of ddpbatch in the run directory: write the directory of this script")
		}
	}
}

// hasDirectives reports whether the script has #SBATCH lines.
func (r *reader) hasDirectives() bool { return bytes.Contains(r.src, []byte("#SBATCH")) }

// splitWords splits the options of a directive as sbatch does: "#" outside of quotes ends the line, also
// inside a word, and a backslash quotes the next character, also inside quotes.
func splitWords(s string) (list []string) {
	var word strings.Builder
	quote, inside, escaped := rune(0), false, false
	end := func() {
		if inside {
			list = append(list, word.String())
		}
		word.Reset()
		inside = false
	}
	for _, c := range s {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\':
			escaped, inside = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '"' || c == '\'':
			quote, inside = c, true
		case c == ' ' || c == '\t':
			end()
		case c == '#':
			end()
			return list
		default:
			word.WriteRune(c)
			inside = true
		}
	}
	end()
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
			name = cmp.Or(completeOption(name), name)
		case len(word) >= 2 && word[0] == '-' && shortOptions[word[1:2]] != "":
			name, value = shortOptions[word[1:2]], strings.TrimPrefix(word[2:], "=")
			if strings.Trim(word[1:], "vQ") == "" { // -vv
				value = ""
			}
			has = value != ""
		default:
			r.note(line, word, "unknown option")
			continue
		}
		if !has && !flagOptions[name] && i+1 < len(list) {
			i++
			value = list[i]
		}
		r.convertOption(directive{option{name: name, value: value}, line})
	}
}

// checkedKeys and rawKeys are options with the name and the values of a key of [slurm]. They differ in
// how the job file stores them, see [job.setIfValid] and [job.setRaw].
var (
	checkedKeys = words("partition account qos reservation constraint gpu-bind cpu-bind mpi")
	rawKeys     = words("exclude nodelist hint licenses switches begin wckey comment open-mode")
)

// unsupportedOptions contains the reasons for notes about options that the job file cannot contain.
// They do not change what runs.
var unsupportedOptions = map[string]string{
	"output": "the log is in the run directory: ddpbatch logs", "error": "the log is in the run directory: ddpbatch logs", "parsable": "ddpbatch submit prints the job ID",
	"ntasks-per-socket": "use slurm.cpu_bind",
	"get-user-env":      "the job gets the environment", "verbose": "it changes only messages of sbatch", "quiet": "it changes only messages of sbatch",
}

// imageRuntimes maps options with a container image to container runtimes of the job file.
var imageRuntimes = map[string]string{"environment": "edf", "container-image": "pyxis"}

// A directive is an option of sbatch, or the same option of srun.
type directive struct {
	option
	line int
}

// convertOption converts an option of sbatch, or the same option of srun.
func (r *reader) convertOption(d directive) {
	j := r.job
	counts := map[string]*int{"nodes": &j.nodes, "ntasks": &j.allTasks, "ntasks-per-node": &j.tasks, "tasks-per-node": &j.tasks, "cpus-per-task": &j.cpus,
		"ntasks-per-gpu": &j.gpuTasks, "cpus-per-gpu": &j.gpuCPUs}
	gpus := map[string]*int{"gpus": &j.allGPUs, "gpus-per-node": &j.gpus, "gpus-per-task": &j.taskGPUs}
	texts := map[string]*string{"mem-per-cpu": &j.memPerCPU, "mem-per-gpu": &j.memPerGPU, "distribution": &j.distribution, "image": &j.directiveImage}
	switch {
	case counts[d.name] != nil:
		r.setCount(d, d.value, counts[d.name])
	case gpus[d.name] != nil:
		j.gpusPerNodeGiven = j.gpusPerNodeGiven || d.name == "gpus-per-node"
		r.setGPUs(d, d.value, gpus[d.name])
	case texts[d.name] != nil:
		*texts[d.name] = d.value
	default:
		r.convertKey(d)
	}
}

// setCount sets a field of the job to a number in the value of an option.
func (r *reader) setCount(d directive, text string, field *int) {
	if first, last, isRange := strings.Cut(text, "-"); isRange && first == last && d.name == "nodes" {
		text = first // 2-2
	}
	n, ok := parseCount(text)
	if !ok {
		r.change(d.line, d.String(), "not a single number")
		return
	}
	*field = n
}

// typedCount matches a number of GPUs with an optional type, such as 4, a100:4, or gpu:a100:4(S:0-1).
var typedCount = lazyregexp.New(`^(?:gpu:)?(?:([A-Za-z0-9][\w.-]*):)?(\d+)(?:\(.*\))?$`)

// setGPUs sets a field of the job to a number of GPUs in the value of an option, and their type.
func (r *reader) setGPUs(d directive, text string, field *int) {
	if kind, isGRES := strings.CutPrefix(text, "gpu:"); text == "gpu" || isGRES && !strings.Contains(kind, ":") && !typedCount().MatchString(text) {
		text += ":1" // gpu:a100 is one GPU
	}
	m := typedCount().FindStringSubmatch(text)
	switch {
	case m == nil:
		r.change(d.line, d.String(), "not a number of GPUs")
		return
	case m[2] == "0":
		return
	}
	if kind := m[1]; kind != "" && kind != "gpu" {
		if j := r.job; j.setRaw("gpus_per_node", quote(kind+":1")) {
			j.gpuType = kind
		} else {
			r.note(d.line, d.String(), "the GPU type is dropped: use slurm.constraint if the center supports it")
		}
	}
	r.setCount(d, m[2], field)
}

// convertKey converts an option that is not about the numbers of nodes, tasks, cores, and GPUs.
func (r *reader) convertKey(d directive) {
	j := r.job
	switch d.name {
	case "job-name":
		j.name, j.nameGiven = d.value, true
	case "gres":
		r.convertGRES(d)
	case "exclusive":
		if d.value == "" || d.value == "exclusive" {
			j.exclusive = true
		} else if !j.addOption(d.String()) {
			r.note(d.line, d.String(), "the job may share its nodes: set slurm.exclusive if it must not")
		}
	case "chdir":
		switch {
		case path.Clean(d.value) == ".":
			return
		case path.IsAbs(d.value):
			r.setString("PWD", d.value)
		case r.options.Dir != "":
			r.setString("PWD", path.Join(r.options.Dir, d.value))
		}
		j.workdir = d.value // the setup of the job does not start in this directory
		r.steps = append(r.steps, step{kind: stepCd, line: d.line, text: "cd " + quoteWord(d.value)})
	case "signal":
		r.convertSignal(d)
	case "mem":
		if isAll := d.value == "0" && j.setRaw("mem", quote(d.value)); !isAll && !j.setIfValid("mem", slurmMemory(d.value)) {
			r.noteInvalid(d, "mem")
		}
	case "time":
		if !j.setIfValid("time", slurmTime(d.value)) {
			r.noteInvalid(d, "time")
		}
	case "array":
		var list jobs.ArrayRange
		if list.UnmarshalTOML(strings.NewReplacer("[", "", "]", "").Replace(d.value)) != nil { // Slurm accepts [0-2]
			r.change(d.line, d.String(), "not a valid value of sweep.array")
			return
		}
		j.array = string(list)
	case "clusters", "cluster":
		r.change(d.line, d.String(), "run `ddpbatch submit` on a login node of this cluster")
	case "dependency":
		if d.value != string(jobs.Singleton) || !j.setRaw("dependency", quoteAll([]string{d.value})) {
			r.change(d.line, d.String(), "use slurm.dependency or --after with the name of a run")
		}
	case "input":
		if d.value != "none" && d.value != "/dev/null" {
			r.change(d.line, d.String(), noInput)
		}
	case "export":
		r.convertJobExport(d)
	case "no-requeue", "requeue":
		j.setRaw("requeue", strconv.FormatBool(d.name == "requeue"))
	case "gpus-per-socket":
		r.change(d.line, d.String(), "the job gets no GPUs from this option: set slurm.gpus_per_node")
	case "tres-per-task":
		options, ok := taskResources(d.option)
		if !ok {
			r.change(d.line, d.String(), resourcesFix)
		}
		for _, o := range options {
			r.convertOption(directive{o, d.line})
		}
	case "nice", "segment":
		if n, err := strconv.Atoi(d.value); err != nil || !j.setRaw(d.name, strconv.Itoa(n)) {
			r.note(d.line, d.String(), "no equivalent key")
		}
	case "mail-type", "mail-user":
		r.convertMail(d)
	case "environment", "container-image":
		j.image, j.runtime = d.value, imageRuntimes[d.name]
		r.change(d.line, d.String(), "the whole script runs in the container; the job starts only its ranks in it")
	default:
		r.copyValue(d)
	}
}

// copyValue copies the value of an option to the key with the same name, or the option to slurm.options.
func (r *reader) copyValue(d directive) {
	j, key := r.job, strings.ReplaceAll(d.name, "-", "_")
	switch {
	case slices.Contains(rawKeys, d.name):
		if hasSecret(d.value) || !j.setRaw(key, quote(d.value)) {
			r.noteInvalid(d, key)
		}
	case slices.Contains(checkedKeys, d.name):
		if !j.setIfValid(key, d.value) {
			r.noteInvalid(d, key)
		}
	case unsupportedOptions[d.name] != "":
		r.note(d.line, d.String(), unsupportedOptions[d.name])
	case !j.addOption(d.String()):
		r.note(d.line, d.String(), "no equivalent key")
	}
}

// noteInvalid adds a note about an option whose value a key of [slurm] does not accept.
func (r *reader) noteInvalid(d directive, key string) {
	r.note(d.line, d.String(), "not a valid value of slurm."+key)
}

// convertGRES converts --gres: the GPUs, and other generic resources.
func (r *reader) convertGRES(d directive) {
	var others []string
	for _, part := range strings.Split(d.value, ",") {
		if part == "gpu" || strings.HasPrefix(part, "gpu:") {
			r.setGPUs(d, part, &r.job.gpus)
		} else if part != "" && part != "none" {
			others = append(others, part)
		}
	}
	if list := strings.Join(others, ","); list != "" && !r.job.setRaw("gres", quote(list)) {
		r.change(d.line, "--gres="+list, "only GPUs are converted")
	}
}

// resourcesFix is the fix in a note about --tres-per-task.
const resourcesFix = "set slurm.gpus_per_node, slurm.tasks_per_node, and slurm.cpus_per_task"

// taskResources returns the options with the cores and GPUs of --tres-per-task=cpu:4,gres/gpu:a100:1. ok is false
// if the value has different resources.
func taskResources(o option) (options []option, ok bool) {
	for part := range strings.SplitSeq(strings.ReplaceAll(o.value, "=", ":"), ",") {
		kind, amount, _ := strings.Cut(part, ":")
		name := map[string]string{"cpu": "cpus-per-task", "gres/gpu": "gpus-per-task"}[kind]
		if name == "" {
			return nil, false
		}
		options = append(options, option{name: name, value: cmp.Or(amount, "1"), known: o.known, source: o.source})
	}
	return options, true
}

var signalNumbers = map[string]string{"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM"}

// convertSignal converts --signal=[B:]SIGNAL@SECONDS.
func (r *reader) convertSignal(d directive) {
	signal, seconds, _ := strings.Cut(d.value, "@")
	if _, err := strconv.Atoi(seconds); err != nil {
		r.change(d.line, d.String(), "it does not contain a time")
		return
	}
	r.job.slurm["signal_before_end"] = seconds + "s"
	if !strings.HasPrefix(signal, "B:") {
		r.stepSignal = d
	}
	signal = strings.TrimPrefix(signal[strings.LastIndexByte(signal, ':')+1:], "SIG")
	switch signal = cmp.Or(signalNumbers[signal], signal); signal {
	case "USR1": // the default
	case "USR2", "TERM", "INT", "HUP":
		r.job.stopSignal = signal
	default:
		r.change(d.line, d.String(), "command.stop_signal does not have this signal")
	}
}

// convertJobExport converts --export.
func (r *reader) convertJobExport(d directive) {
	parts := strings.Split(d.value, ",")
	isNone := strings.EqualFold(d.value, "NONE") && r.job.setRaw("export", quote("none"))
	if !isNone && !strings.EqualFold(parts[0], "ALL") {
		r.change(d.line, d.String(), "the job gets the environment of the shell that submits it, without Slurm's variables")
		return
	}
	for _, part := range parts[1:] {
		switch name, value, assigned := strings.Cut(part, "="); {
		case assigned && isSecret(name, value):
			r.moveToSecrets(d.line, name, value)
		case assigned && isPlainName(name):
			r.setString(name, value)
			r.exported[name] = true
			r.steps = append(r.steps, step{kind: stepEnv, line: d.line, name: name, value: value, text: "export " + name + "=" + quoteWord(value)})
		}
	}
}

// convertMail converts --mail-type and --mail-user, which become one key.
func (r *reader) convertMail(d directive) {
	j := r.job
	switch {
	case d.name == "mail-user":
		j.mailUser = d.value
	case d.value == "NONE":
		return
	default:
		for event := range strings.SplitSeq(strings.ToLower(strings.ReplaceAll(d.value, " ", "")), ",") {
			if !slices.Contains(j.mailEvents, event) {
				j.mailEvents = append(j.mailEvents, event)
			}
		}
	}
	if len(j.mailEvents) == 0 {
		return
	}
	mail := "events = " + quoteAll(j.mailEvents)
	if j.mailUser != "" {
		mail = "user = " + quote(j.mailUser) + ", " + mail
	}
	if !j.setRaw("mail", "{ "+mail+" }") {
		r.note(d.line, "--"+d.name+"="+d.value, "not a valid value of slurm.mail")
	}
}

// slurmTime returns a time limit in the format of the job file. sbatch also accepts more than 23 hours behind days,
// as in 0-72:00:00.
func slurmTime(s string) string {
	days, clock, _ := strings.Cut(s, "-")
	hours, _, _ := strings.Cut(clock, ":")
	d, err := strconv.Atoi(days)
	if h, errHours := strconv.Atoi(hours); err == nil && errHours == nil && d >= 0 && h > 23 {
		return strconv.Itoa(d+h/24) + "-" + strconv.Itoa(h%24) + strings.TrimPrefix(clock, hours)
	}
	return s
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
