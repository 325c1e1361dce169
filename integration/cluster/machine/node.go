//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// The file in which an agent puts the user data, and containerd's socket.
const (
	userData   = "/opt/nstance-agent/userdata"
	containerd = "/run/containerd/containerd.sock"
)

// kubeletFile and proxyFile have the settings of all nodes.
const (
	kubeletFile = "/etc/kubernetes/kubelet.yaml"
	proxyFile   = "/etc/kubernetes/proxy.yaml"
)

const kubeletSettings = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /etc/kubernetes/ca.crt}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
localStorageCapacityIsolation: false
evictionHard: {nodefs.available: "1%"}
imageGCHighThresholdPercent: 100
clusterDNS: [` + clusterDNS + `]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://` + containerd + `
volumePluginDir: /var/lib/kubelet/plugins
`

const proxySettings = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: ` + podRange + `
clientConnection: {kubeconfig: /var/lib/kubelet/kubeconfig}
conntrack: {maxPerCore: 0, min: 0}
oomScoreAdj: 0
`

const runtimeSettings = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "nstance.local/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/etc/containerd/certs.d"
`

// runtime starts the container runtime, with the images in this image.
func (m *machine) runtime(string, string) error {
	files := map[string][]byte{
		"etc/containerd/config.toml": []byte(runtimeSettings), kubeletFile: []byte(kubeletSettings), proxyFile: []byte(proxySettings),
	}
	if err := mirrors(files); err != nil {
		return err
	}
	if err := write("/", files); err != nil {
		return err
	}
	if err := m.start("containerd", "--config=/etc/containerd/config.toml"); err != nil {
		return err
	}
	err := m.await("containerd answers", func() error { _, err := m.output("ctr", "version"); return err })
	if err != nil {
		return err
	}
	images, err := filepath.Glob(shipped + "/images/*.tar")
	if err != nil {
		return err
	}
	for _, image := range images {
		if _, err := m.output("ctr", "--namespace=k8s.io", "images", "import", image); err != nil {
			return err
		}
	}
	return nil
}

// mirrors configures registry mirrors in k3s's format.
func mirrors(files map[string][]byte) error {
	text, err := os.ReadFile("/etc/rancher/k3s/registries.yaml")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var registries struct {
		Mirrors map[string]struct {
			Endpoint []string `json:"endpoint"`
		} `json:"mirrors"`
	}
	if err := yaml.Unmarshal(text, &registries); err != nil {
		return fmt.Errorf("registries.yaml: %w", err)
	}
	for host, mirror := range registries.Mirrors {
		var hosts bytes.Buffer
		for _, endpoint := range mirror.Endpoint {
			fmt.Fprintf(&hosts, "[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", endpoint)
		}
		files[filepath.Join("etc/containerd/certs.d", host, "hosts.toml")] = hosts.Bytes()
	}
	return nil
}

// ownNode makes the machine of the control plane a node of its cluster.
func (m *machine) ownNode(_, name string) error {
	text, err := os.ReadFile(own)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(settings, "ca.crt"))
	if err != nil {
		return err
	}
	if err := write("/", map[string][]byte{"var/lib/kubelet/kubeconfig": text, "etc/kubernetes/ca.crt": ca}); err != nil {
		return err
	}
	err = m.start("kubelet", "--config="+kubeletFile, "--kubeconfig=/var/lib/kubelet/kubeconfig", "--hostname-override="+name,
		"--cert-dir=/var/lib/kubelet/pki")
	if err != nil {
		return err
	}
	return m.network(name)
}

// node is a machine with an agent that has not joined a cluster yet. Its user data makes it join,
// as on a virtual machine; once the kubelet has a kubeconfig, it is connected to the pods of all
// nodes.
func (m *machine) node() error {
	addr, name, err := address()
	if err != nil {
		return err
	}
	if err := m.runtime(addr, name); err != nil {
		return err
	}
	if err := m.start("nstance-agent"); err != nil {
		return err
	}
	if err := m.start(userData); err != nil {
		return fmt.Errorf("a machine without user data joins nothing: %w", err)
	}
	return m.network(name)
}
