package trainer

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/checkpointing"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
)

// checkMemory computes the memory that the run needs, on a device that only counts, and returns an
// error if it exceeds the free memory. Otherwise the kernel would kill the process in the middle of
// the run, without an explanation.
func (r *run) checkMemory() error {
	need, copies, err := r.memoryNeeded()
	if err != nil {
		return err
	}
	if gpu := r.device.Accelerator(); gpu != nil {
		free, overhead := gpu.Available(), gpu.LazyBytes()+r.deviceComm.LazyBytes() // CUDA's libraries do not report their memory
		if need+overhead > free {
			return hints.Errorf(hintGPU, "the model and its batches need %s of memory, libraries about %s more, and %s are free on %s",
				format.Bytes(need), format.Bytes(overhead), format.Bytes(free), r.device.Name())
		}
		r.roundsWeights = r.canRoundWeights(need+overhead, free)
		return r.checkCopyMemory(copies)
	}
	free, known := cpu.Available()
	ranks := int64(max(1, r.LocalRanks))
	if r.ddpOptions().Strategy != ddp.DDP { // with DDP only rank 0 saves
		need, copies = need+copies, 0
	}
	if !known || need*ranks+copies <= free {
		return nil
	}
	what := fmt.Sprintf("the model and its batches need %s of memory", format.Bytes(need))
	if ranks > 1 {
		what += fmt.Sprintf(" on each of %d ranks of this machine, %s in all", ranks, format.Bytes(need*ranks))
	}
	if copies > 0 {
		what += fmt.Sprintf(", and %s for the copy that checkpoint.async saves", format.Bytes(copies))
	}
	return hints.Errorf(hintHost, "%s, and %s are free", what, format.Bytes(free))
}

// canRoundWeights reports whether a GPU in bf16 also has memory for all weights in bfloat16, with some to
// spare. need and free are in bytes.
func (r *run) canRoundWeights(need, free int64) bool {
	copied := int64(0)
	for _, p := range r.model.Params() {
		copied += int64(p.Len() * device.BFloat16.Size())
	}
	return r.device.Stored(precision(r.train.Precision)) == device.BFloat16 && float64(need+copied) <= plan.Usable(float64(free))
}

// checkCopyMemory returns an error if the host of a GPU has too little memory for the copies of an
// async checkpoint.
func (r *run) checkCopyMemory(copies int64) error {
	if r.ddpOptions().Strategy != ddp.DDP { // with DDP only rank 0 saves
		copies *= int64(max(1, r.LocalRanks))
	}
	free, known := cpu.Available()
	if !known || copies <= free {
		return nil
	}
	return hints.Errorf(hintCopies, "the copies that checkpoint.async saves need %s of this machine's memory, and %s are free", format.Bytes(copies), format.Bytes(free))
}

// memoryNeeded returns the memory of this rank in bytes: parameters, gradients, optimizer state,
// temporary buckets, activations, packed operands, and batches. Copies is the memory for copies of
// an async checkpoint.
func (r *run) memoryNeeded() (bytes, copies int64, err error) {
	samples := plan.Sample{Inputs: r.data.Inputs(), Tokens: r.data.Tokens(), Outputs: r.data.Outputs(), Classes: r.data.Classes()}
	work := plan.Count(r.model, samples, r.batch, precision(r.train.Precision), r.device.Stored(device.BF16) == device.BFloat16)
	var c plan.Counter
	state := checkpointing.State{Comm: r.Comm, Sharder: ddp.New(ddp.NewCommunicator(r.Comm), &c, r.model.Params(), r.ddpOptions())}
	state.Optimizer, err = NewOptimizer(&c, state.Sharder.Parts(), &r.train.Optimizer)
	if err != nil {
		return 0, 0, fmt.Errorf("build optimizer: %w", err)
	}
	if r.Job.Checkpoint.Async {
		copies = 4 * int64(state.CopyElements())
	}
	loaders := 1
	if r.eval != nil {
		loaders++
	}
	for range loaders * (1 + batchesAhead) {
		samples.Batch(&c, r.batch)
	}
	return c.Bytes + work.Activations + work.Packed + state.Sharder.SlotBytes(), copies, nil
}

// The fixes for a run that needs more memory than is available.
const (
	hintGPU    = "reduce train.batch (and increase train.accumulate to compensate), the context, or the model; on several GPUs, set train.strategy to \"zero1\", \"zero2\", or \"zero3\" (`ddpbatch plan` compares them); run `nvidia-smi` to check whether another process uses the GPU's memory"
	hintHost   = "reduce train.batch (and increase train.accumulate to compensate), the context, the model, or the ranks per node, or request more memory with slurm.mem"
	hintCopies = "request more memory with slurm.mem: checkpoints are written through host memory"
)
