package communicator

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// lostGPU is a GPU whose context cannot be used.
type lostGPU struct{ GPU }

func (lostGPU) ID() string { return "GPU-1" }
func (lostGPU) Use() error { return errors.New("the GPU is lost") }

// TestOpenLaneOnLostGPU checks that a GPU that cannot be used is an error. The runtime panics if it
// collects memory that is still pinned.
func TestOpenLaneOnLostGPU(t *testing.T) {
	if _, err := openLane(&Options{GPU: lostGPU{}, Control: collective.Local(1, time.Minute)[0]}, nil); err == nil || !strings.Contains(err.Error(), "GPU-1") {
		t.Errorf("got %v", err)
	}
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond) // finalizers run in the background
	}
}
