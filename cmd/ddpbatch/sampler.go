package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

type samplerCmd struct {
	Length   int   `required:"" aliases:"samples" placeholder:"N" help:"Number of samples in the training set."`
	Replicas int   `required:"" placeholder:"W" help:"Number of ranks."`
	Rank     *int  `placeholder:"R" help:"Print only this rank."`
	Epoch    int   `default:"0" placeholder:"E" help:"Epoch, from 0 (default: ${default})."`
	Seed     int64 `default:"0" placeholder:"S" help:"Seed, like train.seed in a job file (default: ${default})."`
	Shuffle  bool  `default:"true" negatable:"" help:"Shuffle the samples in each epoch (default: ${default})."`
	DropLast bool  `help:"Drop the remainder instead of padding it, if the samples do not divide evenly among the ranks."`
	Batch    int   `placeholder:"B" help:"Print a bar between batches of B samples."`
	JSON     bool  `help:"Print the result as JSON."`
}

func (c *samplerCmd) Help() string {
	return `The order is the same as in DistributedSampler of PyTorch with the same arguments.`
}

// maxLines is the maximum number of ranks in the output, which has one line per rank. With
// --rank, the output is a single line, and only maxReplicas limits the number of ranks.
const (
	maxLines    = 1 << 20
	maxReplicas = math.MaxInt32
)

// samplerAnswer is the output of sampler --json.
type samplerAnswer struct {
	NumSamples int           `json:"num_samples"` // per rank
	Ranks      []rankSamples `json:"ranks"`
}

// rankSamples are the samples of one rank, in order.
type rankSamples struct {
	Rank    int   `json:"rank"`
	Indices []int `json:"indices"`
}

func (c *samplerCmd) Run(_ context.Context, p *program) error {
	switch {
	case c.Length < 1 || c.Length > random.MaxPerm:
		return usage(fmt.Sprintf("--length must be from 1 to %d", random.MaxPerm))
	case c.Replicas < 1:
		return usage("--replicas must be at least 1")
	case c.Replicas > maxReplicas:
		return usage(fmt.Sprintf("--replicas must be at most %d", maxReplicas))
	case c.Replicas > maxLines && c.Rank == nil:
		return usage(fmt.Sprintf("--replicas must be at most %d without --rank", maxLines))
	case c.Epoch < 0 || c.Batch < 0 || c.Seed < 0:
		return usage("--epoch, --seed and --batch must not be negative")
	case c.Rank != nil && (*c.Rank < 0 || *c.Rank >= c.Replicas):
		return usage(fmt.Sprintf("--rank must be from 0 to %d", c.Replicas-1))
	}
	first, end := 0, c.Replicas
	if c.Rank != nil {
		first, end = *c.Rank, *c.Rank+1
	}
	samplesOf := data.Sampler{N: c.Length, Replicas: c.Replicas, Shuffle: c.Shuffle, DropLast: c.DropLast, Seed: c.Seed}.Split(c.Epoch)
	answer := samplerAnswer{Ranks: []rankSamples{}}
	for rank := first; rank < end; rank++ {
		indices := samplesOf(rank)
		if c.JSON {
			answer.NumSamples = len(indices)
			answer.Ranks = append(answer.Ranks, rankSamples{rank, indices})
			continue
		}
		p.printf("rank %d:%s\n", rank, formatIndices(indices, c.Batch))
	}
	if c.JSON {
		return p.printJSON(answer)
	}
	return nil
}

// formatIndices formats indices with a bar between batches.
func formatIndices(indices []int, batch int) string {
	var b strings.Builder
	for i, index := range indices {
		if i > 0 && batch > 0 && i%batch == 0 {
			b.WriteString(" |")
		}
		b.WriteString(" " + strconv.Itoa(index))
	}
	return b.String()
}
