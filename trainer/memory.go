package trainer

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
)

// fits computes the memory that the run needs, on a device that only counts, and returns an error
// if it exceeds the free memory. Otherwise the kernel would kill the process in the middle of the
// run, without an explanation.
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
	if r.spreading().Strategy != ddp.DDP { // with DDP only rank 0 saves
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

// copiesFit returns an error if the host of a GPU has too little memory for the copies of an async
// checkpoint.
func (r *run) copiesFit(copies int64) error {
	if r.spreading().Strategy != ddp.DDP { // with DDP only rank 0 saves
		copies *= int64(max(1, r.LocalRanks))
	}
	have, known := cpu.Available()
	if !known || copies <= have {
		return nil
	}
	return tooLarge{fmt.Errorf("the copies that checkpoint.async saves need %s of this machine's memory, and %s are free", format.Bytes(copies), format.Bytes(have)), hintCopies}
}

// besides estimates the GPU memory that the device and the GPU communicator use in addition to
// tensors. CUDA's libraries do not report it.
func (r *run) besides() (bytes int64) {
	for _, held := range []any{r.device, r.between} {
		if h, ok := held.(interface{ Besides() int64 }); ok {
			bytes += h.Besides()
		}
	}
	return bytes
}

// need returns the memory of this rank in bytes: parameters, gradients, optimizer state, temporary
// buckets, activations, packed operands, and batches. Copies is the memory for copies of an async
// checkpoint.
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

// tooLarge is the error for a run that needs more memory than is available.
type tooLarge struct {
	error
	hint string
}

// Hint returns the fix.
func (e tooLarge) Hint() string { return e.hint }

const (
	hintGPU    = "take a smaller train.batch (and train.accumulate to make up for it), context or model, or on several GPUs train.strategy = \"zero1\" to \"zero3\" (`ddpbatch plan` compares them); `nvidia-smi` tells whether another process holds the GPU's memory"
	hintHost   = "take a smaller train.batch (and train.accumulate to make up for it), context or model, fewer ranks on a node, or ask for more memory with slurm.mem"
	hintCopies = "ask for more memory with slurm.mem: all that a rank saves goes by way of it"
)
