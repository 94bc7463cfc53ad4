package netif

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// A NIC with RDMA, one of Slingshot, a veth, and one of another namespace, as
// sysfs shows them.
func TestSysfs(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(name, to string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, file); err != nil {
			t.Fatal(err)
		}
	}
	write("devices/pci0000:3a/0000:3b:00.0/net/ib0/ifindex", "3\n")
	write("devices/pci0000:3a/0000:3b:00.0/net/ib0/speed", "200000\n")
	write("devices/pci0000:3a/0000:3b:00.0/infiniband/mlx5_0/node_type", "1: CA\n")
	link("devices/pci0000:3a/0000:3b:00.0/driver", "../../../bus/pci/drivers/mlx5_core")
	link("devices/pci0000:3a/0000:3b:00.0/net/ib0/device", "../../../0000:3b:00.0")
	link("class/net/ib0", "../../devices/pci0000:3a/0000:3b:00.0/net/ib0")

	write("devices/pci0000:00/0000:01:00.0/net/hsn0/ifindex", "4\n")
	write("devices/pci0000:00/0000:01:00.0/net/hsn0/address", "02:00:00:00:00:01\n")
	write("devices/pci0000:00/0000:01:00.0/net/hsn0/speed", "-1\n")
	write("devices/pci0000:00/0000:01:00.0/cxi/cxi0/dev", "250:0\n")
	link("devices/pci0000:00/0000:01:00.0/driver", "../../../bus/pci/drivers/cxi_eth")
	link("devices/pci0000:00/0000:01:00.0/net/hsn0/device", "../../../0000:01:00.0")
	link("class/net/hsn0", "../../devices/pci0000:00/0000:01:00.0/net/hsn0")

	write("devices/virtual/net/veth0/ifindex", "5\n")
	write("devices/virtual/net/veth0/speed", "10000\n")
	link("class/net/veth0", "../../devices/virtual/net/veth0")

	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	tests := []struct {
		name string
		in   Link
		mac  net.HardwareAddr
		want Link
	}{
		{"InfiniBand", Link{Name: "ib0", Index: 3}, nil, Link{Name: "ib0", Index: 3, Speed: 200000, PCI: "0000:3b:00.0", Driver: "mlx5_core", HCA: "mlx5_0"}},
		{"Slingshot, bus address known", Link{Name: "hsn0", Index: 4, Speed: -1, PCI: "kernel's"}, mac, Link{Name: "hsn0", Index: 4, Speed: -1, PCI: "kernel's", Driver: "cxi_eth", HCA: "cxi0"}},
		{"virtual", Link{Name: "veth0", Index: 5}, mac, Link{Name: "veth0", Index: 5, Speed: 10000}},
		{"same name, other index", Link{Name: "ib0", Index: 30}, nil, Link{Name: "ib0", Index: 30}},
		{"same name and index, other address", Link{Name: "hsn0", Index: 4}, net.HardwareAddr{2, 0, 0, 0, 0, 9}, Link{Name: "hsn0", Index: 4}},
		{"not shown", Link{Name: "eth7", Index: 7}, mac, Link{Name: "eth7", Index: 7}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.in
			sysfs{root: root}.fill(&got, tt.mac)
			if got.Speed != tt.want.Speed || got.PCI != tt.want.PCI || got.Driver != tt.want.Driver || got.HCA != tt.want.HCA {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
