package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

type checkpointCmd struct {
	Ls     checkpointLsCmd     `cmd:"" help:"List checkpoints, newest first."`
	Verify checkpointVerifyCmd `cmd:"" help:"Compare every byte of checkpoints with their manifests."`
	Export checkpointExportCmd `cmd:"" help:"Export the weights of a checkpoint for other programs. Also reads distributed checkpoints of PyTorch."`
}

type checkpointLsCmd struct {
	Which string `arg:"" name:"run" help:"Run name, run directory, job file, job ID, or directory of checkpoints."`
	JSON  bool   `help:"Print the result as JSON."`
}

type checkpointVerifyCmd struct {
	Which string `arg:"" name:"run" help:"Run name, run directory, job file, job ID, directory of checkpoints, or one checkpoint."`
	JSON  bool   `help:"Print the result as JSON."`
}

func (c *checkpointVerifyCmd) Help() string {
	return `A run resumes from its newest valid checkpoint. The exit code is 5 if no checkpoint is
valid.`
}

// checkpointInfo is a checkpoint in the output of the checkpoint commands.
type checkpointInfo struct {
	Path      string    `json:"path"`
	Step      int       `json:"step"`
	Epoch     int       `json:"epoch"`
	Finished  bool      `json:"finished"`
	WorldSize int       `json:"world_size"`
	Bytes     int64     `json:"bytes"`
	Created   time.Time `json:"created,omitzero"`
	Fault     string    `json:"fault,omitempty"` // reason why it is not usable
}

func infoOf(e checkpoint.Entry) checkpointInfo {
	c := checkpointInfo{Path: e.Path, Step: e.Step}
	if e.Err != nil {
		c.Fault = e.Err.Error()
		return c
	}
	m := e.Manifest
	c.Epoch, c.Finished, c.WorldSize, c.Created = m.Epoch, m.Finished, m.WorldSize, m.Created
	for _, f := range m.Files {
		c.Bytes += f.Bytes
	}
	return c
}

// checkpoints lists the checkpoints that arg names.
func (p *program) checkpoints(arg string) ([]checkpointInfo, error) {
	entries, err := p.checkpointEntries(arg)
	if err != nil {
		return nil, err
	}
	found := make([]checkpointInfo, len(entries))
	for i, e := range entries {
		found[i] = infoOf(e)
	}
	return found, nil
}

func (p *program) checkpointEntries(arg string) ([]checkpoint.Entry, error) {
	store := p.runStore()
	switch run, ok, err := store.FindOwn(arg); {
	case err != nil:
		return nil, err
	case ok:
		return checkpoint.List(run.Dir.Checkpoints())
	}
	path := p.abs(arg)
	if info, err := os.Stat(path); arg != "" && err == nil && info.IsDir() {
		// A directory of checkpoints, or a single checkpoint.
		if entries, err := checkpoint.List(path); err != nil || len(entries) > 0 {
			return entries, err
		}
		siblings, err := checkpoint.List(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		for _, e := range siblings {
			if e.Path == path {
				return []checkpoint.Entry{e}, nil
			}
		}
	}
	run, err := store.Find(arg)
	if err != nil {
		return nil, err
	}
	return checkpoint.List(run.Dir.Checkpoints())
}

func (c *checkpointLsCmd) Run(_ context.Context, p *program) error {
	found, err := p.checkpoints(c.Which)
	if err != nil {
		return err
	}
	if c.JSON {
		return p.printJSON(found)
	}
	if len(found) == 0 {
		p.note("there is no checkpoint yet")
		return nil
	}
	rows := make([][]string, len(found))
	for i, f := range found {
		note := f.Fault
		if f.Finished {
			note = "finished"
		}
		if f.Created.IsZero() { // the manifest is not readable
			rows[i] = []string{strconv.Itoa(f.Step), "-", "-", "-", "-", note}
			continue
		}
		rows[i] = []string{strconv.Itoa(f.Step), strconv.Itoa(f.Epoch), strconv.Itoa(f.WorldSize), strconv.FormatInt(f.Bytes, 10),
			f.Created.Local().Format(time.DateTime), note}
	}
	p.table([]string{"STEP", "EPOCH", "RANKS", "BYTES", "CREATED", "NOTE"}, rows)
	return nil
}

func (c *checkpointVerifyCmd) Run(ctx context.Context, p *program) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	found, err := p.checkpoints(c.Which)
	if err != nil {
		return err
	}
	good := 0
	for i := range found {
		f := &found[i]
		if f.Fault == "" {
			err := checkpoint.Verify(ctx, f.Path)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				f.Fault = err.Error()
			}
		}
		verdict := "good"
		if f.Fault != "" {
			verdict = "cannot be used: " + f.Fault
		} else {
			good++
		}
		if !c.JSON {
			p.printf("step %d: %s\n", f.Step, printable.Line(verdict)) // one line, even if the name of a file has several
		}
	}
	if c.JSON {
		if err := p.printJSON(found); err != nil {
			return err
		}
	}
	switch {
	case len(found) == 0:
		return exitError{exitNoState, fmt.Errorf("there is no checkpoint in %q", c.Which)}
	case good == 0:
		return exitError{exitNoState, fmt.Errorf("no checkpoint in %q can be used", c.Which)}
	}
	return nil
}
