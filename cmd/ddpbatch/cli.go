package main

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// cli defines the commands.
type cli struct {
	Init       initCmd       `cmd:"" help:"Write a commented job file to start from."`
	Check      checkCmd      `cmd:"" help:"Check job files and tell all their mistakes."`
	Plan       planCmd       `cmd:"" help:"Predict a training's memory, speed and scaling before it queues."`
	Render     renderCmd     `cmd:"" help:"Print the batch script that submit would send."`
	Submit     submitCmd     `cmd:"" help:"Submit a job to Slurm."`
	Launch     launchCmd     `cmd:"" help:"Start a job's ranks, here or in this allocation."`
	Run        runCmd        `cmd:"" help:"Be one rank; launch and srun call this."`
	Status     statusCmd     `cmd:"" help:"Show how runs stand."`
	Top        topCmd        `cmd:"" help:"Follow how runs stand, in one table."`
	Logs       logsCmd       `cmd:"" help:"Print the log of a run, or of one rank."`
	Report     reportCmd     `cmd:"" help:"Write a page about a run: figures, ranks, network, failures."`
	Trace      traceCmd      `cmd:"" help:"Write a timeline of steps on all ranks, for Perfetto."`
	Wait       waitCmd       `cmd:"" help:"Wait until a run's job is done."`
	Cancel     cancelCmd     `cmd:"" help:"End a run's job."`
	Checkpoint checkpointCmd `cmd:"" help:"List, verify or export the checkpoints of a run."`
	Repair     repairCmd     `cmd:"" help:"Rebuild the record of a run from its checkpoints."`
	Sample     sampleCmd     `cmd:"" help:"Write text with a GPT that was trained."`
	Env        envCmd        `cmd:"" help:"Print a rank's variables, for eval in a script."`
	Hosts      hostsCmd      `cmd:"" help:"Expand or fold a Slurm host list."`
	Netif      netifCmd      `cmd:"" help:"Say which network interface ranks would use, and why."`
	Sampler    samplerCmd    `cmd:"" help:"Print which samples each rank takes."`
	Templates  templatesCmd  `cmd:"" help:"List, show or check the profiles of sites."`
	Doctor     doctorCmd     `cmd:"" help:"Look for what will go wrong: Slurm, network, GPUs, limits, files; or why, in a log."`
	Bench      benchCmd      `cmd:"" help:"Time the trainer's steps and products on this machine."`
	Schema     schemaCmd     `cmd:"" help:"Print the JSON schema of the job file, for editors."`
	Completion completionCmd `cmd:"" help:"Print a script by which a shell completes commands."`
	Manual     manualCmd     `cmd:"" hidden:"" help:"Write the reference and the manual pages."`
	Version    versionCmd    `cmd:"" help:"Print the version."`
}

const description = `Take a training job from a TOML file to a finished, resumable run on Slurm.

Start: ddpbatch init, then ddpbatch check job.toml, then ddpbatch submit job.toml.`

// help returns the description of the program, followed by the exit codes.
func help() string {
	codes := make([]string, len(exitMeanings))
	for i, e := range exitMeanings {
		codes[i] = fmt.Sprintf("%d %s", e.Code, e.Meaning)
	}
	return description + "\n\nExit codes: " + strings.Join(codes, "; ") + "."
}

// newParser returns the parser for c, with ddpbatch's help layout and argument types.
func newParser(c *cli, options ...kong.Option) (*kong.Kong, error) {
	parser, err := kong.New(c, append(options,
		kong.Name("ddpbatch"),
		kong.Description(help()),
		kong.TypeMapper(reflect.TypeFor[netip.Addr](), kong.MapperFunc(address)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 80, NoExpandSubcommands: true}),
	)...)
	if err == nil {
		parser.Model.HelpFlag.Help = "Show this help."
	}
	return parser, err
}

// address decodes an IP address. It rejects host names, because a name can resolve to an
// address on any of the host's networks.
func address(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("address", &text); err != nil {
		return err
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return fmt.Errorf("%q is no IP address (names of hosts are not looked up)", text)
	}
	target.Set(reflect.ValueOf(a))
	return nil
}
