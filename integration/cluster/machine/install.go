//go:build linux

package main

import "path/filepath"

// install applies the manifests of this image, and those from testcontainers' k3s module.
func (m *machine) install() error {
	ours, err := filepath.Glob(shipped + "/manifests/*.yaml")
	if err != nil {
		return err
	}
	theirs, err := filepath.Glob(k3sManifests + "/*.yaml")
	if err != nil {
		return err
	}
	for _, file := range append(ours, theirs...) {
		if _, err := m.output("kubectl", "--kubeconfig", admin, "apply", "--server-side", "--force-conflicts", "-f", file); err != nil {
			return err
		}
	}
	return nil
}
