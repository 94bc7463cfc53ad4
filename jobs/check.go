package jobs

import (
	"fmt"
	"strings"
	"time"
)

// maxSignalSeconds is the largest value of sbatch --signal, in seconds before the time limit.
const maxSignalSeconds = 65535

// minWatchTimeout is the minimum of the heartbeat and progress timeouts: four heartbeats of a
// rank.
const minWatchTimeout = 2 * time.Second

// check reports conflicts between keys. It skips rules that need an invalid value, so one
// error causes one message.
func (d *decoder) check(j *Job) {
	d.require("name")
	if d.isValid("site") && j.Site == "" {
		d.report("site", "allowed: a site's name, such as \"generic\"", "is empty")
	}
	d.checkSlurm(&j.Slurm)
	d.checkSetup(&j.Setup)
	d.checkNetwork(&j.Network)
	d.checkRestart(j)

	switch {
	case d.given["train"] && d.given["command"]:
		d.report("command", "", "stands beside [train]: a job is one or the other")
	case d.given["train"]:
		if d.isValid("train") {
			d.checkTrain(j.Train)
		}
	case d.given["command"]:
		if d.isValid("command") {
			d.checkCommand(j.Command)
		}
	case !d.expectsInside("train") && !d.expectsInside("command"):
		d.add("train", span{}, "nothing to run: the file has neither [train] nor [command]",
			"[train] is the built-in trainer, [command] your own program", "")
	}
}

func (d *decoder) checkSlurm(s *Slurm) {
	const tasks, gpus = "slurm.tasks_per_node", "slurm.gpus_per_node"
	if d.isValid(tasks, gpus) && s.GPUsPerNode%s.TasksPerNode != 0 {
		d.report(tasks, "", "%d ranks cannot share %d GPUs evenly", s.TasksPerNode, s.GPUsPerNode)
	}
	const signal, limit = "slurm.signal_before_end", "slurm.time"
	before := time.Duration(s.SignalBeforeEnd)
	switch {
	case d.isValid(signal) && before%time.Second != 0:
		d.report(signal, "", "%s is not a whole number of seconds", before)
	case d.isValid(signal) && before > maxSignalSeconds*time.Second:
		d.report(signal, "", "%s is more than Slurm's limit of %d seconds", before, maxSignalSeconds)
	case d.isValid(signal, limit) && before >= s.Time.Duration():
		d.report(signal, "", "%s before the end of %s leaves no time to train", before, s.Time.Duration())
	}
}

// checkSetup also rejects an option if a shell command expects a name.
func (d *decoder) checkSetup(s *Setup) {
	for key, v := range map[string]Text{"setup.conda": s.Conda, "setup.venv": s.Venv} {
		if d.isValid(key) && strings.HasPrefix(string(v), "-") {
			d.report(key, "", "%q starts with \"-\" and would be read as an option", v)
		}
	}
	d.checkContainer(&s.Container)
	if d.given["setup.secrets"] {
		d.require("setup.secrets.names")
	}
	for i, name := range s.Secrets.Names {
		if _, both := s.Env[name]; both && d.isValid("setup.secrets.names") {
			d.reportElement("setup.secrets.names", i, fmt.Sprintf("%s is also in setup.env, where its value can be read", name))
		}
	}
}

func (d *decoder) checkContainer(c *Container) {
	const image, mounts = "setup.container.image", "setup.container.mounts"
	if d.given["setup.container"] {
		d.require(image)
	}
	if d.isValid(image) && (c.Image == "" || strings.HasPrefix(string(c.Image), "-")) {
		d.report(image, "", "%q is not an image", c.Image)
	}
	for i, o := range c.Options {
		if d.isValid("setup.container.options") && (!strings.HasPrefix(string(o), "-") || strings.ContainsAny(string(o), " \t")) {
			d.reportElement("setup.container.options", i, fmt.Sprintf(`%q is not an option such as "--nv" or "--name=value"`, o))
		}
	}
	for i, m := range c.Mounts {
		outside, inside, both := strings.Cut(string(m), ":")
		inside, _, _ = strings.Cut(inside, ":")
		if d.isValid(mounts) && (!strings.HasPrefix(outside, "/") || both && !strings.HasPrefix(inside, "/") || strings.Contains(string(m), ",")) {
			d.reportElement(mounts, i, fmt.Sprintf(`%q is not of the form "/outside", "/outside:/inside" or "/outside:/inside:ro"`, m))
		}
	}
}

func (d *decoder) checkNetwork(n *Network) {
	for key, v := range map[string]Duration{
		"network.join_timeout": n.JoinTimeout, "network.collective_timeout": n.CollectiveTimeout,
	} {
		if d.isValid(key) && v == 0 {
			d.report(key, "", "must be more than 0")
		}
	}
	// Ranks send a heartbeat twice per second.
	for key, v := range map[string]Duration{"network.heartbeat_timeout": n.HeartbeatTimeout, "network.progress_timeout": n.ProgressTimeout} {
		if d.isValid(key) && time.Duration(v) < minWatchTimeout {
			d.report(key, "", "must be at least %s", minWatchTimeout)
		}
	}
	if l := string(n.MPILibrary); d.isValid("network.mpi_library") && strings.Contains(l, "/") && !strings.HasPrefix(l, "/") {
		d.report("network.mpi_library", "", "%q is neither an absolute path nor a name such as \"libmpi.so.40\"", l)
	}
	for i, name := range n.Exclude {
		switch {
		case !d.isValid("network.exclude"):
		case name == InterfaceAuto:
			d.reportElement("network.exclude", i, `"auto" is not the name of an interface`)
		case name == n.Interface && d.isValid("network.interface"):
			d.reportElement("network.exclude", i, fmt.Sprintf("%q is also the value of network.interface", name))
		}
	}
}

func (d *decoder) checkRestart(j *Job) {
	const least, spare, restarts = "restart.min_nodes", "restart.spare_nodes", "restart.max_without_progress"
	nodes := max(1, j.Slurm.Nodes)
	if d.isValid(least) && !d.invalid["slurm.nodes"] && j.Restart.MinNodes > nodes {
		d.report(least, "", "%d is more than slurm.nodes, which is %d", j.Restart.MinNodes, nodes)
	}
	if d.isValid(restarts) && j.Restart.MaxWithoutProgress == 0 && j.Restart.SurvivesNodeLoss() {
		d.report(restarts, "", "with 0 nothing is started again, so that %s and %s have no meaning", least, spare)
	}
}

func (d *decoder) checkCommand(c *Command) {
	const argv = "command.argv"
	d.require(argv)
	if d.isValid(argv) {
		switch {
		case len(c.Argv) == 0:
			d.report(argv, "", "is empty: it needs at least the program")
		case c.Argv[0] == "":
			d.reportElement(argv, 0, "is empty: the first element is the program")
		case c.Launcher == LauncherTorchrun:
			if _, _, err := c.TorchrunArgv(); err != nil {
				wrong := err.(*torchrunError)
				d.reportElementAllowed(argv, wrong.word, wrong.message, wrong.allowed)
			}
		}
	}
	if d.given["log"] {
		d.report("log", "", "has no meaning with [command]: what your program tells is its own")
	}
	if d.given["checkpoint"] {
		d.report("checkpoint", "", "has no meaning with [command]: your program saves by itself")
	}
}

// require reports a missing key, at the position of the table that should contain it.
func (d *decoder) require(key string) {
	if d.given[key] || d.isExpected(key) {
		return
	}
	var at span
	for table := key; at == (span{}); {
		dot := strings.LastIndexByte(table, '.')
		if dot < 0 {
			break
		}
		table = table[:dot]
		if d.invalid[table] {
			return // the value is not a table
		}
		if at = d.lookup(table).header; !at.known() {
			at = d.lookup(table).key
		}
	}
	d.add(key, at, fmt.Sprintf("missing key %q", key), "for example: "+examples[key], "")
}

// isExpected reports whether an unknown key was probably meant as key or as a table around it.
func (d *decoder) isExpected(key string) bool {
	for {
		if d.guessed[key] {
			return true
		}
		dot := strings.LastIndexByte(key, '.')
		if dot < 0 {
			return false
		}
		key = key[:dot]
	}
}

// expectsInside reports whether an unknown key was probably meant as table or as a key in it.
func (d *decoder) expectsInside(table string) bool {
	for key := range d.guessed {
		if isWithin(key, table) {
			return true
		}
	}
	return false
}

// examples contains an example for each key that may be required.
var examples = map[string]string{
	"name":                  `name = "my-job"`,
	"train.epochs":          `epochs = 10`,
	"train.batch":           `batch = 32`,
	"train.model.kind":      `kind = "mlp"`,
	"train.model.hidden":    `hidden = [128]`,
	"train.model.channels":  `channels = [32, 64]`,
	"train.model.size":      `size = "gpt2"  # or layers, heads, width and context`,
	"train.model.layers":    `layers = 4`,
	"train.model.heads":     `heads = 4`,
	"train.model.width":     `width = 128`,
	"train.model.context":   `context = 64`,
	"train.data.kind":       `kind = "idx"`,
	"train.data.path":       `path = "data/train"`,
	"train.data.task":       `task = "regression"`,
	"train.data.samples":    `samples = 4096`,
	"train.data.inputs":     `inputs = 20`,
	"train.data.outputs":    `outputs = 2`,
	"train.optimizer.kind":  `kind = "sgd"`,
	"train.optimizer.lr":    `lr = 0.1`,
	"command.argv":          `argv = ["python3", "train.py"]`,
	"setup.secrets.names":   `names = ["HF_TOKEN"]`,
	"setup.container.image": `image = "/containers/pytorch.sif"`,
	"train.schedule.kind":   `kind = "cosine"`,
	"train.schedule.steps":  `steps = 10000`,
	"train.schedule.gamma":  `gamma = 0.1`,
	"train.schedule.every":  `every = 1000`,
	"sweep.random.samples":  `samples = 16`,
	"sweep.random.values":   `values.train.optimizer.lr = { min = 1e-4, max = 0.1, log = true }`,
}

// isValid reports whether all keys are set and have valid values.
func (d *decoder) isValid(keys ...string) bool {
	for _, key := range keys {
		if !d.given[key] || d.invalid[key] {
			return false
		}
	}
	return true
}

// report adds a diagnostic about the value of a key in the file.
func (d *decoder) report(key, allowed, format string, args ...any) {
	at := d.lookup(key)
	where := at.value
	if !where.known() {
		where = at.header
	}
	if !where.known() {
		where = at.key
	}
	d.add(key, where, key+": "+fmt.Sprintf(format, args...), allowed, "")
}

// reportElement adds a diagnostic about one element of an array.
func (d *decoder) reportElement(key string, i int, message string) {
	d.reportElementAllowed(key, i, message, "")
}

// reportElementAllowed adds a diagnostic about one element of an array, with a fix.
func (d *decoder) reportElementAllowed(key string, i int, message, allowed string) {
	at := d.lookup(key)
	where := at.value
	if i < len(at.elements) {
		where = at.elements[i]
	}
	name := fmt.Sprintf("%s[%d]", key, i)
	d.add(name, where, name+": "+message, allowed, "")
}
