package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi"
)

// endVariable makes a process of this binary a rank that finalizes MPI: after "all have closed",
// after "another gave up", or while "another lingers" that has closed: "HOW,PATH". Rank 0 creates the
// file at the path when it has ended; until then, the other rank stays. Each rank locks a file until its
// process ends.
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
	if err := lockUntilEnd(path, w.Rank()); err != nil {
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

// ended keeps the locked file of this process open.
var ended *os.File

// lockUntilEnd locks a file of a rank until this process ends.
func lockUntilEnd(path string, rank int) (err error) {
	if ended, err = os.Create(path + ".new" + strconv.Itoa(rank)); err != nil {
		return err
	}
	if err := unix.Flock(int(ended.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	return os.Rename(ended.Name(), path+strconv.Itoa(rank))
}

// haveEnded reports whether the processes of n ranks have ended.
func haveEnded(path string, n int) bool {
	for rank := range n {
		f, err := os.Open(path + strconv.Itoa(rank))
		if err != nil {
			return false
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		f.Close()
		if err != nil {
			return false
		}
	}
	return true
}

func awaitFile(path string) {
	for _, err := os.Stat(path); err != nil; _, err = os.Stat(path) {
		time.Sleep(10 * time.Millisecond)
	}
}

// TestEndIsBounded checks that a process ends even if MPI_Finalize does not return: with MPICH
// over TCP, or if another rank never closes or never calls MPI_Finalize. It does not wait for mpirun:
// PMIx 4.2.2, which Open MPI's uses, sometimes blocks in PMIx_server_finalize after such an end.
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
				path := filepath.Join(t.TempDir(), "ended")
				cmd, out := i.start(t, 2, endVariable+"="+tt.how+","+path)
				over := make(chan struct{})
				go func() { _ = cmd.Wait(); close(over) }() // it may report the missing MPI_Finalize
				t.Cleanup(func() {
					_ = cmd.Process.Signal(syscall.SIGTERM)
					select {
					case <-over:
					case <-time.After(10 * time.Second):
						_ = cmd.Process.Kill()
					}
				})
				launcher, isOver := over, false
				timeout := time.After(5 * time.Minute) // less than the ranks' timeout
				for !haveEnded(path, 2) || !isOver && !printed(out, tt.want) {
					select {
					case <-launcher:
						launcher, isOver = nil, true
					case <-timeout:
						t.Fatalf("it does not end, or printed\n%s, want one of %q", out, tt.want)
					case <-time.After(10 * time.Millisecond):
					}
				}
				if !printed(out, tt.want) {
					t.Errorf("printed\n%s, want one of %q", out, tt.want)
				}
			})
		}
	}
}

// printed reports whether an output contains one of several texts.
func printed(out *output, texts []string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(out.String(), text) })
}
