package plan

import (
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
)

// bucket is gradients that are sent together.
type bucket struct {
	elements int
	flop     float64 // of the backward pass from the bucket before it to its last gradient
}

// buckets are those of package ddp, in the order in which they are sent, for
// gradients of so many bytes an element. A gradient begins where a cache line does.
func (w Work) buckets(size float64) []bucket {
	const line = 16
	var out []bucket
	limit, rest := ddp.Options{FirstBucket: w.FirstBucket, Bucket: w.Bucket}.Buckets(int(size) * w.NumParams())
	now := bucket{}
	for i, r := range w.Backward {
		now.elements += (w.Params[r.Param] + line - 1) / line * line
		now.flop += r.FLOP
		if size*float64(now.elements) >= float64(limit) || i == len(w.Backward)-1 {
			out = append(out, now)
			now, limit = bucket{}, rest
		}
	}
	return out
}
