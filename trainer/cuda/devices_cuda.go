//go:build cuda

package cuda

import (
	"fmt"

	"gorgonia.org/cu"
)

// Devices returns the GPUs of this machine, in the driver's order.
func Devices() ([]Device, error) {
	n, err := cu.NumDevices()
	if err != nil {
		return nil, fmt.Errorf("count GPUs: %w", err)
	}
	devices := make([]Device, n)
	for i := range devices {
		if devices[i], err = describe(i); err != nil {
			return nil, fmt.Errorf("describe GPU %d: %w", i, err)
		}
	}
	return devices, nil
}

func describe(i int) (Device, error) {
	var d Device
	handle, err := cu.GetDevice(i)
	if err != nil {
		return d, err
	}
	if d.Name, err = handle.Name(); err != nil {
		return d, err
	}
	if d.Major, d.Minor, err = handle.ComputeCapability(); err != nil {
		return d, err
	}
	d.Memory, err = handle.TotalMem()
	return d, err
}
