package trainer

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
)

// TestRehearsal checks that a rehearsal changes neither the losses of later steps nor their times.
// The CPU has no algorithms to time, but the rehearsal is the same as on a GPU.
func TestRehearsal(t *testing.T) {
	for _, strategy := range []string{"ddp", "zero1", "zero2", "zero3"} {
		t.Run(strategy, func(t *testing.T) {
			text := strings.Replace(fmt.Sprintf(gpt, 1, 0.1, text(t)), "seed = 1", "seed = 1\naccumulate = 2\nstrategy = \""+strategy+"\"", 1)
			losses := func(rehearse bool) (got []float64) {
				dir := t.TempDir()
				var wg sync.WaitGroup
				for _, comm := range collective.Local(2, time.Minute) {
					wg.Go(func() {
						r := newRun(Options{Job: job(t, text), Run: "run", Checkpoints: dir, Comm: comm, Observe: func(e Event) {
							if e.Kind == Trained && comm.Rank() == 0 {
								got = append(got, e.Loss)
							}
						}})
						defer comm.Close()
						if err := r.build(t.Context()); err != nil {
							t.Error(err)
							return
						}
						if err := r.start(t.Context()); err != nil {
							t.Error(err)
							return
						}
						if rehearse {
							if err := r.loop.rehearse(t.Context()); err != nil {
								t.Error(err)
							}
							if spent := r.loop.stepper.sharder.TakeTimes(); spent != (ddp.Times{}) {
								t.Errorf("the next report counts %v of the rehearsal", spent)
							}
						}
						defer r.loop.loader.Stop()
						defer r.loop.saver.Close()
						if _, err := r.loop.run(t.Context()); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				return got
			}
			want := losses(false)
			if got := losses(true); len(want) == 0 || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("losses %v, want %v", got, want)
			}
		})
	}
}

// TestRehearsalAtTheEnd checks that the step of a rehearsal has the samples of a whole step if the run
// resumes before the last step of an epoch, whose batch is smaller.
func TestRehearsalAtTheEnd(t *testing.T) {
	r := newRun(Options{Job: job(t, fmt.Sprintf(mlp, 50)), Checkpoints: t.TempDir(), Comm: collective.SingleRank{}, Observe: func(Event) {}})
	if err := r.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := &r.loop
	l.pos.Consumed = 200
	if rest := l.order.steps(l.pos); len(rest) != 1 || rest[0].samples >= 50 {
		t.Fatalf("remaining steps: %+v", rest)
	}
	if err := l.rehearse(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := l.stepper.pass.First; n != 50 {
		t.Errorf("the rehearsal had %d samples, want 50", n)
	}
}
