package nn

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// CNNOptions is the shape of a convolutional network.
type CNNOptions struct {
	Channels []int // of each convolution
	Kernel   int   // odd; padding preserves height and width
	Dense    MLPOptions
}

// NewCNN returns the model of PyTorch's nn.Sequential with, for each entry of o.Channels,
// nn.Conv2d(padding=kernel//2), an activation, and nn.MaxPool2d(2), then nn.Flatten and the layers
// of [NewMLP]. Images have the given channels, height, and width.
func NewCNN(channels, height, width int, o CNNOptions, out int) (*Sequential, error) {
	if channels < 1 || height < 1 || width < 1 {
		return nil, fmt.Errorf("a convolutional network needs images, but these samples are not images")
	}
	if o.Kernel < 1 || o.Kernel%2 == 0 {
		return nil, fmt.Errorf("the kernel is %d wide, want an odd number", o.Kernel)
	}
	if len(o.Channels) == 0 {
		return nil, fmt.Errorf("a convolutional network needs at least one convolution")
	}
	in := channels * height * width
	s := stack{width: in}
	for i, c := range o.Channels {
		if c < 1 || c > 1<<16 {
			return nil, fmt.Errorf("convolution %d has %d channels, want 1 to %d", i+1, c, 1<<16)
		}
		if height < 2 || width < 2 {
			return nil, fmt.Errorf("images are %dx%d before pooling %d, too small to be halved; use fewer convolutions", height, width, i+1)
		}
		if n := float64(o.Kernel) * float64(o.Kernel) * float64(channels) * float64(c); n > maxTensor {
			return nil, fmt.Errorf("convolution %d has %.3g weights, more than %d", i+1, n, maxTensor)
		}
		conv := newConvolution(s.prefix(), device.ConvolutionShape{In: channels, Out: c, Height: height, Width: width, Kernel: o.Kernel, Padding: o.Kernel / 2})
		s.add(conv)
		if err := s.activate(o.Dense.Activation); err != nil {
			return nil, err
		}
		s.add(&maxPool{shape: device.PoolShape{Channels: c, Height: height, Width: width, Size: 2}})
		channels, height, width = c, height/2, width/2
	}
	s.add(&flatten{width: s.width})
	if err := checkWidths(s.width, o.Dense.Hidden, out); err != nil {
		return nil, err
	}
	if err := s.connect(o.Dense, out); err != nil {
		return nil, err
	}
	return newSequential(in, s.layers), nil
}

// flatten is nn.Flatten. Images are already rows, so it does nothing. It exists so that the layers
// after it have PyTorch's numbers in their names.
type flatten struct {
	noParams
	width int
}

func (l *flatten) Width() int                                { return l.width }
func (l *flatten) InPlace() bool                             { return true }
func (l *flatten) Plan(Plan)                                 {}
func (l *flatten) Forward(_, _ device.Matrix, _ Pass)        {}
func (l *flatten) Backward(_, _, _, _ device.Matrix, _ Pass) {}
