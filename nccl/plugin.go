package nccl

import (
	"cmp"
	"strings"
)

const (
	ncclNet       = "NCCL_NET"
	ncclNetPlugin = "NCCL_NET_PLUGIN"
	debugLevel    = "NCCL_DEBUG"
	debugFile     = "NCCL_DEBUG_FILE"
)

// setPlugin sets the network plugin for a fabric that NCCL does not support itself. HPE's
// Slingshot and Amazon's EFA require aws-ofi-nccl.
func (p *planner) setPlugin() {
	fabric := p.foreignFabric()
	assess := func(value string) assessment {
		if why := p.Job.WithoutRDMA; why != "" && strings.EqualFold(value, "IB") {
			return reject("%s: NCCL stops on that host", why)
		}
		if fabric != "" && (strings.EqualFold(value, "IB") || strings.EqualFold(value, "Socket")) {
			return reject("NCCL then uses TCP instead of %s", fabric)
		}
		return accept("NCCL stops if this network is not available")
	}
	named := p.keepExisting(ncclNet, assess)
	loaded := p.keepExisting(ncclNetPlugin, func(value string) assessment { return p.assessPlugins(value, fabric) })
	switch {
	case fabric == "" || named:
	case p.Plugin != "":
		p.add(ncclNet, p.Plugin, "%s requires the plugin; without this variable, NCCL silently uses TCP if the plugin fails", fabric)
	case !loaded:
		library, plugin := "NCCL", "aws-ofi-nccl (libnccl-net.so)"
		if p.Inventory.HasOnlyAMD() {
			// RCCL reads the same variables as NCCL.
			library, plugin = "RCCL", "aws-ofi-rccl or aws-ofi-nccl (librccl-net.so or libnccl-net.so)"
		}
		p.env.note("%s requires the plugin %s; without it, %s uses TCP. If the job's modules or container provide the plugin, %s=\"AWS Libfabric\" makes %s stop if the plugin does not load",
			fabric, plugin, library, ncclNet, library)
	}
}

// foreignFabric returns the name of a fast network that is neither InfiniBand nor RoCE. It
// returns "" if there is no such network or if NCCL has usable RDMA ports.
func (p *planner) foreignFabric() string {
	if len(p.rails) > 0 {
		return ""
	}
	ena := false
	for i := range p.Inventory.Links {
		l := &p.Inventory.Links[i]
		if isSlingshot(l) && isUp(l) {
			return "Slingshot"
		}
		ena = ena || l.Driver == "ena"
	}
	for _, r := range ports(&p.Inventory) {
		if ena && r.layer != infiniBand && r.layer != ethernet {
			return "EFA"
		}
	}
	return ""
}

// setDebug makes NCCL write its log to one file per rank.
func (p *planner) setDebug() {
	if p.DebugFile == "" {
		return
	}
	level := p.existingValue(debugLevel)
	if !p.keepExisting(debugLevel, func(value string) assessment {
		if strings.EqualFold(value, "VERSION") {
			return accept("NCCL prints only its version and writes no file")
		}
		return accept("the level of NCCL's log")
	}) {
		p.add(debugLevel, "WARN", "NCCL writes no file without a level")
	}
	if p.keepExisting(debugFile, func(string) assessment { return accept("the file of NCCL's log") }) {
		return
	}
	if !strings.Contains(p.DebugFile, "%p") {
		p.env.warn("%s=%q does not contain %%p: ranks of one host overwrite each other's file", debugFile, p.DebugFile)
	}
	p.add(debugFile, p.DebugFile, "one file per rank, at level %s; %%h is the host and %%p the process", cmp.Or(level, "WARN"))
}
