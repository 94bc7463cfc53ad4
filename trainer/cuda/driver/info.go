package driver

// Info is a GPU as the driver describes it.
type Info struct {
	Ordinal    int    `json:"ordinal"` // among those that CUDA_VISIBLE_DEVICES leaves visible
	Name       string `json:"name"`
	UUID       string `json:"uuid"`       // as nvidia-smi -L writes it: GPU-..., or MIG-... for a part of a GPU
	MIG        bool   `json:"mig"`        // a part of a GPU (multi-instance GPU)
	Major      int    `json:"major"`      // of the compute capability
	Minor      int    `json:"minor"`      // likewise
	Memory     int64  `json:"memory"`     // bytes
	Processors int    `json:"processors"` // streaming multiprocessors
	PCI        string `json:"pci"`        // bus id, such as 0000:3b:00.0
}
