//go:build cuda

package cuda

import "github.com/ddpbatch/ddpbatch/trainer/cuda/driver"

// Discover loads the driver and returns the GPUs that this process may use. The error is a
// *driver.LoadError if there is no driver or no GPU, or a *driver.Error. Discover returns the version
// with an error also, if it is known.
func Discover() (Found, error) {
	version, err := driver.Load()
	found := Found{Version: int(version)}
	if err != nil {
		return found, err
	}
	n, err := driver.Count()
	for i := 0; i < n && err == nil; i++ {
		var d Device
		if d, err = driver.Describe(i); err == nil {
			found.Devices = append(found.Devices, d)
		}
	}
	return found, err
}
