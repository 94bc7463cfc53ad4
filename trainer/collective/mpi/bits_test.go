package mpi_test

import (
	"context"
	"fmt"
	"hash/crc64"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi"
)

// bitsVariable makes a process of this binary a rank that prints digests of sums.
const bitsVariable = "MPI_TEST_BITS"

// printBits prints, on rank 0, digests of sums that depend on the order of addition.
func printBits(string) error {
	ctx := context.Background()
	w, err := mpi.Connect(ctx, mpi.Options{Host: "here", Lookup: os.LookupEnv, ConnectTimeout: time.Minute, Timeout: time.Minute})
	if err != nil {
		return err
	}
	table := crc64.MakeTable(crc64.ECMA)
	for _, n := range []int{7, 1000, 30_000, 2_000_001} {
		for _, op := range []collective.Op{collective.Sum, collective.Mean} {
			single, half := make([]float32, n), make([]element.BF16, n)
			for i := range single {
				single[i] = float32(math.Sin(float64(i*7+w.Rank())) * math.Exp(float64((i+3*w.Rank())%17)))
				half[i] = element.ToBF16(single[i])
			}
			if err := w.Do(ctx, collective.AllReduce(single, op)); err != nil {
				return err
			}
			if err := w.Do(ctx, collective.AllReduce(half, op)); err != nil {
				return err
			}
			if w.Rank() == 0 {
				fmt.Printf("%d %v: %x %x\n", n, op, crc64.Checksum(element.Bytes(single), table), crc64.Checksum(element.Bytes(half), table))
			}
		}
	}
	return w.Finalize()
}

// TestRunsAreBitIdentical checks that sums are bit-identical in every run, although the MPI
// library chooses the order.
func TestRunsAreBitIdentical(t *testing.T) {
	for _, i := range implementations {
		t.Run(i.name, func(t *testing.T) {
			var first string
			for run := range 3 {
				cmd, out := i.start(t, 3, bitsVariable+"=1")
				if err := cmd.Wait(); err != nil {
					t.Fatalf("%v\n%s\n%s", err, out, crashes())
				}
				if run == 0 {
					first = out.String()
					t.Log(first)
				}
				if got := out.String(); got != first || len(got) < 100 {
					t.Errorf("run %d printed\n%swant\n%s", run, got, first)
				}
			}
		})
	}
}

// crashes returns the kernel's messages about crashes. The Go runtime prints nothing if a thread that
// the MPI library started crashes.
func crashes() string {
	text, err := exec.Command("dmesg").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("dmesg: %v: %s", err, text)
	}
	var found strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "segfault") || strings.Contains(line, "traps:") {
			found.WriteString(line)
		}
	}
	return found.String()
}
