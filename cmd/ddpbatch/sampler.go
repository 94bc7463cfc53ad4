package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

type samplerCmd struct {
	Samples  int   `required:"" placeholder:"N" help:"Samples in the training set."`
	Replicas int   `required:"" placeholder:"W" help:"Ranks that share them."`
	Rank     *int  `placeholder:"R" help:"Only this rank."`
	Epoch    int   `default:"0" placeholder:"E" help:"Epoch, from 0."`
	Seed     int64 `default:"0" placeholder:"S" help:"Seed, as train.seed in a job file."`
	Shuffle  bool  `default:"true" negatable:"" help:"Permute the samples anew in each epoch."`
	DropLast bool  `help:"Leave out the last samples that do not go around, instead of repeating some."`
	Batch    int   `placeholder:"B" help:"Put a bar between batches of B samples."`
	JSON     bool  `help:"Print the answer as JSON."`
}

func (c *samplerCmd) Help() string {
	return `The order is that of PyTorch's DistributedSampler with the same arguments.`
}

// rankSamples is what one rank takes, in order.
type rankSamples struct {
	Rank    int   `json:"rank"`
	Indices []int `json:"indices"`
}

func (c *samplerCmd) Run(_ context.Context, p *program) error {
	switch {
	case c.Samples < 1 || c.Samples > random.MaxPerm:
		return usage(fmt.Sprintf("--samples must be from 1 to %d", random.MaxPerm))
	case c.Replicas < 1:
		return usage("--replicas must be at least 1")
	case c.Epoch < 0 || c.Batch < 0 || c.Seed < 0:
		return usage("--epoch, --seed and --batch must not be negative")
	case c.Rank != nil && (*c.Rank < 0 || *c.Rank >= c.Replicas):
		return usage(fmt.Sprintf("--rank must be from 0 to %d", c.Replicas-1))
	}
	var all []rankSamples
	for r := range c.Replicas {
		if c.Rank != nil && r != *c.Rank {
			continue
		}
		s := data.Sampler{N: c.Samples, Replicas: c.Replicas, Rank: r, Shuffle: c.Shuffle, DropLast: c.DropLast, Seed: c.Seed}
		indices := append([]int{}, s.Epoch(c.Epoch)...)
		if c.JSON {
			all = append(all, rankSamples{r, indices})
			continue
		}
		p.printf("rank %d:%s\n", r, barred(indices, c.Batch))
	}
	if c.JSON {
		return p.printJSON(all)
	}
	return nil
}

// barred writes indices with a bar between batches.
func barred(indices []int, batch int) string {
	var b strings.Builder
	for i, index := range indices {
		if i > 0 && batch > 0 && i%batch == 0 {
			b.WriteString(" |")
		}
		b.WriteString(" " + strconv.Itoa(index))
	}
	return b.String()
}
