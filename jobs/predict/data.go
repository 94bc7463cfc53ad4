package predict

import (
	"context"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
)

// A dataInfo describes the data that determines the size of the model.
type dataInfo struct {
	shape     data.Dataset // contains only sizes if the data set is not available
	sample    plan.Sample
	samples   int // number of samples; 0 if unknown
	precision device.Precision
}

func (s dataInfo) model(m *jobs.Model) (nn.Model, error) { return trainer.NewModel(m, s.shape) }

// sizes describes a data set that is not available. Only the methods below may be called.
type sizes struct {
	data.Dataset
	inputs, outputs         int
	channels, height, width int
}

func (s sizes) Inputs() int                          { return s.inputs }
func (s sizes) Outputs() int                         { return s.outputs }
func (s sizes) Image() (channels, height, width int) { return s.channels, s.height, s.width }

// Assumed properties of data that is not available.
const (
	assumedTokens     = 50257 // vocabulary size of GPT-2
	assumedCharacters = 128
	bytesOfText       = 256
)

// quickTokens is the maximum size of token files, in bytes, that plan reads to find their
// vocabulary size. Reading that much takes about a second.
const quickTokens = 1 << 28

// openData returns the properties of the samples. It reads the data set if the method sizes reports
// that this is necessary.
func (p *predictor) openData(ctx context.Context) (dataInfo, error) {
	t := p.Job.Train
	d := &t.Data
	s := dataInfo{sample: plan.Sample{Classes: d.Task != jobs.TaskRegression}}
	if t.Precision == jobs.PrecisionBF16 {
		s.precision = device.BF16
	}
	z, read, err := p.sizes()
	if err != nil {
		return s, err
	}
	s.shape, s.samples = z, d.Samples
	if read {
		dataset, _, err := data.Open(ctx, trainer.DataOptions(t))
		if err != nil {
			return s, err
		}
		s.shape, s.samples = dataset, dataset.Len()
	}
	s.sample.Inputs, s.sample.Outputs = s.shape.Inputs(), s.shape.Outputs()
	if t.Model.Kind == jobs.ModelGPT {
		s.sample.Inputs, s.sample.Tokens = 0, t.Model.Context
	}
	return s, nil
}

// sizes returns the sizes of samples according to the job file and the flags, or assumed
// sizes. It reports whether the data set is available and must be read for the remaining
// sizes.
func (p *predictor) sizes() (z sizes, here bool, err error) {
	t := p.Job.Train
	d := &t.Data
	here = !p.MissingData
	switch d.Kind {
	case jobs.DataSynthetic:
		here = false
		z.inputs, z.outputs = d.Inputs, d.Outputs
	case jobs.DataTokens:
		z.outputs = d.VocabularySize
		size, _ := data.TotalSize(string(d.Path)) // the error is reported when the data are read
		here = here && z.outputs == 0 && size <= quickTokens
		if !here && z.outputs == 0 {
			z.outputs = assumedTokens
			p.assume("a vocabulary of %d tokens, as in GPT-2: train.data.vocabulary_size", assumedTokens)
		}
	case jobs.DataText:
		z.outputs = bytesOfText
		if !here && d.Vocabulary != data.VocabularyByte {
			z.outputs = assumedCharacters
			p.assume("%d different characters, because the text is not available on this machine", assumedCharacters)
		}
	case jobs.DataIDX:
		z = sizes{inputs: 28 * 28, outputs: 10, channels: 1, height: 28, width: 28}
		if !here {
			p.assume("images of 28x28 pixels in 10 classes, as in MNIST, because the data is not available on this machine")
		}
	default:
		if p.Inputs != nil {
			z.inputs = *p.Inputs
		}
		if p.Outputs != nil {
			z.outputs = *p.Outputs
		}
		if !here && (z.inputs == 0 || z.outputs == 0 || t.Model.Kind == jobs.ModelCNN) {
			return z, false, p.unknownData()
		}
	}
	return z, here, nil
}

func (p *predictor) unknownData() error {
	hint := "set the number of values per sample with --inputs N --outputs N"
	if p.Job.Train.Model.Kind == jobs.ModelCNN {
		hint = "run plan on a machine with the data: only the data determines the size of the images"
	}
	return exitcode.Usagef(hint, "plan %q: the data %q is not available on this machine", p.Path, p.Job.Train.Data.Path)
}
