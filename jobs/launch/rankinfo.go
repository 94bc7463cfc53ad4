package launch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/launchers"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// RankInfo holds the rank of a process, the world size, and the host of the rank.
type RankInfo struct {
	Rank, WorldSize           int
	LocalRank, LocalWorldSize int // on this node; launchers.Unknown until [Join] if not passed
	NodeRank, Nodes           int // launchers.Unknown until [Join] if not passed
	Host                      string
	// JobID and StepID are Slurm's, and empty without Slurm. RestartCount is from Slurm or
	// from another launcher.
	JobID, StepID string
	RestartCount  int

	// Launcher names a launcher other than Slurm and ddpbatch. Start is the launcher's ID for
	// this start of the ranks.
	Launcher, Start string
	// PerHost reports that the launcher has started one process on each host, which starts the
	// ranks. Rank and WorldSize then count hosts.
	PerHost bool
	GPUs    int // GPUs of this host, valid with Launcher; launchers.Unknown if it does not pass them
}

// rendezvousID returns the parts of the name of the rendezvous file that distinguish this start
// of the ranks from others.
func (p RankInfo) rendezvousID() (job, step string) {
	if p.InSlurm() {
		return p.JobID, p.StepID
	}
	sum := sha256.Sum256([]byte(p.Start))
	return p.Launcher, hex.EncodeToString(sum[:6])
}

// InSlurm reports whether srun started the rank.
func (p RankInfo) InSlurm() bool { return p.JobID != "" }

// slurmLauncher is the name of Slurm in the setting that selects a launcher.
const slurmLauncher = "slurm"

// DetectRank reads the rank and the world size from the environment: from the variables of
// ddpbatch's launcher, of srun, or of another launcher (see [launchers]). With a name, it
// reads only the variables of that launcher. Without a name, all launchers that have set
// variables must agree. Otherwise the error lists the values of each launcher. If no launcher
// started this process, DetectRank returns [slurm.NoStepError].
func DetectRank(lookup func(string) (string, bool), name string) (RankInfo, error) {
	if _, local := lookup(envLocalRank); local {
		return readLocalRank(lookup)
	}
	_, launched := lookup(LauncherVariable) // ddpbatch's launcher called srun
	if launched || name == slurmLauncher {
		return readSlurmRank(lookup)
	}
	other, found, err := launchers.Find(lookup, name)
	if name != "" {
		if err != nil {
			return RankInfo{}, err
		}
		return convertRankInfo(other)
	}
	info, slurmErr := readSlurmRank(lookup)
	var outside *slurm.NoStepError
	switch {
	case slurmErr == nil && found:
		at := launchers.RankInfo{Launcher: slurmLauncher, Rank: info.Rank, WorldSize: info.WorldSize}
		if other.PerHost || other.Rank != at.Rank || other.WorldSize != at.WorldSize {
			return RankInfo{}, &launchers.AmbiguousError{Found: []launchers.RankInfo{other, at}}
		}
		return info, nil
	case slurmErr == nil:
		return info, nil // srun's PMI sets some variables of other launchers
	case !errors.As(slurmErr, &outside):
		return RankInfo{}, slurmErr
	case err != nil:
		return RankInfo{}, err
	case found:
		return convertRankInfo(other)
	}
	return RankInfo{}, slurmErr
}

func readSlurmRank(lookup func(string) (string, bool)) (RankInfo, error) {
	t, err := slurm.TaskFromEnv(lookup)
	if err != nil {
		return RankInfo{}, err
	}
	return RankInfo{Rank: t.Rank, WorldSize: t.WorldSize, LocalRank: t.LocalRank, LocalWorldSize: t.LocalWorldSize,
		NodeRank: t.NodeRank, Nodes: len(t.Hosts), Host: t.Host, JobID: t.JobID, StepID: t.StepID, RestartCount: t.RestartCount}, nil
}

func convertRankInfo(o launchers.RankInfo) (RankInfo, error) {
	host, err := os.Hostname()
	if err != nil {
		return RankInfo{}, err
	}
	return RankInfo{Rank: o.Rank, WorldSize: o.WorldSize, LocalRank: o.LocalRank, LocalWorldSize: o.LocalWorldSize,
		NodeRank: o.NodeRank, Nodes: o.Nodes, Host: host, RestartCount: o.Restart,
		Launcher: o.Launcher, Start: o.Start, PerHost: o.PerHost, GPUs: o.GPUs}, nil
}

func readLocalRank(lookup func(string) (string, bool)) (RankInfo, error) {
	number := func(name string, least int) (int, error) {
		text, _ := lookup(name)
		n, err := strconv.Atoi(text)
		if err != nil || n < least {
			return 0, fmt.Errorf("variable %s: %q is not an integer of at least %d", name, text, least)
		}
		return n, nil
	}
	rank, err := number(envLocalRank, 0)
	if err != nil {
		return RankInfo{}, err
	}
	size, err := number(envLocalSize, 1)
	if err != nil {
		return RankInfo{}, err
	}
	if rank >= size {
		return RankInfo{}, fmt.Errorf("variable %s is %d, but there are %d ranks", envLocalRank, rank, size)
	}
	host, err := os.Hostname()
	if err != nil {
		return RankInfo{}, err
	}
	return RankInfo{Rank: rank, WorldSize: size, LocalRank: rank, LocalWorldSize: size, Nodes: 1, Host: host}, nil
}

// A hostReport holds what a rank knows about its host if its launcher does not pass the node
// rank.
type hostReport struct {
	Host           string `json:"host"`
	LocalRank      int    `json:"local_rank"` // launchers.Unknown if not known
	LocalWorldSize int    `json:"local_world_size"`
}

// hostPosition completes the rank information that the launcher did not pass.
type hostPosition struct {
	LocalRank      int `json:"local_rank"`
	LocalWorldSize int `json:"local_world_size"`
	NodeRank       int `json:"node_rank"`
	Nodes          int `json:"nodes"`
}

// findHostRanks determines which ranks share a host, if the launcher has not passed the node rank.
// All ranks must call it.
func (r *Rank) findHostRanks(ctx context.Context) error {
	p := &r.Info
	if p.NodeRank != launchers.Unknown {
		return nil
	}
	var position hostPosition
	if err := r.exchange(ctx, roundHosts, hostReport{p.Host, p.LocalRank, p.LocalWorldSize}, &position); err != nil {
		return err
	}
	p.LocalRank, p.LocalWorldSize, p.NodeRank, p.Nodes = position.LocalRank, position.LocalWorldSize, position.NodeRank, position.Nodes
	return nil
}

// decideHosts numbers the hosts in the order of their lowest ranks. Within a host it uses the
// local ranks of the launcher if they are known, or else the order of the ranks.
func decideHosts(payloads [][]byte) ([][]byte, error) {
	var hosts []string
	ranksOf := map[string][]int{}
	reports := make([]hostReport, len(payloads))
	for rank, p := range payloads {
		if err := json.Unmarshal(p, &reports[rank]); err != nil {
			return nil, fmt.Errorf("decode host report of rank %d: %w", rank, err)
		}
		host := reports[rank].Host
		if ranksOf[host] == nil {
			hosts = append(hosts, host)
		}
		ranksOf[host] = append(ranksOf[host], rank)
	}
	replies := make([][]byte, len(payloads))
	for node, host := range hosts {
		ranks := ranksOf[host]
		rankOf := map[int]int{}
		for i, rank := range ranks {
			position := hostPosition{LocalRank: i, LocalWorldSize: len(ranks), NodeRank: node, Nodes: len(hosts)}
			if report := reports[rank]; report.LocalRank != launchers.Unknown {
				if report.LocalWorldSize != len(ranks) {
					return nil, hints.Errorf("check that no two machines have the same host name", "the launcher reports %[2]d ranks on the host of rank %[1]d, but %[3]d ranks are on %[4]s",
						rank, report.LocalWorldSize, len(ranks), host)
				}
				position.LocalRank = report.LocalRank
			}
			if other, twice := rankOf[position.LocalRank]; twice {
				return nil, fmt.Errorf("ranks %d and %d are both local rank %d on %s", other, rank, position.LocalRank, host)
			}
			rankOf[position.LocalRank] = rank
			text, err := json.Marshal(position)
			if err != nil {
				return nil, err
			}
			replies[rank] = text
		}
	}
	return replies, nil
}
