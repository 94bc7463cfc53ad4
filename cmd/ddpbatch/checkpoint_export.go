package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/dcp"
	"github.com/ddpbatch/ddpbatch/trainer/torchstate"
)

type checkpointExportCmd struct {
	Which  string `arg:"" name:"run" help:"Run name, run directory, job file, job ID, directory of checkpoints, one checkpoint, or a distributed checkpoint of PyTorch."`
	Output string `short:"o" required:"" placeholder:"FILE" help:"File to write; the name must end in .pt, .pth, or .safetensors."`
	Step   int    `default:"-1" placeholder:"N" help:"Step of the checkpoint (default: the newest usable checkpoint)."`
	Force  bool   `help:"Replace the file if it exists."`

	Only string `placeholder:"KEY" help:"Part of a distributed checkpoint to export, such as model. Names are relative to it (default: all parts)."`

	Optimizer bool `help:"Export the optimizer state instead of the weights, for load_state_dict of SGD, Adam, or AdamW in torch.optim."`
}

func (c *checkpointExportCmd) Help() string {
	return `A .pt file contains a state_dict in the format of torch.save. Load it with
torch.load(FILE, weights_only=True). The tensor names are the names in the same
PyTorch model, or, for a GPT, in GPT2Model of Hugging Face. A .safetensors file has
the same names.

With --optimizer, the file contains the state_dict of the optimizer of the same name
in torch.optim, with the learning rate of the next step, so that a PyTorch script can
continue the training run. Parameters are in the order of the model's parameters();
param_groups[0]["param_names"] lists their names.

The command merges sharded checkpoints. It verifies the checkpoint against its
manifest first, and writes the file atomically.

It also reads distributed checkpoints of PyTorch (torch.distributed.checkpoint, as
of FSDP and torchtitan), which are directories with a file .metadata. All tensors
keep their types. A .pt file also contains other values, such as learning rates, and
is nested like the saved state. With --only model, it contains the state_dict of the
model. Nothing in a checkpoint is executed.`
}

func (c *checkpointExportCmd) Run(ctx context.Context, p *program) error {
	ctx, stop := interruptible(ctx) // an interrupt must not leave a partial file
	defer stop()
	// Another user may be able to create a directory with the name of the user's run.
	_, isRun, _ := p.runStore().FindOwn(c.Which) // open returns the error
	if dir := p.abs(c.Which); c.Which != "" && !isRun && dcp.IsCheckpoint(dir) {
		return c.exportDistributed(ctx, p, dir)
	}
	if c.Only != "" {
		return usage(fmt.Sprintf("--only requires a distributed checkpoint of PyTorch, which %q is not", c.Which))
	}
	what, files := "weights", []string{checkpoint.ModelFile}
	var write func(io.Writer, *checkpoint.Snapshot) error
	switch ext := filepath.Ext(c.Output); {
	case c.Optimizer && (ext == ".pt" || ext == ".pth"):
		what, files, write = "optimizer state", append(files, checkpoint.OptimizerFile), writeOptimizer
	case c.Optimizer:
		return usage(fmt.Sprintf("--output %q must end in .pt or .pth with --optimizer, which uses the format of PyTorch", c.Output))
	case ext == ".pt" || ext == ".pth":
		write = torchstate.WriteWeights
	case ext == ".safetensors":
		write = func(w io.Writer, s *checkpoint.Snapshot) error {
			_, err := io.Copy(w, s.Files[checkpoint.ModelFile])
			return err
		}
	default:
		return usage(fmt.Sprintf("--output %q must end in .pt, .pth, or .safetensors, which selects the format", c.Output))
	}
	s, err := c.open(ctx, p, files)
	if err != nil {
		if name := dcp.Newest(p.abs(c.Which)); c.Which != "" && name != "" {
			err = hints.Add(err, "export one of the distributed checkpoints in this directory, such as "+shellQuote(filepath.Join(c.Which, name)))
		}
		return err
	}
	defer s.Close()
	path := p.abs(c.Output)
	if err := c.write(path, s.Path, func(w io.Writer) error { return write(w, s) }); err != nil {
		return err
	}
	p.printf("wrote the %s of step %d to %s\n", what, s.Manifest.Step, path)
	return nil
}

// write creates the file at path with the output of write, which exports a checkpoint.
func (c *checkpointExportCmd) write(path, checkpoint string, write func(io.Writer) error) error {
	err := createFile(path, modePrivate, c.Force, write)
	if errors.Is(err, fs.ErrExist) {
		return exitError{exitUsage, hints.Add(fmt.Errorf("export: %q already exists", path), "choose a different name, or replace the file with --force")}
	}
	if err != nil {
		return fmt.Errorf("export checkpoint %q: %w", checkpoint, err)
	}
	return nil
}

// exportDistributed exports a distributed checkpoint of PyTorch.
func (c *checkpointExportCmd) exportDistributed(ctx context.Context, p *program, dir string) error {
	ext := filepath.Ext(c.Output)
	switch {
	case c.Optimizer:
		return usage("--optimizer requires a checkpoint of ddpbatch; use --only with the name of the optimizer, such as optimizer")
	case c.Step >= 0:
		return usage("--step requires checkpoints of ddpbatch; give the directory of the distributed checkpoint")
	case ext != ".pt" && ext != ".pth" && ext != ".safetensors":
		return usage(fmt.Sprintf("--output %q must end in .pt, .pth, or .safetensors, which selects the format", c.Output))
	}
	s, err := dcp.Open(dir)
	if err != nil {
		return exitError{exitNoState, fmt.Errorf("export: %w", err)}
	}
	defer s.Close()
	if c.Only != "" {
		if err := s.Select(c.Only); err != nil {
			return exitError{exitUsage, fmt.Errorf("--only: %w", err)}
		}
	}
	if err := s.Check(ctx); err != nil {
		return exitError{exitNoState, fmt.Errorf("export: %w", err)}
	}
	path := p.abs(c.Output)
	var skipped []dcp.Skipped
	err = c.write(path, dir, func(w io.Writer) (err error) {
		if ext == ".safetensors" {
			return s.WriteSafetensors(ctx, w)
		}
		skipped, err = s.WriteTorch(ctx, w)
		return err
	})
	if err != nil {
		return err
	}
	p.printf("wrote %s of %s to %s\n", format.Count(len(s.Tensors), "tensor"), c.Which, path)
	if ext == ".safetensors" && len(s.Values) > 0 {
		names := make([]string, len(s.Values))
		for i, v := range s.Values {
			names[i] = v.Name
		}
		p.note("skipped %s, which only a .pt file can contain: %s", format.Count(len(names), "value"), format.List(names, 5))
	}
	for _, v := range skipped {
		p.note("skipped %q: %v", v.Name, v.Cause)
	}
	return nil
}

// open opens the newest usable checkpoint, or the checkpoint of the step in --step.
func (c *checkpointExportCmd) open(ctx context.Context, p *program, files []string) (*checkpoint.Snapshot, error) {
	entries, err := p.checkpointEntries(c.Which)
	if err != nil {
		return nil, err
	}
	seen := false
	for _, e := range entries {
		if c.Step >= 0 && e.Step != c.Step {
			continue
		}
		seen = true
		s, err := e.Open(ctx, files...)
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		p.note("skipped: %v", err)
	}
	which := "checkpoint"
	if c.Step >= 0 {
		which = fmt.Sprintf("checkpoint of step %d", c.Step)
	}
	if seen {
		return nil, exitError{exitNoState, fmt.Errorf("no usable %s in %q", which, c.Which)}
	}
	return nil, exitError{exitNoState, fmt.Errorf("no %s in %q", which, c.Which)}
}

// writeOptimizer writes the optimizer state of a checkpoint for PyTorch.
func writeOptimizer(w io.Writer, s *checkpoint.Snapshot) error {
	options, groups, err := trainer.SavedOptimizer(&s.Manifest)
	if err != nil {
		return err
	}
	return torchstate.WriteOptimizer(w, s, options, groups)
}
