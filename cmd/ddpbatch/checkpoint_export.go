package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/torchfile"
)

type checkpointExportCmd struct {
	Which  string `arg:"" name:"run" help:"Run name, run directory, job file, job ID, directory of checkpoints, or one checkpoint."`
	Output string `short:"o" required:"" placeholder:"FILE" help:"Where to: a name that ends in .pt or .pth, or in .safetensors."`
	Step   int    `default:"-1" placeholder:"N" help:"The checkpoint of this step; without it the newest that is good."`
	Force  bool   `help:"Replace the file if it is there."`

	Optimizer bool `help:"The optimizer's state instead of the weights, for load_state_dict of torch.optim's SGD, Adam or AdamW."`
}

func (c *checkpointExportCmd) Help() string {
	return `A .pt file is a state_dict as torch.save writes it, which
torch.load(FILE, weights_only=True) reads; names are those of the same model in
PyTorch, or for a GPT in Hugging Face's GPT2Model. A .safetensors file has the
same names. With --optimizer it is the state_dict of the optimizer of the same
name in torch.optim, with the learning rate of the next step, so that a PyTorch
script can go on; parameters are in the order of the model's parameters(), and
param_groups[0]["param_names"] names them. What ranks wrote in parts is put
together. The checkpoint is compared with its manifest first; the file appears
whole or not at all.`
}

func (c *checkpointExportCmd) Run(ctx context.Context, p *program) error {
	ctx, stop := interruptible(ctx) // an interrupt must not leave a partial file
	defer stop()
	what, files := "weights", []string{checkpoint.ModelFile}
	var write func(io.Writer, *checkpoint.Snapshot) error
	switch ext := filepath.Ext(c.Output); {
	case c.Optimizer && (ext == ".pt" || ext == ".pth"):
		what, files, write = "optimizer's state", append(files, checkpoint.OptimizerFile), writeOptimizer
	case c.Optimizer:
		return usage(fmt.Sprintf("--output %q must end in .pt or .pth: --optimizer is in PyTorch's format", c.Output))
	case ext == ".pt" || ext == ".pth":
		write = func(w io.Writer, s *checkpoint.Snapshot) error {
			return writeStateDict(w, s.Files[checkpoint.ModelFile])
		}
	case ext == ".safetensors":
		write = func(w io.Writer, s *checkpoint.Snapshot) error {
			_, err := io.Copy(w, s.Files[checkpoint.ModelFile])
			return err
		}
	default:
		return usage(fmt.Sprintf("--output %q must end in .pt, .pth or .safetensors: that decides the format", c.Output))
	}
	s, err := c.open(ctx, p, files)
	if err != nil {
		return err
	}
	defer s.Close()
	path := p.abs(c.Output)
	if err := createFile(path, modePrivate, c.Force, func(w io.Writer) error { return write(w, s) }); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return exitError{exitUsage, hints.Add(fmt.Errorf("export: %q already exists", path), "give another name, or --force to replace it")}
		}
		return fmt.Errorf("export checkpoint %q: %w", s.Path, err)
	}
	p.printf("wrote the %s of step %d to %s\n", what, s.Manifest.Step, path)
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
		p.note("passed over: %v", err)
	}
	which := "checkpoint"
	if c.Step >= 0 {
		which = fmt.Sprintf("checkpoint of step %d", c.Step)
	}
	if seen {
		return nil, exitError{exitNoState, fmt.Errorf("no %s in %q can be used", which, c.Which)}
	}
	return nil, exitError{exitNoState, fmt.Errorf("there is no %s in %q", which, c.Which)}
}

// writeStateDict writes the tensors of a safetensors file in the format of torch.save.
func writeStateDict(w io.Writer, file *io.SectionReader) error {
	tensors, err := tensorsOf(file)
	if err != nil {
		return err
	}
	return torchfile.Write(w, tensors)
}
