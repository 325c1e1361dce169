//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// routesEvery is the interval at which the nodes are listed.
const routesEvery = 2 * time.Second

// network connects the pods of all nodes: a bridge for this node's pods, and a route to each other
// node; all nodes are on one network. It starts once the kubelet has a kubeconfig.
func (m *machine) network(name string) error {
	m.running.Go(func() {
		proxied := false
		for {
			if err := m.routes(name); err == nil && !proxied {
				proxied = true
				if err := m.start("kube-proxy", "--config="+proxyFile, "--hostname-override="+name); err != nil {
					m.cancel(err)
				}
			}
			select {
			case <-m.ctx.Done():
				return
			case <-time.After(routesEvery):
			}
		}
	})
	return nil
}

// nodes is a list of nodes.
type nodes struct {
	Items []struct {
		Metadata struct{ Name string }
		Spec     struct{ PodCIDR string }
		Status   struct {
			Addresses []struct{ Type, Address string }
		}
	}
}

func (m *machine) routes(name string) error {
	const kubeconfig = "/var/lib/kubelet/kubeconfig"
	if _, err := os.Stat(kubeconfig); err != nil {
		return err
	}
	out, err := m.output("kubectl", "--kubeconfig", kubeconfig, "get", "nodes", "-o", "json")
	if err != nil {
		return err
	}
	var all nodes
	if err := json.Unmarshal(out, &all); err != nil {
		return err
	}
	found := errors.New("this node has no range of pods' addresses yet")
	for _, node := range all.Items {
		if node.Spec.PodCIDR == "" {
			continue
		}
		if node.Metadata.Name == name {
			found = bridge(node.Spec.PodCIDR)
			continue
		}
		for _, addr := range node.Status.Addresses {
			if addr.Type == "InternalIP" {
				if _, err := m.output("ip", "route", "replace", node.Spec.PodCIDR, "via", addr.Address); err != nil {
					return err
				}
			}
		}
	}
	return found
}

const bridgeFile = "/etc/cni/net.d/10-bridge.conflist"

// bridge creates the network of this node's pods, which makes the node ready.
func bridge(podCIDR string) error {
	if _, err := os.Stat(bridgeFile); err == nil {
		return nil
	}
	return os.WriteFile(bridgeFile, fmt.Appendf(nil, `{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`, podCIDR), 0o644)
}
