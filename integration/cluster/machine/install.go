package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
)

// install applies what this image ships, and what testcontainers' k3s module was told to.
func (m *machine) install() error {
	webhooks := map[string]string{}
	for placeholder, file := range map[string]string{
		"CLUSTER_CA": "ca.crt", "WEBHOOKS_CERTIFICATE": "capi-webhooks.crt", "WEBHOOKS_KEY": "capi-webhooks.key",
	} {
		text, err := os.ReadFile(filepath.Join(settings, file))
		if err != nil {
			return err
		}
		webhooks[placeholder] = base64.StdEncoding.EncodeToString(text)
	}
	ours, err := filepath.Glob(shipped + "/manifests/*.yaml")
	if err != nil {
		return err
	}
	theirs, err := filepath.Glob(k3sManifests + "/*.yaml")
	if err != nil {
		return err
	}
	for _, file := range append(ours, theirs...) {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		filled := string(text)
		for placeholder, value := range webhooks {
			filled = strings.ReplaceAll(filled, "${"+placeholder+"}", value)
		}
		whole := filepath.Join(settings, "manifests", filepath.Base(file))
		if err := write("/", map[string][]byte{whole: []byte(filled)}); err != nil {
			return err
		}
		if _, err := m.output("kubectl", "--kubeconfig", admin, "apply", "--server-side", "--force-conflicts", "-f", whole); err != nil {
			return err
		}
	}
	return nil
}
