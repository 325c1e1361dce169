//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	settings = "/var/lib/cluster" // of this cluster
	shipped  = "/usr/share/cluster"
	admin    = settings + "/admin.kubeconfig"
	own      = settings + "/kubelet.kubeconfig"

	podRange     = "10.42.0.0/16"
	serviceRange = "10.43.0.0/16"
	apiService   = "10.43.0.1"
	clusterDNS   = "10.43.0.10"
)

// The folders and files that testcontainers' k3s module uses.
const (
	k3sKubeconfig = "/etc/rancher/k3s/k3s.yaml"
	k3sManifests  = "/var/lib/rancher/k3s/server/manifests"
	k3sReady      = "Node controller sync successful"
)

// server is a whole cluster on one machine.
func (m *machine) server() error {
	addr, name, err := address()
	if err != nil {
		return err
	}
	if err := plans(addr, name); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	for _, begin := range []func(addr, name string) error{m.storage, m.apiServer, m.controllers, m.runtime, m.ownNode} {
		if err := begin(addr, name); err != nil {
			return err
		}
	}
	if err := m.install(); err != nil {
		return err
	}
	err = m.await("the node is ready", func() error {
		out, err := m.output("kubectl", "--kubeconfig", admin, "get", "node", name,
			"-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err == nil && string(out) != "True" {
			err = fmt.Errorf("ready: %q", out)
		}
		return err
	})
	if err != nil {
		return err
	}
	fmt.Println(k3sReady)
	return nil
}

// plans writes the certificates and kubeconfigs of all parts. The API server's certificate has its
// addresses and the names of --tls-san.
func plans(addr, name string) error {
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	names := []string{addr, name, "127.0.0.1", "localhost", apiService, "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	for _, arg := range os.Args {
		if san, ok := strings.CutPrefix(arg, "--tls-san="); ok {
			names = append(names, san)
		}
	}
	files := map[string][]byte{"ca.crt": ca.pem.cert, "ca.key": ca.pem.key}
	for _, c := range []struct {
		file, user, group string
		names             []string
	}{
		{"apiserver", "kube-apiserver", "", names},
		{"apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters", nil},
		{"kubelet", "system:node:" + name, "system:nodes", []string{addr, name}},
	} {
		p, err := ca.issue(c.user, c.group, c.names...)
		if err != nil {
			return err
		}
		files[c.file+".crt"], files[c.file+".key"] = p.cert, p.key
	}
	for _, c := range []struct{ file, server, user, group string }{
		{"admin.kubeconfig", "https://127.0.0.1:6443", "admin", "system:masters"},
		{"controllers.kubeconfig", "https://127.0.0.1:6443", "system:kube-controller-manager", ""},
		{"scheduler.kubeconfig", "https://127.0.0.1:6443", "system:kube-scheduler", ""},
		{"kubelet.kubeconfig", "https://" + addr + ":6443", "system:node:" + name, "system:nodes"},
	} {
		if files[c.file], err = ca.kubeconfig(c.server, c.user, c.group); err != nil {
			return err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	files["accounts.key"] = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := write("/", map[string][]byte{k3sKubeconfig: files["admin.kubeconfig"]}); err != nil {
		return err
	}
	return write(settings, files)
}

func (m *machine) storage(string, string) error {
	return m.start("etcd", "--data-dir="+settings+"/etcd", "--unsafe-no-fsync", "--log-level=warn")
}

func (m *machine) apiServer(addr, _ string) error {
	in := func(name string) string { return filepath.Join(settings, name) }
	err := m.start("kube-apiserver",
		"--etcd-servers=http://127.0.0.1:2379", "--advertise-address="+addr, "--secure-port=6443", "--service-cluster-ip-range="+serviceRange,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth", "--allow-privileged",
		"--client-ca-file="+in("ca.crt"), "--tls-cert-file="+in("apiserver.crt"), "--tls-private-key-file="+in("apiserver.key"),
		"--kubelet-client-certificate="+in("apiserver-kubelet.crt"), "--kubelet-client-key="+in("apiserver-kubelet.key"),
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+in("accounts.key"), "--service-account-signing-key-file="+in("accounts.key"))
	if err != nil {
		return err
	}
	return m.await("the API server is ready", func() error {
		_, err := m.output("kubectl", "--kubeconfig", admin, "get", "--raw", "/readyz")
		return err
	})
}

func (m *machine) controllers(string, string) error {
	in := func(name string) string { return filepath.Join(settings, name) }
	err := m.start("kube-controller-manager",
		"--kubeconfig="+in("controllers.kubeconfig"), "--leader-elect=false", "--use-service-account-credentials",
		"--controllers=*,bootstrapsigner,tokencleaner", "--root-ca-file="+in("ca.crt"), "--service-account-private-key-file="+in("accounts.key"),
		"--cluster-signing-cert-file="+in("ca.crt"), "--cluster-signing-key-file="+in("ca.key"),
		"--allocate-node-cidrs", "--cluster-cidr="+podRange, "--service-cluster-ip-range="+serviceRange)
	if err != nil {
		return err
	}
	return m.start("kube-scheduler", "--kubeconfig="+in("scheduler.kubeconfig"), "--leader-elect=false")
}
