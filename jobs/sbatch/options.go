package sbatch

import (
	"slices"
	"strings"
)

// srunValued are the long options of srun that have a value, possibly as the next word
// (srun(1), Slurm 25.05, and the plugins pyxis and the container engine of CSCS).
var srunValued = words(`accel-bind account acctg-freq array batch bb bbf bcast bcast-exclude begin cluster-constraint clusters comment compress-level container
	constraint container-id core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task cpu_bind chdir deadline delay-boot dependency distribution epilog error
	exclude export extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gpu_bind gres gres-flags group
	het-group hint input job-name jobid licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem_bind mincpus mpi msg-timeout network nodefile
	nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output pack-group partition power prefer priority
	profile prolog qos reboot relative reservation resv-ports-count segment send-libs-to signal slurmd-debug sockets-per-node
	spread-job-by stepmgr-name switches task-epilog task-prolog tasks-per-node thread-spec threads threads-per-core time time-min tmp tree-width tres-bind tres-per-task uid
	use-min-nodes-of wait wckey cpu-bind cpu_bind container-image container-mounts container-workdir container-name container-save container-env container-entrypoint-log environment cpus-per-socket
	sockets-per-board core-specialization cluster image volume module entrypoint`)

// srunFlags are the long options of srun without a value, or with a value only after "=".
var srunFlags = words(`allocate bcast contiguous disable-status exact exclusive external-launcher get-user-env hold immediate interactive kill-on-bad-exit label mpi-combine
	multi-prog no-allocate no-bell no-kill nice no-requeue overcommit overlap oversubscribe preserve-env propagate pty quiet quit-on-interrupt reboot requeue
	resv-ports send-libs share slurmd-debug-on spread-job stepmgr test-only treat-het unbuffered use-min-nodes verbose version wait-all-nodes whole x11 help usage
	container-writable container-readonly container-mount-home no-container-mount-home container-remap-root no-container-remap-root container-entrypoint no-container-entrypoint debugger-test`)

// srunShortValued and srunShortFlags are the one-letter options of srun.
const (
	srunShortValued = "ABcCdDeGiJLMmnNoprStTwWxqP"
	srunShortFlags  = "aEhHIkKlOQRsuvVXZ"
)

// srunShortNames maps one-letter options to long names.
var srunShortNames = map[string]string{"A": "account", "B": "extra-node-info", "c": "cpus-per-task", "C": "constraint", "d": "dependency", "D": "chdir", "e": "error", "G": "gpus", "i": "input",
	"J": "job-name", "L": "licenses", "M": "clusters", "m": "distribution", "n": "ntasks", "N": "nodes", "o": "output", "p": "partition", "r": "relative", "S": "core-spec", "t": "time", "T": "threads",
	"w": "nodelist", "W": "wait", "x": "exclude", "q": "qos", "E": "preserve-env", "H": "hold", "I": "immediate", "k": "no-kill", "K": "kill-on-bad-exit", "l": "label", "O": "overcommit",
	"Q": "quiet", "s": "oversubscribe", "u": "unbuffered", "v": "verbose", "X": "disable-status", "Z": "no-allocate", "a": "attach", "P": "dependency", "h": "help", "V": "version", "R": "no-rotate"}

func words(s string) []string { return strings.Fields(s) }

// An option is an option of srun in a command line.
type option struct {
	name, value string
	known       bool // whether the value is known
	source      arg  // word with the value, if not known
}

// parseSrun splits the arguments of srun into options and the program. ok is false if an option
// is not known, because the program may then start at any word.
func parseSrun(args []arg) (options []option, program []arg, ok bool) {
	for len(args) > 0 {
		a := args[0]
		if !a.known {
			name, isOption := unknownOption(a)
			if !isOption {
				return options, args, plainWord(a)
			}
			options = append(options, option{name: name, source: a})
			args = args[1:]
			continue
		}
		if !strings.HasPrefix(a.text, "-") || a.text == "-" {
			return options, args, true
		}
		args = args[1:]
		if a.text == "--" {
			return options, args, true
		}
		take := func(name string) bool {
			if len(args) == 0 {
				return false
			}
			options = append(options, option{name: name, value: args[0].text, known: args[0].known, source: args[0]})
			args = args[1:]
			return true
		}
		if long, isLong := strings.CutPrefix(a.text, "--"); isLong {
			name, value, has := strings.Cut(long, "=")
			name = completeOption(name)
			switch {
			case name == "":
				return options, args, false
			case has || slices.Contains(srunFlags, name):
				options = append(options, option{name: name, value: value, known: true, source: a})
			default:
				if !take(name) {
					return options, nil, false
				}
			}
			continue
		}
		for letters := a.text[1:]; letters != ""; letters = letters[1:] {
			letter := letters[:1]
			name := srunShortNames[letter]
			switch {
			case strings.Contains(srunShortValued, letter):
				if value := strings.TrimPrefix(letters[1:], "="); value != "" {
					options = append(options, option{name: name, value: value, known: true, source: a})
				} else if !take(name) {
					return options, nil, false
				}
				letters = letter
			case letter == "K" && strings.Trim(letters[1:], "=01") == "":
				options = append(options, option{name: name, known: true, source: a})
				letters = letter
			case strings.Contains(srunShortFlags, letter):
				options = append(options, option{name: name, known: true, source: a})
			default:
				return options, args, false
			}
		}
	}
	return options, nil, true
}

// completeOption returns the full name of a long option, which may be abbreviated, or an empty
// string.
func completeOption(name string) string {
	if slices.Contains(srunValued, name) || slices.Contains(srunFlags, name) {
		return name
	}
	found := ""
	for _, list := range [][]string{srunValued, srunFlags} {
		for _, n := range list {
			if strings.HasPrefix(n, name) && len(name) > 2 {
				if found != "" && found != n {
					return ""
				}
				found = n
			}
		}
	}
	return found
}

// unknownOption returns the name of an option such as --nodes=$N.
func unknownOption(a arg) (name string, ok bool) {
	text := sourceText(a.word)
	long, isLong := strings.CutPrefix(text, "--")
	name, _, has := strings.Cut(long, "=")
	if isLong && has && !strings.ContainsAny(name, "$`\"'") {
		name = completeOption(name)
		return name, name != ""
	}
	if len(text) > 2 && text[0] == '-' && strings.Contains(srunShortValued, text[1:2]) {
		return srunShortNames[text[1:2]], true
	}
	return "", false
}

// plainWord reports whether an unknown word is certainly a single word that does not start with
// "-", so that it is the program.
func plainWord(a arg) bool {
	text := strings.TrimPrefix(sourceText(a.word), `"`)
	return a.startsProgram || strings.HasPrefix(text, "/") || strings.HasPrefix(text, "./") || strings.HasPrefix(text, "~") || strings.HasSuffix(strings.Trim(text, `"`), ".sh") || strings.HasSuffix(strings.Trim(text, `"`), "/python")
}

// skipSrun returns the program in the arguments of srun.
func skipSrun(args []arg) (program []arg, ok bool) {
	_, program, ok = parseSrun(args)
	return program, ok
}

// containerValued are options of container runtimes that have a value as the next word.
var containerValued = map[string][]string{
	"apptainer":   words("B bind c-no env env-file pwd cwd H home W workdir o overlay S scratch network network-args dns hostname security add-caps drop-caps apply-cgroups docker-username docker-password fusemount mount app cpus cpu-shares memory memory-swap pem-path nvccli-path"),
	"singularity": words("B bind env env-file pwd cwd H home W workdir o overlay S scratch network network-args dns hostname security add-caps drop-caps apply-cgroups docker-username docker-password fusemount mount app pem-path"),
	"shifter":     words("image i volume V entrypoint-cmd module m workdir w env e env-file"),
	"docker":      words("v volume e env env-file w workdir name gpus u user network shm-size ipc ulimit m memory cpus mount entrypoint p publish h hostname platform device cap-add security-opt"),
	"enroot":      words("m mount e env c conf"),
	"ch-run":      words("b bind c cd set-env"),
}

// parseContainer splits the arguments of a container runtime. ok is false if it runs no program.
func parseContainer(runtime string, args []arg) (options []option, image arg, program []arg, ok bool) {
	valued := containerValued[runtime]
	switch runtime {
	case "podman", "podman-hpc":
		valued = containerValued["docker"]
	case "charliecloud":
		valued = containerValued["ch-run"]
	}
	if runtime != "shifter" && runtime != "ch-run" {
		for len(args) > 0 && args[0].known && strings.HasPrefix(args[0].text, "-") { // global options, such as --silent
			args = args[1:]
		}
		verbs := words("exec run")
		if runtime == "enroot" {
			verbs = words("start")
		}
		if len(args) == 0 || !slices.Contains(verbs, args[0].text) {
			return nil, arg{}, nil, false
		}
		args = args[1:]
	}
	for len(args) > 0 {
		a := args[0]
		if !a.known {
			text := sourceText(a.word)
			if name, _, has := strings.Cut(strings.TrimLeft(text, "-"), "="); strings.HasPrefix(text, "-") && has {
				options, args = append(options, option{name: name, source: a}), args[1:]
				continue
			}
			break
		}
		if !strings.HasPrefix(a.text, "-") {
			break
		}
		args = args[1:]
		if a.text == "--" {
			break
		}
		name, value, has := strings.Cut(strings.TrimLeft(a.text, "-"), "=")
		if !has && !strings.HasPrefix(a.text, "--") && len(name) > 1 && slices.Contains(valued, name[:1]) {
			name, value, has = name[:1], name[1:], true
		}
		o := option{name: name, value: value, known: true, source: a}
		if !has && slices.Contains(valued, name) && len(args) > 0 {
			o.value, o.known, o.source = args[0].text, args[0].known, args[0]
			args = args[1:]
		}
		options = append(options, o)
	}
	if runtime == "shifter" {
		for _, o := range options {
			if o.name == "image" || o.name == "i" {
				image = arg{text: o.value, known: o.known, word: o.source.word}
			}
		}
		return options, image, args, true
	}
	if len(args) == 0 {
		return options, arg{}, nil, true
	}
	return options, args[0], args[1:], true
}

func skipContainer(runtime string, args []arg) (program []arg, ok bool) {
	_, _, program, ok = parseContainer(runtime, args)
	return program, ok
}
