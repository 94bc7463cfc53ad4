package trainer

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
)

// fits lays the run out on a device that only counts, and says so if that is more
// than this machine has left: before the kernel ends the process in the middle of
// it, which no one can explain afterwards.
func (r *run) fits() error {
	need, copies, err := r.need()
	if err != nil {
		return err
	}
	if own, ok := r.device.(interface{ Available() int64 }); ok { // a GPU
		have, besides := own.Available(), r.besides()
		if need+besides > have {
			return tooLarge{fmt.Errorf("the model and its batches need %s of memory, libraries about %s besides, and %s are free on %s",
				format.Bytes(need), format.Bytes(besides), format.Bytes(have), r.device.Name()), hintGPU}
		}
		return r.copiesFit(copies)
	}
	have, known := cpu.Available()
	ranks := int64(max(1, r.LocalRanks))
	if r.spreading().Strategy != ddp.DDP { // else only rank 0 saves
		need, copies = need+copies, 0
	}
	if !known || need*ranks+copies <= have {
		return nil
	}
	what := fmt.Sprintf("the model and its batches need %s of memory", format.Bytes(need))
	if ranks > 1 {
		what += fmt.Sprintf(" on each of %d ranks of this machine, %s in all", ranks, format.Bytes(need*ranks))
	}
	if copies > 0 {
		what += fmt.Sprintf(", and %s for the copy that checkpoint.async saves", format.Bytes(copies))
	}
	return tooLarge{fmt.Errorf("%s, and %s are free", what, format.Bytes(have)), hintHost}
}

// copiesFit says so if the host of a GPU has no memory for the copies to save from.
func (r *run) copiesFit(copies int64) error {
	if r.spreading().Strategy != ddp.DDP { // else only rank 0 saves
		copies *= int64(max(1, r.LocalRanks))
	}
	have, known := cpu.Available()
	if !known || copies <= have {
		return nil
	}
	return tooLarge{fmt.Errorf("the copies that checkpoint.async saves need %s of this machine's memory, and %s are free", format.Bytes(copies), format.Bytes(have)), hintCopies}
}

// besides is an estimate of the GPU's memory that the device and the connection of GPUs
// will take beside tensors: libraries do not tell it.
func (r *run) besides() (bytes int64) {
	for _, held := range []any{r.device, r.between} {
		if h, ok := held.(interface{ Besides() int64 }); ok {
			bytes += h.Besides()
		}
	}
	return bytes
}

// need is the bytes of parameters, gradients and the optimiser's state that this rank
// keeps or is lent, of what a step keeps and rounds, and of batches; and of copies to save
// from.
func (r *run) need() (bytes, copies int64, err error) {
	samples := plan.Sample{Inputs: r.data.Inputs(), Tokens: r.data.Tokens(), Outputs: r.data.Outputs(), Classes: r.data.Classes()}
	work := plan.Count(r.model, samples, r.batch, precision(r.train.Precision), r.device.Stored(device.BF16) == device.BFloat16)
	var c plan.Counter
	sharder := ddp.New(ddp.Over(r.Comm), &c, r.params, r.spreading())
	before := c.Bytes
	if _, err := newOptimizer(&c, sharder.Parts(), &r.train.Optimizer); err != nil {
		return 0, 0, fmt.Errorf("build optimizer: %w", err)
	}
	if r.copied() {
		copies = c.Bytes - before
		for _, p := range sharder.Parts() {
			copies += 4 * int64(p.Len())
		}
	}
	loaders := 1
	if r.eval != nil {
		loaders++
	}
	for range loaders * (1 + batchesAhead) {
		samples.Batch(&c, r.batch)
	}
	return c.Bytes + work.Activations + work.Packed + sharder.Lent(), copies, nil
}

// tooLarge is a run for which memory is not there.
type tooLarge struct {
	error
	hint string
}

// Hint says what to do about it.
func (e tooLarge) Hint() string { return e.hint }

const (
	hintGPU    = "take a smaller train.batch (and train.accumulate to make up for it), context or model, or on several GPUs train.strategy = \"zero1\" to \"zero3\" (`ddpbatch plan` compares them); `nvidia-smi` tells whether another process holds the GPU's memory"
	hintHost   = "take a smaller train.batch (and train.accumulate to make up for it), context or model, fewer ranks on a node, or ask for more memory with slurm.mem"
	hintCopies = "ask for more memory with slurm.mem: all that a rank saves goes by way of it"
)
