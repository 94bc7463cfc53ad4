package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/ddpbatch/ddpbatch/netif"
)

// maxNetwork bounds network.json: ten thousand hosts have 1 MB.
const maxNetwork = 8 << 20

// Network is what the ranks of the last attempt agreed on: network.json.
type Network struct {
	Time   time.Time     `json:"time"`
	Choice netif.Choice  `json:"choice"` // on the first host, with why, and why no other interface
	Hosts  []NetworkHost `json:"hosts"`
}

// NetworkHost is one host's place in it.
type NetworkHost struct {
	Host      string `json:"host"`
	Interface string `json:"interface"`
	Address   string `json:"address"`
}

// Network is the file that says which network ranks agreed on, and why.
func (d Dir) Network() string { return filepath.Join(d.Path, networkName) }

// WriteNetwork replaces network.json.
func (d Dir) WriteNetwork(n Network) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return d.write(networkName, append(text, '\n'))
}

// ReadNetwork reads network.json; nil where there is none.
func (d Dir) ReadNetwork() (*Network, error) {
	text, err := d.readFile(networkName, maxNetwork)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var n Network
	if err == nil {
		err = json.Unmarshal(text, &n)
	}
	if err != nil {
		return nil, fmt.Errorf("read the network from %q: %w", d.Network(), err)
	}
	return &n, nil
}
