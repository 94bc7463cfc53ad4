package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi"
)

// endVariable makes a process of this binary a rank that ends MPI: after "all have
// closed", after "another gave up", or while "another lingers" that has closed.
const endVariable = "MPI_TEST_END"

const (
	allClosed     = "all have closed"
	anotherGaveUp = "another gave up"
	anotherStays  = "another lingers"
)

// end prints what becomes of a rank's end.
func end(how string) error {
	ctx := context.Background()
	w, err := mpi.Connect(ctx, mpi.Options{Host: "here", Lookup: os.LookupEnv, ConnectTimeout: time.Minute, Timeout: time.Minute})
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
		time.Sleep(time.Second) // so that the other ends by what it was told, not by its launcher
		return nil
	}
	if w.Rank() == 1 && how == anotherStays {
		err := w.Close()
		time.Sleep(15 * time.Second) // well over the time of the other's end
		return err
	}
	time.Sleep(time.Duration(w.Rank()) * 100 * time.Millisecond) // apart, as after a training
	err = w.Finalize()
	fmt.Printf("ended: %v, again: %v, by then: %v\n", err, w.Finalize(), w.Do(ctx, collective.Barrier()))
	return nil
}

// MPI ends, or does not and the process ends all the same: also where MPICH's
// MPI_Finalize may not return, over TCP, where another rank never closes, and where it
// never calls MPI_Finalize, so that this rank's does not return.
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
				cmd, out := i.start(t, 2, endVariable+"="+tt.how)
				over := make(chan error, 1)
				go func() { over <- cmd.Wait() }()
				select {
				case <-over: // a launcher may find fault with the missing MPI_Finalize
				case <-time.After(50 * time.Second): // below the ranks' timeout of a minute
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
