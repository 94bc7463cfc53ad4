package trainer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
)

// onNodes connects ranks on the given nodes, as separate processes.
func onNodes(t *testing.T, nodes []int) []collective.Communicator {
	t.Helper()
	return conformance.Processes(t, len(nodes), collective.Options{Nodes: nodes, Memory: true})
}

// TestStrategiesTrainTheSameBitsOnNodes checks that all strategies train bit-identical weights on
// any layout of the ranks. The order in which a gradient is summed must not depend on whether all
// ranks need the sum or only one. The bucket sizes select different algorithms.
func TestStrategiesTrainTheSameBitsOnNodes(t *testing.T) {
	spec := strings.NewReplacer("hidden = [16]", "hidden = [2000, 400, 30]", "samples = 203", "samples = 24", "7 steps", "100 steps").Replace(fmt.Sprintf(mlp, 2))
	for name, nodes := range map[string][]int{
		"2+2":           {0, 0, 1, 1},
		"2+2+2, cyclic": {0, 1, 2, 0, 1, 2},
		"3+3":           {0, 0, 0, 1, 1, 1},
		"2+1+3":         {0, 0, 1, 2, 2, 2},
		"1+1+1":         {0, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var first []Event
			var want string
			for _, strategy := range strategyNames {
				comms, dir := onNodes(t, nodes), t.TempDir()
				events, _, errs := world(t, len(nodes), withStrategy(t, strategy, spec), dir, func(rank int, o *Options) {
					smallBuckets(rank, o)
					o.Comm, o.Job.Train.Bucket = comms[rank], 100<<10
				})
				ok(t, errs)
				_, got := digests(t, dir)
				if strategy == jobs.StrategyDDP {
					first, want = events, got
					continue
				}
				sameLosses(t, events, first, 0)
				if got != want {
					t.Errorf("%s: other weights than with ddp", strategy)
				}
			}
		})
	}
}
