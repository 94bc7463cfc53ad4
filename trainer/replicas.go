package trainer

import (
	"context"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// verifyEvery is the number of steps after which ranks compare their weights. A
// gigabyte takes some 50 ms, against minutes of steps on a model of that size.
const verifyEvery = 100

// verify has every rank compare its weights with those of all others. They can only
// differ where a processor or its memory is at fault, or a library between ranks:
// what is trained from then on is worth nothing, and nothing else would tell.
//
// With ZeRO1 and ZeRO2 a rank has others' weights from those that update them: what
// is compared is whether they arrive as they are. A rank that computes its own part
// wrongly gives the same wrong weights to all, which no comparison finds, and so it is
// with the state of its optimiser. With ZeRO3 each weight is on one rank only: there is
// nothing to compare it with.
func (r *run) verify(ctx context.Context) error {
	if r.sharder.Strategy == ddp.ZeRO3 || r.Comm.Size() == 1 {
		return nil
	}
	defer r.Trace.Add(trace.Verify, 0, r.Trace.Now())
	if err := r.sharder.Sync(ctx); err != nil {
		return fmt.Errorf("bring weights up to date after step %d: %w", r.at.Step, err)
	}
	// A checksum of 32 bits is exact in a float64, and a sum with zeros too.
	sums := make([]float64, r.Comm.Size())
	sums[r.Comm.Rank()] = float64(r.checksum())
	if err := r.Comm.Do(ctx, collective.AllReduce(sums, collective.Sum)); err != nil {
		return fmt.Errorf("compare weights after step %d: %w", r.at.Step, err)
	}
	if odd := outvoted(sums); len(odd) > 0 {
		return apart{fmt.Errorf("after step %d the weights of %s differ from those of the other ranks", r.at.Step, ranks(odd))}
	}
	return nil
}

// checksum is that of all parameters, in their order.
func (r *run) checksum() uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := uint32(0)
	for _, p := range r.params {
		sum = crc32.Update(sum, table, element.Bytes(device.Floats(r.device, p.Data)))
	}
	return sum
}

// outvoted returns the ranks whose sum is not the most frequent one; of equally
// frequent ones that of the lowest rank counts.
func outvoted(sums []float64) []int {
	votes := map[float64]int{}
	for _, s := range sums {
		votes[s]++
	}
	best := sums[0]
	for _, s := range sums {
		if votes[s] > votes[best] {
			best = s
		}
	}
	var odd []int
	for rank, s := range sums {
		if s != best {
			odd = append(odd, rank)
		}
	}
	return odd
}

// ranks names ranks, the first of many.
func ranks(list []int) string {
	const most = 8
	var b strings.Builder
	b.WriteString("rank")
	if len(list) > 1 {
		b.WriteString("s")
	}
	for i, rank := range list[:min(len(list), most)] {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, " %d", rank)
	}
	if len(list) > most {
		fmt.Fprintf(&b, " and %d more", len(list)-most)
	}
	return b.String()
}

// apart is a run whose replicas are no longer the same.
type apart struct{ error }

// Hint says what to do about it.
func (apart) Hint() string {
	return "memory, processor or network of that rank's node is at fault: have the job run on other nodes, tell the administrators of that one, and start the job again; it goes on from the last checkpoint, which is older than this"
}
