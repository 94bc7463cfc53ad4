package rundir

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/capped"
)

// maxLive is the maximum size of live.json in bytes. The host names of many thousand nodes
// fit.
const maxLive = 4 << 20

// A LivePhase is the phase of an attempt, as its launcher reports it in live.json.
type LivePhase string

// Phases of an attempt.
const (
	PhaseJoining    LivePhase = "joining"    // ranks have been started, but not all of them have joined
	PhaseRunning    LivePhase = "running"    // all ranks have joined
	PhaseStopping   LivePhase = "stopping"   // ranks were asked to save and stop
	PhaseRestarting LivePhase = "restarting" // an attempt failed, and the next one is about to start
	PhaseOver       LivePhase = "over"       // no ranks remain; ended.json has the result
)

// A RankState is the state of a rank in live.json.
type RankState string

// States of ranks. The launcher determines most of them. A rank of the built-in trainer reports
// its activity: loading, training, evaluating, or saving.
const (
	RankJoining    RankState = "joining"    // was started, but has not joined
	RankConnecting RankState = "connecting" // has joined, and connects to the other ranks
	RankLoading    RankState = "loading"    // reads data and the checkpoint
	RankTraining   RankState = "training"
	RankEvaluating RankState = "evaluating"
	RankSaving     RankState = "saving"
	RankRunning    RankState = "running" // reports no activity, as in a user's program
	RankSilent     RankState = "silent"  // sent no heartbeat for some time
	RankLost       RankState = "lost"    // its connection ended without a message
	RankFailed     RankState = "failed"
	RankEnded      RankState = "ended" // stopped after the failure of another rank
	RankDone       RankState = "done"
)

// IsTrouble reports whether a rank in this state is or may be the cause of a failure.
func (s RankState) IsTrouble() bool { return s == RankLost || s == RankFailed || s == RankSilent }

// Live is the launcher's view of its ranks during a run, stored in live.json. The launcher
// replaces the file every [LiveEvery], and immediately when the state of a node changes. Ranks
// that srun starts without a launcher do not have this file.
type Live struct {
	Time    time.Time `json:"time"` // time of writing; if it is old, the launcher was killed
	JobID   string    `json:"job_id,omitempty"`
	Attempt int       `json:"attempt"` // attempt number within its launcher, from 1
	Began   time.Time `json:"began"`   // start of the attempt
	Phase   LivePhase `json:"phase"`
	Detail  string    `json:"detail,omitempty"` // reason for the phase, for messages
	Hosts   string    `json:"hosts"`            // node list, in rank order
	PerNode int       `json:"ranks_per_node"`
	// TasksPerNode has the number of ranks on each host, such as "4,2(x3)", if it is not equal on
	// all hosts. PerNode is then the largest.
	TasksPerNode string `json:"tasks_per_node,omitempty"`
	// Groups has the node list of each component of a heterogeneous job.
	Groups groupLists `json:"groups,omitempty"`

	Ranks  int        `json:"ranks"`
	Joined int        `json:"joined"` // number of ranks that have joined
	Nodes  nodeGroups `json:"nodes"`
}

// maxNodeGroups is the maximum number of groups in live.json. Slurm has at most 65,536 nodes.
const maxNodeGroups = 100_000

// nodeGroups is a list of limited length: another user may own the file.
type nodeGroups []NodeGroup

// UnmarshalJSON decodes an array of at most maxNodeGroups groups.
func (g *nodeGroups) UnmarshalJSON(text []byte) (err error) {
	*g, err = capped.DecodeList[NodeGroup](text, maxNodeGroups)
	return err
}

// maxGroups is Slurm's limit of components of a heterogeneous job.
const maxGroups = 128

// groupLists is a list of limited length: another user may own the file.
type groupLists []string

// UnmarshalJSON decodes an array of at most maxGroups node lists.
func (g *groupLists) UnmarshalJSON(text []byte) (err error) {
	*g, err = capped.DecodeList[string](text, maxGroups)
	return err
}

// A NodeGroup is a set of nodes in the same state. The state of a node is the state of its
// rank that needs most attention: a lost rank takes precedence over a training rank.
type NodeGroup struct {
	State RankState `json:"state"`
	Hosts string    `json:"hosts"` // node list
	Ranks []int     `json:"ranks"` // ranks in this state on these nodes, in order; only the first few of a large group
	Count int       `json:"count"` // number of ranks in this state
	Least int       `json:"least_step"`
	Most  int       `json:"most_step"`
}

// LiveEvery is the interval at which the launcher replaces live.json.
const LiveEvery = 2 * time.Second

// Live returns the path of live.json, the launcher's view of its ranks.
func (d Dir) Live() string { return filepath.Join(d.Path, liveName) }

// WriteLive replaces live.json. It does not sync the file: after a power failure, the launcher
// is gone and the file has no use.
func (d Dir) WriteLive(l Live) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	root, done, err := d.open()
	if err == nil {
		defer done()
		const temp = tempPrefix + "live"
		// A fixed name is safe: the lock allows one launcher only.
		if err = root.WriteFile(temp, append(text, '\n'), 0o600); err == nil {
			err = root.Rename(temp, liveName)
		}
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", d.Live(), err)
	}
	return nil
}

// ReadLive reads live.json. It returns false if the file is missing or invalid.
func (d Dir) ReadLive() (Live, bool) { return readJSON[Live](d, liveName, maxLive) }
