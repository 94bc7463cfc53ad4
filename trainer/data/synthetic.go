package data

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// heldOutShare is the number of generated training samples per held-out sample, for classification.
const heldOutShare = 5

// openSynthetic generates data that need no file.
//
// For regression, each sample consists of its inputs and then its targets, all in [0, 1). After
// torch.manual_seed(seed), PyTorch gives the same values with [(torch.rand(inputs),
// torch.rand(outputs)) for _ in range(samples)]. A model can learn only their mean. There are no
// held-out data.
//
// For classification, the inputs are in [0, 1), and the label is the class with the largest output
// of a fixed random linear map, which is generated first. A model can learn it. A fifth as many
// samples are generated after the training samples and held out.
func openSynthetic(o Options) (train, eval Dataset, err error) {
	classes := o.Task == TaskClassification
	least := 1
	if classes {
		least = 2
	}
	switch {
	case o.Samples < 1:
		return nil, nil, fmt.Errorf("generate data: %d samples, want at least 1", o.Samples)
	case o.Inputs < 1:
		return nil, nil, fmt.Errorf("generate data: %d inputs, want at least 1", o.Inputs)
	case o.Outputs < least:
		return nil, nil, fmt.Errorf("generate data: %d outputs, want at least %d", o.Outputs, least)
	case o.Samples > random.MaxPerm:
		return nil, nil, fmt.Errorf("generate data: %d samples, want at most %d", o.Samples, random.MaxPerm)
	case classes && o.Outputs > maxClasses:
		return nil, nil, fmt.Errorf("generate data: %d classes, want at most %d", o.Outputs, maxClasses)
	case o.Inputs > maxValues || o.Outputs > maxValues || o.Samples > maxValues/(o.Inputs+o.Outputs):
		return nil, nil, fmt.Errorf("generate data: %d samples of %d inputs and %d outputs, together more than %d values", o.Samples, o.Inputs, o.Outputs, maxValues)
	case classes && o.Outputs > maxValues/o.Inputs: // of the linear map
		return nil, nil, fmt.Errorf("generate data: %d inputs and %d classes, together more than %d values", o.Inputs, o.Outputs, maxValues)
	}
	g := random.New(uint64(o.Seed))
	if !classes {
		return syntheticValues(g, o.Samples, o.Inputs, o.Outputs), nil, nil
	}
	weights := make([]float32, o.Outputs*o.Inputs)
	g.Uniform(-1, 1, weights)
	t := syntheticClasses(g, weights, o.Samples, o.Inputs, o.Outputs)
	e := syntheticClasses(g, weights, (o.Samples+heldOutShare-1)/heldOutShare, o.Inputs, o.Outputs)
	return t, e, nil
}

func syntheticValues(g *random.Generator, samples, inputs, outputs int) *table {
	x := make([]float32, samples*inputs)
	targets := make([]float32, samples*outputs)
	for i := range samples {
		fillUniform(g, x[i*inputs:(i+1)*inputs])
		fillUniform(g, targets[i*outputs:(i+1)*outputs])
	}
	return newValueTable("values", floatRows{x, inputs}, targets, outputs)
}

func syntheticClasses(g *random.Generator, weights []float32, samples, inputs, classes int) *table {
	x := make([]float32, samples*inputs)
	labels := make([]int32, samples)
	for i := range labels {
		row := x[i*inputs : (i+1)*inputs]
		fillUniform(g, row)
		labels[i] = findLargest(weights, row, classes)
	}
	return newClassTable("classes", floatRows{x, inputs}, labels, classes)
}

// findLargest returns the class for which the linear map has the largest output. Inputs are centered,
// so that no class is favored by the sum of its weights.
func findLargest(weights, row []float32, classes int) int32 {
	best, bestValue := 0, 0.0
	for c := range classes {
		value := 0.0
		for k, v := range row {
			value += float64(weights[c*len(row)+k]) * (float64(v) - 0.5)
		}
		if c == 0 || value > bestValue {
			best, bestValue = c, value
		}
	}
	return int32(best)
}

// fillUniform fills row like torch.rand.
func fillUniform(g *random.Generator, row []float32) {
	for i := range row {
		row[i] = g.Float32()
	}
}
