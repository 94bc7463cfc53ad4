package nccl

import (
	"fmt"
	"net/netip"

	"github.com/ddpbatch/ddpbatch/netif"
)

// A hostBuilder builds an inventory.
type hostBuilder struct{ netif.Inventory }

func newHost(name string) *hostBuilder { return &hostBuilder{netif.Inventory{Host: name}} }

func (h *hostBuilder) link(l netif.Link, addrs ...string) *hostBuilder {
	l.Index = len(h.Links) + 1
	if l.ARPHRD == "" {
		l.ARPHRD = "ether"
	}
	if l.Oper == "" {
		l.Oper, l.Flags = "up", netif.Up|netif.Running|netif.LowerUp
	}
	for _, a := range addrs {
		l.Addrs = append(l.Addrs, netip.MustParsePrefix(a))
	}
	h.Links = append(h.Links, l)
	return h
}

func (h *hostBuilder) adapter(name, pci, layer, state string, rate int, gids ...netif.GID) *hostBuilder {
	h.RDMA = append(h.RDMA, netif.RDMADevice{Name: name, PCI: pci, NUMA: -1,
		Ports: []netif.RDMAPort{{Number: 1, LinkLayer: layer, State: state, Rate: rate, GIDs: gids}}})
	return h
}

func (h *hostBuilder) gpu(pci, path string, numa int) *hostBuilder {
	h.GPUs = append(h.GPUs, netif.GPU{PCI: pci, Path: path, NUMA: numa})
	return h
}

func gid(index int, addr, kind, link string) netif.GID {
	return netif.GID{Index: index, Addr: netip.MustParseAddr(addr), Type: kind, Link: link}
}

func (h *hostBuilder) choose(name string) netif.Choice {
	for _, l := range h.Links {
		if l.Name == name {
			c := netif.Choice{Interface: name, Addr: l.Addrs[0].Addr(), Prefix: l.Addrs[0].Masked(), Family: netif.IPv4, Why: "reaches all hosts"}
			if c.Addr.Is6() {
				c.Family = netif.IPv6
			}
			return c
		}
	}
	panic(name)
}

// dgx has eight InfiniBand ports, each below the switch of a GPU, and more adapters for
// storage and management.
func dgx(name string) *hostBuilder {
	h := newHost(name).link(netif.Link{Name: "eno3", Speed: 10000, PCI: "0000:0b:00.0"}, "10.0.8.31/24")
	for i, device := range []string{"mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"} {
		bus := 0x18 + 16*i
		root := fmt.Sprintf("pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0", bus-8, bus-8, bus-2)
		pci := fmt.Sprintf("0000:%02x:00.0", bus)
		gpu := fmt.Sprintf("0000:%02x:00.0", bus+1)
		node := i / 4
		h.link(netif.Link{Name: fmt.Sprintf("ib%d", i), ARPHRD: "infiniband", Speed: 400000, PCI: pci, HCA: device, NUMA: &node,
			Path: fmt.Sprintf("%s/0000:%02x:00.0/%s", root, bus-1, pci)})
		h.adapter(device, pci, infiniBand, "ACTIVE", 400000, gid(0, "fe80::506b:4b03:1:"+fmt.Sprint(i), "IB/RoCE v1", ""))
		h.gpu(gpu, fmt.Sprintf("%s/0000:%02x:01.0/%s", root, bus-1, gpu), node)
	}
	h.link(netif.Link{Name: "enp41s0f0np0", Speed: 200000, PCI: "0000:29:00.0", HCA: "mlx5_1", Path: "pci0000:28/0000:28:01.0/0000:29:00.0"}, "10.5.0.31/24")
	h.adapter("mlx5_1", "0000:29:00.0", ethernet, "ACTIVE", 200000, gid(3, "::ffff:10.5.0.31", roceV2, "enp41s0f0np0"))
	h.adapter("mlx5_7", "0000:aa:00.0", infiniBand, "DOWN", 400000)
	h.link(netif.Link{Name: "ibs9", ARPHRD: "infiniband", Speed: 400000, PCI: "0000:ab:00.0", HCA: "mlx5_12", Path: "pci0000:a9/0000:a9:01.0/0000:ab:00.0"})
	h.adapter("mlx5_12", "0000:ab:00.0", infiniBand, "ACTIVE", 400000, gid(0, "fe80::506b:4b03:2:1", "IB/RoCE v1", ""))
	return h
}

// roce has rails of 400 Gb/s. Their GIDs are the kernel's defaults: link-local and IPv4, each
// for RoCE v1 and v2.
func roce(name string, last int, subnets ...int) *hostBuilder {
	h := newHost(name).link(netif.Link{Name: "bond0", Kind: "bond", Speed: 50000}, fmt.Sprintf("172.16.0.%d/24", last))
	for i, subnet := range subnets {
		link, device, pci := fmt.Sprintf("eth%d", i), fmt.Sprintf("mlx5_%d", i), fmt.Sprintf("0000:%02x:00.0", 0x1b+8*i)
		addr := fmt.Sprintf("29.%d.4.%d", subnet, last)
		h.link(netif.Link{Name: link, Speed: 400000, PCI: pci, HCA: device}, addr+"/24")
		local := fmt.Sprintf("fe80::a:%d", i)
		h.adapter(device, pci, ethernet, "ACTIVE", 400000, gid(0, local, roceV1, link), gid(1, local, roceV2, link),
			gid(2, "::ffff:"+addr, roceV1, link), gid(3, "::ffff:"+addr, roceV2, link))
		h.Routes = append(h.Routes, netif.Route{Dst: netip.MustParsePrefix(fmt.Sprintf("29.%d.0.0/16", subnet)), Dev: link,
			Via: netip.MustParseAddr(fmt.Sprintf("29.%d.4.254", subnet))})
	}
	return h
}

// plainHost returns a host without fast adapters.
func plainHost(name string, last int) *hostBuilder {
	return newHost(name).link(netif.Link{Name: "eth0", Speed: 25000, PCI: "0000:01:00.0"}, fmt.Sprintf("172.16.0.%d/24", last))
}

func slingshot() *hostBuilder {
	h := newHost("nid1").link(netif.Link{Name: "nmn0", Speed: 1000}, "10.100.8.12/22")
	for i := range 4 {
		h.link(netif.Link{Name: fmt.Sprintf("hsn%d", i), Speed: 200000, PCI: fmt.Sprintf("000%d:01:00.0", i), Driver: "cxi_ss1", HCA: fmt.Sprintf("cxi%d", i)},
			fmt.Sprintf("10.253.%d.12/16", i))
	}
	return h
}

func efa() *hostBuilder {
	h := newHost("ip-10-1-46-161").link(netif.Link{Name: "enp71s0", Speed: 100000, PCI: "0000:47:00.0", Driver: "ena"}, "10.1.46.161/17")
	return h.adapter("rdmap79s0", "0000:4f:00.0", "Unknown", "ACTIVE", 100000, gid(0, "fe80::8a:1", "", ""))
}
