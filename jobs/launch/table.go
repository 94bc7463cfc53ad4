package launch

import (
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// maxKinds is the maximum number of different ends to list. failure.json has all of them.
const maxKinds = 12

// printRankEnds prints how the ranks of a failed attempt ended, with one line for all ranks that
// ended in the same way. Killed holds the ranks that the launcher had to kill.
func (o Options) printRankEnds(ranks []rendezvous.RankStatus, killed map[int]bool) {
	if len(ranks) < 2 {
		return
	}
	var kinds []string
	byEnd := map[string][]rendezvous.RankStatus{}
	for _, r := range ranks {
		end := describeEnd(r, killed[r.Rank])
		if byEnd[end] == nil {
			kinds = append(kinds, end)
		}
		byEnd[end] = append(byEnd[end], r)
	}
	o.Say("how the ranks ended:")
	for _, end := range kinds[:min(maxKinds, len(kinds))] {
		var numbers []int
		var hosts []string
		for _, r := range byEnd[end] {
			numbers = append(numbers, r.Rank)
			if !slices.Contains(hosts, r.Host) {
				hosts = append(hosts, r.Host)
			}
		}
		o.Say(fmt.Sprintf("  %s on %s: %s", rendezvous.FormatRanks(numbers), slurm.FoldHosts(hosts), end))
	}
	if more := len(kinds) - maxKinds; more > 0 {
		o.Say(fmt.Sprintf("  and in %d other ways, see %s", more, o.Dir.Failure()))
	}
}

// describeEnd describes how a rank ended.
func describeEnd(r rendezvous.RankStatus, killed bool) string {
	switch r.State {
	case rendezvous.Joined:
		return "no answer any more"
	case rendezvous.Missing:
		return "did not join"
	case rendezvous.Ended:
		return "ended with the job"
	case rendezvous.Failed:
		return fmt.Sprintf("failed with exit code %d", r.Exit)
	case rendezvous.Lost:
		if killed {
			return fmt.Sprintf("ended by force, after %s", killGrace)
		}
		return "lost: " + r.Error
	case rendezvous.Done:
		return fmt.Sprintf("ended with exit code %d", r.Exit)
	}
	return string(r.State)
}
