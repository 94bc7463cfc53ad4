package netif

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
)

// A Case is an inventory with the addresses that the host must reach. It is enough to
// reproduce a choice on a different machine. "ddpbatch netif --dump" writes a Case.
type Case struct {
	ID     string `json:"id"`               // name for messages; may be empty
	Source string `json:"source,omitempty"` // origin, for human readers
	Inventory
	Peers    []netip.Addr `json:"peers"`               // addresses of other hosts
	Settings []Setting    `json:"nccl_conf,omitempty"` // from this host's NCCL configuration files, in order of precedence

	// Expected results of a collection of cases. The choice must not depend on them.
	Want    json.RawMessage `json:"want,omitempty"`
	Warn    json.RawMessage `json:"warn,omitempty"`
	Note    json.RawMessage `json:"note,omitempty"`
	Default json.RawMessage `json:"nccl_default,omitempty"`
}

// A Setting is a line of a configuration file. This package stores settings but does not
// interpret them.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	File  string `json:"file"`
	Line  int    `json:"line"`
}

// maxCasesBytes is far above the size of any real collection.
const maxCasesBytes = 64 << 20

// ReadCases reads one case or a list of cases and applies the rules of [ReadInventory] to
// each. A plain inventory is a case without peers. Errors name the case. The second result
// reports whether the input was a list.
func ReadCases(r io.Reader) ([]Case, bool, error) {
	data, err := readLimited(r, maxCasesBytes)
	if err != nil {
		return nil, false, fmt.Errorf("reading network inventory: %w", err)
	}
	isList := bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("["))
	cases := make([]Case, 1)
	if isList {
		err = decode(data, &cases)
	} else {
		err = decode(data, &cases[0])
	}
	if err != nil {
		return nil, isList, fmt.Errorf("reading network inventory: %w", err)
	}
	seen := make(map[string]bool, len(cases))
	for i := range cases {
		c := &cases[i]
		if err := c.validate(seen); err != nil {
			if isList {
				return nil, isList, fmt.Errorf("reading network inventory: case %d (%q): %w", i, c.ID, err)
			}
			return nil, isList, fmt.Errorf("reading network inventory: %w", err)
		}
	}
	return cases, isList, nil
}

func (c *Case) validate(seen map[string]bool) error {
	if c.ID != "" && seen[c.ID] {
		return fmt.Errorf("its id is that of an earlier one")
	}
	seen[c.ID] = true
	if err := checkWord(c.ID, maxHost); err != nil {
		return fmt.Errorf("id: %w", err)
	}
	for _, p := range c.Peers {
		if !p.IsValid() {
			return fmt.Errorf("a peer has no address")
		}
	}
	return c.Inventory.validate()
}
