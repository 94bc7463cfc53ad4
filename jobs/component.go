package jobs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// A Component is a program that runs next to [command] in the same allocation, such as a server
// that the ranks query.
type Component struct {
	Name         ComponentName `toml:"name" required:"server" help:"Name of the component: lowercase letters, digits, _ and -. The variables DDPBATCH_COMPONENT_NAME_HOST, _PORT, and _ADDRESS contain it in uppercase."`
	Argv         []Text        `toml:"argv" required:"[\"python3\", \"server.py\", \"--port\", \"{port}\"]" help:"Program and its arguments. No shell interprets them. ddpbatch replaces {host}, {port}, {address}, {ready_file}, {component.NAME.address} of each component, and the placeholders of command.argv."`
	Node         int           `toml:"node" default:"0" range:"0.." help:"Index of the node, from 0. If the run has fewer nodes, it is the last node."`
	EveryNode    bool          `toml:"every_node" help:"Run the component on every node, each with its own port."`
	Ready        Ready         `toml:"ready" auto:"log with ready_pattern, tcp otherwise" enum:"tcp,file,log,none" help:"Condition for the start of the next component and of the program. tcp: the component listens on its port. file: it has created the file {ready_file}. log: it has printed a line that matches ready_pattern. none: it has started."`
	ReadyPattern Text          `toml:"ready_pattern" help:"Regular expression (RE2) for a line of the component's output."`
	ReadyTimeout Duration      `toml:"ready_timeout" default:"5m" help:"Maximum time from the start of the component until it is ready."`
	Restart      int           `toml:"restart" default:"0" range:"0.." help:"Maximum number of restarts of this component in an attempt, while the program continues."`
	Optional     bool          `toml:"optional" help:"Continue the run if the component ends. Otherwise the run fails, and the table [restart] applies."`
	StopGrace    Duration      `toml:"stop_grace" default:"10s" help:"Maximum time from SIGTERM, which the component receives after the program has ended, to SIGKILL."`
}

// A Ready is the condition under which a component is ready.
type Ready string

// Values of [Component.Ready].
const (
	ReadyTCP  Ready = "tcp"
	ReadyFile Ready = "file"
	ReadyLog  Ready = "log"
	ReadyNone Ready = "none"
)

// A ComponentName is the name of a component. It is part of file names and of the names of
// environment variables.
type ComponentName string

const componentNamePattern = `^[a-z][a-z0-9_-]{0,31}$`

var componentName = lazyregexp.New(componentNamePattern)

// UnmarshalTOML accepts a TOML string.
func (n *ComponentName) UnmarshalTOML(v any) error {
	s, err := stringValue(v)
	if err != nil {
		return err
	}
	if !componentName().MatchString(s) {
		return valueErrorf("allowed: 1 to 32 lowercase letters, digits, _ and -, starting with a letter", "%q is not the name of a component", s)
	}
	*n = ComponentName(s)
	return nil
}

// A ComponentProperty is a part of the address of a component. The name of its placeholder ends with
// the property, and the name of its variable ends with the property in uppercase.
type ComponentProperty string

// Properties of components.
const (
	ComponentHost      ComponentProperty = "host"      // IP address
	ComponentPort      ComponentProperty = "port"      // TCP port
	ComponentAddress   ComponentProperty = "address"   // host and port
	ComponentAddresses ComponentProperty = "addresses" // of all nodes, separated by commas
)

// ComponentProperties are all properties of a component.
var ComponentProperties = []ComponentProperty{ComponentHost, ComponentPort, ComponentAddress, ComponentAddresses}

// componentVariables is the prefix of the variables with the addresses of components.
const componentVariables = "DDPBATCH_COMPONENT_"

// Variable returns the name of the environment variable with a property of the component.
func (n ComponentName) Variable(p ComponentProperty) string {
	return componentVariables + strings.ToUpper(strings.ReplaceAll(string(n), "-", "_")+"_"+string(p))
}

// Placeholder returns the name of the placeholder with a property of the component.
func (n ComponentName) Placeholder(p ComponentProperty) string {
	return "component." + string(n) + "." + string(p)
}

// StoppedGrace returns the maximum time that components have to stop after a stop request. Most of
// signal_before_end belongs to the program, which saves, and the requeue also needs time.
func (j *Job) StoppedGrace() time.Duration {
	if before := time.Duration(j.Slurm.SignalBeforeEnd); before > 0 {
		return before / 4
	}
	return defaultStopGrace
}

// warnAboutStopGrace returns warnings about components that have less time to stop than stop_grace.
func (j *Job) warnAboutStopGrace() (warnings Diagnostics) {
	for i := range j.Components {
		grace := time.Duration(j.Components[i].StopGrace)
		key := fmt.Sprintf("component[%d].stop_grace", i)
		d := j.Near(key)
		switch limit, before := j.Slurm.Time.Duration(), time.Duration(j.Slurm.SignalBeforeEnd); {
		case grace <= defaultStopGrace:
			continue
		case limit > 0 && grace >= limit:
			d.Message, d.Allowed = fmt.Sprintf("%s: %s is not less than the time limit, %s", key, grace, limit), "use a shorter time, or increase slurm.time"
		case before > 0 && grace > j.StoppedGrace():
			d.Message = fmt.Sprintf("%s: after a stop request, the component has only %s, a quarter of slurm.signal_before_end", key, j.StoppedGrace())
			d.Allowed = "increase slurm.signal_before_end if the component needs more"
		default:
			continue
		}
		warnings = append(warnings, d)
	}
	return warnings
}

const defaultStopGrace = 10 * time.Second

// RunsOn reports whether the component runs on a node of a run with the given number of nodes.
func (c *Component) RunsOn(node, nodes int) bool {
	return c.EveryNode || node == min(c.Node, nodes-1)
}

// setComponentDefaults sets the keys of each component whose default depends on other keys.
func (j *Job) setComponentDefaults() {
	for i := range j.Components {
		c := &j.Components[i]
		if c.ReadyPattern != "" {
			setDefault(&c.Ready, ReadyLog)
		}
		setDefault(&c.Ready, ReadyTCP)
	}
}

// maxComponents is the maximum number of components of a job. Each of them is in the environment of all
// others and of the program.
const maxComponents = 100

func (d *decoder) checkComponents(j *Job) {
	const table = "component"
	if !d.given[table] || d.invalid[table] {
		return
	}
	if d.given["train"] && !d.given["command"] {
		d.report(table, "", "is not valid with [train]: components serve the program in [command]")
		return
	}
	if len(j.Components) > maxComponents {
		d.report(table, "", "has %d components, want at most %d", len(j.Components), maxComponents)
		return
	}
	first := map[string]int{}
	for i := range j.Components {
		c := &j.Components[i]
		key := func(name string) string { return fmt.Sprintf("%s[%d].%s", table, i, name) }
		d.requireIn(table, i, "name", `name = "server"`)
		d.requireIn(table, i, "argv", `argv = ["python3", "server.py", "--port", "{port}"]`)
		if d.isValid(key("argv")) {
			switch {
			case len(c.Argv) == 0:
				d.report(key("argv"), "", "is empty: set it to the program and its arguments")
			case c.Argv[0] == "":
				d.reportElement(key("argv"), 0, "is empty: the first element is the program")
			}
			d.checkComponentReferences(j, key("argv"), c.Argv)
		}
		if d.isValid(key("name")) {
			variable := c.Name.Variable(ComponentHost)
			if other, twice := first[variable]; twice {
				d.report(key("name"), "choose a different name", "%q has the same variables as component[%d], %q", c.Name, other, j.Components[other].Name)
			} else {
				first[variable] = i
			}
		}
		d.checkComponentNode(j, c, key)
		d.checkReady(c, key)
	}
	if j.Command != nil && d.isValid("command.argv") {
		d.checkComponentReferences(j, "command.argv", j.Command.Argv)
	}
}

func (d *decoder) checkComponentNode(j *Job, c *Component, key func(string) string) {
	nodes := max(j.Slurm.countNodes(), len(j.Slurm.RanksPerNode))
	switch {
	case d.isValid(key("node"), key("every_node")) && c.EveryNode:
		d.report(key("node"), "remove one of them", "conflicts with every_node")
	case d.isValid(key("node")) && !d.invalid["slurm.nodes"] && !d.invalid["slurm.ranks_per_node"] && c.Node >= nodes:
		d.report(key("node"), fmt.Sprintf("allowed: 0 to %d", nodes-1), "%d is not the index of a node: the job has %d", c.Node, nodes)
	case d.isValid(key("node"), "command.run") && j.RunsOnce() && c.Node > 0:
		d.report(key("node"), "start the component in the program", "is not valid with command.run = \"once\": ddpbatch starts processes on the first node only")
	case d.isValid(key("every_node"), "command.run") && j.RunsOnce() && c.EveryNode:
		d.report(key("every_node"), "start the component in the program", "is not valid with command.run = \"once\": ddpbatch starts processes on the first node only")
	}
}

func (d *decoder) checkReady(c *Component, key func(string) string) {
	const example = `add ready_pattern = "listening on"`
	switch {
	case d.isValid(key("ready")) && c.Ready == ReadyLog && !d.given[key("ready_pattern")]:
		d.report(key("ready"), example, "\"log\" requires ready_pattern")
	case d.isValid(key("ready"), key("ready_pattern")) && c.Ready != ReadyLog:
		d.report(key("ready_pattern"), `set ready = "log", or remove ready_pattern`, "has no effect with ready = %q", c.Ready)
	}
	if d.isValid(key("ready_pattern")) {
		if _, invalid := parsePattern(string(c.ReadyPattern)); invalid != "" {
			d.report(key("ready_pattern"), "the syntax is RE2", "%s", invalid)
		} else if c.ReadyPattern == "" {
			d.report(key("ready_pattern"), example, "is empty")
		}
	}
	if d.isValid(key("ready_timeout")) && time.Duration(c.ReadyTimeout) < time.Second {
		d.report(key("ready_timeout"), "", "must be at least 1s")
	}
}

// componentReference matches a placeholder that may refer to a component, with the name and the
// property. Like [placeholderPattern], it also matches text in two braces and a variable of a shell,
// which are not placeholders and have no submatch.
var componentReference = lazyregexp.New(`\{\{[^{}]*\}\}|\$\{[^{}]*\}|\{component\.([^{}.]*)\.?([^{}]*)\}`)

// checkComponentReferences checks the placeholders that refer to components.
func (d *decoder) checkComponentReferences(j *Job, key string, argv []Text) {
	var names []string
	for _, c := range j.Components {
		if name := string(c.Name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for i, word := range argv {
		for _, m := range componentReference().FindAllStringSubmatch(string(word), -1) {
			switch {
			case !strings.HasPrefix(m[0], "{component."):
			case !slices.Contains(names, m[1]):
				d.reportElementAllowed(key, i, fmt.Sprintf("no component has the name %q", m[1]), "components: "+strings.Join(names, ", "))
			case !slices.Contains(ComponentProperties, ComponentProperty(m[2])):
				d.reportElementAllowed(key, i, fmt.Sprintf("a component has no property %q", m[2]), "allowed: host, port, address, addresses")
			}
		}
	}
}

// requireIn reports a missing key of one table in an array of tables.
func (d *decoder) requireIn(table string, i int, key, example string) {
	at := fmt.Sprintf("%s[%d]", table, i)
	if d.given[at+"."+key] || d.isExpected(at+"."+key) || d.invalid[at] {
		return
	}
	where := d.lookup(at).header
	if list := d.lookup(table); !where.known() && i < len(list.elements) {
		where = list.elements[i]
	}
	d.add(at+"."+key, where, fmt.Sprintf("missing key %q", at+"."+key), "for example: "+example, "")
}

// CheckComponents checks the command lines of the components as far as possible on this machine,
// like [Job.CheckProgram].
func (j *Job) CheckComponents(baseDir string) (errs, warnings Diagnostics) {
	if j.Command == nil {
		return nil, nil
	}
	for i := range j.Components {
		c := j.newProgramCheck(baseDir, fmt.Sprintf("component[%d].argv", i), j.Components[i].Argv)
		if checkDirectory(c.workdir) != nil {
			return nil, nil // CheckFiles reports it
		}
		c.launcher, c.placeholders = LauncherRank, componentPlaceholderNames
		c.checkCommandLine()
		errs, warnings = append(errs, c.errs...), append(warnings, c.warnings...)
	}
	return errs, warnings
}
