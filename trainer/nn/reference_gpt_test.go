package nn

import (
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// The parts of GPT-2 in float64.

func layerNorm64(x, w, b []float64) []float64 {
	n := len(w)
	y := make([]float64, len(x))
	for first := 0; first < len(x); first += n {
		mean, variance := 0.0, 0.0
		for _, v := range x[first : first+n] {
			mean += v / float64(n)
		}
		for _, v := range x[first : first+n] {
			variance += (v - mean) * (v - mean) / float64(n)
		}
		for i, v := range x[first : first+n] {
			y[first+i] = (v-mean)/math.Sqrt(variance+device.LayerNormEps)*w[i] + b[i]
		}
	}
	return y
}

func embedding64(tokens []int32, length, width int, table, places []float64) []float64 {
	var y []float64
	for i, token := range tokens {
		row, place := table[int(token)*width:][:width], places[i%length*width:][:width]
		y = append(y, plus64(row, place)...)
	}
	return y
}

// attention64 computes causal attention. The rows of qkv hold queries, keys, and values.
func attention64(qkv []float64, s sequences, heads, width int, mask []float64) []float64 {
	size := width / heads
	at := func(sample, i, which, head int) []float64 {
		return qkv[((sample*s.length+i)*3+which)*width+head*size:][:size]
	}
	y := make([]float64, s.rows()*width)
	for sample := range s.samples {
		for head := range heads {
			for i := range s.length {
				weights, sum := make([]float64, i+1), 0.0
				for j := range weights {
					score := 0.0
					for k, v := range at(sample, j, 1, head) {
						score += v * at(sample, i, 0, head)[k]
					}
					weights[j] = math.Exp(score / math.Sqrt(float64(size)))
					sum += weights[j]
				}
				for j, w := range weights {
					w *= mask[((sample*heads+head)*s.length+i)*s.length+j] / sum
					for k, v := range at(sample, j, 2, head) {
						y[(sample*s.length+i)*width+head*size+k] += w * v
					}
				}
			}
		}
	}
	return y
}

// selfAttention64 computes attention with both projections.
func selfAttention64(l *selfAttention, x []float64, params [][]float64, s sequences, mask func(site uint64, samples, perSample int) []float64) []float64 {
	qkv := linear64(l.qkv, x, params[0], params[1])
	out := attention64(qkv, s, l.heads, l.width, mask(l.site, s.samples, l.heads*s.length*s.length))
	return linear64(l.proj, out, params[2], params[3])
}

func block64(b *block, x []float64, params [][]float64, s sequences, mask func(site uint64, samples, perSample int) []float64) []float64 {
	attended := selfAttention64(b.attn, layerNorm64(x, params[0], params[1]), params[2:6], s, mask)
	x = plus64(x, times64(attended, mask(b.site, s.samples, s.length*b.width)))
	hidden := activate64(device.GELU, linear64(b.fc, layerNorm64(x, params[6], params[7]), params[8], params[9]))
	out := linear64(b.proj, hidden, params[10], params[11])
	return plus64(x, times64(out, mask(b.site+1, s.samples, s.length*b.width)))
}

// head64 returns the loss of the last rows.
func head64(x []float64, labels []int32, table []float64, width int) float64 {
	vocabulary := len(table) / width
	l := &linear{in: width, out: vocabulary}
	return crossEntropy64(linear64(l, x, table, make([]float64, vocabulary)), labels)
}

// gpt64 returns the loss of the whole model.
func gpt64(m *GPT, params [][]float64, tokens, labels []int32, s sequences, mask func(site uint64, samples, perSample int) []float64) float64 {
	x := embedding64(tokens, s.length, m.Width, params[0], params[1])
	x = times64(x, mask(0, s.samples, s.length*m.Width))
	rest := params[2:]
	for _, b := range m.blocks {
		n := len(b.params())
		x = block64(b, x, rest[:n], s, mask)
		rest = rest[n:]
	}
	return head64(layerNorm64(x, rest[0], rest[1]), labels, params[0], m.Width)
}
