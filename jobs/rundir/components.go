package rundir

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/capped"
)

const (
	// componentsName is the directory with the states of components.
	componentsName = "components"
	// maxComponentBytes is the maximum size of the file of a node, and maxComponents the maximum number
	// of components in it: the directory may belong to another user.
	maxComponentBytes = 256 << 10
	maxComponents     = 1000
	// maxAllComponents is the maximum number of states of all nodes.
	maxAllComponents = 20_000
)

// A ComponentPhase is the state of a component.
type ComponentPhase string

// Phases of a component.
const (
	ComponentStarting   ComponentPhase = "starting"   // not ready yet
	ComponentReady      ComponentPhase = "ready"      // has met its condition
	ComponentRestarting ComponentPhase = "restarting" // has ended, and starts again
	ComponentFailed     ComponentPhase = "failed"     // has ended without a restart left
	ComponentStopped    ComponentPhase = "stopped"    // was stopped after the program
)

// A ComponentState is the state of a component on one node, as its rank has last reported it.
type ComponentState struct {
	Name     string         `json:"name"`
	Attempt  int            `json:"attempt"` // from 1 across all launchers
	Node     int            `json:"node"`    // index of the node in the attempt
	Host     string         `json:"host"`
	Address  string         `json:"address"` // host and port
	Phase    ComponentPhase `json:"phase"`
	Restarts int            `json:"restarts"`
	Time     time.Time      `json:"time"`             // of the last change
	Reason   string         `json:"reason,omitempty"` // of the last failure
}

// componentStates is a list of limited length.
type componentStates []ComponentState

// UnmarshalJSON decodes an array of at most maxComponents states.
func (s *componentStates) UnmarshalJSON(text []byte) (err error) {
	*s, err = capped.DecodeList[ComponentState](text, maxComponents)
	return err
}

// WriteComponents replaces the states of the components of a node in an attempt, without a sync.
func (d Dir) WriteComponents(attempt, node int, states []ComponentState) error {
	text, err := json.Marshal(states)
	if err == nil {
		err = d.writeNodeFile(componentsName, attempt, node, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", filepath.Join(d.Path, componentsName, nodeFile(attempt, node)), err)
	}
	return nil
}

// ReadComponents returns the states of the components in the newest attempt that has any, at most
// 20,000. It skips files that it cannot read.
func (d Dir) ReadComponents() ([]ComponentState, error) {
	files, err := d.readNodeFiles(componentsName, maxComponentBytes)
	if err != nil {
		return nil, fmt.Errorf("list the states of components: %w", err)
	}
	var all []ComponentState
	for _, text := range files {
		var states componentStates
		if json.Unmarshal(text, &states) == nil {
			all = append(all, states...)
		}
		if len(all) >= maxAllComponents {
			return all[:maxAllComponents], nil
		}
	}
	return all, nil
}
