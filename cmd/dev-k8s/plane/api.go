package plane

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"
)

// admin is the kubeconfig's user.
const admin = "dev-admin"

// controllers are those of kube-controller-manager that run. The node lifecycle controller is
// left out: it expects heartbeats that are never sent.
const controllers = "garbage-collector-controller,disruption-controller,namespace-controller,serviceaccount-controller"

// API is a kube-apiserver with its controllers, on an etcd.
type API struct {
	// Folder has the programs, Keys keys and certificates, Logs the programs' logs.
	Folder, Keys, Logs string
	// Addr is its listen address, Etcd the etcd's URL.
	Addr, Etcd string
	// Kubeconfig is the administrator's kubeconfig to write.
	Kubeconfig string
	Log        *slog.Logger

	pki        *pki
	api, kcm   *child
	serverName string
}

// Prepare creates the keys, and returns the TLS config for the etcd.
func (a *API) Prepare(now time.Time) (*tls.Config, error) {
	host, port, err := net.SplitHostPort(a.Addr)
	if err != nil {
		return nil, err
	}
	if a.Keys, err = filepath.Abs(a.Keys); err != nil {
		return nil, err
	}
	if a.pki, err = openPKI(a.Keys, now); err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	a.serverName = "https://" + net.JoinHostPort(host, port)
	err = errors.Join(
		a.pki.server("etcd", ""), a.pki.server("kube-apiserver", host), a.pki.user("etcd-client"),
		a.pki.user(admin, "system:masters"), a.pki.user("system:kube-controller-manager"),
	)
	if err == nil {
		err = errors.Join(
			a.pki.kubeconfig(a.Kubeconfig, a.serverName, admin),
			a.pki.kubeconfig(a.pki.path("kube-controller-manager.kubeconfig"), a.serverName, "system:kube-controller-manager"),
		)
	}
	if err != nil {
		return nil, err
	}
	return a.pki.mutual("etcd")
}

// Start starts the API server and its controllers and waits until both are ready.
func (a *API) Start(ctx context.Context) error {
	a.api = a.child("kube-apiserver", a.apiArgs())
	a.kcm = a.child("kube-controller-manager", a.kcmArgs())
	if err := a.api.begin(ctx); err != nil {
		return err
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	if err := a.api.wait(ctx, a.answers(client, "/readyz")); err != nil {
		return err
	}
	if err := a.kcm.begin(ctx); err != nil {
		return err
	}
	// The controllers create this first; pods need it.
	return a.kcm.wait(ctx, a.answers(client, "/api/v1/namespaces/default/serviceaccounts/default"))
}

// Stop stops the controllers first, and then the API server.
func (a *API) Stop() {
	for _, c := range []*child{a.kcm, a.api} {
		if c != nil {
			c.stop()
		}
	}
}

// URL returns its URL.
func (a *API) URL() string { return a.serverName }

func (a *API) child(name string, args []string) *child {
	return &child{
		name: name, path: filepath.Join(a.Folder, name), args: args, log: filepath.Join(a.Logs, name+".log"), logger: a.Log,
	}
}

func (a *API) apiArgs() []string {
	host, port, _ := net.SplitHostPort(a.Addr) // Prepare has checked it
	args := []string{
		"--etcd-servers=" + a.Etcd, "--storage-media-type=application/json", "--etcd-db-metric-poll-interval=0",
		"--bind-address=" + host, "--secure-port=" + port, "--advertise-address=127.0.0.1",
		"--tls-cert-file=" + a.pki.path("kube-apiserver.crt"), "--tls-private-key-file=" + a.pki.path("kube-apiserver.key"),
		"--client-ca-file=" + a.pki.path("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + a.pki.path("sa.key"), "--service-account-signing-key-file=" + a.pki.path("sa.key"),
		"--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC", "--allow-privileged=true", "--profiling=false",
		// It has no address by which pods could reach it.
		"--endpoint-reconciler-type=none",
		// It would taint new nodes until the node lifecycle controller runs.
		"--disable-admission-plugins=TaintNodesByCondition",
	}
	if strings.HasPrefix(a.Etcd, "https:") {
		args = append(args, "--etcd-cafile="+a.pki.path("ca.crt"),
			"--etcd-certfile="+a.pki.path("etcd-client.crt"), "--etcd-keyfile="+a.pki.path("etcd-client.key"))
	}
	return args
}

func (a *API) kcmArgs() []string {
	return []string{
		"--kubeconfig=" + a.pki.path("kube-controller-manager.kubeconfig"), "--controllers=" + controllers,
		// Each controller runs as its own user: their common user has few rights.
		"--use-service-account-credentials=true",
		"--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000",
	}
}

func (a *API) client() (*http.Client, error) {
	own, err := tls.LoadX509KeyPair(a.pki.path(admin+".crt"), a.pki.path(admin+".key"))
	secure := &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: a.pki.pool(), MinVersion: tls.VersionTLS12}
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: secure}}, err
}

func (a *API) answers(client *http.Client, path string) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.serverName+path, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	}
}
