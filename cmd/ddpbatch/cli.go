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
	Init       initCmd       `cmd:"" help:"Write a job file with comments, as a starting point."`
	Check      checkCmd      `cmd:"" help:"Validate job files and report every error."`
	Plan       planCmd       `cmd:"" help:"Predict the memory, speed, and scaling of a training job."`
	Render     renderCmd     `cmd:"" help:"Print the batch script of a job."`
	Submit     submitCmd     `cmd:"" help:"Submit a job to Slurm."`
	Launch     launchCmd     `cmd:"" help:"Start the ranks of a job, on this machine or in this allocation."`
	Run        runCmd        `cmd:"" help:"Run a single rank. The launcher, srun, or torchrun calls this command."`
	Status     statusCmd     `cmd:"" help:"Show the status of runs."`
	Top        topCmd        `cmd:"" help:"Show a live table of runs."`
	Logs       logsCmd       `cmd:"" help:"Print the log of a run or of a rank."`
	Report     reportCmd     `cmd:"" help:"Write an HTML report of a run: metrics, ranks, network, and failures."`
	Exec       execCmd       `cmd:"" help:"Run a command on a node of a running job."`
	Shell      shellCmd      `cmd:"" help:"Open a shell on a node of a running job."`
	Stacks     stacksCmd     `cmd:"" help:"Show what each rank of a running job is doing."`
	Trace      traceCmd      `cmd:"" help:"Write a timeline of all ranks, for Perfetto."`
	Wait       waitCmd       `cmd:"" help:"Wait until the job of a run has ended."`
	Cancel     cancelCmd     `cmd:"" help:"Cancel the job of a run."`
	Checkpoint checkpointCmd `cmd:"" help:"List, verify, or export the checkpoints of a run."`
	Repair     repairCmd     `cmd:"" help:"Rebuild the record of a run from its checkpoints."`
	Sample     sampleCmd     `cmd:"" help:"Generate text with a trained GPT."`
	Env        envCmd        `cmd:"" help:"Print the environment variables of a rank, for eval in a script."`
	Hosts      hostsCmd      `cmd:"" help:"Expand or fold a Slurm node list."`
	Netif      netifCmd      `cmd:"" help:"Show which network interface ranks would use, and why."`
	Sampler    samplerCmd    `cmd:"" help:"Print the sample indices of each rank."`
	Templates  templatesCmd  `cmd:"" help:"List, show, or check site profiles."`
	Doctor     doctorCmd     `cmd:"" help:"Check Slurm, network, GPUs, limits, and file systems; or diagnose a log."`
	Bench      benchCmd      `cmd:"" help:"Benchmark the trainer on this machine."`
	Schema     schemaCmd     `cmd:"" help:"Print the JSON schema of the job file, for editors."`
	Completion completionCmd `cmd:"" help:"Print a shell completion script."`
	Start      startCmd      `cmd:"" hidden:"" help:"Start a program from PATH, for steps of Slurm."`
	Manual     manualCmd     `cmd:"" hidden:"" help:"Write the reference and the manual pages."`
	Version    versionCmd    `cmd:"" help:"Print the version."`
}

const description = `Run training jobs on Slurm, from a TOML file to a finished run.

To start, write a job file with ddpbatch init --kind command for your own program, with ddpbatch init --from SCRIPT for a batch script, or with ddpbatch init for the built-in trainer. Then run ddpbatch check job.toml and ddpbatch submit job.toml.`

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
		return fmt.Errorf("%q is not an IP address; host names are not resolved", text)
	}
	target.Set(reflect.ValueOf(a))
	return nil
}
