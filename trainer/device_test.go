package trainer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// sees configures the GPUs that each rank detects; "-" means no driver.
func sees(lists ...string) func(rank int, o *Options) {
	visible := "0,1"
	return func(rank int, o *Options) {
		o.VisibleDevices = &visible
		o.LocalRanks = len(lists)
		o.FindGPUs = func() (cuda.Found, error) {
			if lists[rank] == "-" {
				return cuda.Found{}, errors.New("no driver")
			}
			f := cuda.Found{Version: 12080}
			for i, uuid := range strings.Fields(lists[rank]) {
				f.Devices = append(f.Devices, cuda.Device{Ordinal: i, Name: "H100", UUID: uuid})
			}
			return f, nil
		}
	}
}

// TestDeviceSelection checks whether a run uses GPUs or the CPU for each value of train.device,
// and the message or the error that explains it.
func TestDeviceSelection(t *testing.T) {
	for name, c := range map[string]struct {
		device string // "+": the job requests GPUs
		look   func(int, *Options)
		err    string // of rank 1; empty if it trains
		events string
	}{
		"cpu does not look":       {"cpu", func(_ int, o *Options) { o.FindGPUs = func() (cuda.Found, error) { panic("looked") } }, "", ""},
		"auto without any":        {"auto", sees("-", "-"), "", `training on the CPU: no rank detects a GPU; rank 0: no driver (CUDA_VISIBLE_DEVICES="0,1")`},
		"auto with none visible":  {"auto", sees("", ""), "", `no rank detects a GPU; rank 0: the driver reports no GPU (CUDA_VISIBLE_DEVICES="0,1")`},
		"auto with GPUs":          {"auto", sees("a b", "a b"), "", "training on the CPU: this rank's GPU 0 (a): this program was built without GPU support"},
		"auto, not in ASCII":      {"auto", sees("-", "für-den-zweiten"), "", "training on the CPU: rank 0 sees no GPU: no driver"},
		"auto with too few":       {"auto", sees("a", "a"), "", "training on the CPU: rank 1 has no GPU of its own: a is rank 0's"},
		"asked, a broken node":    {"auto+", sees("a", "-"), `train.device = "auto": rank 1 sees no GPU: no driver`, ""},
		"asked, too few":          {"auto+", sees("a", "a"), "rank 1 has no GPU of its own: a is rank 0's", ""},
		"asked, none":             {"auto+", sees("-", "-"), "", "warning: the job requests GPUs: training on the CPU: no rank detects a GPU"},
		"cuda without any":        {"cuda", sees("-", "-"), `train.device = "cuda": no rank detects a GPU; rank 0: no driver (CUDA_VISIBLE_DEVICES="0,1")`, ""},
		"cuda, all visible":       {"cuda", sees("a b", "a b"), "this rank's GPU 1 (b): this program was built without GPU support", ""},
		"cuda, one for each task": {"cuda", sees("a", "b"), "this rank's GPU 0 (b): this program", ""},
		"asked, none can be used": {"auto+", sees("a b", "a b"), "this rank's GPU 1 (b): this program was built without GPU support", ""},
		"cuda, not built": {"cuda", func(_ int, o *Options) {
			o.FindGPUs = func() (cuda.Found, error) { return cuda.Found{}, cuda.ErrNotBuilt }
		},
			"this program was built without GPU support", ""},
	} {
		t.Run(name, func(t *testing.T) {
			device, asked := strings.CutSuffix(c.device, "+")
			j := job(t, strings.Replace(fmt.Sprintf(mlp, 1), `"cpu"`, `"`+device+`"`, 1))
			if asked {
				j.Slurm.GPUsPerNode = 2
			}
			var events []string
			_, _, errs := world(t, 2, j, t.TempDir(), func(rank int, o *Options) {
				c.look(rank, o)
				if rank == 0 {
					o.Observe = func(e Event) {
						if e.Kind == OnCPU {
							events = append(events, e.String())
						}
					}
				}
			})
			if err := errs[1]; (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %v, want %q", err, c.err)
			}
			var hinter interface{ Hint() string }
			if errs[1] != nil && (!errors.As(errs[1], &hinter) || hinter.Hint() == "") {
				t.Errorf("%v has no hint", errs[1])
			}
			if got := strings.Join(events, "\n"); !strings.Contains(got, c.events) || (got == "") != (c.events == "") {
				t.Errorf("got events %q, want %q", got, c.events)
			}
		})
	}
}

// endingDevice is a device with its own memory, and endingComm its communicator. They record what is
// closed.
type endingDevice struct {
	device.Device // methods that are not called
	gpu           endingAccelerator
}

func (d endingDevice) Accelerator() device.Accelerator { return d.gpu }

type endingAccelerator struct {
	device.Accelerator // methods that are not called
	closed             *[]string
}

func (a endingAccelerator) Close() error {
	*a.closed = append(*a.closed, "device")
	return nil
}

type endingComm struct {
	ddp.Communicator // methods that are not called
	closed           *[]string
	err              error
}

func (c endingComm) Close() error {
	*c.closed = append(*c.closed, "communicator")
	return c.err
}

// TestEndReportsFirst checks that a run reports its failure before it closes the communicator of its
// GPU, and that it leaves the GPU open if the communicator may still use it.
func TestEndReportsFirst(t *testing.T) {
	stuck, failed := errors.New("stuck"), errors.New("failed")
	for _, c := range []struct {
		name             string
		err, close, want error
		order            string
	}{
		{"success", nil, nil, nil, "communicator device"},
		{"failure", failed, nil, failed, "failed communicator device"},
		{"stuck", nil, stuck, stuck, "communicator"},
		{"failure and stuck", failed, stuck, failed, "failed communicator"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var order []string
			r := &run{device: endingDevice{gpu: endingAccelerator{closed: &order}}, deviceComm: endingComm{closed: &order, err: c.close}}
			r.Failed = func(err error) { order = append(order, err.Error()) }
			err := c.err
			r.end(&err)
			if got := strings.Join(order, " "); got != c.order || !errors.Is(err, c.want) {
				t.Errorf("got %q and error %v, want %q and %v", got, err, c.order, c.want)
			}
		})
	}
}
