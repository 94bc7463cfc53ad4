package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/bench"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// TestMain runs this program as a rank of TestRunRanks if RunRanks started it.
func TestMain(m *testing.M) {
	rank, ok, err := bench.RankFromEnv(os.LookupEnv)
	if !ok {
		os.Exit(m.Run())
	}
	if err == nil {
		err = runRank(rank, os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runRank sums the ranks over the given transport, and prints the sum. With "fail", rank 1 fails and
// the others hang.
func runRank(r bench.Rank, transport string) error {
	if transport == "fail" && r.Rank == 1 {
		return errors.New("no memory")
	}
	if transport == "fail" || transport == "hang" {
		time.Sleep(time.Hour)
	}
	ctx := context.Background()
	comm, err := r.Connect(ctx, transport == "memory", transport == "mac")
	if err != nil {
		return err
	}
	defer comm.Close()
	sum := []float32{float32(r.Rank)}
	if err := comm.Do(ctx, collective.AllReduce(sum, collective.Sum)); err != nil {
		return err
	}
	fmt.Printf("rank %d of %s: %v %s\n", r.Rank, os.Getenv("NAME"), sum[0], comm.Path(collective.AllReduce(sum, collective.Sum)).Transport)
	return comm.Do(ctx, collective.Barrier())
}

// TestRunRanks checks that ranks communicate, receive the environment, and that the output of rank
// 0 is returned.
func TestRunRanks(t *testing.T) {
	for name, want := range map[string]string{
		"memory": "rank 0 of test: 3 shared memory\n",
		"tcp":    "rank 0 of test: 3 tcp\n",
		"mac":    "rank 0 of test: 3 tcp\n",
	} {
		out, err := bench.RunRanks(t.Context(), 3, []string{name}, []string{"NAME=test"})
		if err != nil || string(out) != want {
			t.Errorf("%s: got %q, %v, want %q", name, out, err, want)
		}
	}
}

// TestFailedRankStopsTheOthers checks that the error names the rank that failed, and not those that
// RunRanks killed.
func TestFailedRankStopsTheOthers(t *testing.T) {
	_, err := bench.RunRanks(t.Context(), 3, []string{"fail"}, os.Environ())
	if err == nil || !strings.Contains(err.Error(), "rank 1: ") || !strings.Contains(err.Error(), "no memory") || strings.Contains(err.Error(), "rank 0") {
		t.Errorf("got %v, want only the error of rank 1", err)
	}
}

// TestRunRanksEnds checks that the ranks end with the context, and that its cause is returned.
func TestRunRanksEnds(t *testing.T) {
	for name, delay := range map[string]time.Duration{"before the start": 0, "later": 100 * time.Millisecond} {
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		if delay == 0 {
			cancel(why)
		}
		time.AfterFunc(delay, func() { cancel(why) })
		if _, err := bench.RunRanks(ctx, 2, []string{"hang"}, os.Environ()); !errors.Is(err, why) {
			t.Errorf("%s: got %v, want %v", name, err, why)
		}
	}
}

// TestRankFromEnv checks the JSON that tests/peers also writes.
func TestRankFromEnv(t *testing.T) {
	for name, tt := range map[string]struct {
		value string
		set   bool
		ok    bool // the process is a rank
		fails bool
	}{
		"unset":   {},
		"set":     {value: `{"rank": 1, "addrs": ["10.0.0.1:5", "10.0.0.2:5"], "secret": "s"}`, set: true, ok: true},
		"invalid": {value: "1", set: true, ok: true, fails: true},
	} {
		r, ok, err := bench.RankFromEnv(func(name string) (string, bool) { return tt.value, tt.set && name == "DDPBATCH_BENCH_RANK" })
		if ok != tt.ok || (err != nil) != tt.fails {
			t.Errorf("%s: got %t, %v, want %t, an error: %t", name, ok, err, tt.ok, tt.fails)
		}
		if ok && !tt.fails && (r.Rank != 1 || r.Secret != "s" || !slices.Equal(r.Addrs, []string{"10.0.0.1:5", "10.0.0.2:5"})) {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}
