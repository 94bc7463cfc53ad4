package nn

import (
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// imageGolden is the output of testdata/torch_images.py.
type imageGolden struct {
	Seed           uint64
	Steps, Batch   int
	LR, Momentum   float32
	LabelsOfStep99 []int32 `json:"labels_of_step_99"`
	PixelsOfStep99 golden  `json:"pixels_of_step_99"`
	Runs           []struct {
		Name          string
		Params        []golden
		Losses, Norms []float64
		Trained       []golden
	}
}

const side = 28 // height and width of an image

// imageBatch returns the batch of a step by the rule of the script.
func imageBatch(step, samples int) (pixels []float32, labels []int32) {
	for n := range samples {
		sample := samples*step + n
		label := 7 * sample % 10
		labels = append(labels, int32(label))
		for i := range side * side {
			v := ((label+1)*(i/side) + (5*(label%3)+3)*(i%side) + 11*sample) % 256
			pixels = append(pixels, float32(v)/255)
		}
	}
	return pixels, labels
}

// TestImageTrainingFollowsTorch compares training runs of MLPs and CNNs on images with PyTorch's.
func TestImageTrainingFollowsTorch(t *testing.T) {
	mlp := func(activation string) func() (*Sequential, error) {
		return func() (*Sequential, error) {
			return NewMLP(side*side, MLPOptions{Hidden: []int{64, 64}, Activation: activation}, 10)
		}
	}
	models := map[string]func() (*Sequential, error){
		"tanh": mlp("tanh"), "relu": mlp("relu"), "gelu": mlp("gelu"),
		"cnn": func() (*Sequential, error) {
			return NewCNN(1, side, side, CNNOptions{Channels: []int{8, 16}, Kernel: 3, Dense: MLPOptions{Hidden: []int{32}, Activation: "relu"}}, 10)
		},
	}
	for _, name := range []string{"mlp100_golden.json", "cnn_golden.json"} {
		var file imageGolden
		readGolden(t, name, &file)
		pixels, labels := imageBatch(99, file.Batch)
		checkClose(t, "pixels of step 99", pixels[:8], file.PixelsOfStep99.First, 0)
		for i, v := range file.LabelsOfStep99 {
			if labels[i] != v {
				t.Fatalf("labels of step 99 are %v, want %v", labels, file.LabelsOfStep99)
			}
		}
		for _, r := range file.Runs {
			t.Run(r.Name, func(t *testing.T) {
				d := cpu.New(1)
				m, err := models[r.Name]()
				if err != nil {
					t.Fatal(err)
				}
				AllocValues(d, m.Params())
				AllocGrads(d, m.Params())
				m.Init(random.New(file.Seed), d)
				checkParams(t, d, m.Params(), dataOf, r.Params, 1e-14)
				m.Plan(Plan{Device: d, Batch: file.Batch, Train: true})
				u, pass := newUpdates(d, m.Params()), Pass{Train: true, Weight: 1}
				var losses, norms []float64
				for step := range file.Steps {
					pixels, labels := imageBatch(step, file.Batch)
					b := Batch{Samples: file.Batch, X: put(d, pixels), Labels: putInts(d, labels)}
					losses = append(losses, m.Forward(b, pass).Loss)
					m.Backward(b, pass, nil)
					norms = append(norms, u.norm())
					u.sgd(device.Factors{Rate: -file.LR, Beta1: file.Momentum})
				}
				checkLosses(t, "losses", losses, r.Losses, 1e-6, 5e-5)
				checkLosses(t, "norms", norms, r.Norms, 1e-6, 1e-4)
				checkParams(t, d, m.Params(), dataOf, r.Trained, 1e-4)
			})
		}
	}
}
