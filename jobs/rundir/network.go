package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/capped"
	"github.com/ddpbatch/ddpbatch/netif"
)

// maxNetwork is the maximum size of network.json in bytes. Ten thousand hosts need 1 MB.
const maxNetwork = 8 << 20

// A Network is the network that the ranks of the last attempt agreed on, stored in network.json.
type Network struct {
	Time   time.Time    `json:"time"`
	Choice netif.Choice `json:"choice"` // choice on the first host, with the reasons for and against each interface
	Hosts  networkHosts `json:"hosts"`
}

// maxNetworkHosts is the maximum number of hosts in network.json. Slurm has at most 65,536 nodes.
const maxNetworkHosts = 100_000

// networkHosts is a list of limited length: another user may own the file.
type networkHosts []NetworkHost

// UnmarshalJSON decodes an array of at most maxNetworkHosts hosts.
func (h *networkHosts) UnmarshalJSON(text []byte) (err error) {
	*h, err = capped.DecodeList[NetworkHost](text, maxNetworkHosts)
	return err
}

// A NetworkHost is the interface and address of one host.
type NetworkHost struct {
	Host      string `json:"host"`
	Interface string `json:"interface"`
	Address   string `json:"address"`
}

// Network returns the path of network.json, the network of the last attempt.
func (d Dir) Network() string { return filepath.Join(d.Path, networkName) }

// WriteNetwork replaces network.json.
func (d Dir) WriteNetwork(n Network) error { return d.writeJSON(networkName, n) }

// ReadNetwork reads network.json. It returns nil if the file does not exist.
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
