package checkpointing

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hasReplicas reports whether other ranks hold the same weights as this rank.
func (s *State) hasReplicas() bool { return s.Sharder.Strategy != ddp.ZeRO3 && s.Comm.Size() > 1 }

// CompareWeights compares the weights of all ranks. They differ only if a CPU, its memory, or a
// library between the ranks is faulty. Nothing else would detect the fault.
//
// With ZeRO1 and ZeRO2 a rank receives most weights from the ranks that update them. The comparison
// then checks the transfer. It cannot detect a rank that computes its own shard wrongly, because
// all ranks receive the same wrong weights. For the same reason it cannot detect wrong gradients
// that a rank has sent to the others. With ZeRO3 and with a single rank there is nothing to
// compare.
func (s *State) CompareWeights(ctx context.Context, step int64) error {
	return s.compare(ctx, step, false)
}

// CompareAll compares the contents of a checkpoint: the weights and, with DDP, in which each rank
// has a copy, the optimizer state. No state is saved before all ranks agree on it.
func (s *State) CompareAll(ctx context.Context, step int64) error {
	return s.compare(ctx, step, s.Sharder.Strategy == ddp.DDP)
}

// compare compares checksums of the weights and, if withState is set, of the optimizer state. Every
// rank must call it. If they differ, the error is a [ReplicasError].
func (s *State) compare(ctx context.Context, step int64, withState bool) error {
	if !s.hasReplicas() {
		return nil
	}
	defer s.Trace.Add(trace.Compare, 0, s.Trace.Now())
	if err := s.Sharder.Sync(ctx); err != nil {
		return fmt.Errorf("update weights after step %d: %w", step, err)
	}
	// A 32-bit checksum is exact in a float64, and so is its sum with zeros.
	size := s.Comm.Size()
	sums := make([]float64, 2*size)
	weights, state := sums[:size], sums[size:]
	weights[s.Comm.Rank()] = float64(s.weightsChecksum())
	if withState {
		state[s.Comm.Rank()] = float64(s.stateChecksum())
	}
	if err := s.Comm.Do(ctx, collective.AllReduce(sums, collective.Sum)); err != nil {
		return fmt.Errorf("compare weights after step %d: %w", step, err)
	}
	for _, part := range []struct {
		what string
		sums []float64
	}{{"weights", weights}, {"optimizer state", state}} {
		if groups := groupEqual(part.sums); len(groups) > 1 {
			return ReplicasError{what: part.what, step: step, groups: groups}
		}
	}
	return nil
}

// weightsChecksum returns a checksum of all parameters in registration order. The device computes it.
func (s *State) weightsChecksum() uint32 {
	sum := uint32(0)
	for _, p := range s.Params {
		sum = s.addChecksum(sum, p.Data)
	}
	return sum
}

// stateChecksum returns a checksum of this rank's optimizer state.
func (s *State) stateChecksum() uint32 {
	sum := uint32(0)
	state := s.Optimizer.StateBy(func(t device.Tensor) []float32 {
		sum = s.addChecksum(sum, t)
		return nil
	})
	for _, t := range state.Tensors {
		sum = crc32.Update(sum, castagnoli, element.Bytes(t.Data)) // state in host memory, such as the number of steps
	}
	return sum
}

// addChecksum returns the CRC-32C of the checksums so far and the checksum of a tensor.
func (s *State) addChecksum(sum uint32, t device.Tensor) uint32 {
	return crc32.Update(sum, castagnoli, binary.LittleEndian.AppendUint64(nil, s.Device.Checksum(t)))
}

// groupEqual groups the ranks by checksum. The largest group is first; among groups of the same
// size, the group with the lowest rank.
func groupEqual(sums []float64) [][]int {
	at := map[float64]int{}
	var groups [][]int
	for rank, sum := range sums {
		i, known := at[sum]
		if !known {
			i = len(groups)
			at[sum], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], rank)
	}
	slices.SortStableFunc(groups, func(a, b []int) int { return len(b) - len(a) })
	return groups
}

// maxNamed is the maximum number of ranks, or groups of ranks, that a message lists.
const maxNamed = 8

// A ReplicasError reports that ranks that must have equal values differ.
type ReplicasError struct {
	what   string // "weights" or "optimizer state"
	step   int64
	groups [][]int // ranks with equal values, the largest group first; at least 2
}

// hasMajority reports whether the first group is larger than every other group. If not, for example
// if two ranks differ, any rank may be the faulty one.
func (e ReplicasError) hasMajority() bool { return len(e.groups[0]) > len(e.groups[1]) }

// Suspects returns the ranks of which at least one is faulty, in ascending order.
func (e ReplicasError) Suspects() []int {
	groups := e.groups
	if e.hasMajority() {
		groups = groups[1:]
	}
	return slices.Sorted(slices.Values(slices.Concat(groups...)))
}

func (e ReplicasError) Error() string {
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
func (e ReplicasError) Hint() string {
	const resume = "; the run resumes from the newest checkpoint, whose state was compared before it was saved"
	if e.hasMajority() {
		return "the memory, CPU, or network of that rank's node is faulty: run the job on other nodes, and ask the administrators to test that node" + resume
	}
	return "the memory, CPU, or network of one of these nodes is faulty, but a tie does not show which: run the job on other nodes, or test the memory of each of them" + resume
}
