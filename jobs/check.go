package jobs

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
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
	d.checkGroups(j)
	d.checkSetup(&j.Setup)
	d.checkSteps(&j.Setup, j)
	d.checkNetwork(&j.Network)
	d.checkRestart(j)
	d.checkNotify(j.Notify)
	d.checkComponents(j)
	switch {
	case d.given["train"] && d.given["command"]:
		d.report("command", "remove one of them, including its keys in [sweep]", "conflicts with [train]: a job has either [train] or [command]")
	case d.given["train"]:
		if d.isValid("train") {
			d.checkTrain(j.Train)
		}
	case d.given["command"]:
		if d.isValid("command") {
			d.checkCommand(j.Command)
			d.checkOnce(j)
			d.checkWatch(j)
		}
	case !isAnyWithin(d.guessed, "train") && !isAnyWithin(d.guessed, "command"):
		d.add("train", span{}, "nothing to run: the file has neither [train] nor [command]",
			"add [train] for the built-in trainer, or [command] for your program", "")
	}
}

func (d *decoder) checkSlurm(s *Slurm) {
	const tasks, gpus = "slurm.tasks_per_node", "slurm.gpus_per_node"
	switch shared := s.ShareGPUs && s.TasksPerNode > s.GPUsPerNode; {
	case !d.isValid(tasks, gpus):
	case shared && s.TasksPerNode%s.GPUsPerNode != 0:
		d.report(tasks, "", "%d ranks do not divide evenly among %d GPUs", s.TasksPerNode, s.GPUsPerNode)
	case !shared && s.GPUsPerNode%s.TasksPerNode != 0:
		allowed := ""
		if s.TasksPerNode > s.GPUsPerNode {
			allowed = "set slurm.share_gpus = true if several ranks of a [command] use one GPU"
		}
		d.report(tasks, allowed, "%d GPUs do not divide evenly among %d ranks", s.GPUsPerNode, s.TasksPerNode)
	}
	if d.isValid("slurm.share_gpus") && s.ShareGPUs {
		switch {
		case !d.given[gpus]:
			d.report("slurm.share_gpus", "set slurm.gpus_per_node", "the job requests no GPUs")
		case d.given["train"]:
			d.report("slurm.share_gpus", "", "is not valid with [train]: each rank of the built-in trainer uses a GPU of its own")
		}
	}
	d.checkTable("slurm", reflect.ValueOf(s))
	d.checkRanks(s)
	d.checkOptions(s)
	d.checkOmit(s)
	d.checkRequests(s)
	const signal, limit = "slurm.signal_before_end", "slurm.time"
	before := time.Duration(s.SignalBeforeEnd)
	switch {
	case d.isValid(signal) && before%time.Second != 0:
		d.report(signal, "", "%s is not a multiple of one second", before)
	case d.isValid(signal) && before > maxSignalSeconds*time.Second:
		d.report(signal, "", "%s exceeds Slurm's limit of %d seconds", before, maxSignalSeconds)
	case d.isValid(signal, limit) && before >= s.Time.Duration():
		d.report(signal, "", "%s is not less than the time limit, %s", before, s.Time.Duration())
	}
}

// maxUnevenRanks limits the ranks of ranks_per_node: the names of their nodes are one argument of srun,
// which Linux limits to 128 KiB.
const maxUnevenRanks = 4096

func (d *decoder) checkRanks(s *Slurm) {
	const ranks, nodes, gpus = "slurm.ranks_per_node", "slurm.nodes", "slurm.gpus_per_node"
	if !d.isValid(ranks) {
		return
	}
	list := s.RanksPerNode
	switch {
	case len(list) == 0:
		d.report(ranks, "remove the key for equal numbers of ranks", "is empty")
		return
	case d.given["slurm.tasks_per_node"]:
		d.report(ranks, "remove one of them", "conflicts with slurm.tasks_per_node, which is equal on all nodes")
	case d.isValid(nodes) && len(list) != s.Nodes:
		d.report(ranks, "remove slurm.nodes, or give one number for each node", "has %s, but slurm.nodes is %d", format.Count(len(list), "number"), s.Nodes)
	case sum(list) > maxUnevenRanks:
		d.report(ranks, "set equal numbers with slurm.tasks_per_node", "has %d ranks, want at most %d: srun receives the name of a node for each", sum(list), maxUnevenRanks)
	case d.isValid(gpus) && slices.Max(list) > s.GPUsPerNode && !s.ShareGPUs:
		d.reportElementAllowed(ranks, slices.Index(list, slices.Max(list)), fmt.Sprintf("%d ranks are more than the %d GPUs of a node", slices.Max(list), s.GPUsPerNode),
			"set slurm.share_gpus = true if several ranks of a [command] use one GPU")
	}
	for i, o := range s.StepOptions {
		if name, _, _ := o.Parts(); d.isValid("slurm.step_options") && len(name) > 3 && strings.HasPrefix("distribution", name) {
			d.reportElementAllowed("slurm.step_options", i, "--distribution conflicts with slurm.ranks_per_node, which places the ranks", "remove one of them")
		}
	}
	if d.given["restart.min_nodes"] {
		d.report("restart.min_nodes", "set restart.spare_nodes", "conflicts with slurm.ranks_per_node, which lists the ranks of every node")
	}
}

// checkRequests checks the keys that sbatch's options depend on.
func (d *decoder) checkRequests(s *Slurm) {
	const perCPU, perGPU = "slurm.mem_per_cpu", "slurm.mem_per_gpu"
	for _, pair := range [][2]string{{perCPU, "slurm.mem"}, {perGPU, "slurm.mem"}, {perGPU, perCPU}, {"slurm.hint", "slurm.cpu_bind"}} {
		if d.isValid(pair[:]...) {
			d.report(pair[0], "remove one of them", "conflicts with %s", pair[1])
		}
	}
	for key, m := range map[string]Memory{perCPU: s.MemoryPerCPU, perGPU: s.MemoryPerGPU} {
		if d.isValid(key) && m == "0" {
			d.report(key, "set slurm.mem = \"0\" for all memory of a node", "must be greater than 0")
		}
	}
	if d.isValid(perGPU) && !d.given["slurm.gpus_per_node"] {
		d.report(perGPU, "set slurm.gpus_per_node", "the job requests no GPUs")
	}
	for part := range strings.SplitSeq(string(s.Gres), ",") {
		name, _, _ := strings.Cut(strings.TrimPrefix(part, "gres/"), ":")
		if d.isValid("slurm.gres") && name == "gpu" {
			d.report("slurm.gres", "set slurm.gpus_per_node, such as 4 or \"a100:4\"", "%q requests GPUs", part)
		}
	}
	for key, text := range map[string]string{"slurm.begin": string(s.Begin), "slurm.comment": string(s.Comment)} {
		switch bad := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`"'|`, r) }); {
		case !d.isValid(key):
		case strings.TrimSpace(text) != text || text == "":
			d.report(key, "", "must not be empty, or start or end with a space")
		case bad >= 0:
			d.report(key, "use printable ASCII characters except quotes and |", "%q contains a character that Slurm's commands do not print unchanged", text)
		}
	}
	if s.Mail != nil && d.isValid("slurm.mail.events") && len(s.Mail.Events) == 0 {
		d.report("slurm.mail.events", "", "is empty")
	}
}

// checkSetup checks [setup]. It rejects names that a shell command would read as options.
func (d *decoder) checkSetup(s *Setup) {
	d.checkTable("setup", reflect.ValueOf(s))
	for key, v := range map[string]Text{"setup.conda": s.Conda, "setup.venv": s.Venv} {
		if d.isValid(key) && strings.HasPrefix(string(v), "-") {
			d.report(key, "", "%q starts with \"-\" and would be read as an option", v)
		}
	}
	d.checkContainer(&s.Container)
	for i, name := range s.Secrets.Names {
		if _, both := s.Env[name]; both && d.isValid("setup.secrets.names") {
			d.reportElement("setup.secrets.names", i, fmt.Sprintf("%s is also in setup.env, which is not secret", name))
		}
	}
}

func (d *decoder) checkContainer(c *Container) {
	const image, options, mounts = "setup.container.image", "setup.container.options", "setup.container.mounts"
	if d.isValid(image) && (c.Image == "" || strings.HasPrefix(string(c.Image), "-")) {
		d.report(image, "", "%q is not an image", c.Image)
	}
	for i, o := range c.Options {
		if d.isValid(options) && (!strings.HasPrefix(string(o), "-") || strings.ContainsAny(string(o), " \t")) {
			d.reportElement(options, i, fmt.Sprintf(`%q is not an option such as "--nv" or "--name=value"`, o))
		}
	}
	for i, m := range c.Mounts {
		outside, inside, both := strings.Cut(string(m), ":")
		inside, mode, _ := strings.Cut(inside, ":")
		isAbs := strings.HasPrefix(outside, "/") && (!both || strings.HasPrefix(inside, "/"))
		if d.isValid(mounts) && (!isAbs || strings.Contains(string(m), ",")) {
			d.reportElement(mounts, i,
				fmt.Sprintf(`%q does not have the form "/outside", "/outside:/inside", or "/outside:/inside:ro"`, m))
		} else if mode != "" && c.Runtime == ContainerCharliecloud {
			d.reportElement(mounts, i, fmt.Sprintf("%q: charliecloud has no mounts with the mode %q", m, mode))
		}
	}
}

func (d *decoder) checkNetwork(n *Network) {
	for key, v := range map[string]Duration{
		"network.join_timeout": n.JoinTimeout, "network.collective_timeout": n.CollectiveTimeout,
	} {
		if d.isValid(key) && v == 0 {
			d.report(key, "", "must be greater than 0")
		}
	}
	// Ranks send a heartbeat twice per second.
	for key, v := range map[string]Duration{
		"network.heartbeat_timeout": n.HeartbeatTimeout, "network.progress_timeout": n.ProgressTimeout,
	} {
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

func (d *decoder) checkNotify(n *Notify) {
	const file, variable, command, events = "notify.webhook_file", "notify.webhook_env", "notify.command", "notify.events"
	switch {
	case !d.isValid("notify"):
	case !d.given[file] && !d.given[variable] && !d.given[command] && !isAnyWithin(d.guessed, "notify"):
		d.report("notify", "set notify.webhook_file, notify.webhook_env, or notify.command; for mail, set slurm.mail", "has no receiver")
	case d.given[file] && d.given[variable]:
		d.report(variable, "remove one of them", "conflicts with %s", file)
	}
	if d.isValid(file) && n.WebhookFile == "" {
		d.report(file, "", "is empty")
	}
	if d.isValid(events) && len(n.Events) == 0 {
		d.report(events, "remove the key for the default", "is empty")
	}
	if d.isValid(command) && (len(n.Command) == 0 || n.Command[0] == "") {
		d.report(command, "", "is empty: set it to the program and its arguments")
	}
}

func (d *decoder) checkRestart(j *Job) {
	const least, spare, restarts = "restart.min_nodes", "restart.spare_nodes", "restart.max_without_progress"
	nodes := max(1, j.Slurm.Nodes)
	if d.isValid("restart.requeue", "slurm.requeue") && j.Restart.Requeue > 0 && !*j.Slurm.Requeue {
		d.report("restart.requeue", "remove slurm.requeue = false", "conflicts with slurm.requeue, which forbids it")
	}
	if d.isValid("restart.on_failure", "slurm.requeue") && j.Restart.OnFailure > 0 && !*j.Slurm.Requeue {
		d.report("restart.on_failure", "remove slurm.requeue = false", "conflicts with slurm.requeue, which forbids it")
	}
	if d.isValid("setup.secrets.names", "slurm.export") && j.Slurm.Export == ExportNone && j.Setup.Secrets.File == "" && len(j.Setup.Secrets.Names) > 0 {
		d.report("slurm.export", "set setup.secrets.file", "\"none\" does not pass the variables of setup.secrets to the job")
	}
	if d.isValid(least) && !d.invalid["slurm.nodes"] && j.Restart.MinNodes > nodes {
		d.report(least, "", "%d is more than slurm.nodes, %d", j.Restart.MinNodes, nodes)
	}
	if d.isValid(restarts) && j.Restart.MaxWithoutProgress == 0 && j.Restart.SurvivesNodeLoss() {
		d.report(restarts, "", "must be at least 1 with %s or %s: 0 disables restarts", least, spare)
	}
}

func (d *decoder) checkCommand(c *Command) {
	const argv = "command.argv"
	d.checkTable("command", reflect.ValueOf(c))
	if d.isValid(argv) {
		var err error
		switch {
		case len(c.Argv) == 0:
			d.report(argv, "", "is empty: set it to the program and its arguments")
		case c.Argv[0] == "":
			d.reportElement(argv, 0, "is empty: the first element is the program")
		case c.Launcher.IsFramework():
			_, err = c.FrameworkArgv(0)
		case c.Launcher == LauncherTorchrun:
			_, _, err = c.TorchrunArgv()
		}
		if wrong, ok := err.(*argvError); ok {
			d.reportElementAllowed(argv, wrong.word, wrong.message, wrong.allowed)
		}
	}
	if d.isValid("command.launcher", "slurm.ranks_per_node") && c.Launcher == LauncherLightning {
		d.report("command.launcher", "set equal numbers with slurm.tasks_per_node", "Lightning requires the same number of ranks on all nodes, but slurm.ranks_per_node lists different ones")
	}
	d.checkContext(c)
	d.checkProgress(&c.Progress)
	if d.given["log.trace"] {
		d.report("log.trace", "", "is not valid with [command]: ddpbatch records timelines of the built-in trainer only")
	}
	if d.given["checkpoint"] {
		d.report("checkpoint", "", "is not valid with [command]: your program writes its own checkpoints")
	}
}

// checkOnce rejects keys that have no effect on a program that runs once, because they describe the
// ranks or their step.
func (d *decoder) checkOnce(j *Job) {
	if !d.isValid("command.run") || j.Command.Run != RunOnce {
		return
	}
	const run = "is not valid with command.run = \"once\": "
	if d.isValid("command.launcher") && j.Command.Launcher != LauncherRank {
		d.report("command.launcher", "remove one of them", run+"a launcher starts ranks")
	}
	for _, key := range []string{"slurm.mpi", "slurm.step_options", "slurm.cpu_bind", "slurm.gpu_bind"} {
		if d.given[key] {
			d.report(key, "pass the option to srun in the program", run+"ddpbatch does not call srun")
		}
	}
	for _, key := range []string{"restart.spare_nodes", "restart.min_nodes"} {
		if d.given[key] {
			d.report(key, "remove the key; restart.max_without_progress restarts the program on the same nodes", run+"ddpbatch does not choose the nodes of the program's processes")
		}
	}
	if d.given["network.interface"] {
		d.report("network.interface", "set NCCL_SOCKET_IFNAME or similar variables in setup.env", run+"ddpbatch selects no network for the program's processes")
	}
}

// checkContext checks the keys whose values the program receives.
func (d *decoder) checkContext(c *Command) {
	d.checkCheckpointDir(c)
	seen := map[Tracker]bool{}
	for i, tracker := range c.Tracking {
		if d.isValid("command.tracking") && seen[tracker] {
			d.reportElement("command.tracking", i, fmt.Sprintf("%q is listed twice", tracker))
		}
		seen[tracker] = true
	}
}

func (d *decoder) checkCheckpointDir(c *Command) {
	const dir = "command.checkpoint_dir"
	if !d.isValid(dir) {
		return
	}
	switch {
	case c.CheckpointDir == "":
		d.report(dir, "", "is empty: remove the key for a directory in the run directory")
	case hasPlaceholder(string(c.CheckpointDir), PlaceholderAttempt):
		d.report(dir, "use {run_dir} or {run_id}", "a restarted program would not find its checkpoints in a directory with {attempt}")
	case hasPlaceholder(string(c.CheckpointDir), PlaceholderCheckpoint):
		d.report(dir, "use {run_dir} or {run_id}", "contains itself")
	case strings.HasPrefix(string(c.CheckpointDir), "~"):
		d.report(dir, "write the absolute path", `"~" is not expanded`)
	case strings.HasPrefix(string(c.CheckpointDir), "{"+PlaceholderRunID+"}"):
		d.report(dir, "put a directory in front of it, such as checkpoints/{run_id}", "starts with {run_id}")
	}
}
