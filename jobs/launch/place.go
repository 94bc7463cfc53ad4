package launch

import (
	"fmt"
	"os"
	"strconv"

	"github.com/ddpbatch/ddpbatch/slurm"
)

// Place is where a rank stands in its job.
type Place struct {
	Rank, WorldSize           int
	LocalRank, LocalWorldSize int // on this node
	NodeRank, Nodes           int
	Host                      string
	// JobID, StepID and RestartCount are Slurm's; empty and 0 without it.
	JobID, StepID string
	RestartCount  int
}

// InSlurm says whether the rank was started by srun.
func (p Place) InSlurm() bool { return p.JobID != "" }

// FindPlace reads a rank's place from its environment: from the launcher's
// variables on a machine without Slurm, from srun's otherwise. Its error is
// slurm's [slurm.NoStepError] where neither started this process.
func FindPlace(lookup func(string) (string, bool)) (Place, error) {
	if _, local := lookup(envLocalRank); local {
		return localPlace(lookup)
	}
	t, err := slurm.TaskFromEnv(lookup)
	if err != nil {
		return Place{}, err
	}
	return Place{Rank: t.Rank, WorldSize: t.WorldSize, LocalRank: t.LocalRank, LocalWorldSize: t.LocalWorldSize,
		NodeRank: t.NodeRank, Nodes: len(t.Hosts), Host: t.Host, JobID: t.JobID, StepID: t.StepID, RestartCount: t.RestartCount}, nil
}

func localPlace(lookup func(string) (string, bool)) (Place, error) {
	number := func(name string, least int) (int, error) {
		text, _ := lookup(name)
		n, err := strconv.Atoi(text)
		if err != nil || n < least {
			return 0, fmt.Errorf("variable %s is %q, not a whole number from %d", name, text, least)
		}
		return n, nil
	}
	rank, err := number(envLocalRank, 0)
	if err != nil {
		return Place{}, err
	}
	size, err := number(envLocalSize, 1)
	if err != nil {
		return Place{}, err
	}
	if rank >= size {
		return Place{}, fmt.Errorf("variable %s is %d, but there are %d ranks", envLocalRank, rank, size)
	}
	host, err := os.Hostname()
	if err != nil {
		return Place{}, err
	}
	return Place{Rank: rank, WorldSize: size, LocalRank: rank, LocalWorldSize: size, Nodes: 1, Host: host}, nil
}
