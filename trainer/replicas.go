package trainer

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// compareInterval is the maximum number of steps between two comparisons of the weights. A save
// also compares them. A comparison reads 1 GB of weights in about 0.1 s, and a model of that size
// needs minutes for 100 steps.
const compareInterval = 100

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hasReplicas reports whether other ranks hold the same weights as this rank.
func (r *run) hasReplicas() bool { return r.sharder.Strategy != ddp.ZeRO3 && r.Comm.Size() > 1 }

// replicas returns the manifest entry for the current state, which compareAll has accepted.
func (r *run) replicas() checkpoint.Replicas {
	if r.hasReplicas() {
		return checkpoint.ReplicasCompared
	}
	return checkpoint.ReplicasNone
}

// compareWeights compares the weights of all ranks. They differ only if a CPU, its memory, or a
// library between the ranks is faulty. Nothing else would detect the fault.
//
// With ZeRO1 and ZeRO2 a rank receives most weights from the ranks that update them. The comparison
// then checks the transfer. It cannot detect a rank that computes its own shard wrongly, because
// all ranks receive the same wrong weights. For the same reason it cannot detect wrong gradients
// that a rank has sent to the others. With ZeRO3 and with a single rank there is nothing to
// compare.
func (r *run) compareWeights(ctx context.Context) error { return r.compare(ctx, false) }

// compareAll compares the contents of a checkpoint: the weights and, with DDP, in which each rank
// has a copy, the optimizer state. No state is saved before all ranks agree on it.
func (r *run) compareAll(ctx context.Context) error {
	return r.compare(ctx, r.sharder.Strategy == ddp.DDP)
}

func (r *run) compare(ctx context.Context, withState bool) error {
	if !r.hasReplicas() {
		return nil
	}
	defer r.Trace.Add(trace.Compare, 0, r.Trace.Now())
	if err := r.sharder.Sync(ctx); err != nil {
		return fmt.Errorf("update weights after step %d: %w", r.pos.Step, err)
	}
	// A 32-bit checksum is exact in a float64, and so is its sum with zeros.
	size := r.Comm.Size()
	sums := make([]float64, 2*size)
	weights, state := sums[:size], sums[size:]
	weights[r.Comm.Rank()] = float64(r.weightsChecksum())
	if withState {
		state[r.Comm.Rank()] = float64(r.stateChecksum())
	}
	if err := r.Comm.Do(ctx, collective.AllReduce(sums, collective.Sum)); err != nil {
		return fmt.Errorf("compare weights after step %d: %w", r.pos.Step, err)
	}
	for _, part := range []struct {
		what string
		sums []float64
	}{{"weights", weights}, {"optimizer state", state}} {
		if groups := groupEqual(part.sums); len(groups) > 1 {
			return replicasError{what: part.what, step: r.pos.Step, groups: groups}
		}
	}
	return nil
}

// weightsChecksum returns a checksum of all parameters in registration order. The device computes it.
func (r *run) weightsChecksum() uint32 {
	sum := uint32(0)
	for _, p := range r.params {
		sum = r.addChecksum(sum, p.Data)
	}
	return sum
}

// stateChecksum returns a checksum of this rank's optimizer state.
func (r *run) stateChecksum() uint32 {
	sum := uint32(0)
	state := r.optimizer.StateBy(func(t device.Tensor) []float32 {
		sum = r.addChecksum(sum, t)
		return nil
	})
	for _, t := range state.Tensors {
		sum = crc32.Update(sum, castagnoli, element.Bytes(t.Data)) // state in host memory, such as the number of steps
	}
	return sum
}

// addChecksum returns the CRC-32C of the checksums so far and the checksum of a tensor.
func (r *run) addChecksum(sum uint32, t device.Tensor) uint32 {
	return crc32.Update(sum, castagnoli, binary.LittleEndian.AppendUint64(nil, r.device.Checksum(t)))
}

// groupEqual groups the ranks by checksum. The largest group is first; among groups of the same
// size, the group with the lowest rank.
func groupEqual(sums []float64) [][]int {
	at := map[float64]int{}
	var groups [][]int
	for rank, s := range sums {
		i, known := at[s]
		if !known {
			i = len(groups)
			at[s], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], rank)
	}
	slices.SortStableFunc(groups, func(a, b []int) int { return len(b) - len(a) })
	return groups
}

// maxNamed is the maximum number of ranks, or groups of ranks, that a message lists.
const maxNamed = 8

// A replicasError reports that ranks that must have equal values differ.
type replicasError struct {
	what   string // "weights" or "optimizer state"
	step   int64
	groups [][]int // ranks with equal values, the largest group first; at least 2
}

// hasMajority reports whether more ranks agree with each other than with any other group. If not,
// as with two ranks, any of them may be the faulty one.
func (e replicasError) hasMajority() bool { return len(e.groups[0]) > len(e.groups[1]) }

// Suspects returns the ranks of which at least one is faulty, in ascending order.
func (e replicasError) Suspects() []int {
	groups := e.groups
	if e.hasMajority() {
		groups = groups[1:]
	}
	return slices.Sorted(slices.Values(slices.Concat(groups...)))
}

func (e replicasError) Error() string {
	if e.hasMajority() {
		return fmt.Sprintf("after step %d the %s of %s differ from those of the other ranks", e.step, e.what, format.Ranks(e.Suspects()))
	}
	var parts []string
	for _, g := range e.groups[:min(len(e.groups), maxNamed)] {
		parts = append(parts, format.Ranks(g))
	}
	if more := len(e.groups) - maxNamed; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("after step %d the %s of %s differ, and no majority shows which are wrong", e.step, e.what, strings.Join(parts, " and "))
}

// Hint returns the fix, and from where the run resumes.
func (e replicasError) Hint() string {
	const resume = "; the run resumes from the newest checkpoint, whose state was compared before it was saved"
	if e.hasMajority() {
		return "the memory, CPU, or network of that rank's node is faulty: run the job on other nodes, and ask the administrators to test that node" + resume
	}
	return "the memory, CPU, or network of one of these nodes is faulty, but a tie does not show which: run the job on other nodes, or test the memory of each of them" + resume
}
