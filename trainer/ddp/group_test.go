package ddp

import (
	"context"
	"math"
	"sync"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// fakeGroup connects goroutines. It sums in the order of the ring: from the rank after the owner of
// the shard.
type fakeGroup struct {
	size    int
	mu      sync.Mutex
	met     sync.Cond
	here    int
	meeting int
	floats  [][]float32
	halves  [][]element.BF16
	bytes   [][]byte
}

// member is a rank of a fakeGroup.
type member struct {
	HostCommunicator
	*fakeGroup
	rank           int
	sum            []float32
	half           []element.BF16
	reduced, given int // bytes sent by reductions, elements sent by gathers
	fail           error
}

func newFakeGroup(size int) []*member {
	c := &fakeGroup{size: size, floats: make([][]float32, size), halves: make([][]element.BF16, size), bytes: make([][]byte, size)}
	c.met.L = &c.mu
	var out []*member
	for rank := range size {
		out = append(out, &member{fakeGroup: c, rank: rank, sum: make([]float32, 1<<20), half: make([]element.BF16, 1<<20)})
	}
	return out
}

// barrier waits for all ranks.
func (c *fakeGroup) barrier() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.here++; c.here == c.size {
		c.here = 0
		c.meeting++
		c.met.Broadcast()
		return
	}
	for now := c.meeting; now == c.meeting; {
		c.met.Wait()
	}
}

func (m *member) Rank() int { return m.rank }
func (m *member) Size() int { return m.size }

// sumShard sums shard r of every rank. The result has the length of buf.
func (m *member) sumShard(buf []float32, r int) []float32 {
	n := len(buf) / m.size
	sum := m.sum[r*n : (r+1)*n]
	copy(sum, m.floats[(r+1)%m.size][r*n:])
	for k := 2; k <= m.size; k++ {
		for i, v := range m.floats[(r+k)%m.size][r*n : (r+1)*n] {
			sum[i] += v
		}
	}
	return sum
}

func (m *member) AllReduce(_ context.Context, t device.Tensor) (Work, error) {
	if t.Type() == device.BFloat16 {
		return nil, m.allReduceHalves(bf16Slice(t))
	}
	buf := t.Floats()
	m.reduced += 4 * len(buf)
	m.floats[m.rank] = buf
	m.barrier()
	for r := range m.size {
		m.sumShard(buf, r)
	}
	m.barrier()
	copy(buf, m.sum)
	return nil, m.fail
}

func (m *member) ReduceScatter(_ context.Context, part, whole device.Tensor) (Work, error) {
	if whole.Type() == device.BFloat16 {
		return nil, m.reduceScatterHalves(bf16Slice(part), bf16Slice(whole))
	}
	buf := whole.Floats()
	m.reduced += 4 * len(buf)
	m.floats[m.rank] = buf
	m.barrier()
	sum := m.sumShard(buf, m.rank)
	m.barrier()
	for i := range buf {
		buf[i] = -1e30 // undefined
	}
	copy(part.Floats(), sum)
	return nil, m.fail
}

func (m *member) AllGather(_ context.Context, whole, part device.Tensor) (Work, error) {
	if part.Len() > 4 { // not the records of the norm and the loss
		m.given += whole.Len()
	}
	m.floats[m.rank] = part.Floats()
	m.barrier()
	for r, other := range m.floats {
		copy(whole.Floats()[r*len(other):], other)
	}
	m.barrier()
	return nil, m.fail
}

func (m *member) Broadcast(_ context.Context, buf []byte, root int) error {
	m.bytes[m.rank] = buf
	m.barrier()
	if m.rank != root {
		copy(buf, m.bytes[root])
	}
	m.barrier()
	return m.fail
}

// counter counts the memory that a device allocates.
type counter struct {
	device.Device
	bytes int
}

func (c *counter) Alloc(t device.Type, n int) device.Tensor {
	c.bytes += n * t.Size()
	return c.Device.Alloc(t, n)
}

// rank trains a GPT on its share of synthetic batches.
type rank struct {
	*Sharder
	comm     *member
	memory   *counter
	model    *nn.GPT
	adam     optim.Optimizer
	decision device.StepDecision
	batch    nn.Batch
	step     int
	loss     float64
	norm     float64
	ready    func(int)
}

var gptOptions = nn.GPTOptions{Vocabulary: 11, Context: 6, Layers: 3, Heads: 2, Width: 16}

// newRank creates rank m. All ranks start from the same weights.
func newRank(t testing.TB, m *member, shape nn.GPTOptions, o Options) *rank {
	t.Helper()
	model, err := nn.NewGPT(shape)
	if err != nil {
		t.Fatal(err)
	}
	d := cpu.New(1)
	r := &rank{comm: m, memory: &counter{Device: d}, model: model}
	o.Extra = 1
	r.Sharder = New(m, r.memory, model.Params(), o)
	if r.adam, err = optim.New(r.memory, r.Parts(), optim.Options{Kind: optim.KindAdamW, LR: 1e-2, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1}); err != nil {
		t.Fatal(err)
	}
	model.Plan(nn.Plan{Device: d, Batch: 2, Train: true})
	r.batch = nn.Batch{Samples: 2, Tokens: device.HostInts(make([]int32, 2*shape.Context)), Labels: device.HostInts(make([]int32, 2*shape.Context))}
	r.ready, r.decision = r.Ready, d.NewStepDecision(1)
	return r
}

// initWeights gives all ranks the same random weights.
func (r *rank) initWeights(ctx context.Context) error {
	params := r.model.Params()
	before := make([]device.Tensor, len(params))
	for i, p := range params {
		before[i] = p.Data
	}
	nn.AllocValues(r.memory.Device, params)
	r.model.Init(random.New(1), r.memory)
	drawn := make([]device.Tensor, len(params))
	for i, p := range params {
		drawn[i], p.Data = p.Data, before[i]
	}
	err := r.ScatterState(ctx, r.values(), func(send SendParam) error {
		for i := range params {
			if err := send(i, func(at int, values []float32) error {
				copy(values, drawn[i].Floats()[at:])
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	r.MarkWritten()
	return err
}

// values returns the values of the rank's parts.
func (r *rank) values() (parts [][]float32) {
	for _, p := range r.Parts() {
		parts = append(parts, p.Data.Floats())
	}
	return parts
}

// whole assembles the values of all ranks, by parameter.
func whole(ranks []*rank) [][]float32 {
	var out [][]float32
	for _, p := range ranks[0].layout.all {
		out = append(out, make([]float32, p.Len()))
	}
	for _, r := range ranks {
		r.EachRange(r.values(), func(param, at int, values []float32) { copy(out[param][at:], values) })
	}
	return out
}

// train runs an optimizer step.
func (r *rank) train(ctx context.Context) error {
	r.step++
	for i := range r.batch.Tokens.Ints() {
		v := int32(i*7+r.step*3+r.comm.rank*5) % 11
		r.batch.Tokens.Ints()[i], r.batch.Labels.Ints()[i] = v, (v*v+3)%11
	}
	r.Start(ctx)
	pass := nn.Pass{Train: true, Weight: 1 / float32(r.comm.size), Stride: 1, Owner: r.Owner()}
	r.model.Forward(r.batch, pass)
	rows, parts := r.model.Losses()
	r.decision.AddLoss(r.Extra(), rows, parts, 1)
	r.model.Backward(r.batch, pass, r.ready)
	if err := r.Finish(ctx); err != nil {
		return err
	}
	r.reduceScalars()
	r.adam.StepAsync(r.Parts(), r.decision, 0.5)
	r.adam.CountStep()
	r.MarkUpdated()
	return nil
}

// reduceScalars sets the norm and the loss of the last step.
func (r *rank) reduceScalars() {
	r.decision.Reduce(r.Records())
	result := r.decision.Result().Floats()
	r.loss = float64(result[2])
	sum := 0.0
	for i := 0; i < r.Records().Len(); i += 2 {
		sum += r.Records().Doubles()[i]
	}
	r.norm = math.Sqrt(sum)
}

// onAllRanks runs f on all ranks at the same time.
func onAllRanks(t testing.TB, ranks []*rank, f func(*rank) error) {
	t.Helper()
	var wg sync.WaitGroup
	for _, r := range ranks {
		wg.Go(func() {
			if err := f(r); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func newRanks(t testing.TB, n int, shape nn.GPTOptions, o Options) []*rank {
	t.Helper()
	var ranks []*rank
	for _, m := range newFakeGroup(n) {
		ranks = append(ranks, newRank(t, m, shape, o))
	}
	onAllRanks(t, ranks, func(r *rank) error {
		bytes := r.memory.bytes
		err := r.initWeights(t.Context())
		r.memory.bytes = bytes // ScatterState frees what it allocates
		return err
	})
	return ranks
}
