package driver

// Info describes a GPU.
type Info struct {
	Ordinal    int    `json:"ordinal"` // index among the GPUs visible under CUDA_VISIBLE_DEVICES
	Name       string `json:"name"`
	UUID       string `json:"uuid"`       // as printed by nvidia-smi -L: GPU-..., or MIG-... for a MIG instance
	MIG        bool   `json:"mig"`        // MIG instance (multi-instance GPU)
	Major      int    `json:"major"`      // major compute capability
	Minor      int    `json:"minor"`      // minor compute capability
	Memory     int64  `json:"memory"`     // bytes
	Processors int    `json:"processors"` // streaming multiprocessors
	PCI        string `json:"pci"`        // PCI bus ID, such as 0000:3b:00.0
}
