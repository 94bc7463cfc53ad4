package plan

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) }

// TestCollectivesByHand uses b bytes, a latency of 1 s, and a bandwidth of 1 byte/s.
func TestCollectivesByHand(t *testing.T) {
	unit := Link{1, 1}
	flat := Fabric{PerNode: 8, Local: unit}
	// Two nodes of four ranks; the network has ten times the latency and a tenth of the bandwidth.
	nodes := Fabric{PerNode: 4, Local: unit, Network: Link{10, .1}}
	for _, c := range []struct {
		name  string
		f     Fabric
		a     Algorithm
		ranks int
		bytes float64
		want  float64
	}{
		{"ring", flat, Ring, 4, 8, 2 * 3 * (1 + 2)},
		{"ring of 3", flat, Ring, 3, 9, 2 * 2 * (1 + 3)},
		{"doubling", flat, Doubling, 8, 8, 3 * (1 + 8)},
		{"doubling of 5", flat, Doubling, 5, 8, 2*(1+8) + 2*(1+8)},
		{"halving", flat, Halving, 8, 8, 2 * ((1 + 4) + (1 + 2) + (1 + 1))},
		{"halving of 6", flat, Halving, 6, 8, 2 * ((1 + 8) + (1 + 4) + (1 + 2))},
		{"one node", flat, Auto, 4, 8, 2 * (1 + 6)},
		{"ring over nodes", nodes, Ring, 8, 8, 2 * 7 * (10 + 10)},
		{"doubling over nodes", nodes, Doubling, 8, 8, 2*(1+8) + (10 + 8*4*10)},
		{"halving over nodes", nodes, Halving, 8, 8, 2 * ((10 + 4*4*10) + (1 + 2) + (1 + 1))},
		// All ranks of a node send small data whole, and large data in shares.
		{"hierarchical, small", nodes, Hierarchical, 8, 8, 2*(1+6) + (10 + 8*4*10)},
		{"hierarchical", nodes, Auto, 8, 1 << 20, 2*(1+3<<18) + 2*(10+1<<17*4*10)},
		{"alone", flat, Ring, 1, 8, 0},
	} {
		if got, _ := c.f.AllReduce(c.a, c.ranks, c.bytes); !near(got, c.want) {
			t.Errorf("%s: %v seconds, want %v", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		name            string
		a               Algorithm
		ranks           int
		scatter, gather float64
	}{
		{"ring", Ring, 4, 3 * (1 + 2), 3 * (1 + 2)},
		{"halving", Halving, 4, (1 + 4) + (1 + 2), (1 + 4) + (1 + 2)},
		{"halving of 6", Halving, 6, (1 + 12) + (1 + 6) + (1 + 3) + (1 + 2), (1 + 12) + (1 + 6) + (1 + 3) + (1 + 2)},
		// Doubling leaves the whole sum on all ranks.
		{"doubling", Doubling, 4, 2 * (1 + 8), (1 + 4) + (1 + 2)},
		{"one node", Auto, 4, 1 + 6, 1 + 6},
	} {
		bytes := 8.0
		if c.ranks == 6 {
			bytes = 12
		}
		scatter, _ := flat.ReduceScatter(c.a, c.ranks, bytes)
		gather, _ := flat.AllGather(c.a, c.ranks, bytes)
		if !near(scatter, c.scatter) || !near(gather, c.gather) {
			t.Errorf("%s: %v and %v seconds, want %v and %v", c.name, scatter, gather, c.scatter, c.gather)
		}
	}
}

// TestTimelineBesideTicks compares the schedule with a simulated clock: at each tick every resource
// works on its first unfinished task, if its dependencies have ended.
func TestTimelineBesideTicks(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var line timeline
		for i := range 1 + g.IntN(25) {
			var after []int
			for range g.IntN(3) {
				if i > 0 {
					after = append(after, g.IntN(i))
				}
			}
			line.add(resource(g.IntN(int(numResources))), float64(1+g.IntN(5)), after...)
		}
		got, _ := line.end()
		if want := ticks(line.tasks); got != float64(want) {
			t.Fatalf("%+v: ends at %v, by ticks at %d", line.tasks, got, want)
		}
	}
}

func ticks(tasks []task) int {
	left := make([]int, len(tasks))
	for i, k := range tasks {
		left[i] = int(k.seconds)
	}
	for now := 0; ; now++ {
		var work []int
		var busy [numResources]bool
		for i, k := range tasks {
			if left[i] == 0 || busy[k.on] {
				continue
			}
			busy[k.on] = true // whether it can begin or not: the order is fixed
			may := true
			for _, a := range k.after {
				may = may && left[a] == 0
			}
			if may {
				work = append(work, i)
			}
		}
		if len(work) == 0 {
			return now
		}
		for _, i := range work {
			left[i]--
		}
	}
}

// toy has two buckets and round values: 10 forward, 8 and 12 backward.
func toy() Work {
	const large = 1 << 20 // elements: more than the first bucket
	return Work{Params: []int{large, large}, Forward: 10, Backward: []Ready{{1, 8}, {0, 12}}}
}

// TestStepByHand compares predicted steps of a small model with times that were computed by hand.
func TestStepByHand(t *testing.T) {
	const mega = 4 << 20 // bytes of a bucket
	e := Element{Weight: 4, Grad: 4, State: 8, Update: 1}
	for _, c := range []struct {
		name       string
		s          ddp.Strategy
		accumulate int
		seconds    float64 // for a message of half a bucket
		want       float64
		sent       float64 // in bucket sizes
	}{
		// forward 10, backward 8 | 12, update 2; an all-reduce is two messages.
		{"hidden but the last", ddp.DDP, 1, 3, 10 + 8 + 12 + 6 + 2, 2},
		{"bound by messages", ddp.DDP, 1, 10, 10 + 8 + 20 + 20 + 2, 2},
		{"accumulated", ddp.DDP, 3, 3, 2*30 + 10 + 8 + 12 + 6 + 2, 2},
		// One message after each bucket; half an update; then two gathers.
		{"zero1", ddp.ZeRO1, 1, 3, 10 + 8 + 12 + 3 + 1 + 6, 2},
		{"zero2", ddp.ZeRO2, 1, 3, 10 + 8 + 12 + 3 + 1 + 6, 2},
		// The forward pass is divided like the backward pass, 6 and 4, and waits for its first
		// gather. The gathers of the second pass are hidden, and the last reduction is exposed.
		{"zero3", ddp.ZeRO3, 1, 3, 3 + 6 + 4 + 8 + 12 + 3 + 1, 3},
	} {
		m := Machine{Fabric: Fabric{PerNode: 2, Local: Link{0, mega / 2 / c.seconds}}, FLOPS: 1, Bandwidth: 1 << 20}
		got := Predict(toy(), Training{Strategy: c.s, Element: e, Algorithm: Ring, Accumulate: c.accumulate}, m, 2)
		if !near(got.Seconds, c.want) || !near(got.Sent, c.sent*mega) {
			t.Errorf("%s: %v seconds and %v bytes, want %v and %v", c.name, got.Seconds, got.Sent, c.want, c.sent*mega)
		}
		alone := float64(c.accumulate*30 + 2)
		if !near(got.Efficiency, alone/c.want) {
			t.Errorf("%s: efficiency %v, want %v", c.name, got.Efficiency, alone/c.want)
		}
	}
}

// TestSharedCores checks that ranks that share cores compute more slowly, and that copies by the
// CPU do not overlap.
func TestSharedCores(t *testing.T) {
	m := Machine{Fabric: Fabric{PerNode: 4, Local: Link{0, 1 << 30}}, FLOPS: 1, Bandwidth: 1 << 20, Threads: 1, Cores: 2, CPUCopies: true}
	training := Training{Element: Element{Grad: 4, Update: 1}, Algorithm: Ring, Accumulate: 1}
	two, four := Predict(toy(), training, m, 2), Predict(toy(), training, m, 4)
	if !near(two.Compute, 32) || !near(four.Compute, 64) {
		t.Errorf("2 cores compute for %v seconds with 2 ranks and %v with 4, want 32 and 64", two.Compute, four.Compute)
	}
	if !near(two.Exposed, two.Communication) || two.Exposed == 0 {
		t.Errorf("%v of %v seconds of messages are exposed, want all: they need the core", two.Exposed, two.Communication)
	}
}

// TestMorePowerIsNeverSlower changes one value at a time.
func TestMorePowerIsNeverSlower(t *testing.T) {
	w := smallGPT(t)
	base := Machine{Fabric: Fabric{PerNode: 4, Local: Link{1e-5, 1e9}, Network: Link{3e-5, 1e9}}, FLOPS: 1e11, Bandwidth: 1e10}
	better := map[string]func(*Machine){
		"rate":            func(m *Machine) { m.FLOPS *= 2 },
		"memory":          func(m *Machine) { m.Bandwidth *= 2 },
		"network":         func(m *Machine) { m.Network.Bandwidth *= 2 },
		"network latency": func(m *Machine) { m.Network.Latency /= 2 },
		"local":           func(m *Machine) { m.Local.Bandwidth *= 2 },
	}
	for _, s := range ddp.Strategies() {
		training := Training{Strategy: s, Element: Elements(2), Accumulate: 2}
		for ranks := 1; ranks <= 16384; ranks *= 2 {
			step := Predict(w, training, base, ranks)
			if step.Seconds < step.Compute || step.Efficiency > 1+1e-9 && s == ddp.DDP || step.Efficiency <= 0 {
				t.Errorf("%s, %d ranks: %+v", s, ranks, step)
			}
			for name, change := range better {
				m := base
				change(&m)
				if got := Predict(w, training, m, ranks); got.Seconds > step.Seconds*(1+1e-9) {
					t.Errorf("%s, %d ranks: a better %s takes %v seconds instead of %v", s, ranks, name, got.Seconds, step.Seconds)
				}
			}
		}
	}
}

// TestAdvice checks the suggested number of ranks, micro-batches, and strategy.
func TestAdvice(t *testing.T) {
	w := smallGPT(t)
	slow := Machine{Fabric: Fabric{PerNode: 1, Network: Link{5e-5, 1e9}}, FLOPS: 2e11, Bandwidth: 1e10}
	training := Training{Element: Elements(2), Accumulate: 1}
	var steps []Step
	for ranks := 1; ranks <= 1024; ranks *= 2 {
		steps = append(steps, Predict(w, training, slow, ranks))
	}
	ranks, more := MaxEfficientRanks(steps)
	if !more || ranks >= 1024 {
		t.Fatalf("scales to %d, more %v", ranks, more)
	}
	accumulate, ok := SuggestAccumulate(w, training, slow, 1024)
	if !ok || accumulate < 2 {
		t.Fatalf("%d micro-batches, %v", accumulate, ok)
	}
	for a, good := range map[int]bool{accumulate: true, accumulate / 2: false} {
		training.Accumulate = a
		if e := Predict(w, training, slow, 1024).Efficiency; (e >= GoodEfficiency) != good {
			t.Errorf("with %d micro-batches the efficiency is %v", a, e)
		}
	}

	memory := func(s ddp.Strategy) Memory { return Memory{Weights: float64(10 - 2*s)} }
	for limit, want := range map[float64]struct {
		strategy    ddp.Strategy
		fits, tight bool
	}{
		0: {ddp.DDP, true, false}, 11.2: {ddp.DDP, true, false}, 11: {ddp.ZeRO1, true, false}, 10: {ddp.ZeRO1, true, false}, 8: {ddp.ZeRO2, true, false},
		5: {ddp.ZeRO3, true, false}, 4.4: {ddp.ZeRO3, true, true}, 4: {ddp.ZeRO3, true, true}, 3: {ddp.ZeRO3, false, false},
	} {
		if s, fits, tight := Fit(memory, limit); s != want.strategy || fits != want.fits || tight != want.tight {
			t.Errorf("limit %v: %s, %v, %v; want %v", limit, s, fits, tight, want)
		}
	}
}

// BenchmarkCountAndPredict measures the time to predict a step of a GPT.
func BenchmarkCountAndPredict(b *testing.B) {
	e := examples(b)["gpt"]
	for b.Loop() {
		w := Count(e.model, e.sample, e.batch, device.FP32, false)
		Predict(w, Training{Element: Elements(2), Accumulate: 1}, Machine{Fabric: Fabric{PerNode: 4, Local: Link{0, 1}, Network: Link{0, 1}}, FLOPS: 1, Bandwidth: 1}, 1024)
	}
}
