package netif

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
)

// A fakeSysfs is a directory with the structure of /sys.
type fakeSysfs struct {
	t    *testing.T
	root string
}

func newFakeSysfs(t *testing.T) *fakeSysfs { return &fakeSysfs{t: t, root: t.TempDir()} }

func (f *fakeSysfs) write(name, text string) {
	f.t.Helper()
	file := filepath.Join(f.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// link creates a symbolic link to a path below the root.
func (f *fakeSysfs) link(name, to string) {
	f.t.Helper()
	file := filepath.Join(f.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		f.t.Fatal(err)
	}
	rel, err := filepath.Rel(filepath.Dir(file), filepath.Join(f.root, to))
	if err != nil {
		f.t.Fatal(err)
	}
	if err := os.Symlink(rel, file); err != nil {
		f.t.Fatal(err)
	}
}

// nic adds a network interface of a device.
func (f *fakeSysfs) nic(device, name string, index int, driver string) {
	f.t.Helper()
	at := filepath.Join("devices", device, "net", name)
	f.write(filepath.Join(at, "ifindex"), fmt.Sprintf("%d\n", index))
	f.write(filepath.Join(at, "speed"), "200000\n")
	f.link(filepath.Join(at, "device"), filepath.Join("devices", device))
	f.link(filepath.Join("class/net", name), at)
	f.write(filepath.Join("bus/drivers", driver, "bind"), "")
	f.link(filepath.Join("devices", device, "driver"), filepath.Join("bus/drivers", driver))
}

// hca adds an RDMA adapter of a device, with one port.
func (f *fakeSysfs) hca(device, name, layer, state, rate string) string {
	f.t.Helper()
	at := filepath.Join("devices", device, "infiniband", name)
	port := filepath.Join(at, "ports/1")
	f.write(filepath.Join(port, "link_layer"), layer+"\n")
	f.write(filepath.Join(port, "state"), state+"\n")
	f.write(filepath.Join(port, "rate"), rate+"\n")
	f.link(filepath.Join(at, "device"), filepath.Join("devices", device))
	f.link(filepath.Join("class/infiniband", name), at)
	return port
}

func (f *fakeSysfs) gid(port string, index int, addr, kind, link string) {
	f.t.Helper()
	name := strconv.Itoa(index)
	f.write(filepath.Join(port, "gids", name), addr+"\n")
	f.write(filepath.Join(port, "gid_attrs/types", name), kind+"\n")
	if link != "" {
		f.write(filepath.Join(port, "gid_attrs/ndevs", name), link+"\n")
	}
}

// pci adds a device to the PCI bus.
func (f *fakeSysfs) pci(device, class, vendor, numa string) {
	f.t.Helper()
	at := filepath.Join("devices", device)
	f.write(filepath.Join(at, "class"), class+"\n")
	f.write(filepath.Join(at, "vendor"), vendor+"\n")
	if numa != "" {
		f.write(filepath.Join(at, "numa_node"), numa+"\n")
	}
	f.link(filepath.Join("bus/pci/devices", filepath.Base(device)), at)
}

const noGID = "0000:0000:0000:0000:0000:0000:0000:0000"

// TestSysfsHosts checks the adapters, GPUs, and NICs in sysfs on four kinds of hosts.
func TestSysfsHosts(t *testing.T) {
	node := func(n int) *int { return &n }
	tests := []struct {
		name  string
		fill  func(f *fakeSysfs)
		rdma  []RDMADevice
		gpus  []GPU
		links []Link // index, name, and the fields that fill sets
	}{
		{
			name: "InfiniBand with GPUs",
			fill: func(f *fakeSysfs) {
				const nic, gpu = "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0", "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0"
				f.pci(nic, "0x020700", "0x15b3", "1")
				f.nic(nic, "ibp24s0", 4, "mlx5_core")
				port := f.hca(nic, "mlx5_0", "InfiniBand", "4: ACTIVE", "400 Gb/sec (4X NDR)")
				f.gid(port, 0, "fe80:0000:0000:0000:b83f:d203:0011:2233", "IB/RoCE v1", "")
				f.gid(port, 1, noGID, "", "")
				f.pci(gpu, "0x030200", "0x10de", "1")
				f.pci("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1a:00.0", "0x120000", "0x1002", "1")
				f.pci("pci0000:00/0000:00:02.0", "0x030000", "0x1a03", "0") // the display of a BMC
				f.pci("pci0000:15/0000:19:00.1", "0x040300", "0x10de", "1") // the audio device of a GPU
			},
			rdma: []RDMADevice{{Name: "mlx5_0", PCI: "0000:18:00.0", Path: "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0", NUMA: 1, Ports: []RDMAPort{{Number: 1, LinkLayer: "InfiniBand", State: "ACTIVE", Rate: 400000,
				GIDs: []GID{{Addr: addr("fe80::b83f:d203:11:2233"), Type: "IB/RoCE v1"}}}}}},
			gpus: []GPU{
				{PCI: "0000:19:00.0", Path: "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0", NUMA: 1, Vendor: NVIDIA},
				{PCI: "0000:1a:00.0", Path: "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1a:00.0", NUMA: 1, Vendor: AMD},
			},
			links: []Link{{Index: 4, Name: "ibp24s0", Speed: 200000, PCI: "0000:18:00.0", Driver: "mlx5_core", HCA: "mlx5_0", NUMA: node(1),
				Path: "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0"}},
		},
		{
			name: "RoCE, two bonded ports and a single one",
			fill: func(f *fakeSysfs) {
				f.nic("pci0000:3a/0000:3b:00.0", "ens1f0", 2, "mlx5_core")
				f.nic("pci0000:3a/0000:3b:00.1", "ens1f1", 3, "mlx5_core")
				port := f.hca("pci0000:3a/0000:3b:00.0", "mlx5_bond_0", "Ethernet", "4: ACTIVE", "100 Gb/sec (4X EDR)")
				f.gid(port, 0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "IB/RoCE v1", "bond0")
				f.gid(port, 3, "0000:0000:0000:0000:0000:ffff:0a1e:000b", "RoCE v2", "bond0")
				f.gid(port, 10, "0000:0000:0000:0000:0000:ffff:0a1f:000b", "RoCE v2", "bond0.7")
				f.gid(port, 2, noGID, "", "")
				f.write(filepath.Join(port, "gids/.x"), "not a GID\n")
				f.write("devices/pci0000:3a/0000:5b:00.0/numa_node", "-1\n")
				f.hca("pci0000:3a/0000:5b:00.0", "mlx5_2", "Ethernet", "1: DOWN", "2.5 Gb/sec (1X SDR)")
			},
			rdma: []RDMADevice{
				{Name: "mlx5_2", PCI: "0000:5b:00.0", Path: "pci0000:3a/0000:5b:00.0", NUMA: -1, Ports: []RDMAPort{{Number: 1, LinkLayer: "Ethernet", State: "DOWN", Rate: 2500, GIDs: []GID{}}}},
				{Name: "mlx5_bond_0", PCI: "0000:3b:00.0", Path: "pci0000:3a/0000:3b:00.0", NUMA: -1, Ports: []RDMAPort{{Number: 1, LinkLayer: "Ethernet", State: "ACTIVE", Rate: 100000, GIDs: []GID{
					{Index: 0, Addr: addr("fe80::e42:a1ff:fe00:1"), Type: "IB/RoCE v1", Link: "bond0"},
					{Index: 3, Addr: addr("::ffff:10.30.0.11"), Type: "RoCE v2", Link: "bond0"},
					{Index: 10, Addr: addr("::ffff:10.31.0.11"), Type: "RoCE v2", Link: "bond0.7"}}}}},
			},
			links: []Link{
				{Index: 2, Name: "ens1f0", Speed: 200000, PCI: "0000:3b:00.0", Driver: "mlx5_core", HCA: "mlx5_bond_0", Path: "pci0000:3a/0000:3b:00.0"},
				{Index: 3, Name: "ens1f1", Speed: 200000, PCI: "0000:3b:00.1", Driver: "mlx5_core", Path: "pci0000:3a/0000:3b:00.1"},
			},
		},
		{
			name: "Slingshot, which has no verbs",
			fill: func(f *fakeSysfs) {
				f.pci("pci0000:00/0000:01:00.0", "0x020000", "0x17db", "3")
				f.nic("pci0000:00/0000:01:00.0", "hsn0", 3, "cxi_eth")
				f.write("devices/pci0000:00/0000:01:00.0/cxi/cxi0/dev", "250:0\n")
			},
			links: []Link{{Index: 3, Name: "hsn0", Speed: 200000, PCI: "0000:01:00.0", Driver: "cxi_eth", HCA: "cxi0", NUMA: node(3), Path: "pci0000:00/0000:01:00.0"}},
		},
		{
			name: "a plain VM",
			fill: func(f *fakeSysfs) {
				f.pci("pci0000:00/0000:00:03.0", "0x020000", "0x1af4", "0")
				f.nic("pci0000:00/0000:00:03.0/virtio2", "eth0", 2, "virtio_net")
				f.write("devices/pci0000:00/0000:00:03.0/virtio2/net/eth0/speed", "-1\n")
			},
			links: []Link{{Index: 2, Name: "eth0", Speed: -1, PCI: "virtio2", Driver: "virtio_net", NUMA: node(0), Path: "pci0000:00/0000:00:03.0/virtio2"}},
		},
		{name: "no sysfs at all", fill: func(*fakeSysfs) {}, links: []Link{{Index: 2, Name: "eth0", Speed: -1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeSysfs(t)
			tt.fill(f)
			s := sysfs{root: f.root}
			if got := s.rdma(); !reflect.DeepEqual(got, tt.rdma) {
				t.Errorf("RDMA devices\n%+v, want\n%+v", got, tt.rdma)
			}
			if got := s.gpus(); !reflect.DeepEqual(got, tt.gpus) {
				t.Errorf("GPUs\n%+v, want\n%+v", got, tt.gpus)
			}
			for _, want := range tt.links {
				got := Link{Index: want.Index, Name: want.Name, Speed: -1}
				s.fill(&got, nil)
				if !reflect.DeepEqual(got, want) {
					t.Errorf("link\n%+v, want\n%+v", got, want)
				}
			}
			inv := Inventory{RDMA: tt.rdma, GPUs: tt.gpus}
			if err := inv.validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHasOnlyAMD checks which hosts have GPUs of AMD and no others.
func TestHasOnlyAMD(t *testing.T) {
	for _, tt := range []struct {
		name    string
		vendors []string
		want    bool
	}{
		{"no GPU", nil, false},
		{"AMD", []string{AMD, AMD}, true},
		{"both", []string{AMD, NVIDIA}, false},
		{"unknown", []string{""}, false},
	} {
		var inv Inventory
		for _, vendor := range tt.vendors {
			inv.GPUs = append(inv.GPUs, GPU{Vendor: vendor})
		}
		if got := inv.HasOnlyAMD(); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
}

// TestPortRate checks the rate of an InfiniBand port in the text of sysfs.
func TestPortRate(t *testing.T) {
	for text, want := range map[string]int{"400 Gb/sec (4X NDR)": 400000, "2.5 Gb/sec (1X SDR)": 2500, "56 Gb/sec (4X FDR)": 56000, "": -1, "fast": -1, "7 Mb/sec": -1, "-1 Gb/sec": -1} {
		if got := portRate(text); got != want {
			t.Errorf("%q is %d Mb/s, want %d", text, got, want)
		}
	}
}

// TestSysfs checks a NIC with RDMA, a Slingshot NIC, a veth, and a NIC of another namespace, as in
// sysfs.
func TestSysfs(t *testing.T) {
	f := newFakeSysfs(t)
	root, write := f.root, f.write
	link := func(name, to string) {
		t.Helper()
		f.link(name, filepath.Join(filepath.Dir(name), to))
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
