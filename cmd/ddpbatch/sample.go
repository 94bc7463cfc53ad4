package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/textgen"
)

type sampleCmd struct {
	Which       string  `arg:"" optional:"" name:"run" help:"Run name, run directory, job file, or job ID; also a trial of a sweep."`
	Weights     string  `placeholder:"FILE" help:"Safetensors file with GPT-2 weights in Hugging Face's naming, instead of a run."`
	Heads       int     `placeholder:"N" help:"Attention heads of the model in --weights (default: width/64, as in GPT-2)."`
	Prompt      string  `placeholder:"TEXT" help:"Text to continue. If the model has no vocabulary, token IDs."`
	Tokens      int     `default:"200" placeholder:"N" help:"Number of tokens to generate (default: ${default})."`
	Temperature float64 `default:"0.8" placeholder:"T" help:"Sampling temperature; 0 always selects the most likely token (default: ${default})."`
	TopK        int     `placeholder:"K" help:"Sample only from the K most likely tokens."`
	TopP        float64 `placeholder:"P" help:"Sample only from the smallest set of tokens with at least this total probability."`
	Seed        uint64  `default:"0" placeholder:"S" help:"Random seed (default: ${default})."`
	KeepHalf    bool    `help:"When the context is full, drop half of it. This is much faster, but changes the text."`
	JSON        bool    `help:"Print the result as JSON."`
}

func (c *sampleCmd) Help() string {
	return `Uses the newest valid checkpoint of the run. It needs only the run directory. The same
arguments produce the same text. When the context is full, the model computes the
whole context again for each token; --keep-half avoids that.`
}

// sampled is the output of sample --json.
type sampled struct {
	Path   string  `json:"path"` // of the checkpoint or weights file
	Step   *int    `json:"step,omitempty"`
	Prompt string  `json:"prompt"`
	Text   string  `json:"text,omitempty"`
	Tokens []int32 `json:"tokens"`
}

func (c *sampleCmd) Run(ctx context.Context, p *program) error {
	switch {
	case (c.Which == "") == (c.Weights == ""):
		return usage("give either a run, or a file with --weights")
	case c.Heads != 0 && (c.Weights == "" || c.Heads < 0):
		return usage("--heads must be at least 1, and requires --weights")
	case c.Tokens < 1:
		return usage("--tokens must be at least 1")
	}
	sampler, err := nn.NewSampler(nn.Sampling{Temperature: c.Temperature, TopK: c.TopK, TopP: c.TopP, Seed: c.Seed})
	if err != nil {
		return exitError{exitUsage, err}
	}
	var m trainedGPT
	if c.Weights != "" {
		m, err = p.loadGPTFromFile(c.Weights, c.Heads)
	} else {
		m, err = p.loadGPTFromRun(ctx, c.Which)
	}
	if err != nil {
		return err
	}
	prompt, err := m.Encode(c.Prompt)
	if err != nil {
		return exitError{exitUsage, fmt.Errorf("read the prompt: %w", err)}
	}
	if n := len(prompt); n > m.Shape.Context {
		p.note("the prompt has %d tokens; the model uses only the last %d", n, m.Shape.Context)
	}
	text := m.Stream()
	if !c.JSON {
		p.printf("%s", text.Add(prompt...))
	}
	var tokens []int32
	for token, err := range m.Continue(prompt, sampler, c.KeepHalf) {
		if err != nil {
			return fmt.Errorf("%q: %w", m.path, err)
		}
		if tokens = append(tokens, token); !c.JSON {
			p.printf("%s", text.Add(token))
		}
		if len(tokens) == c.Tokens {
			break
		}
	}
	if !c.JSON {
		p.printf("%s\n", text.Rest())
		return nil
	}
	return p.printJSON(sampled{m.path, m.step, c.Prompt, m.Decode(tokens), tokens})
}

// A trainedGPT is a model with its origin.
type trainedGPT struct {
	*textgen.Model
	path string
	step *int // of the checkpoint; nil for a weights file
}

// loadGPTFromRun loads the newest usable checkpoint of a run.
func (p *program) loadGPTFromRun(ctx context.Context, arg string) (m trainedGPT, err error) {
	run, err := p.findRun(arg)
	if err != nil {
		return m, err
	}
	if run.IsSweep() {
		return m, exitError{exitUsage, hints.Add(fmt.Errorf("run %q is a sweep", run.Dir.Path), "select a trial, such as "+shellQuote(run.Record.Name+"/0"))}
	}
	job, err := jobs.Load(run.Dir.Spec())
	if err != nil {
		return m, err
	}
	if job.Train == nil || job.Train.Model.Kind != jobs.ModelGPT {
		what := "a [command] job"
		if job.Train != nil {
			what = fmt.Sprintf("a model of kind %q", job.Train.Model.Kind)
		}
		return m, exitError{exitUsage, fmt.Errorf("run %q is %s, want a model of kind %q", run.Dir.Path, what, jobs.ModelGPT)}
	}
	s, passed, err := checkpoint.Load(ctx, run.Dir.Checkpoints(), checkpoint.ModelFile)
	for _, why := range passed {
		p.note("skipped: %v", why)
	}
	if errors.Is(err, checkpoint.ErrNotFound) {
		err = fmt.Errorf("no checkpoint in %q", run.Dir.Path)
	}
	if err != nil {
		return m, exitError{exitNoState, err}
	}
	defer s.Close()
	m.path, m.step = s.Path, &s.Manifest.Step
	file := s.Files[checkpoint.ModelFile]
	m.Model, err = textgen.Load(file, file.Size(), job.Train.Model.Heads, s.Manifest.Vocabulary)
	if err != nil {
		return m, exitError{exitNoState, fmt.Errorf("checkpoint %q: %w", s.Path, err)}
	}
	return m, nil
}

// loadGPTFromFile loads weights from a safetensors file outside of a run.
func (p *program) loadGPTFromFile(path string, heads int) (m trainedGPT, err error) {
	m.path = p.abs(path)
	f, err := safefile.Open(m.path, 0)
	if err != nil {
		return m, exitError{exitUsage, err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return m, err
	}
	if m.Model, err = textgen.Load(f, info.Size(), heads, ""); err != nil {
		return m, fmt.Errorf("read %q: %w", m.path, err)
	}
	if heads == 0 {
		p.note("%s does not contain the number of attention heads; using %d, for a width of %d", filepath.Base(path), m.Shape.Heads, m.Shape.Width)
	}
	return m, nil
}
