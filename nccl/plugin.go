package nccl

import (
	"strings"
)

const (
	ncclNet       = "NCCL_NET"
	ncclNetPlugin = "NCCL_NET_PLUGIN"
	debugLevel    = "NCCL_DEBUG"
	debugFile     = "NCCL_DEBUG_FILE"
)

// plugin sets the network plugin for a fabric that NCCL does not support itself. HPE's
// Slingshot and Amazon's EFA require aws-ofi-nccl.
func (p *planner) plugin() {
	fabric := p.foreignFabric()
	judge := func(value string) verdict {
		if why := p.Job.WithoutRDMA; why != "" && strings.EqualFold(value, "IB") {
			return wrong("%s: NCCL will stop there", why)
		}
		if fabric != "" && (strings.EqualFold(value, "IB") || strings.EqualFold(value, "Socket")) {
			return wrong("it keeps NCCL off %s, and on TCP", fabric)
		}
		return right("NCCL stops if that network is not there")
	}
	named := p.kept(ncclNet, judge)
	loaded := p.kept(ncclNetPlugin, func(value string) verdict {
		if fabric != "" && value == "none" {
			return wrong("without a plugin NCCL does not use %s, but TCP", fabric)
		}
		return right("NCCL loads that plugin")
	})
	switch {
	case fabric == "" || named:
	case p.Plugin != "":
		p.set(ncclNet, p.Plugin, "%s needs the plugin, and NCCL would fall back to TCP without a word if it failed", fabric)
	case !loaded:
		p.env.note("%s: NCCL uses it by the plugin aws-ofi-nccl (libnccl-net.so) only, and TCP without; where the plugin is in the job's modules or container, %s=\"AWS Libfabric\" makes NCCL stop if it does not load",
			fabric, ncclNet)
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
		if isSlingshot(l) && live(l) {
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

// debug makes NCCL write its log to one file per rank.
func (p *planner) debug() {
	if p.DebugFile == "" {
		return
	}
	level := p.value(debugLevel)
	if !p.kept(debugLevel, func(value string) verdict {
		if strings.EqualFold(value, "VERSION") {
			return right("NCCL writes its version only, and no file")
		}
		return right("how much NCCL writes")
	}) {
		p.set(debugLevel, "WARN", "without a level NCCL writes no file")
	}
	if p.kept(debugFile, func(string) verdict { return right("where NCCL writes") }) {
		return
	}
	if !strings.Contains(p.DebugFile, "%p") {
		p.env.warn("%s=%q has no %%p: ranks of one host overwrite one another's file", debugFile, p.DebugFile)
	}
	if level == "" {
		level = "WARN"
	}
	p.set(debugFile, p.DebugFile, "a file for each rank, at level %s; NCCL puts the host for %%h and the process for %%p", level)
}
