package rundir

import (
	"net/netip"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/netif"
)

// TestNetwork checks that the network decision is read as it was written, and the error for a
// corrupt file.
func TestNetwork(t *testing.T) {
	d := mustCreate(t)
	if n, err := d.ReadNetwork(); n != nil || err != nil {
		t.Errorf("there is one before the first was written: %+v, %v", n, err)
	}
	want := Network{Time: time.Unix(5, 0).UTC(), Choice: netif.Choice{Interface: "hsn0", Addr: netip.MustParseAddr("10.20.0.1"),
		Prefix: netip.MustParsePrefix("10.20.0.0/24"), Why: "fast", Rejected: []netif.Rejection{{Interface: "eth0", Reason: "slow"}}, Warnings: []string{}},
		Hosts: []NetworkHost{{"n1", "hsn0", "10.20.0.1"}}}
	if err := d.WriteNetwork(want); err != nil {
		t.Fatal(err)
	}
	if got, err := d.ReadNetwork(); err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if err := os.WriteFile(d.Network(), []byte(`{"choice": `), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := d.ReadNetwork()
	wants(t, err, "network.json", "")
}
