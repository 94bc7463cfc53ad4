package plan

import "github.com/ddpbatch/ddpbatch/trainer/ddp"

// bucket is gradients that are sent together.
type bucket struct {
	elements int
	flop     float64 // of the backward pass from the bucket before it to its last gradient
}

// buckets are those of package ddp on so many ranks, in the order in which they are
// sent, for gradients of so many bytes an element.
func (w Work) buckets(size float64, ranks int) []bucket {
	ready, flop := make([]float64, len(w.Params)), 0.0 // operations until each gradient is there
	for _, r := range w.Backward {
		flop += r.FLOP
		ready[r.Param] = flop
	}
	var out []bucket
	before := 0.0
	for _, s := range (ddp.Options{FirstBucket: w.FirstBucket, Bucket: w.Bucket}).Spans(w.Params, ranks, int(size)) {
		now := before // a bucket waits for those that are sent before it
		for _, at := range ready[s.First:s.End] {
			now = max(now, at)
		}
		out = append(out, bucket{s.Elements, now - before})
		before = now
	}
	return out
}
