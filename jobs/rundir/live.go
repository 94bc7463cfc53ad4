package rundir

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"
)

// maxLive bounds live.json: the hosts of many thousand nodes fit.
const maxLive = 4 << 20

// The phases of a launcher.
const (
	PhaseJoining    = "joining"    // ranks have been started, and not all have come
	PhaseRunning    = "running"    // all ranks are there
	PhaseStopping   = "stopping"   // they were asked to save and stop
	PhaseRestarting = "restarting" // an attempt has failed, the next one is about to begin
	PhaseOver       = "over"       // no rank is left; ended.json says how
)

// Live is how the launcher sees its ranks while they run: live.json, which it replaces
// every [LiveEvery], and sooner when a node's state changes. Ranks that srun started without a launcher have none.
type Live struct {
	Time    time.Time   `json:"time"` // when it was written: an old one is of a launcher that was killed
	JobID   string      `json:"job_id,omitempty"`
	Attempt int         `json:"attempt"` // counted from 1
	Began   time.Time   `json:"began"`   // the attempt
	Phase   string      `json:"phase"`
	Detail  string      `json:"detail,omitempty"` // why, for people
	Hosts   string      `json:"hosts"`            // a host list, in the order of ranks
	PerNode int         `json:"ranks_per_node"`
	Ranks   int         `json:"ranks"`
	Joined  int         `json:"joined"` // how many have come
	Nodes   []NodeGroup `json:"nodes"`
}

// NodeGroup is the nodes in one state, which is that of the rank of a node that needs
// most attention: one that is lost before one that trains.
type NodeGroup struct {
	// State is joining, lost, failed, ended (as told after a failure) or done, or what
	// the ranks are at: loading, training, evaluating, saving; running where they do
	// not tell, as a user's program does not.
	State string `json:"state"`
	Hosts string `json:"hosts"` // a host list
	Ranks []int  `json:"ranks"` // those in this state on these nodes, in order; the first few of many
	Count int    `json:"count"` // how many there are
	Least int    `json:"least_step"`
	Most  int    `json:"most_step"`
}

// LiveEvery is how often live.json is replaced.
const LiveEvery = 2 * time.Second

// Live is the file that says how the launcher sees its ranks.
func (d Dir) Live() string { return filepath.Join(d.Path, liveName) }

// WriteLive replaces live.json. Unlike what must not be lost it is not synced: after a
// power failure there is no launcher that it could tell of.
func (d Dir) WriteLive(l Live) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	root, done, err := d.open()
	if err == nil {
		defer done()
		const temp = tempPrefix + "live"
		// The directory is locked: there is one launcher.
		if err = root.WriteFile(temp, append(text, '\n'), 0o600); err == nil {
			err = root.Rename(temp, liveName)
		}
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", d.Live(), err)
	}
	return nil
}

// ReadLive reads live.json; false where there is none that can be read.
func (d Dir) ReadLive() (Live, bool) {
	text, err := d.readFile(liveName, maxLive)
	var l Live
	if err != nil || json.Unmarshal(text, &l) != nil {
		return Live{}, false
	}
	return l, true
}
