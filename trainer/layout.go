package trainer

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// findLayout sets the layout of the ranks on nodes, which determines the order of sums.
func (r *run) findLayout(ctx context.Context) error {
	nodes, err := r.nodes(ctx)
	r.layout = formatLayout(nodes)
	return err
}

// nodes returns the node rank of each rank.
func (r *run) nodes(ctx context.Context) ([]float64, error) {
	nodes := make([]float64, r.Comm.Size())
	nodes[r.Comm.Rank()] = float64(r.Node)
	if err := r.Comm.Do(ctx, collective.AllReduce(nodes, collective.Sum)); err != nil {
		return nil, fmt.Errorf("exchange the layout of ranks: %w", err)
	}
	return nodes, nil
}

// formatLayout describes the nodes of all ranks as checkpoint.Manifest.Layout does.
func formatLayout(nodes []float64) string {
	var order []float64 // nodes in the order of their first ranks
	var counts []string
	var list []string // the node of each rank
	consecutive := true
	for rank, node := range nodes {
		at := slices.Index(order, node)
		if at < 0 {
			at = len(order)
			order, counts = append(order, node), append(counts, strconv.Itoa(count(nodes, node)))
		} else if nodes[rank-1] != node {
			consecutive = false
		}
		list = append(list, strconv.Itoa(at))
	}
	switch {
	case !consecutive:
		return strings.Join(list, ",")
	case len(slices.Compact(slices.Clone(counts))) == 1:
		return fmt.Sprintf("%dx%s", len(order), counts[0])
	}
	return strings.Join(counts, "+")
}

func count(nodes []float64, node float64) int {
	n := 0
	for _, other := range nodes {
		if other == node {
			n++
		}
	}
	return n
}

// reportOrigin warns if the layout differs from the checkpoint's layout, and if the ranks that
// saved the checkpoint did not compare their weights. Older versions did not compare them.
func (r *run) reportOrigin(from origin) {
	if from.snapshot == nil || r.isFinished() {
		return
	}
	if m := &from.snapshot.Manifest; m.Replicas == "" && m.WorldSize > 1 {
		r.Observe(Event{Kind: Uncompared, Step: int(r.pos.Step), Epoch: int(r.pos.Epoch), Epochs: r.train.Epochs})
	}
	if was := from.snapshot.Manifest.Layout; was != "" && was != r.layout {
		r.Observe(Event{Kind: Relocated, Step: int(r.pos.Step), Epoch: int(r.pos.Epoch), Epochs: r.train.Epochs, OldLayout: was, Layout: r.layout})
	}
}
