package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi"
)

// endVariable makes a process of this binary a rank that finalizes MPI: after "all have closed",
// after "another gave up", or while "another lingers" that has closed: "HOW,PATH". Rank 0 creates the
// file at the path when it has ended; until then, the other rank stays.
const endVariable = "MPI_TEST_END"

const (
	allClosed     = "all have closed"
	anotherGaveUp = "another gave up"
	anotherStays  = "another lingers"
)

// end prints the result of a rank's Finalize.
func end(text string) error {
	how, path, _ := strings.Cut(text, ",")
	ctx := context.Background()
	w, err := mpi.Connect(ctx, mpi.Options{Host: "here", Lookup: os.LookupEnv, ConnectTimeout: 10 * time.Minute, Timeout: 10 * time.Minute})
	if err != nil {
		return err
	}
	if err := w.Do(ctx, collective.AllReduce(make([]float32, 1000), collective.Sum)); err != nil {
		return err
	}
	if w.Rank() == 1 && how == anotherGaveUp {
		gone, cancel := context.WithCancelCause(ctx)
		cancel(errors.New("it is enough"))
		var failed *collective.Error
		if err := w.Do(gone, collective.Barrier()); !errors.As(err, &failed) {
			return fmt.Errorf("the barrier ends with %v", err)
		}
		if err := w.Finalize(); err != nil {
			return err
		}
		awaitFile(path) // otherwise the launcher could stop the other rank
		return nil
	}
	if w.Rank() == 1 && how == anotherStays {
		err := w.Close()
		awaitFile(path)
		return err
	}
	time.Sleep(time.Duration(w.Rank()) * 100 * time.Millisecond) // not at the same time, like after a training run
	err = w.Finalize()
	fmt.Printf("ended: %v, again: %v, by then: %v\n", err, w.Finalize(), w.Do(ctx, collective.Barrier()))
	return os.WriteFile(path, nil, 0o600)
}

func awaitFile(path string) {
	for _, err := os.Stat(path); err != nil; _, err = os.Stat(path) {
		time.Sleep(10 * time.Millisecond)
	}
}

// TestEndIsBounded checks that a process ends even if MPI_Finalize does not return: with MPICH
// over TCP, or if another rank never closes or never calls MPI_Finalize.
func TestEndIsBounded(t *testing.T) {
	t.Setenv("UCX_TLS", "tcp")
	t.Setenv("UCX_NET_DEVICES", "lo")
	for _, i := range implementations {
		for _, tt := range []struct {
			how  string
			want []string // one of them
		}{
			{allClosed, []string{"ended: <nil>", "ended: end without MPI_Finalize, which did not return"}},
			{anotherStays, []string{"ended: end without MPI_Finalize, which did not return"}},
			{anotherGaveUp, []string{"ended: end without MPI_Finalize: rank 1 gave up: barrier 1"}},
		} {
			t.Run(i.name+"/"+tt.how, func(t *testing.T) {
				cmd, out := i.start(t, 2, endVariable+"="+tt.how+","+filepath.Join(t.TempDir(), "ended"))
				result := make(chan error, 1)
				go func() { result <- cmd.Wait() }()
				select {
				case <-result: // a launcher may report the missing MPI_Finalize
				case <-time.After(5 * time.Minute): // less than the ranks' timeout
					t.Fatalf("it does not end\n%s", out)
				}
				for _, text := range tt.want {
					if strings.Contains(out.String(), text) {
						return
					}
				}
				t.Errorf("printed\n%s, want one of %q", out, tt.want)
			})
		}
	}
}
