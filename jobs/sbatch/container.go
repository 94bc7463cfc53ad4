package sbatch

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// containerValued are options of container runtimes that have a value as the next word.
var containerValued = map[string][]string{
	"apptainer":    words("B bind c-no env env-file pwd cwd H home W workdir o overlay S scratch network network-args dns hostname security add-caps drop-caps apply-cgroups docker-username docker-password fusemount mount app cpus cpu-shares memory memory-swap pem-path nvccli-path"),
	"singularity":  words("B bind env env-file pwd cwd H home W workdir o overlay S scratch network network-args dns hostname security add-caps drop-caps apply-cgroups docker-username docker-password fusemount mount app pem-path"),
	"shifter":      words("image i volume V entrypoint-cmd module m workdir w env e env-file"),
	"docker":       dockerValued,
	"podman":       dockerValued,
	"podman-hpc":   dockerValued,
	"enroot":       words("m mount e env c conf"),
	"ch-run":       words("b bind c cd set-env"),
	"charliecloud": words("b bind c cd set-env"),
}

var dockerValued = words("v volume e env env-file w workdir name gpus u user network shm-size ipc ulimit m memory cpus mount entrypoint p publish h hostname platform device cap-add security-opt")

// parseContainer splits the arguments of a container runtime. ok is false if it runs no program.
func parseContainer(runtime string, args []arg) (options []option, image arg, program []arg, ok bool) {
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
	valued := containerValued[runtime]
	for len(args) > 0 && strings.HasPrefix(args[0].source(), "-") {
		a := args[0]
		name, value, has := strings.Cut(strings.TrimLeft(a.source(), "-"), "=")
		if !a.known && !has {
			break
		}
		args = args[1:]
		if a.text == "--" {
			break
		}
		if !has && !strings.HasPrefix(a.text, "--") && len(name) > 1 && slices.Contains(valued, name[:1]) {
			name, value, has = name[:1], name[1:], true
		}
		o := option{name: name, value: value, known: a.known, source: []arg{a}}
		if !has && slices.Contains(valued, name) {
			args = o.takeValue(args)
		}
		if (name == "image" || name == "i") && runtime == "shifter" {
			image = arg{text: o.value, known: o.known, word: o.valueWord()}
		}
		options = append(options, o)
	}
	if runtime != "shifter" && len(args) > 0 {
		image, args = args[0], args[1:]
	}
	return options, image, args, true
}

// convertContainer converts apptainer exec [options] image. It returns false if the job file
// cannot express the command, which then starts the container itself.
func (c *command) convertContainer(runtime string) bool {
	j := c.r.job
	options, image, program, ok := parseContainer(runtime, c.args[1:])
	if runtime == "shifter" && image.word == nil && j.directiveImage != "" {
		image = arg{text: strings.TrimPrefix(j.directiveImage, "docker:"), known: true}
	}
	if !ok || len(program) == 0 || !image.known || image.text == "" || !isValidText(image.text) || j.image != "" {
		return false
	}
	if runtime != "shifter" && firstWord(c.args[1:]) != "exec" {
		return false // run executes the image's run script
	}
	isRelative := !filepath.IsAbs(image.text) && !jobs.IsImageURI(image.text) && runtime != "shifter"
	if isRelative && (j.shellDir != "" || !filepath.IsLocal(filepath.Join(j.workdir, image.text)) && !filepath.IsAbs(j.workdir)) {
		return false
	}
	mounts, others, ok := c.convertRuntimeOptions(options)
	if !ok {
		return false
	}
	if isRelative {
		image.text = filepath.Join(j.workdir, image.text)
	}
	j.image, j.runtime = image.text, runtime
	j.mounts = append(j.mounts, mounts...)
	j.containerOptions = append(j.containerOptions, others...)
	c.inContainer = true
	c.args = program
	return true
}

// convertRuntimeOptions converts the options of apptainer, singularity, or shifter. ok is false if the job
// file cannot express one of them.
func (c *command) convertRuntimeOptions(options []option) (mounts, others []string, ok bool) {
	for _, o := range options {
		if !o.known || o.name != "env" && hasSecret(o.String()) {
			return nil, nil, false
		}
		switch o.name {
		case "image", "i":
		case "B", "bind":
			for _, m := range strings.Split(o.value, ",") {
				outside, inside, both := strings.Cut(m, ":")
				target, flags, _ := strings.Cut(inside, ":")
				if !filepath.IsAbs(outside) || both && !filepath.IsAbs(target) || !slices.Contains([]string{"", "ro", "rw"}, flags) || !isValidText(m) {
					return nil, nil, false
				}
				mounts = append(mounts, m)
			}
		case "V", "volume", "pwd", "cwd", "env-file", "W", "workdir", "H", "home", "contain", "C", "containall", "c", "cleanenv", "e", "no-mount":
			return nil, nil, false // they change the directory or the environment that the ranks see
		case "env":
			if !hasSecret(o.String()) {
				return nil, nil, false
			}
			variable, secret, _ := strings.Cut(o.value, "=")
			c.r.moveToSecrets(c.line, variable, secret)
		default:
			text := o.String()
			if len(o.name) < 2 {
				text = text[1:] // -C
			}
			if strings.ContainsAny(text, " \t") || !isValidText(text) {
				return nil, nil, false
			}
			others = append(others, text)
		}
	}
	return mounts, others, true
}

// convertImage converts srun --container-image and --environment.
func (c *command) convertImage(o option) {
	j := c.r.job
	j.image, j.runtime = o.value, imageRuntimes[o.name]
	c.inContainer = true
	if !o.known || o.value == "" || !isValidText(o.value) {
		c.change("srun --"+o.name, "the image is known only to a shell: set setup.container.image")
		j.image = "IMAGE"
	}
}

// convertMounts converts srun --container-mounts.
func (c *command) convertMounts(o option) {
	if !o.known {
		c.change("srun --container-mounts", "the directories are known only to a shell: set setup.container.mounts")
		return
	}
	for _, m := range strings.Split(o.value, ",") {
		c.addMount(m)
	}
}

// addMount adds a mount of srun --container-mounts to the job file.
func (c *command) addMount(m string) {
	option := "--container-mounts=" + m
	outside, inside, both := strings.Cut(m, ":")
	target, _, _ := strings.Cut(inside, ":")
	if pwd, known := c.r.knownString("PWD"); known && !filepath.IsAbs(outside) && c.r.options.Dir != "" {
		rest := m[len(outside):]
		outside = filepath.Join(pwd, outside)
		m = outside + rest
	}
	if filepath.IsAbs(outside) && (!both || strings.HasPrefix(target, "/")) && isValidText(m) && strings.Count(m, ":") < 3 {
		c.r.job.mounts = append(c.r.job.mounts, m)
		return
	}
	c.change(option, "setup.container.mounts has absolute paths only: set it")
}

// convertImageOption converts an option of srun that changes the container. hasImage reports whether srun
// has --container-image.
func (c *command) convertImageOption(o option, text string, hasImage bool) {
	switch {
	case !hasImage && o.name == "container-name" && c.r.job.image == "":
		c.change(text, "the program runs in a container that exists on the node: set setup.container.image")
	case !hasImage:
		c.note(text, "it needs --container-image")
	case o.name == "container-workdir" && o.known && filepath.IsAbs(o.value) && isValidText(o.value):
		c.containerDir = quoteWord(o.value)
	case o.name == "container-workdir":
		c.change(text, "ranks start in command.workdir: set it to the directory in the container")
	case o.known && !strings.ContainsAny(o.value, " \t"):
		c.containerOption(o)
	default:
		c.change(text, "the value is known only to a shell: set setup.container.options")
	}
}

// containerOption adds an option of the container runtime.
func (c *command) containerOption(o option) {
	if hasSecret(o.String()) {
		c.change(o.String(), "setup.container.options must not contain a secret")
		return
	}
	c.r.job.containerOptions = append(c.r.job.containerOptions, o.String())
}
