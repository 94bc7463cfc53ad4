package nccl

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Variables that select what NCCL's bootstrap, topology detection, and health service use (NCCL
// User Guide 2.30, "Environment Variables"). This package does not set them. It checks the
// values of other sources.
const (
	oobEnable     = "NCCL_OOB_NET_ENABLE"
	oobInterface  = "NCCL_OOB_NET_IFNAME"
	topologyFile  = "NCCL_TOPO_FILE"
	rasEnable     = "NCCL_RAS_ENABLE"
	rasAddress    = "NCCL_RAS_ADDR"
	rasTimeout    = "NCCL_RAS_TIMEOUT_FACTOR"
	pluginListNew = 22700 // first version in which NCCL_NET_PLUGIN may be a list (src/plugin/net.cc)
)

// firstVersions are the first versions of NCCL that read a variable.
var firstVersions = map[string]int{
	oobEnable: 22300, oobInterface: 22300,
	rasEnable: 22400, rasAddress: 22400, rasTimeout: 22400,
}

// checkRecent lists the variables above that another source has set.
func (p *planner) checkRecent() {
	for _, c := range []struct {
		name   string
		assess func(value string) assessment
	}{
		{oobEnable, p.assessOOB},
		{oobInterface, p.assessOOBInterface},
		{topologyFile, p.assessTopologyFile},
		{rasEnable, func(value string) assessment {
			if value == "0" {
				return accept("ncclras cannot query this job")
			}
			return accept("ncclras can query this job")
		}},
		{rasAddress, assessRASAddress},
		{rasTimeout, func(string) assessment { return accept("the timeouts of NCCL's RAS service are multiplied by it") }},
	} {
		p.keepExisting(c.name, func(value string) assessment {
			if first := firstVersions[c.name]; p.Version != 0 && p.Version < first {
				return reject("NCCL %s ignores it: it requires %s", versionText(p.Version), versionText(first))
			}
			return c.assess(value)
		})
	}
}

func (p *planner) assessOOB(value string) assessment {
	if value == "0" {
		return accept("NCCL connects over %s when it starts, which is the default", ncclInterface)
	}
	return accept("NCCL connects over the network of its data when it starts")
}

// assessOOBInterface checks the devices of NCCL's out-of-band network. Their names are the names
// on the network that carries the data: RDMA adapters, interfaces, or the devices of a plugin.
func (p *planner) assessOOBInterface(value string) assessment {
	if enabled := p.existingValue(oobEnable); enabled == "" || enabled == "0" {
		return reject("NCCL ignores it without %s=1", oobEnable)
	}
	net := p.existingValue(ncclNet)
	allowed := parseList(value, maxPorts)
	switch {
	case strings.EqualFold(net, "Socket"):
		if !allowed.allows(p.Choice.Interface, anyPort) {
			return reject("it does not allow the interface %s, which was chosen: %s", p.Choice.Interface, p.Choice.Why)
		}
		return accept("it allows the interface %s", p.Choice.Interface)
	case len(p.rails) > 0 && (net == "" || strings.EqualFold(net, "IB")):
		for i := range p.rails {
			if r := &p.rails[i]; allowed.allows(r.device, r.port) {
				return accept("it allows the adapter %s", r)
			}
		}
		return reject("it allows none of the adapters on the chosen network, such as %s", &p.rails[0])
	}
	return accept("devices of NCCL's network for its first messages")
}

// assessTopologyFile checks that the file exists on this host.
func (p *planner) assessTopologyFile(value string) assessment {
	if p.FileExists != nil && filepath.IsAbs(value) && !p.FileExists(value) {
		return reject("this host does not have the file: NCCL detects the topology itself, which fails in some virtual machines")
	}
	return accept("NCCL reads the topology of the host from this file")
}

// assessPlugins checks the value of NCCL_NET_PLUGIN, which may be a list since NCCL 2.27.
// fabric is a network that requires a plugin, or "".
func (p *planner) assessPlugins(value, fabric string) assessment {
	names := slices.DeleteFunc(strings.Split(value, ","), func(name string) bool { return name == "" })
	switch {
	case fabric != "" && strings.EqualFold(value, "none"):
		return reject("without a plugin, NCCL uses TCP instead of %s", fabric)
	case len(names) < 2:
		return accept("NCCL loads this plugin")
	case p.Version != 0 && p.Version < pluginListNew:
		return reject("NCCL %s takes the list for the name of one plugin: lists require %s", versionText(p.Version), versionText(pluginListNew))
	case slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, "none") }):
		return reject("in a list, NCCL takes none for the name of a plugin")
	}
	return accept("NCCL uses the first of these plugins that works; before %s, it takes the list for one name", versionText(pluginListNew))
}

// assessRASAddress checks whether other hosts can connect to NCCL's RAS service, which accepts
// queries from every client.
func assessRASAddress(value string) assessment {
	host := value
	if i := strings.LastIndexByte(value, ':'); i >= 0 {
		host = value[:i]
	}
	host = strings.Trim(host, "[]")
	addr, err := netip.ParseAddr(host)
	if host == "localhost" || err == nil && addr.IsLoopback() {
		return accept("ncclras on this host connects to this address")
	}
	return accept("everyone who can reach this address can query the job with ncclras")
}

// FileExists reports whether a path exists on this host. It returns true if this cannot be determined.
func FileExists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
