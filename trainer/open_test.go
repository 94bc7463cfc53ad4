package trainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/data"
)

// tokensJob is a job whose data are in a token file.
const tokensJob = `name = "t"
[train]
epochs = 1
batch = 2
[train.model]
kind = "gpt"
layers = 1
heads = 1
width = 8
context = 4
[train.data]
kind = "tokens"
path = %q
[train.optimizer]
kind = "sgd"
lr = 0.01
`

// openOnNodes opens the data of a job on 4 ranks of 2 nodes, and returns their errors. Each scan
// calls compute before it reads the tokens.
func openOnNodes(t *testing.T, j *jobs.Job, dir *os.Root, stop <-chan struct{}, compute func(rank int) error) []error {
	t.Helper()
	comms := collective.Local(4, time.Minute)
	errs := make([]error, len(comms))
	done := make(chan int)
	for rank, c := range comms {
		go func() {
			r := &run{Options: Options{Job: j, Comm: c, Node: rank / 2, RunDir: dir}, train: j.Train}
			if rank == 3 {
				r.Stop = stop
			}
			scan := func(ctx context.Context, key data.ScanKey, f scanFunc) (data.Scan, error) {
				return r.scan(ctx, ctx, key, func(ctx context.Context) (data.Scan, error) {
					if err := compute(rank); err != nil {
						return data.Scan{}, err
					}
					if stop != nil {
						<-ctx.Done()
						return data.Scan{}, context.Cause(ctx)
					}
					return f(ctx)
				})
			}
			r.data, r.eval, errs[rank] = data.OpenScanned(t.Context(), DataOptions(j.Train), scan)
			if errs[rank] == nil && r.data.Outputs() != 8 {
				errs[rank] = fmt.Errorf("%d tokens in the vocabulary", r.data.Outputs())
			}
			done <- rank
		}()
	}
	for range comms {
		<-done
	}
	for _, c := range comms {
		c.Close()
	}
	return errs
}

// TestTokensAreReadOncePerNode checks that one rank of each node reads all tokens, and none in a
// later attempt.
func TestTokensAreReadOncePerNode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.bin")
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	content := make([]byte, 2*64)
	content[10] = 7
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
	j := job(t, fmt.Sprintf(tokensJob, path))
	for attempt, want := range []int32{2, 0} {
		var reads atomic.Int32
		errs := openOnNodes(t, j, dir, nil, func(rank int) error {
			if rank%2 != 0 {
				return errors.New("not the first rank of its node")
			}
			if reads.Add(1) == 2 || want == 0 {
				return nil
			}
			for reads.Load() < 2 { // otherwise the other node may find the file of this one
				time.Sleep(time.Millisecond)
			}
			return nil
		})
		ok(t, errs)
		if got := reads.Load(); got != want {
			t.Errorf("attempt %d: %d ranks read the tokens, want %d", attempt, got, want)
		}
	}
}

// TestFailedScanIsNamed checks that the rank that reads the tokens reports its error, and the others
// its rank.
func TestFailedScanIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.bin")
	if err := os.WriteFile(path, make([]byte, 2*64), 0o600); err != nil {
		t.Fatal(err)
	}
	errs := openOnNodes(t, job(t, fmt.Sprintf(tokensJob, path)), nil, nil, func(rank int) error {
		if rank == 2 {
			return errors.New("the disk is gone")
		}
		return nil
	})
	for rank, err := range errs {
		var remote RemoteError
		if err == nil || !strings.Contains(err.Error(), "the disk is gone") || errors.As(err, &remote) != (rank != 2) || rank != 2 && remote.Rank != 2 {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// TestStopWhileTokensAreRead checks that a request to stop one rank ends the read on all ranks.
func TestStopWhileTokensAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.bin")
	if err := os.WriteFile(path, make([]byte, 2*64), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	close(stop)
	for rank, err := range openOnNodes(t, job(t, fmt.Sprintf(tokensJob, path)), nil, stop, func(int) error { return nil }) {
		if !errors.Is(err, errAllStopped) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// TestStopKeepsTheFailureOfAScan checks that a rank whose scan has failed returns that error if a stop
// request ends the scan of another node.
func TestStopKeepsTheFailureOfAScan(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.bin")
	if err := os.WriteFile(path, make([]byte, 2*64), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	close(stop)
	errs := openOnNodes(t, job(t, fmt.Sprintf(tokensJob, path)), nil, stop, func(rank int) error {
		if rank == 0 {
			return errors.New("the disk is gone")
		}
		return nil
	})
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "the disk is gone") {
		t.Errorf("rank 0: got %v, want its failure", errs[0])
	}
	for rank, err := range errs[1:] {
		if !errors.Is(err, errAllStopped) {
			t.Errorf("rank %d: %v", rank+1, err)
		}
	}
}

// TestCountStepsEqualsSteps compares the computed number of steps with the list of steps.
func TestCountStepsEqualsSteps(t *testing.T) {
	for _, uneven := range []string{"pad", "drop", "join"} {
		for _, dropLast := range []bool{false, true} {
			if dropLast && uneven != "drop" {
				continue
			}
			for _, accumulate := range []int{1, 3} {
				for _, ranks := range []int{1, 2, 5, 300} {
					for _, consumed := range []int64{0, 1, 60, 199, 203, 210} {
						text := strings.Replace(fmt.Sprintf(mlp, 4), "seed = 1", fmt.Sprintf("seed = 1\naccumulate = %d", accumulate), 1)
						text = strings.Replace(text, "outputs = 4", fmt.Sprintf("outputs = 4\nuneven = %q\ndrop_last = %t", uneven, dropLast), 1)
						j := job(t, text)
						d, _, err := data.Open(t.Context(), DataOptions(j.Train))
						if err != nil {
							t.Fatal(err)
						}
						for _, rank := range []int{0, ranks - 1} {
							o := order{train: j.Train, data: d, rank: rank, size: ranks}
							if got, want := o.count(position{Consumed: consumed}), len(o.steps(position{Consumed: consumed})); got != want {
								t.Errorf("uneven %s, drop_last %t, accumulate %d, rank %d of %d, %d consumed: %d steps, want %d", uneven, dropLast, accumulate, rank, ranks, consumed, got, want)
							}
						}
					}
				}
			}
		}
	}
}
