package data

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// checkHoldout validates the fraction of samples to hold out.
func checkHoldout(o Options) error {
	switch {
	case o.Holdout == 0:
		return nil
	case !(o.Holdout > 0 && o.Holdout < 1):
		return fmt.Errorf("open data: holding out a share of %v, want from 0 to less than 1", o.Holdout)
	case o.EvalPath != "":
		return hints.Errorf("set either eval_path or holdout",
			"open data %q: held-out data are in %q, so holdout must be 0", o.Path, o.EvalPath)
	case o.Kind == KindIDX || o.Kind == KindSynthetic:
		return fmt.Errorf("open data: holdout is not supported for %s data", o.Kind)
	}
	return nil
}

// split holds out a random fraction of the rows, exactly like PyTorch's
// torch.utils.data.random_split(dataset, [1-share, share], generator) with a generator with that
// seed.
func (d *table) split(path string, share float64, seed int64) (train, eval Dataset, err error) {
	n := d.Len()
	held := int(float64(n) * share)
	if held == 0 || held == n {
		return nil, nil, fmt.Errorf("read %q: holding out a share of %v of %d samples leaves %d to evaluate on and %d to train on", path, share, n, held, n-held)
	}
	order := random.New(uint64(seed)).Perm(n)
	return d.part(order[:n-held]), d.part(order[n-held:]), nil
}

// part returns the dataset of a subset of the rows.
func (d *table) part(rows []int) *table {
	p := *d
	p.rows = rows
	hash := newDigest("rows of "+d.digest, len(rows), d.Inputs(), d.outputs)
	hash.words(len(rows), func(i int) uint32 { return uint32(rows[i]) })
	p.digest = hash.String()
	return &p
}
